"""AtomicNorm: Eq. (3), the convex program of the paper, as a scikit-learn estimator."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from boolcp import checks
from boolcp.fit.blocks import assembled
from boolcp.fit.convex import (
    Blocks,
    Estimate,
    Program,
    dual_bound,
    n_terms,
    noise_norm,
    solve,
    solve_blocks,
    solve_rank_one,
    terms_of,
    thin,
)
from boolcp.fit.noise import noise_level
from boolcp.fit.pursuit import by_size, with_system
from boolcp.fit.sweep import polish
from boolcp.memory import check_memory, float_bytes, read_memory
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.result.columns import to_columns
from boolcp.result.labels import Labels, read_labels
from boolcp.storage import make_storage
from boolcp.storage.protocol import Storage, n_columns
from boolcp.storage.tucker import LONG
from boolcp.threads import one_thread

RANK_ONE_FACTOR = 2.0  # alpha over the dual norm of noise: lambda >= 2 |grad F| in Theorem 4's proof


@dataclass(frozen=True)
class ConvexStep:
    """One step of the solver: the number of atoms, the objective, the proved dual objective, and their relative gap."""

    n_atoms: int
    objective: float
    dual_objective: float
    duality_gap: float


@dataclass(frozen=True, eq=False)
class PathPoint:
    """The solution of Eq. (3) for one alpha, with its objective and its proved relative gap.

    Examples
    --------
    >>> import boolcp
    >>> X = boolcp.datasets.make_boolean_cp((10, 11, 12), 2, noise=0.3, random_state=0).X
    >>> points = boolcp.atomic_norm_path(X, n_alphas=3, random_state=0)
    >>> [point.decomposition.n_atoms for point in points][0], points[0].alpha > points[2].alpha
    (0, True)
    """

    alpha: float
    decomposition: BooleanCP
    objective: float
    duality_gap: float


@dataclass(frozen=True, eq=False)
class Problem:
    """Data of Eq. (3): its program, which may have the thin form of X, the storage, the labels, the Boolean modes."""

    program: Program
    data: Storage
    labels: Labels | None
    modes: tuple[int, ...]

    @property
    def is_thin(self) -> bool:
        """Return True if the program has the inner products of the slices in place of X."""
        return self.program.X.shape != self.data.shape

    def solve(
        self, alpha: float, rng: np.random.Generator, *, tol: float, max_iter: int, start: Blocks | None = None
    ) -> list[Estimate]:
        """Return the estimates of all steps of the solver that the program asks for."""
        program = replace(self.program, alpha=alpha)
        solver = solve_rank_one if program.is_rank_one else solve
        return list(solver(program, rng, tol=tol, max_iter=max_iter, start=start))

    def finish(self, B: Blocks, *, debias: bool = False) -> BooleanCP:
        """Return the terms as a decomposition of the data, refitted without the penalty if requested."""
        program, data = self.program, self.data
        if debias and not program.is_rank_one:
            B = solve_blocks(program, B, tol=1e-9)[0]
        if B and self.is_thin:
            Y = program.X / np.sum(program.X**2, axis=0)  # Q = Y'X_n
            Z, V = B[0]
            B = {self.modes[0]: (Z, np.asarray(data.contract(self.modes[0], Y @ V.T), dtype=float))}
        if not program.is_rank_one:
            W = assembled(data, terms_of(B, data.shape))
        else:
            W = with_system(low_rank_sum(B, data.shape), data)
            if debias and W.n_atoms:
                W = with_system(polish(data, to_columns(W)).to_decomposition(), data)
        return replace(by_size(W), labels=self.labels)


def low_rank_sum(B: Blocks, shape: tuple[int, ...]) -> BooleanCP:
    """Return terms with vectors or matrices of low rank as blocks, written as sums of products of columns."""
    atoms, weights = [], []
    for term in terms_of(B, shape):
        U, sizes, T = np.linalg.svd(np.atleast_2d(term.V), full_matrices=False)
        weights.append(float(np.linalg.norm(sizes)))
        keep = sizes > 1e-9 * sizes[0]  # others are rounding errors
        factors = U[:, keep] * (sizes[keep] / weights[-1]), T[keep].T
        atoms.append(Atom(term.mode, term.z, factors if term.V.ndim > 1 else (factors[1] * factors[0],)))
    return BooleanCP(shape, tuple(atoms), np.array(weights))


def read_problem(
    X: Any,
    mask: ArrayLike | None,
    boolean_modes: Sequence[int | str] | None,
    criterion: str,
    *,
    is_rank_one: bool = False,
    max_memory: float | str | None = None,
) -> Problem:
    """Return the problem of checked data; complete data with one Boolean mode have the thin form if that is smaller."""
    checks.check_choice(criterion, "criterion", checks.CRITERIA)
    X, labels = read_labels(X)
    if checks.is_lazy(X) or checks.find_map(X) is not None:
        needs = {"the tensor in memory, with copies": 3.0 * float_bytes(X.shape, X.dtype)}
        check_memory(needs, read_memory(max_memory), "AtomicNorm needs X in memory: fit a part, use BMP, or raise it.")
    X, observed = checks.check_tensor(X, mask)
    X = np.ascontiguousarray(X, dtype=float)
    X = X if observed is None else np.where(observed, X, 0.0)
    modes = checks.check_modes(boolean_modes, X.shape, None if labels is None else labels.dims)
    data = make_storage(X, observed)
    columns, options = max(n_columns(data, mode) for mode in modes), (criterion == "normalized", is_rank_one)
    program = Program(X, observed, modes, columns, data.squared_norm, *options)
    d = X.shape[modes[0]]
    if len(modes) == 1 and d <= LONG and d**2 < X.size and observed is None and not is_rank_one:
        program = replace(program, X=thin(data.gram(modes[0])), modes=(0,))
    return Problem(program, data, labels, modes)


class AtomicNorm(BaseEstimator):
    """Eq. (3) of the paper, min_W |X - W|^2 / 2 + alpha |W|_A, solved to a proved duality gap.

    The number of atoms follows from alpha. |W|_A is the smallest sum of the sizes of atoms that add
    up to W, over all bits of all Boolean modes, with dense blocks as real parts. Unlike the greedy pursuit it forbids
    atoms that cancel, and comes with a certificate of the whole decomposition.

    Parameters
    ----------
    alpha : float or "auto"
        Weight of the atomic norm. "auto" is the dual norm of noise: the smallest alpha that keeps pure noise out,
        twice that for atoms of rank one.
    boolean_modes : list of int or str, optional
        The modes allowed to be Boolean; None allows all that have more than one entry.
    criterion : {"normalized", "published"}
        Whether an atom z (x) V counts with the norm of z or, as printed in the paper, with V alone.
    atom_rank : "block" or 1
        "block": dense blocks, for which all this is proved. 1: the nuclear norm of the blocks, for tensors of order 2
        and 3. It is experimental: it leads to atoms of rank one or nearly so, and nothing is proved.
    debias : bool
        Refit the real parts without the penalty: blocks by least squares for the bits found, atoms of rank one by the
        polish of `BMP`, bits included.
    sigma : float, optional
        Standard deviation of the noise, for ``alpha="auto"``; estimated from complete data if None.
    tol : float
        Relative duality gap to reach.
    max_iter : int
        Maximal number of steps.
    random_state : int, Generator or None
        Seed of the search for bits.
    max_memory : float or str, optional
        Memory that the fit of a lazy array may use, such as "3GB"; by default what is available. It stays out of memory
        if it is complete, one mode is Boolean, and `atom_rank` is "block".

    Attributes
    ----------
    decomposition_ : BooleanCP
        The solution, debiased if requested.
    alpha_ : float
        The weight of the atomic norm that was used.
    sigma_ : float or None
        The noise level behind ``alpha="auto"``.
    lambda_S_ : float or None
        sigma sqrt(d_1 + .. + d_N), the weight that Theorem 4 names for one sample; stated for comparison.
    objective_, dual_objective_ : float
        The objective, and a proved lower bound on the objective of every W.
    duality_gap_ : float
        (objective - dual objective) / objective; NaN for atoms of rank one.
    history_ : tuple of ConvexStep
        Number of atoms, objectives and gap after each step.
    n_iter_ : int
        Number of steps.
    converged_ : bool
        Whether the gap has reached `tol`; for atoms of rank one, whether no atom is left to add.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((15, 16, 17), 2, noise=0.1, random_state=0)
    >>> model = boolcp.AtomicNorm(random_state=0).fit(X)
    >>> model.duality_gap_ <= 0.01, model.decomposition_.n_atoms >= 2
    (True, True)
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
        max_memory: float | str | None = None,
    ) -> None:
        self.alpha = alpha
        self.boolean_modes = boolean_modes
        self.criterion = criterion
        self.atom_rank = atom_rank
        self.debias = debias
        self.sigma = sigma
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.max_memory = max_memory

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.three_d_array = True
        return tags

    def fit(self, X: Any, y: None = None, *, mask: ArrayLike | None = None) -> "AtomicNorm":
        """Solve Eq. (3) for X and return the fitted estimator.

        Parameters
        ----------
        X : array-like or xarray.DataArray, shape (d_1, .., d_N), N >= 2
            The tensor, NaN where entries are missing. It is not changed. A lazy one (dask, zarr, h5py, memory map) is
            read in three to five passes, or loaded, see `max_memory`.
        y : None
            Ignored.
        mask : array-like of bool, optional
            True where X is observed.

        Examples
        --------
        >>> import boolcp
        >>> X = boolcp.datasets.make_boolean_cp((10, 11, 12), 2, noise=0.3, random_state=0).X
        >>> boolcp.AtomicNorm(alpha=1e6).fit(X).decomposition_.n_atoms  # above alpha_max nothing is left
        0
        """
        self._check_parameters()
        options: dict[str, Any] = {"is_rank_one": self.atom_rank == 1, "max_memory": self.max_memory}
        problem = read_problem(X, mask, self.boolean_modes, self.criterion, **options)
        if self.atom_rank == 1 and len(problem.data.shape) > 3:
            raise ValueError(
                f"atom_rank=1 takes tensors of order 2 or 3, X has shape {problem.data.shape}; use 'block'."
            )
        with one_thread():
            self.alpha_ = self._choose_alpha(problem)
            rng = checks.make_generator(self.random_state)
            steps = problem.solve(self.alpha_, rng, tol=self.tol, max_iter=self.max_iter)
            self.decomposition_ = problem.finish(steps[-1].blocks, debias=self.debias)
        last = steps[-1]
        self.objective_, self.dual_objective_, self.duality_gap_ = last.objective, last.dual, last.gap
        self.history_ = tuple(ConvexStep(n_terms(e.blocks), e.objective, e.dual, e.gap) for e in steps)
        self.n_iter_ = len(steps)
        self.converged_ = last.is_converged
        return self

    def summary(self) -> str:
        """Return the table of atoms, and what is proved about all of them together.

        Examples
        --------
        >>> import boolcp
        >>> X = boolcp.datasets.make_boolean_cp((10, 11, 12), 2, noise=0.3, random_state=0).X
        >>> print(boolcp.AtomicNorm(alpha=20.0, random_state=0).fit(X).summary().splitlines()[-1][:55])
        proved: no decomposition has an objective lower by more
        """
        gap = self.duality_gap_
        words = "nothing is proved about atoms of rank one"
        if not np.isnan(gap):
            words = f"proved: no decomposition has an objective lower by more than {100 * gap:.2g} %"
        return f"{self.decomposition_.summary()}\n{words} (alpha = {self.alpha_:.4g})"

    def _check_parameters(self) -> None:
        if isinstance(self.alpha, str):
            checks.check_choice(self.alpha, "alpha", ("auto",))
        else:
            checks.check_number(self.alpha, "alpha", positive=True)
        if self.atom_rank not in ("block", 1):
            raise ValueError(f"atom_rank must be 'block' (dense blocks) or 1 (experimental), got {self.atom_rank!r}.")
        if self.sigma is not None:
            checks.check_number(self.sigma, "sigma")
        checks.check_number(self.tol, "tol", positive=True)
        checks.check_integer(self.max_iter, "max_iter", 1)

    def _choose_alpha(self, problem: Problem) -> float:
        """Return alpha, and keep the noise level and the weight of Theorem 4 if it is chosen by the noise."""
        self.sigma_ = self.lambda_S_ = None
        if not isinstance(self.alpha, str):
            return float(self.alpha)
        data, program = problem.data, problem.program
        if self.sigma is None and data.weights is not None:
            raise ValueError('alpha="auto" needs sigma, the noise level, if entries are missing: pass it, or alpha.')
        self.sigma_ = float(noise_level(data) if self.sigma is None else self.sigma)
        self.lambda_S_ = self.sigma_ * float(np.sqrt(sum(data.shape)))
        options = {"is_ratio": program.is_ratio, "is_rank_one": program.is_rank_one}
        norm = noise_norm(data.shape, problem.modes, self.sigma_, **options)
        floor = 1e-9 * float(np.sqrt(data.squared_norm))  # without noise, and alpha = 0 has no dual
        return max(norm * (RANK_ONE_FACTOR if program.is_rank_one else 1.0), floor, float(np.finfo(float).tiny))


def alpha_max(
    X: Any,
    *,
    mask: ArrayLike | None = None,
    boolean_modes: Sequence[int | str] | None = None,
    criterion: str = "normalized",
    random_state: Any = None,
) -> float:
    """Return an alpha above which W = 0 is the proved solution of Eq. (3), close to the smallest such.

    It is a proved upper bound on the dual norm of X, max |X_n'z| / |z| over all Boolean modes and bits.

    Parameters
    ----------
    X, mask, boolean_modes, criterion, random_state
        As in `AtomicNorm`.

    Examples
    --------
    >>> import boolcp
    >>> X = boolcp.datasets.make_boolean_cp((10, 11, 12), 2, noise=0.3, random_state=0).X
    >>> largest = boolcp.alpha_max(X, random_state=0)
    >>> [boolcp.AtomicNorm(alpha=share * largest, random_state=0).fit(X).decomposition_.n_atoms for share in (1, 0.5)]
    [0, 3]
    """
    problem = read_problem(X, mask, boolean_modes, criterion)
    with one_thread():
        return dual_bound(problem.program, checks.make_generator(random_state))


def atomic_norm_path(
    X: Any,
    *,
    alphas: Sequence[float] | None = None,
    n_alphas: int = 10,
    alpha_min_ratio: float = 0.2,
    mask: ArrayLike | None = None,
    boolean_modes: Sequence[int | str] | None = None,
    criterion: str = "normalized",
    tol: float = 1e-2,
    max_iter: int = 200,
    random_state: Any = None,
) -> tuple[PathPoint, ...]:
    """Return the solutions of Eq. (3) for decreasing alphas, each started from the previous one, as PathPoints.

    Parameters
    ----------
    alphas : sequence of float, optional
        The weights of the atomic norm; by default `n_alphas` of them between alpha_max and alpha_min_ratio times it,
        in equal ratios.
    n_alphas, alpha_min_ratio : int, float
        Number and range of the default alphas. Alphas below the dual norm of the noise have very many atoms.
    X, mask, boolean_modes, criterion, tol, max_iter, random_state
        As in `AtomicNorm`.

    Examples
    --------
    >>> import boolcp
    >>> X = boolcp.datasets.make_boolean_cp((10, 11, 12), 2, noise=0.3, random_state=0).X
    >>> [point.decomposition.n_atoms > 0 for point in boolcp.atomic_norm_path(X, n_alphas=3, random_state=0)]
    [False, True, True]
    """
    checks.check_number(tol, "tol", positive=True)
    checks.check_integer(max_iter, "max_iter", 1)
    checks.check_integer(n_alphas, "n_alphas", 1)
    checks.check_number(alpha_min_ratio, "alpha_min_ratio", positive=True)
    for alpha in alphas or ():
        checks.check_number(float(alpha), "alphas", positive=True)
    problem, rng = read_problem(X, mask, boolean_modes, criterion), checks.make_generator(random_state)
    points: list[PathPoint] = []
    B: Blocks = {}
    with one_thread():
        if alphas is None:
            alphas = (np.geomspace(1.0, alpha_min_ratio, n_alphas) * dual_bound(problem.program, rng)).tolist()
        for alpha in sorted(map(float, alphas), reverse=True):
            last = problem.solve(alpha, rng, tol=tol, max_iter=max_iter, start=B)[-1]
            B = last.blocks
            points.append(PathPoint(alpha, problem.finish(B), last.objective, last.gap))
    return tuple(points)
