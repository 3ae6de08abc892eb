"""LFM: Boolean latent features of one unfolding. LFMmix: latent features of all unfoldings in one mixture."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from boolcp.baselines._base import Baseline, modes_of, refold, squared_loss, unfold
from boolcp.contractions import gram
from boolcp.program.maxcut import BooleanQuadratic, maximize_boolean_quadratic, maximize_boolean_rayleigh
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.result.labels import Labels

Terms = dict[int, tuple[np.ndarray, np.ndarray]]  # {mode: (Z, V)}

NOTHING_LEFT = 1e-12  # squared residual relative to |X|^2 at which the search ends
CHUNK = 2**22  # entries of a temporary array
MAX_SWEEPS, SWEEP_TOL = 200, 1e-7  # of shrunken rows: their number, and the relative change at which they end


class LFM(Baseline):
    """Latent feature model of one unfolding, X_n = Z V with Boolean features Z (d_n, K) and real rows V.

    This is the method of Yen et al. (2017): the next feature maximizes z'Cz, where C is the Gram matrix of the
    residual, by the same MAXCUT-like program as in BMP; then all real rows are recomputed. In the terms of this library
    it is a pursuit with block atoms along one mode whose real parts, not only their weights, are corrected.

    Parameters
    ----------
    n_atoms : int
        Number of features K.
    mode : int, optional
        The mode that is unfolded. None fits every mode and keeps the one of lowest loss, which favors short modes:
        their real rows are longer.
    alpha : float
        Weight of the atomic norm, sum_k |v_k| over the rows of V: rows shrink, and useless features are dropped.
    ridge : float
        Weight of sum_k |v_k|^2 / 2.
    criterion : {"published", "normalized"}
        Maximize z'Cz as published, or z'Cz / |z|^2.
    random_state : int, Generator or None
        Seed.

    Attributes
    ----------
    decomposition_ : BooleanCP
        The result, with block atoms.
    path_ : tuple of BooleanCP
        The estimates with 0, 1, .., K features.
    mode_ : int
        The mode that was unfolded.
    loss_ : float
        |X - W|^2 / 2 over the observed entries.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((15, 16, 17), [1, 0, 0], random_state=0)
    >>> model = boolcp.baselines.LFM(1, mode=0, criterion="normalized", random_state=0).fit(X)
    >>> boolcp.metrics.hamming_error(model.decomposition_, truth)
    0.0
    """

    def __init__(
        self,
        n_atoms: int = 10,
        *,
        mode: int | str | None = None,
        alpha: float = 0.0,
        ridge: float = 0.0,
        criterion: str = "published",
        random_state: Any = None,
    ) -> None:
        self.n_atoms = n_atoms
        self.mode = mode
        self.alpha = alpha
        self.ridge = ridge
        self.criterion = criterion
        self.random_state = random_state

    def _fit(self, X: np.ndarray, observed: np.ndarray | None, labels: Labels | None, rng: np.random.Generator) -> None:
        options: dict[str, Any] = {"alpha": self.alpha, "ridge": self.ridge, "criterion": self.criterion}
        found = []
        for mode in modes_of(self.mode, X, labels):
            seen = None if observed is None else unfold(observed, mode)
            pairs = latent_feature_path(unfold(X, mode), self.n_atoms, rng, observed=seen, **options)
            found.append((squared_loss(X, observed, _to_boolean_cp(X.shape, {mode: pairs[-1]})), mode, pairs))
        _, self.mode_, pairs = min(found, key=lambda one: one[0])
        self.path_ = tuple(_to_boolean_cp(X.shape, {self.mode_: pair}, labels) for pair in pairs)
        self.decomposition_ = self.path_[-1]


class LFMmix(Baseline):
    """Mixture of latent feature models, one for each unfolding: X = sum_n Z_n V_n, fitted jointly.

    Each step searches every unfolding of the residual as LFM does and takes the feature of steepest descent; the
    real rows of all modes are then the joint least-squares fit. It needs no iteration on complete data: the
    projections on the features of different modes commute, so that the residual is X with the features of every
    mode projected out. Missing entries are repeatedly filled with the estimate until they no longer change.

    The paper gives a single line on this baseline; greedy modes and joint least squares are the strongest reading
    of it. Per-mode terms of the same total are not unique, so each takes what the modes before it left.

    Parameters
    ----------
    n_atoms : int
        Number of features K of all modes together.
    boolean_modes : list of int or str, optional
        The modes that are unfolded. None is all.
    criterion : {"published", "normalized"}
        Maximize z'Cz as published, or z'Cz / |z|^2.
    max_iter, tol : int, float
        Rounds of filling missing entries, and their change relative to |X| at which it ends.
    random_state : int, Generator or None
        Seed.

    Attributes
    ----------
    decomposition_ : BooleanCP
        The result, with block atoms.
    path_ : tuple of BooleanCP
        The estimates with 0, 1, .., K features.
    loss_ : float
        |X - W|^2 / 2 over the observed entries.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((15, 16, 17), 3, random_state=0)
    >>> [W.n_atoms for W in boolcp.baselines.LFMmix(3, random_state=0).fit(X).path_]
    [0, 1, 2, 3]
    """

    def __init__(
        self,
        n_atoms: int = 10,
        *,
        boolean_modes: Sequence[int | str] | int | str | None = None,
        criterion: str = "published",
        max_iter: int = 30,
        tol: float = 1e-5,
        random_state: Any = None,
    ) -> None:
        self.n_atoms = n_atoms
        self.boolean_modes = boolean_modes
        self.criterion = criterion
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def _fit(self, X: np.ndarray, observed: np.ndarray | None, labels: Labels | None, rng: np.random.Generator) -> None:
        path = self._search(X, observed, modes_of(self.boolean_modes, X, labels), rng)
        self.path_ = tuple(_to_boolean_cp(X.shape, terms, labels) for terms in path)
        self.decomposition_ = self.path_[-1]

    def _search(
        self, X: np.ndarray, observed: np.ndarray | None, modes: Sequence[int], rng: np.random.Generator
    ) -> list[Terms]:
        """Return the mixtures {mode: (Z, V)} with 0, 1, .., K features in all, each found greedily."""
        features = {mode: np.zeros((X.shape[mode], 0)) for mode in modes}
        path: list[Terms] = [{}]
        residual, filled, total = X, X, np.vdot(X, X)
        for _ in range(self.n_atoms):
            if not np.vdot(residual, residual) > NOTHING_LEFT * total:
                break
            solutions = [_best_boolean(residual, mode, self.criterion, rng) for mode in modes]
            mode, found = max(zip(modes, solutions, strict=True), key=lambda pair: pair[1].value)
            features[mode] = np.column_stack([features[mode], found.z.astype(float)])
            for _ in range(self.max_iter):
                if observed is None:
                    break
                residual = project_out(filled, features)
                change = np.linalg.norm(residual[~observed])
                filled = np.where(observed, X, filled - residual)
                if change <= self.tol * np.sqrt(total):
                    break
            residual = project_out(filled, features)
            if observed is not None:
                residual = residual * observed
            path.append(mixture_terms(filled, features))
        return path


def latent_feature_path(
    Y: np.ndarray,
    n_atoms: int,
    rng: np.random.Generator,
    *,
    observed: np.ndarray | None = None,
    alpha: float = 0.0,
    ridge: float = 0.0,
    criterion: str = "published",
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the pairs Z (d, k), V (k, m) with k = 0, 1, .., K features of a matrix Y (d, m), each found greedily.

    Ends early when no feature lowers the penalized loss, that is when |R'z| <= alpha for the best z, or nothing is
    left of the residual R.
    """
    Z, V = np.zeros((len(Y), 0)), np.zeros((0, Y.shape[1]))
    path, residual, total = [(Z, V)], Y, np.vdot(Y, Y)
    for _ in range(n_atoms):
        if not np.vdot(residual, residual) > NOTHING_LEFT * total:
            break
        z = _best_boolean(residual, 0, criterion, rng).z.astype(float)
        if np.linalg.norm(z @ residual) <= alpha:
            break
        Z = np.column_stack([Z, z])
        V = real_rows(Z, Y, observed, alpha, ridge, np.vstack([V, np.zeros((1, Y.shape[1]))]))
        residual = Y - Z @ V
        if observed is not None:
            residual *= observed
        path.append((Z, V))
    return path


def real_rows(
    Z: np.ndarray, Y: np.ndarray, observed: np.ndarray | None, alpha: float, ridge: float, V: np.ndarray
) -> np.ndarray:
    """Return argmin_V |Y - Z V|^2 / 2 + alpha sum_k |v_k| + ridge |V|^2 / 2 over the observed entries of Y."""
    if alpha > 0:
        return shrunk_rows(Z, Y, observed, alpha, ridge, V)
    if observed is None:
        H = Z.T @ Z + ridge * np.eye(Z.shape[1])
        return np.linalg.pinv(H, rcond=1e-10, hermitian=True) @ (Z.T @ Y)
    d, n_columns = Z.shape
    pairs = (Z[:, :, None] * Z[:, None, :]).reshape(d, -1)
    rhs = (Z.T @ Y).T  # Y is zero where it is not observed
    V = np.empty((n_columns, Y.shape[1]))
    step = max(1, CHUNK // n_columns**2)
    for start in range(0, Y.shape[1], step):
        part = slice(start, start + step)
        H = (observed[:, part].T.astype(float) @ pairs).reshape(-1, n_columns, n_columns)
        H += (ridge + 1e-10 * d) * np.eye(n_columns)  # features not seen in a column stay near zero there
        V[:, part] = np.linalg.solve(H, rhs[part][:, :, None])[:, :, 0].T
    return V


def shrunk_rows(
    Z: np.ndarray, Y: np.ndarray, observed: np.ndarray | None, alpha: float, ridge: float, V: np.ndarray
) -> np.ndarray:
    """Return the rows V (K, m) of the fit with the atomic norm, by block coordinate descent from V.

    Missing entries are filled by the estimate before each sweep, which majorizes the loss over the observed ones.
    """
    V, H = V.copy(), Z.T @ Z
    filled = Y
    for _ in range(MAX_SWEEPS):
        if observed is not None:
            filled = np.where(observed, Y, Z @ V)
        B, previous = Z.T @ filled, V.copy()
        for k in range(len(V)):
            gradient = B[k] - H[k] @ V + H[k, k] * V[k]
            size = float(np.linalg.norm(gradient))
            V[k] = gradient * max(1 - alpha / max(size, 1e-300), 0.0) / (H[k, k] + ridge)
        if np.linalg.norm(V - previous) <= SWEEP_TOL * np.linalg.norm(V):
            break
    return V


def project_out(X: np.ndarray, features: dict[int, np.ndarray]) -> np.ndarray:
    """Return X with the span of the features of every mode projected out: the residual of the joint least squares."""
    for mode, Z in features.items():
        U, sizes, _ = np.linalg.svd(Z, full_matrices=False)
        Q = U[:, sizes > 1e-10 * sizes.max(initial=0.0)]
        X = X - refold(Q @ (Q.T @ unfold(X, mode)), mode, X.shape)
    return np.ascontiguousarray(X)


def mixture_terms(X: np.ndarray, features: dict[int, np.ndarray]) -> Terms:
    """Return {mode: (Z, V)} whose sum is the joint least-squares fit, each mode fitted to what those before left."""
    terms = {}
    for mode, Z in features.items():
        if Z.shape[1]:
            V = np.linalg.pinv(Z, rcond=1e-10) @ unfold(X, mode)
            terms[mode] = Z, V
            X = X - refold(Z @ V, mode, X.shape)
    return terms


def _best_boolean(residual: np.ndarray, mode: int, criterion: str, rng: np.random.Generator) -> BooleanQuadratic:
    """Return the bits along a mode with the largest z'Cz, or z'Cz / |z|^2, of the Gram matrix C of the residual."""
    solve = maximize_boolean_rayleigh if criterion == "normalized" else maximize_boolean_quadratic
    return solve(gram(residual, mode), random_state=rng, certify=False)


def _to_boolean_cp(shape: tuple[int, ...], terms: Terms, labels: Labels | None = None) -> BooleanCP:
    """Return the BooleanCP with block atoms of the terms {mode: (Z, V)}; features with a row of zeros are left out."""
    atoms, weights = [], []
    for mode, (Z, V) in terms.items():
        others = [d for n, d in enumerate(shape) if n != mode]
        for z, v in zip(Z.T, V, strict=True):
            size = float(np.linalg.norm(v))
            if size > 0:
                atoms.append(Atom(mode, z, block=(v / size).reshape(others)))
                weights.append(size)
    return BooleanCP(shape, tuple(atoms), np.array(weights), labels)
