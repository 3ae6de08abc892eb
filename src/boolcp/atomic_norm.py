"""AtomicNorm: Eq. (3), the convex program of the paper, as a scikit-learn estimator."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from boolcp import checks
from boolcp.fit import convex
from boolcp.fit.certify import by_size, with_system
from boolcp.fit.noise import noise_level
from boolcp.fit.sweep import polish
from boolcp.result.columns import to_columns
from boolcp.result.labels import read_aligned
from boolcp.storage import make_storage
from boolcp.system import one_thread


class AtomicNorm(BaseEstimator):
    """Eq. (3) of the paper, min_W |X - W|^2 / 2 + alpha |W|_A, solved to a proved duality gap.

    The number of atoms follows from alpha. |W|_A is the smallest sum of the sizes of atoms that add up to W, with dense
    blocks as real parts. Unlike the greedy pursuit it forbids atoms that cancel, and certifies the whole decomposition.

    Parameters
    ----------
    alpha : float or "auto"
        Weight of the atomic norm. "auto" is the dual norm of noise, which keeps noise out; twice that for rank one.
    boolean_modes : list of int or str, optional
        The modes allowed to be Boolean; None allows all that have more than one entry.
    criterion : {"normalized", "published"}
        Whether an atom z (x) V counts with the norm of z or, as printed in the paper, with V alone.
    atom_rank : "block" or 1
        "block": dense blocks. 1: their nuclear norm, for tensors of order 2 and 3 (experimental, nothing is proved).
    debias : bool
        Refit blocks without the penalty, by least squares; atoms of rank one by the polish of `BMP`, bits included.
    sigma : float, optional
        Standard deviation of the noise, for ``alpha="auto"``; estimated from complete data if None.
    tol, max_iter, random_state : float, int, int or Generator or None
        Relative duality gap to reach, maximal number of steps, and seed.

    Attributes
    ----------
    decomposition_, alpha_ : BooleanCP, float
        The solution, debiased if requested, and the weight of the atomic norm that was used.
    sigma_, lambda_S_ : float or None
        The noise level behind ``alpha="auto"``, and sigma sqrt(d_1 + .. + d_N), the weight that Theorem 4 names.
    objective_, dual_objective_, duality_gap_ : float
        The objective, a proved lower bound on that of every W (NaN for rank one), their difference over the objective.
    history_, n_iter_, converged_ : tuple of ConvexStep, int, bool
        Number of atoms, objectives and gap after each step; the number of steps; whether the gap has reached `tol` (for
        rank one, whether no atom is left to add).

    Examples
    --------
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((15, 16, 17), 2, noise=0.1, random_state=0)
    >>> model = boolcp.AtomicNorm(random_state=0).fit(X)
    >>> model.duality_gap_ <= 0.01, model.decomposition_.n_atoms >= 2
    (True, True)
    >>> print(model.summary().splitlines()[-1][:55])
    proved: no decomposition has an objective lower by more
    """

    def __init__(
        self,
        alpha: float | str = "auto",
        *,
        boolean_modes: Sequence[int | str] | None = None,
        criterion: str = "normalized",
        atom_rank: int | str = "block",
        debias: bool = False,
        sigma: float | None = None,
        tol: float = 1e-2,
        max_iter: int = 200,
        random_state: Any = None,
    ) -> None:
        self.alpha, self.boolean_modes, self.criterion, self.atom_rank = alpha, boolean_modes, criterion, atom_rank
        self.debias, self.sigma, self.tol, self.max_iter = debias, sigma, tol, max_iter
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.three_d_array = True
        return tags

    def fit(self, X: Any, y: None = None, *, mask: ArrayLike | None = None) -> "AtomicNorm":
        """Solve Eq. (3) for X and return the fitted estimator.

        Parameters
        ----------
        X, mask : array-like or xarray.DataArray, shape (d_1, .., d_N), N >= 2
            The tensor, NaN where entries are missing (loaded if it is on disk); True where it is observed.
        """
        if isinstance(self.alpha, str):
            checks.check_choice(self.alpha, "alpha", ("auto",))
        else:
            checks.check_number(self.alpha, "alpha", positive=True)
        if self.atom_rank not in ("block", 1):
            raise ValueError(f"atom_rank must be 'block' (dense blocks) or 1 (experimental), got {self.atom_rank!r}.")
        if self.sigma is not None:
            checks.check_number(self.sigma, "sigma")
        program = read_program(X, mask, self.boolean_modes, self.criterion, self.tol, self.max_iter)
        if self.atom_rank == 1 and program.X.ndim > 3:
            raise ValueError(f"atom_rank=1 takes tensors of order 2 or 3, X has order {program.X.ndim}; use 'block'.")
        program = replace(program, is_rank_one=self.atom_rank == 1)
        with one_thread():
            self.alpha_ = self._choose_alpha(program)
            rng, penalized = checks.make_generator(self.random_state), replace(program, alpha=self.alpha_)
            steps, B = convex.solve(penalized, rng, tol=self.tol, max_iter=self.max_iter)
            if self.debias and not program.is_rank_one:
                B = convex.solve_blocks(program, B, tol=1e-9)[0]
            W = convex.to_decomposition(program, B)
            if self.debias and program.is_rank_one and W.n_atoms:
                W = by_size(with_system(polish(program.data, to_columns(W)).to_decomposition(), program.data))
        step = steps[-1]
        self.decomposition_, self.history_, self.n_iter_ = replace(W, labels=program.labels), tuple(steps), len(steps)
        self.objective_, self.dual_objective_ = step.objective, step.dual_objective
        self.duality_gap_, self.converged_ = step.duality_gap, step.is_converged
        return self

    def summary(self) -> str:
        """Return the table of atoms, and what is proved about all of them together."""
        words = f"proved: no decomposition has an objective lower by more than {100 * self.duality_gap_:.2g} %"
        words = "nothing is proved about atoms of rank one" if np.isnan(self.duality_gap_) else words
        return f"{self.decomposition_.summary()}\n{words} (alpha = {self.alpha_:.4g})"

    def _choose_alpha(self, program: convex.Program) -> float:
        """Return alpha, and keep the noise level and the weight of Theorem 4 if it is chosen by the noise."""
        self.sigma_, self.lambda_S_, data = None, None, program.data
        if not isinstance(self.alpha, str):
            return float(self.alpha)
        if self.sigma is None and data.weights is not None:
            raise ValueError('alpha="auto" needs sigma, the noise level, if entries are missing: pass it, or alpha.')
        self.sigma_ = float(noise_level(data) if self.sigma is None else self.sigma)
        self.lambda_S_ = self.sigma_ * float(np.sqrt(sum(data.shape)))
        norm = convex.noise_norm(program, self.sigma_)  # twice that in Theorem 4's proof: lambda >= 2 |grad F|
        floor = 1e-9 * float(np.sqrt(data.squared_norm))  # without noise, and alpha = 0 has no dual
        return max((2 if program.is_rank_one else 1) * norm, floor, float(np.finfo(float).tiny))


def alpha_max(
    X: Any,
    *,
    mask: ArrayLike | None = None,
    boolean_modes: Sequence[int | str] | None = None,
    criterion: str = "normalized",
    random_state: Any = None,
) -> float:
    """Return an alpha above which W = 0 is the proved solution of Eq. (3), close to the smallest such.

    It is a proved upper bound on the dual norm of X, max |X_n'z| / |z| over all Boolean modes and bits. All parameters
    are as in `AtomicNorm`.

    Examples
    --------
    >>> X = boolcp.datasets.make_boolean_cp((10, 11, 12), 2, noise=0.3, random_state=0).X
    >>> largest = boolcp.alpha_max(X, random_state=0)
    >>> [boolcp.AtomicNorm(alpha=share * largest, random_state=0).fit(X).decomposition_.n_atoms for share in (1, 0.5)]
    [0, 3]
    """
    program, rng = read_program(X, mask, boolean_modes, criterion), checks.make_generator(random_state)
    with one_thread():
        views = {mode: convex.look(program, program.X, mode, rng, {}) for mode in program.modes}
        bounds = (convex.prove(program, n, C, best, "default", {}) for n, (_, C, best) in views.items())
        return float(np.sqrt(max(bounds)))


def read_program(
    X: Any, mask: ArrayLike | None, boolean_modes: Any, criterion: str, tol: float = 1e-2, max_iter: int = 200
) -> convex.Program:
    """Return the program of checked data, its alpha still zero."""
    checks.check_number(tol, "tol", positive=True)
    checks.check_integer(max_iter, "max_iter", 1)
    checks.check_choice(criterion, "criterion", ("normalized", "published"))
    X, mask, _, labels = read_aligned(X, mask)
    X, observed = checks.check_tensor(X, mask)
    X = np.ascontiguousarray(X if observed is None else np.where(observed, X, 0.0), dtype=float)
    modes = checks.check_modes(boolean_modes, X.shape, None if labels is None else labels.dims)
    return convex.Program(make_storage(X, observed), X, observed, modes, labels, is_ratio=criterion == "normalized")
