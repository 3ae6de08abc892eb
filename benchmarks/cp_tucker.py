"""CP, the alternating least squares of TensorLy from several starts, and Tucker, a truncated higher-order SVD."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from boolcp.baselines._base import EXTRA_RANK, Baseline, Modes, squared_loss
from boolcp.contractions import along, gram_product, khatri_rao, mttkrp
from boolcp.storage.dense import Dense
from boolcp.storage.tucker import Tucker as Compressed
from boolcp.storage.tucker import compress, leading_basis
from boolcp.system import load_extra

ROUNDS_OF_STARTS = 3  # rounds of imputation in which all starts are tried, not only the last estimate; not tuned


class RealCP(NamedTuple):
    """A CP decomposition W = sum_k weights_k a_k (x) b_k (x) ..: weights (K,) and factors, each (d_n, K)."""

    weights: np.ndarray
    factors: list[np.ndarray]

    def to_tensor(self) -> np.ndarray:
        """Return W as a dense array."""
        shape = [len(A) for A in self.factors]
        return ((self.factors[0] * self.weights) @ khatri_rao(self.factors[1:]).T).reshape(shape)


def impute(X: np.ndarray, observed: np.ndarray | None, step: Callable[..., Any], *, max_iter: int, tol: float) -> Any:
    """Return step(filled, previous) with the missing entries of X repeatedly replaced by its own estimate.

    Each round is a majorization of the loss over the observed entries: it falls whenever `step` lowers the loss of the
    filled tensor. It stops when the filled entries change by no more than `tol` times the norm of X. `previous` is
    None at first; if nothing is missing (`observed` is None), it is a single call. An estimate has `to_tensor`.
    """
    if observed is None:
        return step(X, None)
    filled = np.where(observed, X, X.sum() / observed.sum())
    size, estimate = tol * np.linalg.norm(X), None
    for _ in range(max_iter):
        estimate = step(filled, estimate)
        previous, filled = filled, np.where(observed, X, estimate.to_tensor())
        if np.linalg.norm(filled - previous) <= size:
            break
    return estimate


class CP(Baseline):
    """Canonical polyadic decomposition: alternating least squares from an SVD start and several random ones.

    The sweeps are those of `tensorly.decomposition.parafac`. All starts are compared on the tensor projected to the
    leading directions of each mode, and the best one is finished on the full tensor. Missing entries are imputed by the
    estimate after every round.

    Parameters
    ----------
    n_atoms, random_state : int, int or Generator or None
        Number of terms K, which may exceed every size, and seed.
    n_init : int
        Number of starts: the first from the SVD, the others random. The lowest loss wins.
    max_iter, tol : int, float
        Maximal number of sweeps from each start; it is done when |X - W| / |X| changes by less than `tol` in one.

    Attributes
    ----------
    decomposition_, loss_ : RealCP, float
        The result, and |X - W|^2 / 2 over the observed entries.
    """

    def __init__(
        self, n_atoms: int = 10, *, n_init: int = 3, max_iter: int = 200, tol: float = 1e-8, random_state: Any = None
    ) -> None:
        self.n_atoms, self.n_init, self.max_iter, self.tol = n_atoms, n_init, max_iter, tol
        self.random_state = random_state

    def _fit(self, X: np.ndarray, observed: np.ndarray | None, modes: Modes, labels: Any, rng: Generator) -> None:
        seeds = rng.integers(2**31, size=self.n_init)
        starts: list[tuple[int, Any]] = [(int(seed), "random" if i else "svd") for i, seed in enumerate(seeds)]
        n_rounds = 0

        def step(filled: np.ndarray, previous: RealCP | None) -> RealCP:
            nonlocal n_rounds
            small = compress(Dense(filled), self.n_atoms + EXTRA_RANK)
            core = small.core.to_array() if isinstance(small, Compressed) else filled
            bases = small.bases or [np.eye(d) for d in X.shape]
            tried = [*starts] if n_rounds < ROUNDS_OF_STARTS else []
            if previous is not None:
                tried.append((0, (previous.weights, [U.T @ A for U, A in zip(bases, previous.factors, strict=True)])))
            n_rounds += 1
            found = [self._parafac(core, None, seed, start, self.max_iter) for seed, start in tried]
            best = min(found, key=lambda estimate: squared_loss(core, None, estimate))
            return RealCP(best.weights, [U @ A for U, A in zip(bases, best.factors, strict=True)])

        best = impute(X, observed, step, max_iter=self.max_iter, tol=1e-7)
        self.decomposition_ = self._parafac(X, observed, 0, tuple(best), min(self.max_iter, 10))

    def _parafac(self, X: np.ndarray, observed: np.ndarray | None, seed: int, start: Any, max_iter: int) -> RealCP:
        """Return what TensorLy's ALS reaches from one start, or our own least squares if its solver fails."""
        parafac = load_extra("tensorly.decomposition", "all").parafac
        rank, is_given = self.n_atoms, isinstance(start, tuple)
        init = (start[0], [A.copy() for A in start[1]]) if is_given else start
        options = {"n_iter_max": max_iter, "tol": self.tol, "random_state": seed, "mask": observed}
        try:
            with warnings.catch_warnings():  # more atoms than a size is fine
                warnings.filterwarnings("ignore", "Trying to compute SVD", UserWarning)
                weights, factors = parafac(X, rank, init=init, **options)
        except np.linalg.LinAlgError:  # TensorLy cannot solve the singular systems that arise with too many atoms
            rng = np.random.default_rng(seed)
            factors = list(start[1]) if is_given else [rng.standard_normal((d, rank)) for d in X.shape]
            for mode in [*range(X.ndim)] * max_iter:
                inverse = np.linalg.pinv(gram_product(factors, mode), rcond=1e-10, hermitian=True)
                factors[mode] = mttkrp(X, factors, mode) @ inverse
            weights = np.ones(rank)
        return RealCP(np.asarray(weights), [np.asarray(A) for A in factors])


class TuckerForm(NamedTuple):
    """A Tucker decomposition W = core x_1 U_1 .. x_N U_N; unpacks as core and factors, orthonormal bases (d_n, r_n)."""

    core: np.ndarray
    factors: list[np.ndarray]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the tensor."""
        return tuple(len(U) for U in self.factors)

    def __repr__(self) -> str:
        return f"TuckerForm({' x '.join(map(str, self.shape))}, core {' x '.join(map(str, self.core.shape))})"

    def to_tensor(self) -> np.ndarray:
        """Return W as a dense array."""
        W = self.core
        for mode, U in enumerate(self.factors):
            W = along(W, U, mode)
        return W


class Tucker(Baseline):
    """Truncated higher-order SVD with as many directions in each mode as there are atoms (or as the mode allows).

    Missing entries are repeatedly filled with the estimate until they no longer change.

    Parameters
    ----------
    n_atoms, random_state : int, None
        Rank r_n in every mode, cut to what the shape allows. Nothing here is random: the seed has no effect.

    Attributes
    ----------
    decomposition_, loss_ : TuckerForm, float
        The result, and |X - W|^2 / 2 over the observed entries.
    """

    def __init__(self, n_atoms: int = 10, *, random_state: Any = None) -> None:
        self.n_atoms, self.random_state = n_atoms, random_state

    def _fit(self, X: np.ndarray, observed: np.ndarray | None, modes: Modes, labels: Any, rng: Generator) -> None:
        ranks = [min(self.n_atoms, d, X.size // d) for d in X.shape]

        def step(filled: np.ndarray, previous: TuckerForm | None) -> TuckerForm:
            factors, core = [leading_basis(Dense(filled), mode, rank) for mode, rank in enumerate(ranks)], filled
            for mode, U in enumerate(factors):
                core = along(core, U.T, mode)
            return TuckerForm(core, factors)

        self.decomposition_ = impute(X, observed, step, max_iter=100, tol=1e-7)
