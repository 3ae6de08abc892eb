"""Faults: workers and processes that are killed in the middle of a fit, and checkpoints that are cut short."""

import signal
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import psutil
from common import table
from scale_child import child, child_command
from scale_data import difference, write_npy

import boolcp


def faults(folder, small):
    """Return the tables of killed workers, a changing cluster, killed processes and truncated checkpoints."""
    return (
        "# Faults",
        killed_workers(folder, small),
        changing_cluster(folder, small),
        killed_processes(folder, small),
        truncated_checkpoints(folder, small),
    )


def killed_workers(folder, small):
    """Return the text on a fit in whose middle workers are killed twice."""
    from distributed import Client, LocalCluster

    shape = (200, 200, 200) if small else (400, 400, 400)
    path = folder / "workers.npy"
    write_npy(path, shape, 5)
    rows = []
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster):
        X = boolcp.open_tensor(path, lazy=True)
        start = time.perf_counter()
        reference = boolcp.BMP(5, random_state=0).fit(X)
        seconds = time.perf_counter() - start
        for trial in range(3):
            killed = []

            def kill(killed=killed, trial=trial):
                for wait in (0.3, 0.4):
                    time.sleep(wait * seconds)
                    workers = [worker for worker in cluster.workers.values() if worker.status.name == "running"]
                    process = psutil.Process(workers[(trial + len(killed)) % len(workers)].pid)
                    process.send_signal(signal.SIGKILL)
                    killed.append(process.pid)

            killer = threading.Thread(target=kill)
            killer.start()
            model = boolcp.BMP(5, random_state=0).fit(X)
            killer.join()
            bits, reals = difference(model.decomposition_, reference.decomposition_)
            rows.append([trial, len(set(killed)), bits, f"{reals:.1e}"])
    path.unlink()
    head = ["fit", "workers killed", "bits", "reals"]
    return (
        f"**Workers.** {' x '.join(map(str, shape))} on disk, 5 atoms, 2 workers; two are killed by SIGKILL in the "
        f"middle of the fit, and the difference to the undisturbed fit is in the table.\n\n{table(head, rows)}"
    )


def changing_cluster(folder, small):
    """Return the text on fits during which a cluster grows and shrinks, by hand and by itself."""
    from distributed import Client, LocalCluster

    shape = (200, 100, 100) if small else (400, 300, 200)
    path, rows = folder / "changing.npy", []
    write_npy(path, shape, 4)
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster):
        X = boolcp.open_tensor(path, lazy=True)
        reference = boolcp.BMP(4, random_state=0).fit(X)
        for how in ("`cluster.scale(3)`, `cluster.scale(1)` in turn", "`cluster.adapt(minimum=1, maximum=3)`"):
            is_over, seen = threading.Event(), []

            def change(how=how, is_over=is_over, seen=seen):
                while not is_over.is_set():
                    if "scale" in how:
                        cluster.scale(1 if len(seen) // 8 % 2 else 3)
                    seen.append(len(cluster.scheduler.workers))
                    is_over.wait(0.5)

            if "adapt" in how:
                cluster.adapt(minimum=1, maximum=3, interval="200ms", wait_count=1, target_duration="50ms")
            watcher = threading.Thread(target=change)
            watcher.start()
            found = [boolcp.BMP(4, random_state=0).fit(X) for _ in range(3)]
            is_over.set()
            watcher.join()
            differences = [difference(model.decomposition_, reference.decomposition_) for model in found]
            bits, reals = (max(values) for values in zip(*differences, strict=True))
            rows.append([how, 3, f"{min(seen)} to {max(seen)}", bits, f"{reals:.1e}"])
            print(*rows[-1], flush=True)
    path.unlink()
    head = ["how", "fits", "workers", "bits", "reals"]
    return (
        f"**A cluster that grows and shrinks.** {' x '.join(map(str, shape))} on disk, 4 atoms, beginning with one "
        f"worker; differences to a fit on one worker.\n\n{table(head, rows)}"
    )


def killed_processes(folder, small):
    """Return the text on a fit that is killed 20 times and resumed each time."""
    shape, n_kills = ((60, 70, 80), 3) if small else ((150, 150, 150), 20)
    path, checkpoint, result = folder / "killed.npy", folder / "killed.checkpoint", folder / "killed.nc"
    write_npy(path, shape, 9, noise=2.0)
    job = {"path": str(path), "n_atoms": 9, "result": str(result)}
    child(**job)
    start = time.perf_counter()
    child(**job)
    seconds = time.perf_counter() - start  # of the whole process, imports included
    reference = boolcp.load(result)
    rng = np.random.default_rng(0)
    n_killed, n_ended = 0, 0
    while n_killed < n_kills:
        process = subprocess.Popen(
            child_command(**job, checkpoint=str(checkpoint)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            process.wait(timeout=rng.uniform(0.4, 1.0) * seconds)
            checkpoint.unlink(missing_ok=True)  # it ended before it was killed: once more from the beginning
            n_ended += 1
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            n_killed += 1
    child(**job, checkpoint=str(checkpoint))
    bits, reals = difference(boolcp.load(result), reference)
    return (
        f"**The process.** {' x '.join(map(str, shape))}, 9 atoms: killed by SIGKILL {n_killed} times at random "
        f"moments and resumed each time (fits that ended before they were killed: {n_ended}). Difference to the "
        f"undisturbed fit: {bits} bits, {reals:.1e} in the reals."
    )


def truncated_checkpoints(folder, small):
    """Return the text on checkpoints cut at every tenth of their length."""
    path, result = folder / "cut.npy", folder / "cut.nc"
    write_npy(path, (60, 70, 80), 4)
    job = {"path": str(path), "n_atoms": 4, "result": str(result)}
    child(**job)
    reference = boolcp.load(result)
    base = folder / "whole.checkpoint"
    child(**job, checkpoint=str(base))
    whole = {file.name.removeprefix(base.name): file.read_bytes() for file in folder.glob(base.name + "*")}
    rows = []
    for tenth in range(0, 10):
        cut = folder / f"cut{tenth}.checkpoint"
        for suffix, content in whole.items():
            length = len(content) * tenth // 10 if suffix == "" else len(content)
            Path(str(cut) + suffix).write_bytes(content[:length])
        model = boolcp.BMP.resume(cut, boolcp.open_tensor(path, lazy=True))
        bits, reals = difference(model.decomposition_, reference)
        rows.append([f"{tenth}/10", bits, f"{reals:.1e}"])
    return "**Truncated checkpoints.** Resumed from the one before.\n\n" + table(["length", "bits", "reals"], rows)
