"""AtomicNorm: the door to Eq. (3), the convex program of the paper, a scikit-learn estimator."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from boolcp import checks
from boolcp.fit.convex import Estimate, Program, Terms, dual_norm, noise_norm, solve, solve_blocks, solve_rank_one, thin
from boolcp.fit.finish import with_data
from boolcp.fit.noise import noise_level
from boolcp.fit.polish import polish
from boolcp.memory import check_memory, read_memory
from boolcp.result.atoms import BooleanCP
from boolcp.result.columns import to_columns
from boolcp.result.labels import Labels, read_labels
from boolcp.storage import make_storage, stays_out
from boolcp.storage.lazy import look_at, make_source
from boolcp.storage.long import is_long, n_columns
from boolcp.storage.protocol import Storage
from boolcp.threads import one_thread

RANK_ONE_FACTOR = 2.0  # alpha over the dual norm of noise: lambda >= 2 |grad F| in Theorem 4's proof


@dataclass(frozen=True)
class ConvexStep:
    """One step of the solver: the number of atoms, the objective, the proved dual objective, and their relative gap.

    Examples
    --------
    >>> import boolcp
    >>> X = boolcp.datasets.make_boolean_cp((10, 11, 12), 2, noise=0.3, random_state=0).X
    >>> model = boolcp.AtomicNorm(alpha=20.0, random_state=0).fit(X)
    >>> model.history_[0].n_atoms, model.history_[-1].duality_gap <= 0.01
    (0, True)
    """

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
        program, data, labels = read_program(X, mask, self.boolean_modes, self.criterion, **options)
        if self.atom_rank == 1 and data.ndim > 3:
            raise ValueError(f"atom_rank=1 takes tensors of order 2 or 3, X has order {data.ndim}; use 'block'.")
        with one_thread():
            program = replace(program, alpha=self._choose_alpha(program, data))
            steps = run(program, checks.make_generator(self.random_state), tol=self.tol, max_iter=self.max_iter)
            last = steps[-1]
            W = finish(program, data, last.terms, is_debiased=self.debias)
        self.decomposition_ = replace(W, labels=labels)
        self.alpha_ = program.alpha
        self.objective_, self.dual_objective_, self.duality_gap_ = last.objective, last.dual, last.gap
        self.history_ = tuple(ConvexStep(e.terms.n_atoms, e.objective, e.dual, e.gap) for e in steps)
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
        checks.check_choice(self.criterion, "criterion", checks.CRITERIA)
        if self.atom_rank not in ("block", 1):
            raise ValueError(f"atom_rank must be 'block' (dense blocks) or 1 (experimental), got {self.atom_rank!r}.")
        if self.sigma is not None:
            checks.check_number(self.sigma, "sigma")
        checks.check_number(self.tol, "tol", positive=True)
        checks.check_integer(self.max_iter, "max_iter", 1)

    def _choose_alpha(self, program: Program, data: Storage) -> float:
        """Return alpha, and keep the noise level and the weight of Theorem 4 if it is chosen by the noise."""
        self.sigma_ = self.lambda_S_ = None
        if not isinstance(self.alpha, str):
            return float(self.alpha)
        if self.sigma is None and not data.is_complete:
            raise ValueError('alpha="auto" needs sigma, the noise level, if entries are missing: pass it, or alpha.')
        self.sigma_ = float(noise_level(data) if self.sigma is None else self.sigma)
        self.lambda_S_ = self.sigma_ * float(np.sqrt(sum(data.shape)))
        modes = program.modes if program.along is None else (program.along,)
        norm = noise_norm(data.shape, modes, self.sigma_, self.criterion, program.is_rank_one)
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
    checks.check_choice(criterion, "criterion", checks.CRITERIA)
    program, _, _ = read_program(X, mask, boolean_modes, criterion)
    with one_thread():
        return dual_norm(program, program.X, checks.make_generator(random_state), effort="default")


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
    checks.check_choice(criterion, "criterion", checks.CRITERIA)
    checks.check_number(tol, "tol", positive=True)
    checks.check_integer(max_iter, "max_iter", 1)
    checks.check_integer(n_alphas, "n_alphas", 1)
    program, data, labels = read_program(X, mask, boolean_modes, criterion)
    rng = checks.make_generator(random_state)
    if alphas is None:
        checks.check_number(alpha_min_ratio, "alpha_min_ratio", positive=True)
        with one_thread():
            largest = dual_norm(program, program.X, rng, effort="default")
        alphas = (np.geomspace(1.0, alpha_min_ratio, n_alphas) * largest).tolist()
    for alpha in alphas:
        checks.check_number(float(alpha), "alphas", positive=True)
    points, terms = [], Terms()
    for alpha in sorted((float(a) for a in alphas), reverse=True):
        program = replace(program, alpha=alpha)
        with one_thread():
            last = run(program, rng, tol=tol, max_iter=max_iter, start=terms)[-1]
            W = finish(program, data, last.terms, is_debiased=False)
        terms = last.terms
        points.append(PathPoint(alpha, replace(W, labels=labels), last.objective, last.gap))
    return tuple(points)


def read_program(
    X: Any,
    mask: ArrayLike | None,
    boolean_modes: Sequence[int | str] | None,
    criterion: str,
    *,
    is_rank_one: bool = False,
    max_memory: float | str | None = None,
) -> tuple[Program, Storage, Labels | None]:
    """Return the program of checked data, its alpha still zero, the storage and the labels of X.

    Complete data with one Boolean mode are needed for a Gram matrix and the final blocks alone, and may be lazy.
    """
    X, labels = read_labels(X)
    dims = None if labels is None else labels.dims
    if stays_out(X, max_memory):
        checks.check_lazy(X, mask)
        modes = checks.check_modes(boolean_modes, X.shape, dims)
        if mask is None and not is_rank_one and has_thin_form(X.shape, modes):
            data: Storage = look_at(make_source(X, None, max_memory), read_memory(max_memory), wanted=modes)
            if data.is_complete:
                return thin_program(data, modes[0], criterion), data, labels
    X, observed = checks.check_tensor(X, mask)
    X = np.ascontiguousarray(X, dtype=float)
    X = X if observed is None else np.where(observed, X, 0.0)
    modes = checks.check_modes(boolean_modes, X.shape, dims)
    data = make_storage(X, observed)
    if observed is None and not is_rank_one and has_thin_form(X.shape, modes):
        return thin_program(data, modes[0], criterion), data, labels
    return Program(X, observed, modes, 0.0, criterion, is_rank_one), data, labels


def has_thin_form(shape: tuple[int, ...], modes: tuple[int, ...]) -> bool:
    """Return True if the inner products of the slices along the only Boolean mode have fewer entries than X."""
    return len(modes) == 1 and not is_long(shape[modes[0]]) and shape[modes[0]] ** 2 < np.prod(shape, dtype=float)


def thin_program(data: Storage, mode: int, criterion: str) -> Program:
    """Return the program of complete data with one Boolean mode, in its thin form."""
    L = thin(data.gram(mode))
    return Program(L, None, (0,), 0.0, criterion, along=mode, n_columns=n_columns(data, mode))


def run(
    program: Program, rng: np.random.Generator, *, tol: float, max_iter: int, start: Terms | None = None
) -> list[Estimate]:
    """Return the estimates of all steps of the solver that the program asks for."""
    solver = solve_rank_one if program.is_rank_one else solve
    return list(solver(program, rng, tol=tol, max_iter=max_iter, start=start))


def finish(program: Program, data: Storage, terms: Terms, *, is_debiased: bool) -> BooleanCP:
    """Return the terms as a decomposition of the data, refitted without the penalty if requested."""
    if is_debiased and not program.is_rank_one:
        terms = solve_blocks(replace(program, alpha=0.0), terms, tol=1e-9)[0]
    if program.along is not None:
        if data.n_passes:
            needs = {f"the blocks of {terms.n_atoms} atoms": 16.0 * terms.n_atoms * program.n_columns}
            check_memory(needs, data.limit, "A larger alpha has fewer atoms; or raise max_memory.")
        terms = terms.widened(program.X, data, program.along)
    W = terms.to_decomposition(data.shape, is_low_rank=program.is_rank_one)
    if is_debiased and program.is_rank_one and W.n_atoms:
        W = polish(data, to_columns(W)).to_decomposition()
    return with_data(W, data)
