"""Bits that prefer to agree with their neighbors: cuts and certificates against brute force, graphs, refusals."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse

import boolcp
from boolcp.fit.neighbors import best_cut, near_edges, pieces

CHAIN = np.eye(40, k=1) + np.eye(40, k=-1)


def draw(seed, d=40, noise=0.32, is_scattered=False):
    """Return a tensor with two atoms that are on in episodes along mode 0, or anywhere, and their bits (2, d)."""
    rng = np.random.default_rng(seed)
    X, Z = noise * rng.standard_normal((d, 12, 15)), np.zeros((2, d), dtype=bool)
    Z[0, 5:20], Z[1, 14:32] = True, True
    Z = rng.permuted(Z, axis=1) if is_scattered else Z
    for z in Z:
        V = np.outer(rng.standard_normal(12), rng.standard_normal(15))
        X += np.multiply.outer(z, V / np.linalg.norm(V))
    return X, Z


def fit(X, n_atoms=2, **options):
    return boolcp.BMP(n_atoms, boolean_modes=[0], random_state=0, **options).fit(X).decomposition_


def bits(W):
    return np.array([atom.z for atom in W.atoms])


def n_wrong(W, Z):
    """Return the number of wrong bits of two atoms, in the better order."""
    return min(np.sum(bits(W)[order] != Z) for order in ([0, 1], [1, 0]))


def random_graph(d, rng):
    A = np.triu(rng.random((d, d)) * (rng.random((d, d)) < 0.4), 1)
    return A + A.T


def every(d):
    return np.array(list(product([0.0, 1.0], repeat=d)))


@pytest.mark.parametrize("seed", range(20))
def test_a_cut_is_the_best_of_all_bits(seed):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 11))
    A, cost, strength = random_graph(d, rng), rng.standard_normal(d), 2 * rng.random()
    L = strength * (np.diag(A.sum(axis=1)) - A)
    values = every(d) @ cost + np.einsum("si,ij,sj->s", every(d), L, every(d))
    z = best_cut(cost, scipy.sparse.csr_array(A), strength).astype(float)
    assert z @ cost + z @ L @ z == pytest.approx(values.min(), abs=1e-6)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("strength", [0.3, 15.0])
def test_certificates_hold_against_all_bits(seed, strength):
    rng, d = np.random.default_rng(seed), 11
    X, A = rng.standard_normal((d, 4, 5)), random_graph(d, rng)
    X[3:8] += 1.5 * rng.standard_normal((4, 5))
    W = fit(X, n_atoms=1, adjacency={0: A}, smoothness=strength)
    share, z = W.certify(X, effort="thorough").atoms[0].certificate, W.atoms[0].z
    C, L = X.reshape(d, -1) @ X.reshape(d, -1).T, W.trust.smoothness[0] * (np.diag(A.sum(axis=1)) - A)
    ratio, cut = (np.einsum("si,ij,sj->s", every(d)[1:], M, every(d)[1:]) for M in (C, L))
    best, own = np.max(ratio / every(d)[1:].sum(axis=1) - cut), z @ C @ z / z.sum() - z @ L @ z
    assert 0 <= share <= max(own / best, 0.0) + 1e-9 and (share > 0.3 or strength > 1)
    assert 0 <= W.atoms[0].certificate <= share + 1e-9


def test_neighbors_mend_episodes_and_leave_scattered_bits_alone():
    wrong, sure = np.zeros((2, 2), dtype=int), np.zeros((2, 2))
    for seed in range(4):
        for place, is_scattered in enumerate((False, True)):
            X, Z = draw(seed, is_scattered=is_scattered)
            found = fit(X), fit(X, adjacency={0: "chain"})
            wrong[place] += [n_wrong(W, Z) for W in found]
            sure[place] += [np.mean(np.array(W.bit_confidence()) > 0.95) for W in found]
    assert wrong[0, 1] < 0.7 * wrong[0, 0] and wrong[1, 1] == wrong[1, 0]
    assert sure[0, 1] > 1.05 * sure[0, 0]  # a confidence knows the neighbors


def test_the_smoothness_grows_where_the_noise_is_not_independent():
    root, wrong = np.linalg.cholesky(0.85 ** abs(np.subtract.outer(range(15), range(15)))), np.zeros(2, dtype=int)
    for seed in range(4):
        rng, (_, Z) = np.random.default_rng(seed), draw(seed)
        X = 0.14 * rng.standard_normal((40, 12, 15)) @ root.T
        for z in Z:
            V = np.outer(rng.standard_normal(12), root @ rng.standard_normal(15))
            X += np.multiply.outer(z, V / np.linalg.norm(V))
        wrong += [n_wrong(fit(X), Z), n_wrong(fit(X, adjacency={0: "chain"}), Z)]
    assert wrong[1] < 0.4 * wrong[0]


def test_more_smoothness_gives_fewer_intervals_and_never_raises_the_objective():
    X, _ = draw(1, noise=0.4)
    plain = fit(X)
    counts, variance = [len(plain.events())], plain.trust.sigma**2
    for smoothness in (0.0, 2.0, 8.0):
        W = fit(X, adjacency={0: "chain"}, smoothness=smoothness)
        counts.append(len(W.events()))
        cuts = [np.sum(np.diff(bits(V).astype(int), axis=1) != 0) for V in (W, plain)]
        penalty = 0.9 * smoothness * variance  # the noise level of the fit is known up to its count of free numbers
        assert W.squared_error + penalty * cuts[0] <= plain.squared_error + penalty * cuts[1] + 1e-9
        assert sum(pieces(W, k)[0] for k in range(2)) == counts[-1]
    assert counts[0] == counts[1] and counts == sorted(counts, reverse=True) and counts[-1] < counts[0]


def test_a_graph_is_given_as_a_matrix_or_found_by_positions():
    xarray = pytest.importorskip("xarray")
    X, _ = draw(2)
    first = fit(X, adjacency={0: "chain"})
    for graph in (CHAIN, scipy.sparse.coo_matrix(CHAIN), CHAIN + np.eye(40)):
        assert np.array_equal(bits(fit(X, adjacency={0: graph})), bits(first))
    named = xarray.DataArray(X, dims=("time", "channel", "trial"))
    assert np.array_equal(bits(fit(named, adjacency={"time": "auto"})), bits(first))
    names = [f"E{n}" for n in range(40)]
    named = xarray.DataArray(X, dims=("channel", "time", "trial"), coords={"channel": names})
    order = np.random.default_rng(0).permutation(40)
    mixed = {"channel": (CHAIN[order][:, order], [names[n] for n in order])}  # as find_ch_adjacency of MNE gives it
    assert np.array_equal(bits(fit(named, adjacency=mixed)), bits(first))
    with pytest.raises(ValueError, match="or it and its labels"):
        fit(named, adjacency={"channel": (CHAIN[1:, 1:], names[1:])})
    with pytest.raises(ValueError, match="no positions"):
        fit(named, adjacency={"channel": "auto"})
    rows, columns = np.divmod(np.arange(40), 8)
    placed = named.assign_coords(x=("channel", columns + 0.1 * rows), y=("channel", rows + 0.0))
    W = fit(placed, adjacency={"channel": "auto"}, smoothness=1.0)
    edges = {tuple(map(int, edge[:2])) for edge in dict(W.parameters["adjacency"])[0]["edges"]}
    grid = {(i, j) for i in range(40) for j in range(i) if abs(rows[i] - rows[j]) + abs(columns[i] - columns[j]) == 1}
    line = near_edges(np.outer(np.array([2.0, 0.0, 3.0, 1.0]), [0.0, 25.0]))  # the contacts of a probe
    assert line == [[0, 2, 1], [0, 3, 1], [1, 3, 1]]
    assert best_cut(np.where(np.arange(40) < 9, 1.0, -1.0), scipy.sparse.csr_array(CHAIN), 1e12).all()
    assert {(j, i) for i, j in grid} <= edges and len(edges) <= len(grid) + 30  # with a diagonal in each square


def test_graphs_follow_a_result_into_files_and_parts(tmp_path):
    pytest.importorskip("xarray")
    X, _ = draw(5)
    W = fit(X, adjacency={0: "chain"})
    W.save(tmp_path / "fit.nc")
    loaded = boolcp.load(tmp_path / "fit.nc")
    assert boolcp.BMP(2, **loaded.parameters).fit(X).decomposition_.n_atoms == 2
    assert boolcp.replication(X, loaded, mode=0, n_parts=2, n_jobs=1, random_state=0).cosine.shape == (2, 2)
    shares = [[atom.certificate for atom in V.atoms] for V in (W, loaded.certify(X, effort="quick"))]
    assert shares[0] == pytest.approx(shares[1])
    odds = boolcp.assess(X, loaded, mode=1, n_parts=2, n_jobs=1, random_state=0).trust.odds
    assert np.allclose(odds, W.trust.odds)


REFUSED = {
    "a loss": ({"loss": "huber"}, "squared"),
    "blocks": ({"atom_rank": "block"}, "integer atom_rank"),
    "a real mode": ({"adjacency": {1: "chain"}}, "no atom can be Boolean"),
    "a wrong name": ({"adjacency": {0: "ring"}}, "chain"),
    "a wrong size": ({"adjacency": {0: np.ones((3, 3))}}, "symmetric"),
    "negative": ({"adjacency": {0: -CHAIN}}, "without negative"),
    "no number": ({"adjacency": {0: CHAIN * np.nan}}, "symmetric"),
    "no graph": ({"adjacency": {0: None}}, "symmetric"),
    "no edges": ({"adjacency": {0: {"links": []}}}, "edges"),
    "no entry": ({"adjacency": {0: {"edges": [[0, 99, 1.0]]}}}, "of entries 0 to 39"),
    "no labels": ({"adjacency": {0: (CHAIN, list(range(40)))}}, "and its labels"),
    "no mode": ({"adjacency": CHAIN}, "name the mode"),
    "less than none": ({"smoothness": -1.0}, "smoothness"),
}


@pytest.mark.parametrize("what", [*REFUSED, "gaps"])
def test_what_does_not_go_together_is_refused(what):
    options, words = REFUSED.get(what, ({}, "complete data"))
    X, _ = draw(0)
    X[0, 0, 0] = np.nan if what == "gaps" else 0.0
    with pytest.raises((TypeError, ValueError), match=words):
        fit(X, **{"adjacency": {0: "chain"}} | options)
