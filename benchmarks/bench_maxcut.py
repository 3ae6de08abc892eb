"""Value, certificate and time of the Boolean quadratic program against tabu search and a general SDP solver.

Run `python benchmarks/bench_maxcut.py` (about ten minutes); the tables are printed and written to
`benchmarks/results/maxcut.md`. Needs the `bench` dependency group.
"""

import argparse
import time

import cvxpy
import dimod
import numpy as np
from common import table, write
from dwave.samplers import TabuSampler
from threadpoolctl import threadpool_limits

from boolcp.program.bounds import lift
from boolcp.program.maxcut import EFFORTS, maximize_boolean_quadratic, maximize_boolean_rayleigh

SEED = 20270301
TABU_MILLISECONDS = (20, 100, 500)


def residual_grams(d, rng, noise, p=0.5, sides=(30, 40), when=(0, 1, 3, 8)):
    """Yield Grams C = RR' of the residual of a Boolean model after some greedy atoms, unfolded along mode 0."""
    shape = (d, *sides)
    R = noise * rng.standard_normal((d, sides[0] * sides[1]))
    for k in range(9):
        columns = [rng.standard_normal(size) for size in shape]
        columns[k % 3] = (rng.random(shape[k % 3]) < p).astype(float)
        R += np.outer(columns[0], np.outer(columns[1], columns[2]))
    for k in range(max(when) + 1):
        C = R @ R.T
        if k in when:
            yield C
        z = maximize_boolean_rayleigh(C, random_state=k, certify=False, effort="quick").z
        R[z] -= R[z].mean(axis=0)


def adversarial(d, rng):
    """Yield matrices made to be difficult: low rank, symmetric signs, uneven scales, published generators."""
    normal = rng.standard_normal
    for n_columns in (2, 5, int(d**0.5), d // 4, d):
        yield gram(normal((d, n_columns)))
    yield np.eye(d) + 0.05 * gram(normal((d, d))) / d
    X = normal((d, d // 2))
    yield gram(X - X.mean(axis=0))
    yield gram(normal((d, d // 3)) * np.exp(1.5 * normal((d, 1))))
    yield gram(np.vstack([X[: d // 2], 0.01 * normal((d - d // 2, d // 2)) - X[: d - d // 2]]))  # antipodal
    yield gram(normal((d, d // 5)) * (rng.random((d, 1)) < 0.7))  # zero rows
    X = rng.random((d, d // 3)) < 0.1
    yield gram(X - X.mean())
    for density in (1.0, 0.1):  # integer QUBO, entries uniform in [-100, 100]
        yield symmetric(rng.integers(-100, 101, (d, d)) * (rng.random((d, d)) < density))
    for W in (rng.choice([-1.0, 1.0], (d, d)), rng.random((d, d)) < 0.3):  # MAXCUT of dense graphs
        W = symmetric(np.triu(W, 1))
        yield np.diag(W.sum(axis=1)) - W


def gram(X):
    return X @ X.T


def symmetric(upper):
    return np.triu(upper).astype(float) + np.triu(upper, 1).T


def families():
    """Yield the name, matrices and number of repeats of each family."""
    for d, noises, repeats in ((150, (0.1, 1.0, 3.0), 5), (1000, (0.1, 1.0), 2), (3000, (1.0,), 2)):
        rng = np.random.default_rng([SEED, d])
        when = (0, 1, 3, 8) if d < 3000 else (1, 3)
        yield f"residuals, d = {d}", [C for x in noises for C in residual_grams(d, rng, x, when=when)], repeats
    for d, copies, repeats in ((150, 2, 3), (1000, 1, 2)):
        rng = np.random.default_rng([SEED, d, 1])
        yield f"adversarial, d = {d}", [C for _ in range(copies) for C in adversarial(d, rng)], repeats


def timed(function, repeats=1):
    """Return the result and the least processor time in milliseconds, which other work disturbs little."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        result = function()
        times.append(time.process_time() - start)
    return result, 1e3 * min(times)


def slowdown(seconds=0.05):
    """Return wall-clock over processor time right now: 1 on an idle machine, more on a shared one."""
    start, spent = time.perf_counter(), time.process_time()
    while time.perf_counter() - start < seconds:
        pass
    return seconds / max(time.process_time() - spent, 0.1 * seconds)


def tabu(C, milliseconds):
    """Return the value found by the tabu search of dwave-samplers and its processor time.

    Its time limit is wall-clock time, so it is stretched by the slowdown of the moment.
    """
    model = dimod.BinaryQuadraticModel(-C, "BINARY")
    milliseconds = int(milliseconds * slowdown())
    samples, spent = timed(lambda: TabuSampler().sample(model, timeout=milliseconds, num_reads=1, seed=1))
    z = samples.record.sample[0][np.argsort(samples.variables)].astype(bool)
    return z @ C @ z, spent


def ours(solve, C, repeats):
    """Yield name, value, time and certified ratio of each way to call the solver."""
    for effort in EFFORTS:
        result, spent = timed(
            lambda effort=effort: solve(C, random_state=0, certify=False, effort=effort),
            1 if effort == "thorough" else repeats,
        )
        yield effort, result.value, spent, np.nan
    if solve is maximize_boolean_quadratic or len(C) < 1000:
        result, spent = timed(lambda: solve(C, random_state=0), repeats)
        yield "default + certificate", result.value, spent, result.ratio


def compare_values(solve, families, with_tabu):
    """Return a table: share of matrices where a method reaches the best value found by any of them."""
    rows = []
    for name, matrices, repeats in families:
        runs = {}
        for C in matrices:
            outcome = list(ours(solve, C, repeats))
            if with_tabu:
                outcome += [(f"tabu, {limit} ms", *tabu(C, limit), np.nan) for limit in TABU_MILLISECONDS]
            best = max(value for _, value, _, _ in outcome)
            for method, value, spent, ratio in outcome:
                runs.setdefault(method, []).append((1 - value / best, spent, ratio))
        reference = np.median([spent for _, spent, _ in runs["default"]])
        for method, numbers in runs.items():
            gaps, spent, ratios = np.array(numbers).T
            certificate = "" if np.isnan(ratios).all() else f"{np.median(ratios):.3f} ({ratios.min():.3f})"
            row = [f"{name} ({len(matrices)})", method, f"{np.mean(gaps < 1e-9):.0%}", f"{np.mean(gaps < 1e-3):.0%}"]
            row += [f"{gaps.max():.1e}", f"{np.median(spent):.3g}", f"{np.median(spent) / reference:.2g}", certificate]
            print(*row, flush=True)
            rows.append(row)
    head = ["Matrices (number)", "Method", "Best value reached", "Within 0.1 %", "Worst gap", "Median ms"]
    return table([*head, "Time / default", "Certified ratio: median (least)"], rows)


def compare_relaxations():
    """Return a table: certified bound and time against SCS on the same semidefinite program."""
    rows = []
    rng = np.random.default_rng([SEED, 2])
    for d in (20, 50, 100, 150):
        problems = {
            "residual": next(residual_grams(d, rng, 1.0, when=(3,))),
            "Wishart": gram(rng.standard_normal((d, d // 4))),
        }
        for name, C in problems.items():
            A = lift(C) / np.abs(C).max()
            X = cvxpy.Variable(A.shape, PSD=True)
            problem = cvxpy.Problem(cvxpy.Maximize(cvxpy.trace(A @ X)), [cvxpy.diag(X) == 1])
            value, spent_scs = timed(lambda problem=problem: problem.solve(solver="SCS", eps=1e-4))
            value *= np.abs(C).max() / 4
            result, spent = timed(lambda C=C: maximize_boolean_quadratic(C, random_state=0), 5)
            gap, times = (
                f"{result.bound / value - 1:+.1e}",
                [f"{spent:.3g}", f"{spent_scs:.4g}", f"{spent_scs / spent:.0f}"],
            )
            rows.append([d, name, gap, f"{result.ratio:.4f}", *times])
            print(*rows[-1], flush=True)
    head = ["d", "Matrix", "Bound / SCS value - 1", "Certified ratio", "ms, value and bound", "ms, SCS", "SCS / ours"]
    return table(head, rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[150, 1000, 3000], help="sizes of the matrices")
    sizes = parser.parse_args().sizes
    for solve in (maximize_boolean_quadratic, maximize_boolean_rayleigh):
        for d in (30, 20):  # compile before the first timing
            for effort in EFFORTS:
                solve(gram(np.random.default_rng(0).standard_normal((d, d))), random_state=0, effort=effort)
    with threadpool_limits(1):
        groups = [group for group in families() if len(group[1][0]) in sizes]
        quadratic = compare_values(maximize_boolean_quadratic, groups, with_tabu=True)
        semidefinite = [
            (name, [C for C in matrices if np.linalg.eigvalsh(C)[0] > -1e-6 * C.trace()], repeats)
            for name, matrices, repeats in groups
        ]
        rayleigh = compare_values(maximize_boolean_rayleigh, semidefinite, with_tabu=False)
        relaxations = compare_relaxations()
    text = (
        "All methods in one run, one BLAS thread. The best value is the best that any method of the table found. Times "
        "are processor time, the least of a few repeats. Tabu is `TabuSampler` of dwave-samplers with one read; it "
        "stops by wall-clock time, its limit is stretched by the momentary slowdown of the machine, and its time "
        "includes reading the matrix."
    )
    last = "The bound is a close one, which takes most of the time; it is left out from d = 1000 on (10 s)."
    parts = ["# The Boolean quadratic program against tabu search and a general SDP solver", text]
    parts += ["## max z'Cz", quadratic, "## max z'Cz / |z|^2 (positive semidefinite matrices only)", rayleigh, last]
    parts += ["## The bound against the semidefinite program solved by SCS (eps = 1e-4)", relaxations]
    write("maxcut.md", "python benchmarks/bench_maxcut.py", parts, "dwave-samplers", "cvxpy-base", "scs")


if __name__ == "__main__":
    main()
