"""Tucker: the truncated higher-order SVD, through TensorLy."""

from typing import Any, NamedTuple

import numpy as np

from boolcp.baselines._base import Baseline, impute
from boolcp.system import load_extra


class TuckerForm(NamedTuple):
    """A Tucker decomposition W = core x_1 U_1 .. x_N U_N with orthonormal columns; unpacks as core, factors.

    Parameters
    ----------
    core : ndarray of shape (r_1, .., r_N)
        The core.
    factors : list of ndarray, shapes (d_n, r_n)
        One basis for each mode.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((15, 16, 17), 2, noise=0.1, random_state=0)
    >>> core, factors = boolcp.baselines.Tucker(2).fit(X).decomposition_
    >>> core.shape, [U.shape for U in factors]
    ((2, 2, 2), [(15, 2), (16, 2), (17, 2)])
    """

    core: np.ndarray
    factors: list[np.ndarray]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the tensor."""
        return tuple(len(U) for U in self.factors)

    def __repr__(self) -> str:
        return f"TuckerForm({' x '.join(map(str, self.shape))}, core {' x '.join(map(str, self.core.shape))})"

    def to_tensor(self) -> np.ndarray:
        """Return W as a dense array.

        Examples
        --------
        >>> import numpy as np
        >>> from boolcp.baselines import TuckerForm
        >>> TuckerForm(np.array([[2.0]]), [np.ones((2, 1)), np.ones((3, 1))]).to_tensor().tolist()
        [[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]]
        """
        W = self.core
        for mode, U in enumerate(self.factors):
            W = np.moveaxis(np.tensordot(U, W, axes=([1], [mode])), 0, mode)
        return W


class Tucker(Baseline):
    """Truncated higher-order SVD with as many directions in each mode as there are atoms (or as the mode allows).

    The decomposition is that of `tensorly.decomposition.tucker`. Missing entries are repeatedly filled with the
    estimate until they no longer change (TensorLy's mask works only while it iterates, which a plain HOSVD does not).

    Parameters
    ----------
    n_atoms : int
        Rank r_n in every mode, cut to what the shape allows.
    max_iter : int
        Sweeps of higher-order orthogonal iteration after the HOSVD; 0, the HOSVD itself, is what the paper uses.
    tol : float
        The iteration ends when |X - W| / |X| changes by less than this in a sweep.
    random_state : int, Generator or None
        Accepted so that all methods have the same parameters; nothing here is random.

    Attributes
    ----------
    decomposition_ : TuckerForm
        The result.
    loss_ : float
        |X - W|^2 / 2 over the observed entries.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((15, 16, 17), 3, random_state=0)
    >>> model = boolcp.baselines.Tucker(3).fit(X)
    >>> model.decomposition_.core.shape, bool(model.loss_ < 1e-12)
    ((3, 3, 3), True)
    """

    least_max_iter = 0

    def __init__(self, n_atoms: int = 10, *, max_iter: int = 0, tol: float = 1e-6, random_state: Any = None) -> None:
        self.n_atoms = n_atoms
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def _fit(self, X: np.ndarray, observed: np.ndarray | None, labels: Any, rng: np.random.Generator) -> None:
        tucker = load_extra("tensorly.decomposition", "baselines").tucker
        ranks = [min(self.n_atoms, d, X.size // d) for d in X.shape]
        options = {"n_iter_max": self.max_iter, "tol": self.tol, "svd": _left_singular_vectors}

        def step(filled: np.ndarray, previous: TuckerForm | None) -> TuckerForm:
            core, factors = tucker(filled, ranks, **options)
            return TuckerForm(np.asarray(core), [np.asarray(U) for U in factors])

        self.decomposition_ = impute(X, observed, step, max_iter=100, tol=1e-7)


def _left_singular_vectors(
    matrix: np.ndarray, n_eigenvecs: int | None = None, **_: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the leading U, S, V' of a matrix; for a flat one, from the eigenvectors of its smaller Gram matrix."""
    if matrix.shape[0] > matrix.shape[1]:
        U, S, Vt = np.linalg.svd(matrix, full_matrices=False)
        return U[:, :n_eigenvecs], S[:n_eigenvecs], Vt[:n_eigenvecs]
    values, vectors = np.linalg.eigh(matrix @ matrix.T)
    U = vectors[:, ::-1][:, :n_eigenvecs]
    S = np.sqrt(np.maximum(values[::-1][:n_eigenvecs], 0))
    return U, S, (U.T @ matrix) / np.maximum(S, 1e-300)[:, None]
