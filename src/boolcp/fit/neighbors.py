"""Bits that prefer to agree with their neighbors in a graph: the loss plus lambda sum over edges w_ij (z_i - z_j)^2.

Sweeps decide the real parts as always and the bits of one atom, given everything else, by a minimum cut, exactly.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse
from scipy.sparse.csgraph import breadth_first_order, connected_components, laplacian, maximum_flow

from boolcp import checks
from boolcp.contractions import khatri_rao
from boolcp.fit.sweep import noise_variance, sweep
from boolcp.plotting.mode_labels import is_unordered, positions_of
from boolcp.result.atoms import BooleanCP
from boolcp.result.columns import Columns
from boolcp.result.labels import Labels
from boolcp.storage.protocol import Storage

MULTIPLE = 14.0  # lambda times the mean degree; by regions, grids and episodes of the seeds 3000 to 3023
CLEARLY = 8.0  # log evidence for neighbors that counts; bits without any order reach it in less than 0.5 %
TRIED = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # lambda times the mean degree, for the evidence
FIELDS = np.linspace(-8, 8, 33)  # constants of an atom, for the evidence
N_SWEEPS = 30  # at most
LARGEST = 2**30  # sum of the integer capacities of a cut
FAR = 2.5  # times the median length of an edge: no neighbors, but two ends of the rim; not tuned

Graph = Any  # the symmetric adjacency matrix of a mode, scipy.sparse


def read_graphs(adjacency: Any, shape: tuple[int, ...], labels: Labels | None = None) -> dict[int, Graph]:
    """Return the adjacency matrix of each mode: a matrix, one with names, "chain", "auto" or {"edges": ..}."""
    found, empty = {}, BooleanCP(shape, labels=labels)
    for name, given in dict(adjacency or {}).items():
        mode = checks.check_mode(name, len(shape), None if labels is None else labels.dims, name="adjacency")
        d, what = shape[mode], f"adjacency along mode {name!r}"
        if isinstance(given, str):
            checks.check_choice(given, what, ("chain", "auto"))
            places = None if given == "chain" else positions_of(empty, mode)
            if given == "auto" and places is None and is_unordered(empty, mode):
                raise ValueError(f"{what}: the data have no positions there (coordinates x, y). Add them, or a matrix.")
            given = {"edges": [[i, i + 1, 1.0] for i in range(d - 1)] if places is None else near_edges(places)}
        try:
            if isinstance(given, tuple):  # of MNE: the names of the rows, too
                rows = (
                    [list(given[1]).index(label) for label in labels.coords[labels.dims[mode]].tolist()]
                    if labels
                    else []
                )
                given = scipy.sparse.csr_array(given[0])[rows][:, rows]
            if isinstance(given, Mapping):
                i, j, weight = np.array(given["edges"], dtype=float).reshape(-1, 3).T
                given = scipy.sparse.coo_array((weight, (i.astype(int), j.astype(int))), (d, d))
                given = given + given.T
            A = scipy.sparse.csr_array(given, dtype=float)
            is_good = A.shape == (d, d) and np.isfinite(A.data).all() and (A.data >= 0).all() and not abs(A - A.T).max()
        except (KeyError, TypeError, ValueError):
            is_good = False
        if not is_good:
            kinds = f"a symmetric matrix of shape {(d, d)} without negative entries (or it and its labels), 'chain'"
            raise ValueError(f"{what} must be {kinds}, 'auto' or edges [i, j, weight] of entries 0 to {d - 1}.")
        A = (A - scipy.sparse.diags_array(A.diagonal())).tocsr()  # MNE counts a channel among its neighbors
        A.eliminate_zeros()
        found[mode] = A
    return found


def near_edges(places: np.ndarray) -> list[list[float]]:
    """Return the edges [i, j, 1] of a Delaunay triangulation of positions (d, 2), or of a line; none is very long."""
    from scipy.spatial import Delaunay

    known = np.flatnonzero(np.isfinite(places).all(axis=1))
    away = places[known] - places[known[:1]]
    _, sizes, axes = np.linalg.svd(away, full_matrices=False)
    if len(known) > 1 and sizes[1] <= 1e-6 * sizes[0]:  # one line, as of a probe: no triangles
        order = np.argsort(away @ axes[0], kind="stable")
        pairs = [np.stack([order[:-1], order[1:]], axis=1)]
    else:
        corners = Delaunay(places[known]).simplices if len(known) > 3 else np.zeros((0, 3), dtype=int)
        pairs = [corners[:, [0, 1]], corners[:, [1, 2]], corners[:, [0, 2]]]
    edges = np.unique(np.sort(np.vstack(pairs), axis=1), axis=0)
    lengths = np.linalg.norm(np.diff(places[known][edges], axis=1)[:, 0], axis=1)
    return [[*map(float, known[edge]), 1.0] for edge in edges[lengths <= FAR * np.median(lengths)]]


def plain_graphs(graphs: Mapping[int, Graph]) -> list[Any]:
    """Return graphs as lists of edges, which files can hold and `read_graphs` reads."""
    parts = [(mode, scipy.sparse.triu(A).tocoo()) for mode, A in graphs.items()]
    return [[mode, {"edges": np.stack([*A.coords, A.data], axis=1).tolist()}] for mode, A in parts]


def part_of(adjacency: Any, mode: int, places: np.ndarray, shape: tuple[int, ...]) -> Any:
    """Return graphs for some slices along a mode, in any order: neighbors are those that were neighbors before."""
    graphs = read_graphs(adjacency, shape)
    return plain_graphs({n: A[places][:, places] if n == mode else A for n, A in graphs.items()}) or None


def graph_of(W: BooleanCP, mode: int) -> Graph | None:
    """Return the graph of a mode that W was fitted with, or the graph of its positions; None without."""
    given = dict((W.parameters or {}).get("adjacency") or {})
    if mode not in given and (places := positions_of(W, mode)) is not None:
        given = {mode: {"edges": near_edges(places)}}
    return read_graphs({mode: given[mode]}, W.shape)[mode] if mode in given else None


def pieces(W: BooleanCP, k: int) -> tuple[int, str]:
    """Return in how many connected pieces an atom is on, regions or intervals; 0 without neighbors."""
    z, mode = W.atoms[k].z, W.atoms[k].mode
    A, is_placed = graph_of(W, mode), positions_of(W, mode) is not None or is_unordered(W, mode)
    return 0 if A is None else int(connected_components(A[z][:, z])[0]), "region" if is_placed else "interval"


def smooth(data: Storage, W: Columns, graphs: Mapping[int, Graph], given: Any) -> tuple[Columns, tuple[float, ...]]:
    """Return the columns after sweeps, none of which raises loss plus penalty, and lambda of each atom."""
    variance, strength, rules = noise_variance(data, W), np.zeros(W.n_atoms), {}
    for mode, A in graphs.items():
        own = W.boolean_mode == mode
        strength[own] = variance * (chosen_smoothness(data, W, mode, A, variance) if given == "auto" else given)
        if strength[own].any():
            rules[mode] = partial(agreeing_bits, A, strength[own])
    for _ in range(N_SWEEPS if rules else 0):
        W, is_changed = sweep(data, W, choose=rules)
        if not is_changed:
            break
    return W, tuple(strength.tolist())


def agreeing_bits(graph: Graph, strength: np.ndarray, S: np.ndarray, Q: np.ndarray, current: np.ndarray) -> np.ndarray:
    """Return 0/1 rows b_i (d, K) that lower b'Sb - 2 q_i'b plus the penalty: each column in turn, by a cut."""
    B = np.array(current, dtype=float)
    for k in range(B.shape[1]):
        rest = B @ S[:, k] - S[k, k] * B[:, k]
        z = best_cut(S[k, k] + 2 * (rest - Q[:, k]), graph, float(strength[k]))
        if z.any():  # an atom that would lose all of its bits keeps them
            B[:, k] = z
    return B


def best_cut(cost: np.ndarray, graph: Graph, strength: float) -> np.ndarray:
    """Return the bits z that minimize cost'z plus strength times the sum of w_ij (z_i - z_j)^2 over edges.

    They are the side of the source in a minimum cut, in integers; no cost counts for more than all neighbors can say.
    """
    inner, most = scipy.sparse.coo_array(strength * graph), 1.01 * strength * graph.sum(axis=1)
    if not (np.abs(cost) < most).any():
        return cost < 0
    n, cost = len(cost), np.clip(cost, -most, most)
    inner.data = np.minimum(inner.data, 1.01 * np.abs(cost).sum())  # else the costs would be rounded to zero
    nodes, source, sink = np.arange(n), np.full(n, n), np.full(n, n + 1)
    tails, heads = (np.concatenate(ends) for ends in ((inner.coords[0], source, nodes), (inner.coords[1], nodes, sink)))
    sizes = np.concatenate([inner.data, np.maximum(-cost, 0), np.maximum(cost, 0)])
    sizes = np.round(sizes * (LARGEST / sizes.sum())).astype(np.int32)
    flow = scipy.sparse.csr_array((sizes, (tails, heads)), (n + 2, n + 2))
    left = scipy.sparse.csr_array(flow - maximum_flow(flow, n, n + 1).flow)
    left.eliminate_zeros()
    return np.isin(nodes, breadth_first_order(left, n, return_predecessors=False))


def chosen_smoothness(data: Storage, W: Columns, mode: int, graph: Graph, variance: float) -> np.ndarray:
    """Return lambda of each atom along a mode, in units of the noise variance, by the evidence of its bits.

    The log odds of a bit are those of its slice, divided by `excess`, plus lambda / 2 (neighbors on - neighbors off)
    plus a constant. An atom whose slices some lambda > 0 makes clearly more probable, each given the bits of its
    neighbors, has MULTIPLE / mean degree times the excess: bits with errors would choose too little.
    """
    S, boolean = W.ties(mode)
    H, P, _ = data.equations(W.matrices, mode)
    A, degree = W.matrices[mode], graph.sum() / graph.shape[0]
    if S is not None:
        H, P, A = S.T @ H @ S, P @ S, A @ S / S.sum(axis=0)
    found = np.zeros(boolean.sum())
    if not degree:
        return found
    R = np.moveaxis(data.residual(W.to_decomposition()).to_array(), mode, 0)
    parts = [[A[:, W.owner == k] for n, A in enumerate(W.matrices) if n != mode] for k in range(W.n_atoms)]
    blocks = [khatri_rao(parts[k]).sum(axis=1) for k in np.flatnonzero(W.boolean_mode == mode)]
    more = [excess(R, M.reshape(R.shape[1:]), variance) for M in blocks]
    own = (2 * (P - A @ H) + (2 * A - 1) * H.diagonal()) / (2 * variance)
    around = graph @ (2 * A - 1) / (2 * degree)
    for at, k in enumerate(np.flatnonzero(boolean)):
        prior = np.multiply.outer(TRIED, around[:, k])[:, None] + FIELDS[:, None]
        value = np.sum(np.logaddexp(own[:, k] / more[at] + prior, 0) - np.logaddexp(prior, 0), axis=2).max(axis=1)
        found[at] = MULTIPLE / degree * more[at] if value.max() > value[0] + CLEARLY else 0.0
    return found


def excess(R: np.ndarray, M: np.ndarray, variance: float) -> float:
    """Return how much more the votes of other slices on each bit scatter than in independent noise, at least 1.

    Slices along another mode, such as trials, vote by <R_ij, M_j>; their scatter around what they say together is
    compared with that of white noise, along the mode where it is largest.
    """
    found, size = 1.0, float(np.sum(M**2))
    for n in range(M.ndim if size else 0):
        share = np.sum(M**2, axis=tuple(m for m in range(M.ndim) if m != n)) / size
        votes = np.einsum(R, [*range(R.ndim)], M, [*range(1, R.ndim)], [0, n + 1])
        scatter = np.sum((votes - share * votes.sum(axis=1, keepdims=True)) ** 2) / len(R)
        found = max(found, float(scatter / (variance * size * max(1 - np.sum(share**2), 0.5))))
    return found


def penalties_of(W: BooleanCP) -> list[Any]:
    """Return lambda L for each atom, sparse, None where neighbors do not count."""
    strength = None if W.trust is None else W.trust.smoothness
    if strength is None or not W.parameters:
        return [None] * W.n_atoms
    graphs = {n: laplacian(A) for n, A in read_graphs(W.parameters["adjacency"], W.shape).items()}
    return [s * graphs[atom.mode] if s > 0 else None for s, atom in zip(strength, W.atoms, strict=True)]
