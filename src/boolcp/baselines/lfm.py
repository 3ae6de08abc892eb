"""LFM: Boolean latent features of one unfolding. LFMmix: latent features of all unfoldings in one mixture."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random import Generator

from boolcp.baselines._base import Baseline, Modes, squared_loss
from boolcp.contractions import along, gram
from boolcp.program.maxcut import maximize
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.result.labels import Labels
from boolcp.storage.dense import unfold

Terms = dict[int, tuple[np.ndarray, np.ndarray]]  # {mode: (Z, V)}

NOTHING_LEFT = 1e-12  # squared residual relative to |X|^2 at which the search ends
CHUNK = 2**22  # entries of a temporary array


class LFM(Baseline):
    """Latent feature model of one unfolding, X_n = Z V with Boolean features Z (d_n, K) and real rows V.

    This is the method of Yen et al. (2017): the next feature maximizes z'Cz, where C is the Gram matrix of the
    residual, by the same program as in BMP; then all real rows are recomputed. With the atomic norm, sum_k |v_k|, it is
    `boolcp.AtomicNorm` with this Boolean mode.

    Parameters
    ----------
    n_atoms, random_state : int, int or Generator or None
        Number of features K, and seed.
    mode : int or str, optional
        The mode that is unfolded. None fits every mode and keeps the one of lowest loss, which favors short modes.

    Attributes
    ----------
    decomposition_, path_ : BooleanCP, tuple of BooleanCP
        The result, with block atoms, and the estimates with 0, 1, .., K features.
    mode_, loss_ : int, float
        The mode that was unfolded, and |X - W|^2 / 2 over the observed entries.

    Examples
    --------
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((15, 16, 17), [1, 0, 0], random_state=0)
    >>> model = boolcp.baselines.LFM(1, mode=0, random_state=0).fit(X)
    >>> model.decomposition_.n_atoms, bool(model.loss_ < 1e-12)
    (1, True)
    """

    def __init__(self, n_atoms: int = 10, *, mode: int | str | None = None, random_state: Any = None) -> None:
        self.n_atoms, self.mode, self.random_state = n_atoms, mode, random_state

    def _fit(self, X: np.ndarray, observed: np.ndarray | None, modes: Modes, labels: Any, rng: Generator) -> None:
        found = []
        for mode in modes:
            seen = None if observed is None else unfold(observed, mode)
            pairs = latent_feature_path(unfold(X, mode), seen, self.n_atoms, rng)
            found.append((squared_loss(X, observed, _to_boolean_cp(X.shape, {mode: pairs[-1]})), mode, pairs))
        _, self.mode_, pairs = min(found, key=lambda one: one[0])
        self.path_ = tuple(_to_boolean_cp(X.shape, {self.mode_: pair}, labels) for pair in pairs)
        self.decomposition_ = self.path_[-1]


class LFMmix(Baseline):
    """Mixture of latent feature models, one for each unfolding: X = sum_n Z_n V_n, fitted jointly.

    Each step searches every unfolding of the residual as LFM does and takes the feature of steepest descent; the
    real rows of all modes are then the joint least-squares fit. Projections on the features of different modes commute,
    so the residual is X with the features of every mode projected out. The terms of the modes are not unique: each
    takes what the modes before it left. Missing entries are repeatedly filled with the estimate. The paper gives a
    single line on this baseline; this is the strongest reading of it.

    Parameters
    ----------
    n_atoms, random_state : int, int or Generator or None
        Number of features K of all modes together, and seed.
    boolean_modes : list of int or str, optional
        The modes that are unfolded. None is all.
    max_iter, tol : int, float
        Rounds of filling missing entries, and their change relative to |X| at which it ends.

    Attributes
    ----------
    decomposition_, path_, loss_ : BooleanCP, tuple of BooleanCP, float
        The result, with block atoms; the estimates with 0, 1, .., K features; |X - W|^2 / 2 over the observed entries.

    Examples
    --------
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((15, 16, 17), 3, random_state=0)
    >>> [W.n_atoms for W in boolcp.baselines.LFMmix(3, random_state=0).fit(X).path_]
    [0, 1, 2, 3]
    """

    def __init__(
        self,
        n_atoms: int = 10,
        *,
        boolean_modes: Sequence[int | str] | int | str | None = None,
        max_iter: int = 30,
        tol: float = 1e-5,
        random_state: Any = None,
    ) -> None:
        self.n_atoms, self.boolean_modes, self.random_state = n_atoms, boolean_modes, random_state
        self.max_iter, self.tol = max_iter, tol

    def _fit(self, X: np.ndarray, observed: np.ndarray | None, modes: Modes, labels: Any, rng: Generator) -> None:
        features = {mode: np.zeros((X.shape[mode], 0)) for mode in modes}
        path: list[Terms] = [{}]
        residual, filled, total = X, X, np.vdot(X, X)
        while len(path) <= self.n_atoms and np.vdot(residual, residual) > NOTHING_LEFT * total:
            found = {mode: maximize(gram(residual, mode), rng, is_ratio=False, certify=False) for mode in modes}
            mode = max(modes, key=lambda mode: found[mode].value)
            features[mode] = np.column_stack([features[mode], found[mode].z.astype(float)])
            for _ in range(self.max_iter):
                if observed is None:
                    break
                residual = project_out(filled, features)
                change = np.linalg.norm(residual[~observed])
                filled = np.where(observed, X, filled - residual)
                if change <= self.tol * np.sqrt(total):
                    break
            residual = project_out(filled, features) * (1.0 if observed is None else observed)
            path.append(mixture_terms(filled, features))
        self.path_ = tuple(_to_boolean_cp(X.shape, terms, labels) for terms in path)
        self.decomposition_ = self.path_[-1]


def latent_feature_path(
    Y: np.ndarray, observed: np.ndarray | None, n_atoms: int, rng: Generator
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the pairs Z (d, k), V (k, m) with k = 0, 1, .., K features of a matrix Y (d, m), each found greedily."""
    Z, V = np.zeros((len(Y), 0)), np.zeros((0, Y.shape[1]))
    path, residual, total = [(Z, V)], Y, np.vdot(Y, Y)
    while len(path) <= n_atoms and np.vdot(residual, residual) > NOTHING_LEFT * total:
        found = maximize(gram(residual, 0), rng, is_ratio=False, certify=False)
        Z = np.column_stack([Z, found.z.astype(float)])
        V = real_rows(Z, Y, observed)
        residual = (Y - Z @ V) * (1.0 if observed is None else observed)
        path.append((Z, V))
    return path


def real_rows(Z: np.ndarray, Y: np.ndarray, observed: np.ndarray | None) -> np.ndarray:
    """Return argmin_V |Y - Z V|^2 over the observed entries of Y, which is zero elsewhere."""
    if observed is None:
        return np.asarray(np.linalg.pinv(Z, rcond=1e-10) @ Y)
    d, n_columns = Z.shape
    pairs, rhs = (Z[:, :, None] * Z[:, None, :]).reshape(d, -1), (Z.T @ Y).T
    V = np.empty((n_columns, Y.shape[1]))
    step = max(1, CHUNK // n_columns**2)
    for start in range(0, Y.shape[1], step):
        part = slice(start, start + step)
        H = (observed[:, part].T.astype(float) @ pairs).reshape(-1, n_columns, n_columns)
        H += 1e-10 * d * np.eye(n_columns)  # features not seen in a column stay near zero there
        V[:, part] = np.linalg.solve(H, rhs[part][:, :, None])[:, :, 0].T
    return V


def project_out(X: np.ndarray, features: dict[int, np.ndarray]) -> np.ndarray:
    """Return X with the span of the features of every mode projected out: the residual of the joint least squares."""
    for mode, Z in features.items():
        U, sizes, _ = np.linalg.svd(Z, full_matrices=False)
        Q = U[:, sizes > 1e-10 * sizes.max(initial=0.0)]
        X = X - along(along(X, Q.T, mode), Q, mode)
    return np.ascontiguousarray(X)


def mixture_terms(X: np.ndarray, features: dict[int, np.ndarray]) -> Terms:
    """Return {mode: (Z, V)} whose sum is the joint least-squares fit, each mode fitted to what those before left."""
    terms = {}
    for mode, Z in features.items():
        if Z.shape[1]:
            terms[mode] = Z, real_rows(Z, unfold(X, mode), None)
            X = project_out(X, {mode: Z})
    return terms


def _to_boolean_cp(shape: tuple[int, ...], terms: Terms, labels: Labels | None = None) -> BooleanCP:
    """Return the BooleanCP with block atoms of the terms {mode: (Z, V)}; features with a row of zeros are left out."""
    atoms, weights = [], []
    for mode, (Z, V) in terms.items():
        for z, v in zip(Z.T, V, strict=True):
            if (size := float(np.linalg.norm(v))) > 0:
                atoms.append(Atom(mode, z, block=(v / size).reshape(shape[:mode] + shape[mode + 1 :])))
                weights.append(size)
    return BooleanCP(shape, tuple(atoms), np.array(weights), labels)
