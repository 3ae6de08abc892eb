"""A fit in a process of its own, whose memory is its own: `python scale_child.py` with a job in JSON."""

import json
import resource
import subprocess
import sys
import time

import numpy as np

import boolcp
from boolcp.storage import lazy, slabs


def child_command(**job):
    """Return the command of a fit in a fresh process."""
    return [sys.executable, __file__, json.dumps(job)]


def child(**job):
    """Run a fit in a fresh process and return what it measured."""
    done = subprocess.run(child_command(**job), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def run_child(job):
    """Fit as the job says; print passes, seconds and peak memory."""
    X = np.load(job["path"]) if job.get("load") else boolcp.open_tensor(job["path"], lazy=True)
    before = peak_memory()
    if "n_splits" in job:
        select(X, job, before)
        return
    options = {"boolean_modes": job.get("modes"), "max_memory": job.get("max_memory"), **job.get("options", {})}
    model = boolcp.BMP(job["n_atoms"], random_state=0, **options)
    start, busy = time.perf_counter(), time.process_time()
    model.fit(X, checkpoint=job.get("checkpoint"))
    measured = {
        "seconds": time.perf_counter() - start,
        "busy": time.process_time() - busy,
        "before": before,
        "peak": peak_memory(),
        "passes": model.n_passes_,
    }
    model.decomposition_.save(job["result"], overwrite=True)
    print(json.dumps(measured))


def select(X, job, before):
    """Choose the number of atoms as the job says; print the errors, passes, seconds and peak memory."""
    n_passes, one_pass = [], slabs.run_pass
    lazy.run_pass = lambda *args: n_passes.append(1) or one_pass(*args)
    start, busy = time.perf_counter(), time.process_time()
    how = {"splits": job["n_splits"], "random_state": 0, "max_memory": job["max_memory"]}
    found = boolcp.select_n_atoms(X, job["n_atoms"], **how)
    measured = {
        "chosen": found.n_atoms,
        "errors": found.mean.tolist(),
        "seconds": time.perf_counter() - start,
        "busy": time.process_time() - busy,
        "before": before,
        "peak": peak_memory(),
        "passes": len(n_passes) + job["n_splits"],  # and one for the errors of each split
    }
    print(json.dumps(measured))


def peak_memory():
    """Return the largest resident memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    run_child(json.loads(sys.argv[1]))
