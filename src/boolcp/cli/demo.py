"""The work of `boolcp demo`: a simulated recording goes the whole way, from files to a saved result and a figure."""

import time

import numpy as np

from boolcp.cli.fitting import LOG, RESULT, SUMMARY, check_folder, write_result
from boolcp.cli.show import shape_text

CONDITION, LABEL, RATE, N_ATOMS = "anesthesia", "Anesthetized", 100, 3


def run_demo(out, *, seed=0, is_forced=False):
    """Simulate, write, read, prepare, fit, save, draw, and say on the terminal what was done and found."""
    import boolcp
    from boolcp import prepare

    check_folder(out, is_forced=is_forced)
    start = time.perf_counter()
    say = _Clock(start).say
    simulation = boolcp.datasets.simulate_ecog(n_trials=12, random_state=seed)
    say(f"simulated {simulation}")
    simulation.write_neurotycho(out / "recording", overwrite=is_forced)
    say(f"wrote {out / 'recording'}, in the layout of a NeuroTycho recording")
    X = boolcp.open_tensor(out / "recording", condition=LABEL, progress=True)
    X = prepare.cut_trials(prepare.resample(prepare.common_average(X), RATE), simulation.trial_ms)
    say(f"read and prepared {shape_text(X)}: {'; '.join(X.attrs['preparation'])}")
    before = time.perf_counter()
    model = boolcp.BMP(N_ATOMS, random_state=seed, verbose=1).fit(X)
    say("decomposed")
    write_result(model, X, out, seconds=time.perf_counter() - before, is_forced=is_forced)
    W = boolcp.load(out / RESULT)
    print(f"\n{W.summary()}\n")
    for name, line in compare(W, simulation.truth[CONDITION], simulation.patterns).items():
        print(f"  {name}: {line}")
    draw(W, out / "atoms.png")
    print(f"\nThe result is in {out}: {RESULT}, {SUMMARY}, {LOG}, atoms.png")
    print(f"In Python: boolcp.load('{out / RESULT}'). The same from the command:")
    options = f"--condition {LABEL} --reference average --resample {RATE} --bin-ms {simulation.trial_ms}"
    print(f"  boolcp fit {out / 'recording'} {options} -k {N_ATOMS} --seed {seed} -o result")


class _Clock:
    """Prints lines with the seconds since the start."""

    def __init__(self, start):
        self.start = start

    def say(self, text):
        print(f"[{time.perf_counter() - self.start:5.1f} s] {text}", flush=True)


def compare(W, truth, names):
    """Return for each true pattern what was found of it, as text."""
    lines = {}
    for atom, name in zip(truth.atoms, names, strict=True):
        step = len(atom.z) // W.shape[atom.mode]
        z = atom.z[::step]
        wrong = [int(np.sum(z != found.z)) for found in W.atoms if found.mode == atom.mode]
        where = f"Boolean in {truth.mode_name(atom.mode)}, {z.sum()} of {len(z)} on"
        lines[name] = f"{where}: " + (f"found with {min(wrong)} wrong bits" if wrong else "not found")
    return lines


def draw(W, path):
    """Draw one row for each atom, one column for each mode, and save the figure."""
    from boolcp.extras import load_extra
    from boolcp.io.atomic import replacing

    load_extra("matplotlib", "plot").use("Agg")
    pyplot = load_extra("matplotlib.pyplot", "plot")
    figure, rows = pyplot.subplots(
        W.n_atoms, W.ndim, figsize=(11, 2.2 * W.n_atoms), squeeze=False, layout="constrained"
    )
    coords = {} if W.labels is None else W.labels.coords
    for k, (atom, axes) in enumerate(zip(W.atoms, rows, strict=True)):
        for mode, ax in enumerate(axes):
            values = W.factors[mode][:, k] * (1 if mode == atom.mode else np.sqrt(W.shape[mode]))
            at = coords.get(W.mode_name(mode), np.arange(W.shape[mode]))
            if mode == atom.mode:
                ax.fill_between(at, values, step="mid", color="tab:orange")
            else:
                ax.plot(at, values, color="tab:blue", linewidth=1)
                ax.axhline(0, color="0.8", linewidth=0.5, zorder=0)
            if mode == 0:
                ax.set_ylabel(f"atom {k}")
            if k == W.n_atoms - 1:
                ax.set_xlabel(W.mode_name(mode))
    with replacing(path, overwrite=True) as temporary:
        figure.savefig(temporary, dpi=120)
    pyplot.close(figure)
