"""Neighbors and sessions: wrong bits with and without a graph, shared patterns of several sessions, recordings.

    python benchmarks/bench_neighbors.py regions certificates sessions covariances replication recordings maps

Parts that are left out keep their last table in results/neighbors.md. Choices were made with the seeds from 3000 on;
the tables have those from 5000 on.
"""

import argparse
import warnings
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import scipy.linalg
import scipy.sparse
from common import on_processor, table, write_section
from real_data import LOADERS, data_folder
from scipy.optimize import linear_sum_assignment
from scipy.spatial import KDTree

import boolcp
from boolcp.sessions import session_weights

SEED, N_SEEDS, N_ATOMS = 5000, 10, 3


def grid_graph(rows=8, columns=16):
    """Return the adjacency of a grid of electrodes."""
    lines = [scipy.sparse.diags_array([np.ones(n - 1)] * 2, offsets=[-1, 1], shape=(n, n)) for n in (rows, columns)]
    eyes = [scipy.sparse.eye_array(n) for n in (rows, columns)]
    return scipy.sparse.csr_array(scipy.sparse.kron(lines[0], eyes[1]) + scipy.sparse.kron(eyes[0], lines[1]))


def head_graph(n=128, k=6):
    """Return the adjacency of points spread evenly over a half sphere: the k nearest of each."""
    at = np.arange(n) + 0.5
    height, angle = at / n, np.pi * (1 + 5**0.5) * at
    radius = np.sqrt(1 - height**2)
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle), height], axis=1)
    near = KDTree(points).query(points, k + 1)[1][:, 1:]
    A = scipy.sparse.coo_array((np.ones(n * k), (np.repeat(np.arange(n), k), near.ravel())), (n, n))
    return scipy.sparse.csr_array(((A + A.T) > 0).astype(float))


def region(A, size, rng):
    """Return bits of a region: the `size` nodes that are nearest in the graph to a random one."""
    first = int(rng.integers(A.shape[0]))
    steps = scipy.sparse.csgraph.shortest_path(A, unweighted=True, indices=first)
    return np.isin(np.arange(A.shape[0]), np.lexsort((rng.random(len(steps)), steps))[:size])


def episodes(d, n, length, rng):
    """Return bits of n episodes of about this length."""
    z = np.zeros(d, dtype=bool)
    for start in rng.integers(0, d - length, n):
        z[start : start + int(rng.integers(length // 2, 2 * length))] = True
    return z


def chain_graph(d):
    """Return the adjacency of a chain."""
    return scipy.sparse.csr_array(scipy.sparse.diags_array([np.ones(d - 1)] * 2, offsets=[-1, 1]))


def draw(bits, noise, rng, rho=0.0):
    """Return a tensor (d, 30, 40) with unit patterns that are on along mode 0 by these bits.

    With rho, noise and patterns are smooth along the last mode, an AR(1) process: slices along mode 1 are independent.
    """
    root = np.linalg.cholesky(scipy.linalg.toeplitz(rho ** np.arange(40)))
    X = noise * rng.standard_normal((len(bits[0]), 30, 40)) @ root.T
    for z in bits:
        u, v = rng.standard_normal(30), root @ rng.standard_normal(40)
        X += np.multiply.outer(z.astype(float), np.outer(u, v) / np.linalg.norm(u) / np.linalg.norm(v))
    return X


def n_wrong(W, bits):
    """Return the number of wrong bits in the best assignment of atoms, and of those with a confidence of 95 %."""
    found, sure = np.array([atom.z for atom in W.atoms]), np.array(W.bit_confidence()) > 0.95
    cost = np.array([[np.sum(z != one) for one in found] for z in bits])
    rows, columns = linear_sum_assignment(cost)
    lost = sum(bits[k].sum() for k in set(range(len(bits))) - set(rows.tolist()))
    wrong = found[columns] != np.array(bits)[rows]
    return cost[rows, columns].sum() + lost, wrong[sure[columns]].sum() / max(sure[columns].sum(), 1)


def scattered(size, A, rng):
    """Return bits that are on anywhere."""
    return np.isin(np.arange(A.shape[0]), rng.permutation(A.shape[0])[:size])


def regions():
    """Return the table of wrong bits along a mode with a graph."""
    head, grid, chain = head_graph(), grid_graph(), chain_graph(128)
    mixed = np.random.default_rng(5).permutation(128)
    small, large, few = (lambda A, rng: region(A, 13, rng)), (lambda A, rng: region(A, 51, rng)), partial(scattered, 13)
    many, times = partial(scattered, 51), (lambda A, rng: episodes(128, 3, 12, rng))
    shuffled, low, high, pink = head[mixed][:, mixed], (0.18, 0.2), (0.3, 0.35), (0.12, 0.14)
    cases = {
        "regions of 10 %, head": (head, head, small, 0.0, low),
        "regions of 10 %, grid": (grid, grid, small, 0.0, low),
        "regions of 40 %, head": (head, head, large, 0.0, high),
        "episodes, chain": (chain, chain, times, 0.0, (0.25, 0.3, 0.35)),
        "regions of 10 %, wrong graph": (head, shuffled, small, 0.0, low),
        "scattered 10 %, head": (head, head, few, 0.0, low),
        "scattered 40 %, head": (head, head, many, 0.0, high),
        "scattered 40 %, chain": (chain, chain, many, 0.0, high),
        "regions of 40 %, head, AR(1) noise": (head, head, large, 0.8, pink),
        "episodes, chain, AR(1) noise": (chain, chain, times, 0.8, pink),
        "regions of 40 %, wrong graph, AR(1) noise": (head, shuffled, large, 0.8, pink),
        "scattered 40 %, head, AR(1) noise": (head, head, many, 0.8, pink),
    }
    rows = []
    for name, (true, given, make, rho, levels) in cases.items():
        for noise in levels:
            found = []
            for seed in range(SEED, SEED + N_SEEDS):
                rng = np.random.default_rng(seed)
                bits = [make(true, rng) for _ in range(N_ATOMS)]
                X, row = draw(bits, noise, rng, rho), [sum(z.sum() for z in bits)]
                for options in ({}, {"adjacency": {0: given}}):
                    model = boolcp.BMP(N_ATOMS, boolean_modes=[0], random_state=0, **options)
                    W, seconds = on_processor(lambda model=model, X=X: model.fit(X).decomposition_)
                    row += [*n_wrong(W, bits), np.mean([atom.certificate for atom in W.atoms]), seconds]
                found.append(row)
            ones, a, sure_a, proof_a, time_a, b, sure_b, proof_b, time_b = np.mean(found, axis=0)
            more = [
                f"{100 * sure_a:.1f}, {100 * sure_b:.1f}",
                f"{proof_a:.2f}, {proof_b:.2f}",
                f"{time_b / time_a:.2f}",
            ]
            rows.append([name, noise, f"{100 * a / ones:.1f}", f"{100 * b / ones:.1f}", *more])
    header = ["truth, graph", "noise", "without", "with", "wrong % of sure bits", "certificate", "time"]
    text = (
        f"Three atoms along 128 channels (or times), 30 x 40 patterns of norm one, {N_SEEDS} seeds: wrong bits per 100 "
        "bits that are on, without and with `adjacency` (smoothness chosen by the evidence); then pairs without, with; "
        "processor time with over without. AR(1): noise and patterns with a correlation of 0.8 along the mode of 40."
    )
    return text, table(header, rows)


def certificates(d=12):
    """Return the table of certificates against the best of all bits."""
    every, rows = np.array(list(product([0.0, 1.0], repeat=d)))[1:], []
    for smoothness in (0.5, 2.0, 8.0):
        proved, true = [], []
        for seed in range(SEED, SEED + 20):
            rng = np.random.default_rng(seed)
            X, A = rng.standard_normal((d, 5, 6)), chain_graph(d)
            X[2:7] += rng.standard_normal((5, 6))
            options = {"boolean_modes": [0], "adjacency": {0: A}, "smoothness": smoothness, "random_state": 0}
            W = boolcp.decompose(X, 1, **options).certify(X)
            C = X.reshape(d, -1) @ X.reshape(d, -1).T
            L = W.trust.smoothness[0] * (np.diag(A.sum(axis=1)) - A.toarray())
            ratio, cut = (np.einsum("si,ij,sj->s", every, M, every) for M in (C, L))
            gains = ratio / every.sum(axis=1) - cut
            own = gains[np.flatnonzero((every == W.atoms[0].z).all(axis=1))[0]]
            proved.append(W.atoms[0].certificate)
            true.append(own / gains.max())
        n_false = np.sum(np.array(proved) > np.array(true) + 1e-9)
        rows.append([smoothness, f"{np.mean(proved):.3f}", f"{np.mean(true):.3f}", f"{n_false} of {len(true)}"])
    text = (
        f"{d} x 5 x 6, one atom along a chain of {d}, 20 seeds: share of the best value of z'Cz / |z|^2 - z'Lz that is "
        f"proved (`W.certify`), the true share by all {2**d - 1} bit vectors, and proofs above it."
    )
    return text, table(["smoothness", "proved", "true", "false proofs"], rows)


def draw_sessions(seed, gains):
    """Return five sessions, two of them without a channel, with other noise; their bits and the patterns."""
    import xarray

    rng, names = np.random.default_rng(seed), [f"c{n}" for n in range(24)]
    V = np.stack([np.outer(rng.standard_normal(24), rng.standard_normal(40)) for _ in range(N_ATOMS)])
    V /= np.linalg.norm(V, axis=(1, 2), keepdims=True)
    sessions, bits = {}, {}
    sizes = zip((30, 40, 50, 30, 40), (0.2, 0.2, 0.3, 0.4, 0.4), gains, strict=True)
    for n, (n_trials, noise, gain) in enumerate(sizes):
        Z = rng.random((n_trials, N_ATOMS)) < 0.35
        X = gain * np.einsum("ik,kct->cti", Z, V) + noise * rng.standard_normal((24, 40, n_trials))
        X = xarray.DataArray(X, dims=("channel", "time", "trial"), coords={"channel": names})
        sessions[f"s{n}"], bits[f"s{n}"] = X.drop_sel(channel=f"c{n}") if n in (1, 3) else X, Z
    return sessions, bits, xarray.DataArray(V, dims=("atom", "channel", "time"), coords={"channel": names})


def judge(W, bits, V):
    """Return the share of wrong bits (N, K) of atoms matched by their patterns, and the mean cosine of these."""
    names = W.labels.coords["channel"]
    true = V.sel(channel=names).values
    true = true / np.linalg.norm(true, axis=(1, 2), keepdims=True)
    C = np.abs([[np.sum(atom.dense_block() * one) for atom in W.atoms] for one in true])
    rows, columns = linear_sum_assignment(-C)
    Z = np.zeros(bits.shape, dtype=bool)
    for k, j in zip(rows, columns, strict=True):
        Z[:, k] = W.atoms[j].z
    return np.sum(Z != bits), C[rows, columns].sum() / len(true)


def sessions():
    """Return the table of sessions fitted together, apart, and one after another as if they were one."""
    import xarray

    rows = []
    for text, gains in {"equal": (1, 1, 1, 1, 1), "0.7 to 1.4": (0.7, 1.4, 1, 1, 1.2)}.items():
        found = {
            "fit_sessions": [],
            "separate fits": [],
            "concatenated, common channels": [],
            "left out, transform": [],
        }
        for seed in range(SEED, SEED + N_SEEDS):
            data, bits, V = draw_sessions(seed, gains)
            n = sum(Z.size for Z in bits.values())
            model = boolcp.fit_sessions(data, N_ATOMS, random_state=0)
            cosine = judge(model.decomposition_, np.vstack(list(bits.values())), V)[1]
            found["fit_sessions"].append([sum(judge(model.sessions_[s], bits[s], V)[0] for s in data) / n, cosine])
            options = {"boolean_modes": ["trial"], "random_state": 0}
            parts = [judge(boolcp.decompose(data[s], N_ATOMS, **options), bits[s], V) for s in data]
            found["separate fits"].append([sum(part[0] for part in parts) / n, np.mean([part[1] for part in parts])])
            whole = xarray.concat(list(data.values()), "trial", join="inner")
            wrong, cosine = judge(boolcp.decompose(whole, N_ATOMS, **options), np.vstack(list(bits.values())), V)
            found["concatenated, common channels"].append([wrong / n, cosine])
            total, near = 0, []
            for s in ("s0", "s2", "s4"):  # those with all channels, by patterns of the other four
                others = boolcp.fit_sessions({t: X for t, X in data.items() if t != s}, N_ATOMS, random_state=0)
                W = others.decomposition_
                new = data[s].sel(channel=W.labels.coords["channel"])
                Z = np.asarray(others.transform(new, mode="trial")) > 0.5
                atoms = tuple(replace(atom, z=z) for atom, z in zip(W.atoms, Z.T, strict=True))
                wrong, cosine = judge(replace(W, shape=new.shape, atoms=atoms), bits[s], V)
                total, near = total + wrong, [*near, cosine]
            n_left = sum(bits[s].size for s in ("s0", "s2", "s4"))
            found["left out, transform"].append([total / n_left, np.mean(near)])
        for name, values in found.items():
            wrong, cosine = np.mean(values, axis=0)
            rows.append([text, name, f"{100 * wrong:.1f}", f"{cosine:.3f}"])
    text = (
        "Five sessions of 30 to 50 trials, 24 x 40 patterns of norm one, noise 0.2, 0.2, 0.3, 0.4, 0.4, two sessions "
        f"without one channel each; three atoms, {N_SEEDS} seeds. Wrong bits in %, cosine of patterns with the truth."
    )
    return text, table(["amplitudes", "fit", "wrong bits, %", "cosine"], rows)


def unlike(seed, kind):
    """Return five sessions whose noise has other covariances, their bits, and the patterns (channel, time)."""
    import xarray

    rng, lags = np.random.default_rng(seed), np.abs(np.subtract.outer(np.arange(40), np.arange(40)))
    places = rng.standard_normal((24, 3))
    places /= np.linalg.norm(places, axis=1, keepdims=True)
    near = np.exp(-np.linalg.norm(places[:, None] - places, axis=-1) / 0.7)
    smooth, root, V = np.linalg.cholesky(near), np.linalg.cholesky(0.8**lags), []
    for _ in range(N_ATOMS):
        u, v = smooth @ rng.standard_normal(24), root @ rng.standard_normal(40)
        V.append(np.outer(u / np.linalg.norm(u), v / np.linalg.norm(v)))
    data, bits = {}, {}
    for n, (size, d) in enumerate(zip((0.2, 0.2, 0.25, 0.3, 0.3), (30, 35, 40, 45, 50), strict=True)):
        C, T = near / 2 + np.eye(24) / 2, (0.5 + 0.1 * n if kind == "time" else 0.8) ** lags
        waves = 2 * (kind == "waves") * (smooth @ rng.standard_normal((24, 2)))
        mixing = np.eye(24) + 0.6 * (kind == "mixing") * rng.standard_normal((24, 24)) / np.sqrt(24)
        gains = np.exp(0.8 * (kind == "channels") * rng.standard_normal(24))[:, None] * mixing
        C = gains @ (C + waves @ waves.T) @ gains.T
        C = C * (12 / np.linalg.eigvalsh(C)[:18].sum() if kind == "waves" else 24 / np.trace(C))
        Z = rng.random((d, N_ATOMS)) < 0.4
        noise = np.einsum(
            "cd,st,dti->csi", np.linalg.cholesky(C), np.linalg.cholesky(T), rng.standard_normal((24, 40, d))
        )
        X, bits[f"s{n}"] = size * noise + np.einsum("kct,ik->cti", V, Z), Z
        data[f"s{n}"] = xarray.DataArray(X, {"channel": [f"c{c}" for c in range(24)]}, ("channel", "time", "trial"))
    truth = xarray.DataArray(np.array(V), {"channel": data["s0"]["channel"]}, ("atom", "channel", "time"))
    return data, bits, truth


def covariances():
    """Return the table of sessions whose noise has other covariances, by one covariance, one for each, and apart."""
    rows = []
    for kind in ("size alone", "time", "mixing", "channels", "waves"):
        found = {name: [] for name in ("white", "one for all", "one for each", "separate fits")}
        for seed in range(SEED, SEED + N_SEEDS):
            data, bits, V = unlike(seed, kind)
            whole, n = (
                boolcp.prepare.join(list(data.values()), "trial", list(data), is_sessions=True),
                sum(map(np.size, bits.values())),
            )
            how = {"boolean_modes": ["trial"], "random_state": 0}
            for name, noise in (("white", "white"), ("one for all", "separable")):
                fit = partial(boolcp.BMP(N_ATOMS, noise=noise, **how).fit, whole, weights=session_weights(whole))
                model, seconds = on_processor(fit)
                wrong, cosine = judge(model.decomposition_, np.vstack(list(bits.values())), V)
                found[name].append([wrong / n, cosine, seconds])
            fit = partial(boolcp.fit_sessions, data, N_ATOMS, noise="separable", random_state=0)
            model, seconds = on_processor(fit)
            wrong, cosine = judge(model.decomposition_, np.vstack(list(bits.values())), V)
            found["one for each"].append([wrong / n, cosine, seconds])
            fits = [
                on_processor(partial(boolcp.decompose, X, N_ATOMS, noise="separable", **how)) for X in data.values()
            ]
            parts = [judge(W, Z, V) for (W, _), Z in zip(fits, bits.values(), strict=True)]
            wrong, cosine = np.sum([part[0] for part in parts]), np.mean([part[1] for part in parts])
            found["separate fits"].append([wrong / n, cosine, sum(seconds for _, seconds in fits)])
        for name, values in found.items():
            wrong, cosine, seconds = np.mean(values, axis=0)
            rows.append([kind, name, f"{100 * wrong:.1f}", f"{cosine:.3f}", f"{seconds:.2f}"])
    text = (
        "Five sessions of 30 to 50 trials, 24 x 40 smooth patterns of norm one, smooth noise of other size in each, "
        "and in most rows another correlation in time, another mixing, other gains of channels, or two strong waves "
        "from other places. "
        f"Three atoms, {N_SEEDS} seeds. The covariance of the noise: none, one for all, one for each session."
    )
    return text, table(["covariances differ by", "covariance", "wrong bits, %", "cosine", "seconds"], rows)


def replication():
    """Return the table of atoms that come back in quarters and in single sessions, one atom more than there are."""
    found = {True: [], False: []}
    for seed in range(SEED, SEED + N_SEEDS):
        data, _, V = draw_sessions(seed, (1, 1, 1, 1, 1))
        common = {name: X.drop_sel(channel=["c1", "c3"], errors="ignore") for name, X in data.items()}
        model = boolcp.fit_sessions(common, N_ATOMS + 1, random_state=0)
        X = boolcp.prepare.join(list(common.values()), "trial", list(common), is_sessions=True)
        weights = session_weights(X)
        known = boolcp.assess(X, model, weights=weights, random_state=0, n_jobs=1).trust
        true = V.sel(channel=model.decomposition_.labels.coords["channel"]).values
        true = true / np.linalg.norm(true, axis=(1, 2), keepdims=True)
        for k, atom in enumerate(model.decomposition_.atoms):
            is_true = max(abs(np.sum(atom.dense_block() * one)) for one in true) >= 0.7
            found[bool(is_true)].append([known.replication[k], *(known.by_session[k] >= 0.7)])
    rows = []
    for is_true, values in found.items():
        share, *alone = 100 * np.mean(values, axis=0) if values else np.zeros(6)
        name = "true" if is_true else "not true"
        rows.append([name, len(values), f"{share:.0f}", f"{np.mean(alone):.0f}", *(f"{one:.0f}" for one in alone)])
    text = (
        f"The same sessions without the two channels, one atom too many, {N_SEEDS} seeds: % of fits to three quarters "
        "of all trials, and of fits to one session alone (noise 0.2, 0.2, 0.3, 0.4, 0.4), in which an atom comes back."
    )
    return text, table(["atoms", "number", "quarters", "sessions", "s0", "s1", "s2", "s3", "s4"], rows)


def n_runs(W):
    """Return the mean number of intervals in which an atom is on."""
    return np.mean([np.sum(np.diff(np.append(0, atom.z.astype(int))) == 1) for atom in W.atoms])


def held_out(X, Z, n_sweeps=50):
    """Return the share of variance of X that atoms with these bits (d, K) along mode 1 explain, real parts fitted."""
    X, Z = np.moveaxis(X, 1, 0), Z[:, Z.any(axis=0)].astype(float)
    each = np.linalg.lstsq(Z, X.reshape(len(X), -1), rcond=None)[0].reshape(-1, *X.shape[1:])
    V, G, P = np.linalg.svd(each, full_matrices=False)[2][:, 0].T, Z.T @ Z, np.einsum("iab,ik->kab", X, Z)
    for _ in range(n_sweeps):
        U = np.linalg.lstsq(G * (V.T @ V), np.einsum("kab,bk->ka", P, V), rcond=None)[0].T
        V = np.linalg.lstsq(G * (U.T @ U), np.einsum("kab,ak->kb", P, U), rcond=None)[0].T
    return (2 * np.einsum("kab,ak,bk->", P, U, V) - np.sum(G * (U.T @ U) * (V.T @ V))) / np.sum(X**2)


def recordings():
    """Return the table of intervals and of agreement of halves, along the second mode of the recordings."""
    rows = []
    for name, load in LOADERS.items():
        X = load()
        split, row = 2 if X.shape[2] >= 10 else 0, [name, "x".join(map(str, X.shape))]
        halves = [X.take(range(start, X.shape[split], 2), axis=split) for start in (0, 1)]
        results, chain = [], {"adjacency": {1: "chain"}}
        for options in ({}, chain, chain | {"smoothness": 1000.0}):
            model = boolcp.BMP(4, boolean_modes=[1], random_state=0, certify=False, **options)
            W, seconds = on_processor(lambda model=model, X=X: model.fit(X).decomposition_)
            first, second = ([atom.z for atom in model.fit(half).decomposition_.atoms] for half in halves)
            same = np.array([[np.sum(a & b) / max(np.sum(a | b), 1) for b in second] for a in first])
            other = np.mean([held_out(X, np.array(z).T) for X, z in zip(halves, (second, first), strict=True)])
            results.append([n_runs(W), same[linear_sum_assignment(-same)].mean(), seconds, W.explained(), other])
        runs, same, seconds, shares, others = zip(*results, strict=True)
        row += [", ".join(f"{one:.1f}" for one in runs), ", ".join(f"{one:.2f}" for one in same)]
        row += [", ".join(f"{one:.3f}" for one in shares), ", ".join(f"{one:.4f}" for one in others)]
        rows.append([*row, f"{seconds[1] / seconds[0]:.2f}"])
    text = (
        "Four atoms, Boolean along the second mode (time, or frequency of anesthesia), a chain: intervals per atom; "
        "overlap (Jaccard) of bits between fits to even and odd slices of the third mode (of anesthesia, channels), "
        "matched; share of variance; that of one half by the bits of the other (held out), real parts fitted. Each "
        "without a graph, with it, and with a smoothness of 1000; processor time with over without."
    )
    header = ["recording", "shape", "intervals", "halves", "explained", "held out", "time"]
    return text, table(header, rows)


def maps():
    """Return the table of regions along channels, on the recordings whose electrodes are known."""
    import xarray

    from boolcp.fit.neighbors import pieces

    folder = data_folder()
    table_of = np.genfromtxt(folder / "neurotycho_maps" / "electrodes_Chibi.csv", delimiter=",", names=True, dtype=None)
    chibi = np.stack([np.delete(np.asarray(table_of[axis], float), 62) for axis in ("x_px", "y_px")])
    eeg = boolcp.open_tensor(folder / "eeglab_sample" / "eeglab_data.set")
    heads = np.stack([eeg[axis].values for axis in ("x", "y", "z")])
    rows = []
    for name, places in (("anesthesia", chibi), ("eeglab_epochs", heads)):
        values = LOADERS[name]()
        split, kind = 2 if values.shape[2] >= 10 else 1, "EEG" if len(places) == 3 else "ECoG"
        coords = {axis: ("channel", one) for axis, one in zip("xyz", places, strict=False)}
        X = xarray.DataArray(values, coords, ("channel", "a", "b"), name=kind)
        halves = [X.isel({X.dims[split]: slice(start, None, 2)}) for start in (0, 1)]
        row = [name, "x".join(map(str, X.shape))]
        for options in ({}, {"adjacency": {"channel": "auto"}}):
            model = boolcp.BMP(4, boolean_modes=["channel"], random_state=0, certify=False, **options)
            W, seconds = on_processor(lambda model=model, X=X: model.fit(X).decomposition_)
            first, second = ([atom.z for atom in model.fit(half).decomposition_.atoms] for half in halves)
            same = np.array([[np.sum(a & b) / max(np.sum(a | b), 1) for b in second] for a in first])
            n_regions = np.mean([pieces(W, k)[0] for k in range(W.n_atoms)])
            ones = np.mean([atom.n_ones for atom in W.atoms])
            agreement = same[linear_sum_assignment(-same)].mean()
            row += [f"{n_regions:.1f}", f"{ones:.0f}", f"{agreement:.2f}", f"{W.explained():.3f}", f"{seconds:.2f}"]
        rows.append(row)
    text = (
        "Four atoms, Boolean along channels, neighbors by their positions (known for two of the six recordings): "
        "regions per atom, channels that are on, overlap of bits between fits to halves of the entries of another mode "
        "(trials, or frequencies of anesthesia), share of variance, processor seconds; without, then with `adjacency`."
    )
    heads = ["regions", "on", "halves", "explained", "s"]
    return text, table(["recording", "shape", *heads, *(f"{head}, with" for head in heads)], rows)


PARTS = {
    "regions": regions,
    "certificates": certificates,
    "sessions": sessions,
    "covariances": covariances,
    "replication": replication,
    "recordings": recordings,
    "maps": maps,
}


def main():
    """Write the tables of the parts that are asked for; the others keep theirs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], default=list(PARTS))
    warnings.simplefilter("ignore", boolcp.BoolcpWarning)
    titles = ["Neighbors and sessions", *map(str.capitalize, PARTS)]
    for name in parser.parse_args().parts or PARTS:
        parts = [name.capitalize(), *PARTS[name]()]
        write_section("neighbors.md", titles, f"python benchmarks/bench_neighbors.py {name}", parts)


if __name__ == "__main__":
    main()
