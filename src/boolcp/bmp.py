"""BMP: the door to Boolean matching pursuit, a scikit-learn estimator."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from difflib import get_close_matches
from inspect import signature
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from boolcp import checks
from boolcp.fit.checkpoint import describe_fit, open_checkpoint, read_parameters
from boolcp.fit.finish import find_undetermined
from boolcp.fit.in_passes import open_lazy
from boolcp.fit.job import Job
from boolcp.fit.loss_sweeps import solve_rows
from boolcp.fit.losses import Loss, Problem
from boolcp.fit.order import Order, given_order, in_order, list_in_order
from boolcp.fit.paths import estimates
from boolcp.fit.plan import make_plan, run
from boolcp.fit.state import STOP_REASONS, Settings, State
from boolcp.fit.transform import (
    design,
    explained_deviance,
    explained_share,
    fills,
    fitted_freedom,
    is_exact,
    solve_factor,
)
from boolcp.fit.watch import Bars, Progress, Watch
from boolcp.io.atomic import locked
from boolcp.io.errors import reading
from boolcp.memory import check_memory, float_bytes, read_memory
from boolcp.result.atoms import BooleanCP
from boolcp.result.labels import Labels, read_labels
from boolcp.storage import listed_or_masked, make_storage, stays_out
from boolcp.storage.filling import filled_array, filled_in_bounds
from boolcp.storage.lazy import look_at, make_source
from boolcp.storage.protocol import Storage
from boolcp.storage.sources import load
from boolcp.threads import one_thread

AUTO, BLOCK = "auto", "block"
N_NOISE = 2  # fits by which the noise of slices is estimated; not tuned
NOISE_FLOOR = 1e-3  # variance of a slice at least, relative to their mean, of which weights are estimated; not tuned

Callback = Callable[[Progress], Any]
Weights = ArrayLike | Mapping[int | str, ArrayLike] | Sequence[ArrayLike | None] | str | int


class BMP(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Boolean matching pursuit: a tensor as a sum of atoms that are on or off along one mode and real along the others.

    Parameters
    ----------
    n_atoms : int or "auto"
        Number of atoms K. "auto" lets `select_n_atoms` choose it from 0 to 10 by the error on held-out entries, and
        `selection_` holds what it found; at least one atom is fitted.
    boolean_modes : list of int or str, optional
        The modes allowed to be Boolean (indices, or names of dimensions for an xarray DataArray). None allows all
        that have more than one entry.
    atom_rank : int or "block"
        Rank of the real part of each atom. 1: z (x) u (x) w, the Boolean CP of the paper's Eq. (1). An integer L: z
        times a part of rank L. "block": a dense real part, Algorithm 2 to the letter.
    loss : {"squared", "huber", "poisson", "bernoulli"}
        What is minimized. "huber" grows only linearly beyond 1.5 standard deviations of the noise (from the median
        absolute deviation of what a first fit leaves), for recordings with artifacts. "poisson" is for counts and
        "bernoulli" for entries from 0 to 1; W is their mean, and its real parts are nonnegative. Losses other than
        "squared" take atoms of rank one.
    nonnegative : bool or list of int or str
        Keep the real parts of all atoms at zero or above: along all modes, or along those listed (dense blocks as a
        whole).
    criterion : {"normalized", "published"}
        What the atom search maximizes: z'Cz / |z|^2, the true decrease of the loss, or z'Cz as printed in the paper.
    refine : bool
        Correct all factors after the pursuit (relax, round, polish), not only the weights.
    n_init : int, optional
        Maximum number of starts of the refinement. It ends early when two independent starts lead to the same loss
        and none to a lower one; from ``n_init=15`` on, when one in five does. None means 40 for complete data, where
        one in five of those so far is enough, and 10 for other losses; up to 30 over the observed entries if there are
        fewer than 10 for each free parameter and starts lower the loss much.
    max_iter : int
        Maximum number of sweeps of a polish.
    sigma : float, optional
        Standard deviation of the noise where entries are missing; estimated from the data if None.
    compression : bool
        Search on a projection to the leading directions of each mode when that is much smaller, and finish on the
        full tensor.
    certify : bool
        Compute the certificate of each atom.
    tol : float
        The pursuit stops when |X - W| <= tol |X|.
    random_state : int, Generator or None
        Seed. The same seed gives the same result.
    verbose : int
        1 shows a progress bar for each stage in a terminal.
    max_memory : int, str or None
        Memory that the fit of a lazy array may use: bytes, or a text such as "3GB"; None means all available memory.
        A fit that needs more raises an error with an estimate. A memory map larger than half of it is read in slabs.

    Attributes
    ----------
    decomposition_ : BooleanCP
        The result.
    path_ : tuple of BooleanCP
        The pursuit's estimates W^0 .. W^K, one for each number of atoms.
    history_ : tuple of AtomRecord
        For each atom of the path: loss, relative error, mode, number of ones, certificate, seconds. With missing
        entries, a refined fit computes the certificates of `decomposition_` only, and these are NaN.
    n_iter_ : int
        Number of steps of the pursuit.
    n_passes_ : int
        Number of passes over a lazy array; 0 for one in memory.
    converged_ : bool
        False if the pursuit stopped before it reached `n_atoms` without explaining the tensor.
    stop_reason_ : str
        Why the pursuit stopped, or that the callback stopped the fit.
    selection_ : Selection
        With ``n_atoms="auto"``, the error for each number of atoms and the choice.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 3, noise=0.1, random_state=0)
    >>> model = boolcp.BMP(n_atoms=3, random_state=0).fit(X)
    >>> model.decomposition_.n_atoms
    3
    >>> boolcp.metrics.hamming_error(model.decomposition_, truth)
    0.0
    """

    def __init__(
        self,
        n_atoms: int | str = 10,
        *,
        boolean_modes: Sequence[int | str] | int | str | None = None,
        atom_rank: int | str = 1,
        loss: str = "squared",
        nonnegative: bool | Sequence[int | str] = False,
        criterion: str = "normalized",
        refine: bool = True,
        n_init: int | None = None,
        max_iter: int = 50,
        sigma: float | None = None,
        compression: bool = True,
        certify: bool = True,
        tol: float = 1e-6,
        random_state: Any = None,
        verbose: int = 0,
        max_memory: float | str | None = None,
    ) -> None:
        self.n_atoms: Any = n_atoms
        self.boolean_modes = boolean_modes
        self.atom_rank = atom_rank
        self.loss = loss
        self.nonnegative = nonnegative
        self.criterion = criterion
        self.refine = refine
        self.n_init = n_init
        self.max_iter = max_iter
        self.sigma = sigma
        self.compression = compression
        self.certify = certify
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose
        self.max_memory = max_memory

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.three_d_array = True
        return tags

    @classmethod
    def as_published(cls, n_atoms: int = 10, **options: Any) -> "BMP":
        """Return a BMP that does exactly what the paper prints.

        Published criterion, block atoms, weights-only correction.

        Examples
        --------
        >>> import boolcp
        >>> boolcp.BMP.as_published(5)
        BMP(atom_rank='block', criterion='published', n_atoms=5, refine=False)
        """
        return cls(n_atoms, atom_rank="block", criterion="published", refine=False, **options)

    def fit(
        self,
        X: Any,
        y: None = None,
        *,
        mask: ArrayLike | None = None,
        weights: Weights | None = None,
        checkpoint: str | PathLike[str] | None = None,
        callback: Callback | None = None,
    ) -> "BMP":
        """Decompose X and return the fitted estimator.

        Parameters
        ----------
        X : array-like or xarray.DataArray, shape (d_1, .., d_N), N >= 2
            The tensor, of any real dtype and memory order. It is never changed. A lazy array (dask, zarr, h5py, or a
            large memory map) is read in slabs and never loaded as a whole. The order of rows and modes changes nothing
            in the atoms of an array in memory of up to 2^27 entries.
        y : None
            Ignored.
        mask : array-like of bool, optional
            True where X is observed.
        weights : array-like, dict, list or str, optional
            How much each entry counts in the loss, sum w (x - W)^2; 0 means missing. One over the variance of its noise
            is best. An array of the shape of X (for a list of entries, one for each of them); or vectors by mode,
            ``{"channel": vector}``, ``{0: vector}`` or ``[vector, None, vector]``, which are multiplied; or the name
            or index of a mode, whose slices get one over the variance that a first fit without weights leaves of them.
            The array may be lazy.
        checkpoint : str or path, optional
            A file that stores the progress of the fit. It is written at the end of each stage, and after steps (an
            atom, a start, a sweep over the full data) at most once a second and for at most a tenth of the time. If
            the file exists, the fit resumes from it and returns what an uninterrupted fit would have returned; the
            file of a finished fit returns its result at once. A file from different data or parameters raises an
            error. The previous version of the file is kept as ``<checkpoint>.previous``.
        callback : callable, optional
            Called as ``callback(progress)`` with a `Progress` after each step. If it returns True or raises
            KeyboardInterrupt, the fit stops with the best result so far. If it returns "refine", only the pursuit
            stops, and its atoms are refined.

        Examples
        --------
        >>> import boolcp
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 3, noise=0.1, random_state=0)
        >>> boolcp.BMP(n_atoms=3, random_state=0).fit(X).decomposition_
        BooleanCP(20 x 25 x 30, 3 atoms: 1 along mode 0, 1 along mode 1, 1 along mode 2, explained 0.9903)

        Stop when the error is small enough:

        >>> model = boolcp.BMP(n_atoms=3, random_state=0)
        >>> model.fit(X, callback=lambda progress: progress.relative_error < 0.8).decomposition_.n_atoms
        1
        >>> model.stop_reason_
        'stopped by the callback: this is the best result so far'
        """
        from boolcp.trust.degeneracy import degeneracy

        if self.n_atoms == AUTO:
            return self._fit_chosen(X, mask, weights, checkpoint=checkpoint, callback=callback)
        self._check_parameters()
        checks.check_callback(callback)
        data, labels, order = self._read(X, mask, weights, is_fitted=False)
        rng = checks.make_generator(self.random_state)
        job = self._job(data, labels, order, rng)
        with one_thread():  # also for |X|^2: several threads would round it differently when a fit is resumed
            with self._watch(job, State(), callback, checkpoint) as (watch, state):
                pursuit, W = run(job, make_plan(data, job.settings), state, watch)
        empty = find_undetermined(data)
        found = order.inverse.decompositions([replace(V, undetermined=empty) for V in (*pursuit.path, W)])
        *path, W = (replace(V, labels=labels) for V in found)
        checks.warn_undetermined(W.undetermined or {}, dims_of(labels))
        self.path_, self.history_ = tuple(path), order.inverse.records(pursuit.history)
        if W.trust is not None:
            n_atoms = job.settings.n_atoms
            n_asked = n_atoms * (W.n_atoms < n_atoms and pursuit.stop_reason != "stopped")
            W = replace(W, trust=replace(W.trust, n_asked=n_asked, is_limited=self.boolean_modes is not None))
        self.decomposition_ = W
        checks.warn_overfull(W.n_parameters, data.n_observed)
        poor = degeneracy(W)
        checks.warn_degenerate(poor.faults, poor.score)
        self.n_iter_ = len(pursuit.history)
        self.stop_reason_ = STOP_REASONS[pursuit.stop_reason]
        self.n_passes_ = data.n_passes
        self.converged_ = pursuit.stop_reason in ("n_atoms", "explained", "zero")
        if pursuit.stop_reason == "zero":
            checks.warn_zero()
        return self

    def _fit_chosen(self, X: Any, mask: ArrayLike | None, weights: Weights | None, **how: Any) -> "BMP":
        """Fit as many atoms as `select_n_atoms` chooses."""
        from boolcp.trust.selection import select_n_atoms

        if how["checkpoint"] is not None:
            raise ValueError(
                'n_atoms="auto" runs many fits, which have no checkpoint: call '
                "boolcp.select_n_atoms first, and pass the number it chooses."
            )
        own = {"n_atoms", "random_state", "verbose", "certify"}
        options = {name: value for name, value in self.get_params().items() if name not in own}
        rng, seed = checks.make_generator(self.random_state).spawn(2)
        own_data: dict[str, Any] = {"mask": mask, "weights": weights}
        self.selection_ = select_n_atoms(X, random_state=seed, verbose=self.verbose, **own_data, **options)
        if not self.selection_.n_atoms:
            checks.warn_no_atom()
        chosen = clone(self).set_params(n_atoms=max(self.selection_.n_atoms, 1), random_state=rng)
        chosen.fit(X, **own_data, **how)
        for name in vars(chosen).keys() - self.get_params().keys():
            setattr(self, name, getattr(chosen, name))
        return self

    @classmethod
    def resume(
        cls,
        path: str | PathLike[str],
        X: Any,
        mask: ArrayLike | None = None,
        *,
        weights: Weights | None = None,
        callback: Callback | None = None,
        verbose: int = 0,
    ) -> "BMP":
        """Resume a fit from its checkpoint, with its parameters and its random state, and return the fitted BMP.

        The result equals that of an uninterrupted fit, to the last bit if the machine and the versions are the same.

        Parameters
        ----------
        path : str or path
            The file that was passed to `fit` as `checkpoint`. If it is damaged, its previous version is used.
        X, mask, weights
            The data of that fit; different data raise an error.
        callback : callable, optional
            As in `fit`; it is not called for steps that the checkpoint already contains.
        verbose : int
            1 shows progress bars.

        Examples
        --------
        >>> import boolcp, pathlib, tempfile
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 3, noise=0.1, random_state=0)
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "fit.npz"
        >>> stop = boolcp.BMP(3, random_state=0).fit(X, checkpoint=path, callback=lambda progress: True)
        >>> stop.decomposition_.n_atoms
        1
        >>> boolcp.BMP.resume(path, X).decomposition_.n_atoms
        3
        """
        with reading(path, "checkpoint"):
            model = cls(**read_parameters(path), verbose=verbose)
            model._check_parameters()
            checks.make_generator(model.random_state)
        return model.fit(X, mask=mask, weights=weights, checkpoint=path, callback=callback)

    def fit_path(
        self, X: Any, *, mask: ArrayLike | None = None, weights: Weights | None = None
    ) -> tuple[BooleanCP, ...]:
        """Return the refined estimates with 0, 1, .., n_atoms atoms, each corrected in all factors.

        `path_` holds the steps of the pursuit. This method refines every number of atoms in turn, each starting from
        the one before: a cheap look at all of them. The estimator itself does not change.

        Examples
        --------
        >>> import boolcp
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 3, noise=0.1, random_state=0)
        >>> path = boolcp.BMP(n_atoms=3, random_state=0).fit_path(X)
        >>> [round(boolcp.metrics.rmse(W, clean), 2) for W in path]
        [1.01, 0.76, 0.51, 0.01]
        """
        self._check_parameters()
        data, labels, order = self._read(X, mask, weights, is_fitted=False, is_path=True)
        rng = checks.make_generator(self.random_state)
        job = self._job(data, labels, order, rng)
        with one_thread(), closing(Bars()) as bars:
            path = estimates(job, bars if self.verbose else lambda progress: None)
        return tuple(replace(W, labels=labels) for W in order.inverse.decompositions(path))

    def complete(self, X: Any, *, mask: ArrayLike | None = None, weights: Weights | None = None) -> Any:
        """Return X with its missing entries filled in from the decomposition; observed entries keep their values.

        In memory, a low-rank estimate of what the atoms leave is added where it predicts held-out entries.
        Unless the decomposition explains the observed entries to the tolerance, fills are clipped to the range of what
        is observed, with a warning (not for a lazy X) if some were far outside, and shrunk towards the mean by as much
        as the noise asks for. Slices without any observed entry stay NaN.

        Parameters
        ----------
        X : array-like or xarray.DataArray
            The tensor that was fitted, with NaN (or False in `mask`) where entries are missing.
        mask : array-like of bool, optional
            True where X is observed.
        weights : array-like or dict, optional
            Weights as in `fit`: entries of weight zero are missing.

        Returns
        -------
        ndarray or xarray.DataArray
            A filled copy of X. For a lazy X it is a dask array, filled block by block when it is computed.

        Examples
        --------
        >>> import boolcp
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, missing=0.3, random_state=0)
        >>> filled = boolcp.BMP(n_atoms=2, random_state=0).fit(X).complete(X)
        >>> bool(boolcp.metrics.rmse(filled, clean) < 1e-6)
        True
        """
        check_is_fitted(self)
        W = self.decomposition_
        values, labels = read_labels(X)
        checks.check_dims(dims_of(labels), W.dims)
        if weights is not None and not isinstance(weights, str | int):
            known = checks.check_weights(weights, values.shape, W.dims) > 0
            mask = known if mask is None else known & np.asarray(mask, dtype=bool)
        if stays_out(values, self.max_memory):
            checks.check_lazy(values, mask)
            checks.check_shape(values.shape, W.shape, None)
            dof = fitted_freedom(W) if self.loss == "squared" else None
            filled = filled_array(values, mask, W) if is_exact(W) else filled_in_bounds(values, mask, W, dof)
        else:
            values, observed = checks.check_tensor(values, mask)
            checks.check_shape(values.shape, W.shape, None)
            filled = np.array(values)
            if observed is not None:
                filled[~observed] = fills(W, values, observed, is_shrunk=self.loss == "squared")
        return filled if labels is None else X.copy(data=filled)

    def transform(
        self, X: Any, *, mode: int | str = 0, mask: ArrayLike | None = None, weights: Weights | None = None
    ) -> np.ndarray:
        """Return the factor of new data along one mode, the other factors fixed.

        Parameters
        ----------
        X : array-like
            New data, such as new trials, with the fitted sizes in all modes except `mode`.
        mode : int or str
            The mode along which the data are new: its index, or its name if the fitted data had names.
        mask : array-like of bool, optional
            True where X is observed.
        weights : array-like or dict, optional
            How much each entry counts, as in `fit`.

        Returns
        -------
        ndarray of shape (X.shape[mode], K)
            One column for each atom: exactly 0/1 where the atom is Boolean along `mode`, else real. An atom of rank
            L > 1 that is real along `mode` has L columns.

        Examples
        --------
        >>> import boolcp
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 3, noise=0.1, random_state=0)
        >>> model = boolcp.BMP(n_atoms=3, random_state=0).fit(X[:, :, :20])
        >>> model.transform(X[:, :, 20:], mode=2).shape  # ten new slices along mode 2
        (10, 3)
        """
        check_is_fitted(self)
        data, *_ = self._read(X, mask, weights, is_fitted=True)
        mode = checks.check_mode(mode, self.decomposition_.ndim, self.decomposition_.dims)
        checks.check_shape(data.shape, self.decomposition_.shape, mode)
        with one_thread():
            return self._solve(data, mode).astype(data.dtype)

    def _solve(self, data: Storage, mode: int) -> np.ndarray:
        """Return the factor of new data along a mode, under the loss of the fit and with its constraints."""
        W = self.decomposition_
        signs = checks.check_nonnegative(self.nonnegative, W.shape, W.dims)
        if W.deviance is None:
            return solve_factor(data, W, mode, is_nonnegative=mode in signs)
        loss = Loss(W.deviance.loss, W.deviance.scale)
        signs = signs if loss.name == "huber" else tuple(range(W.ndim))
        checks.check_loss_data(data.entries()[1], loss.name, data.entries()[0])
        return solve_rows(Problem(data, loss, signs), W, mode)

    def fit_transform(
        self, X: Any, y: None = None, *, mask: ArrayLike | None = None, weights: Weights | None = None
    ) -> np.ndarray:
        """Decompose X and return its factor along mode 0.

        Examples
        --------
        >>> import boolcp
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 3, noise=0.1, random_state=0)
        >>> boolcp.BMP(n_atoms=3, random_state=0).fit_transform(X).shape
        (20, 3)
        """
        if isinstance(weights, str | int):
            weights = self.noise_weights(X, weights, mask=mask)
        return self.fit(X, y, mask=mask, weights=weights).transform(X, mask=mask, weights=weights)

    def inverse_transform(self, X: ArrayLike, *, mode: int | str = 0) -> np.ndarray:
        """Return the tensor whose factor along `mode` is X, as `transform` gives it.

        Examples
        --------
        >>> import boolcp
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 3, noise=0.1, random_state=0)
        >>> model = boolcp.BMP(n_atoms=3, random_state=0).fit(X)
        >>> model.inverse_transform(model.transform(X)).shape
        (20, 25, 30)
        """
        check_is_fitted(self)
        A = np.asarray(X)
        W = self.decomposition_
        mode = checks.check_mode(mode, W.ndim, W.dims)
        blocks, _ = design(W, mode)
        if A.ndim != 2 or A.shape[1] != len(blocks):
            raise ValueError(
                f"X has shape {A.shape}, but the factor along mode {mode} has {len(blocks)} columns: pass a matrix "
                f"with that many columns, as `transform` returns it."
            )
        return np.moveaxis(np.tensordot(A, blocks, axes=1), 0, mode)

    def score(self, X: Any, y: None = None, *, weights: Weights | None = None) -> float:
        """Return the share of variance of X that is explained when its factor along mode 0 is solved for again.

        Block atoms that are dense along mode 0 are scored as they are, which needs data of the fitted shape. With
        `weights`, as in `fit`, squares are weighted.

        Examples
        --------
        >>> import boolcp
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 3, noise=0.1, random_state=0)
        >>> round(boolcp.BMP(n_atoms=3, random_state=0).fit(X).score(X), 3)
        0.99
        """
        check_is_fitted(self)
        W = self.decomposition_
        data, *_ = self._read(X, None, weights, is_fitted=True)
        checks.check_shape(data.shape, W.shape, 0)
        with one_thread():
            if data.shape == W.shape and any(atom.rank is None and atom.mode != 0 for atom in W.atoms):
                return 1 - data.residual(W).squared_norm / data.squared_norm if data.squared_norm else 1.0
            A = self._solve(data, 0)
            return explained_share(data, W, A) if W.deviance is None else explained_deviance(data, W, A)

    def _check_parameters(self) -> None:
        """Raise unless the parameters are such as a fit needs."""
        checks.check_integer(self.n_atoms, "n_atoms", 1, other="" if self.n_atoms == AUTO else ' or "auto"')
        checks.check_rank(self.atom_rank)
        checks.check_choice(self.loss, "loss", checks.LOSSES)
        is_other = self.loss != "squared" or not checks.is_same(self.nonnegative, False)
        if is_other and not self.refine:
            raise ValueError("Losses and nonnegative parts need refine=True.")
        if self.atom_rank == BLOCK and not isinstance(self.nonnegative, bool):
            raise ValueError("Dense blocks are nonnegative along all modes or none: set nonnegative=True, not a list.")
        if self.loss != "squared" and self.atom_rank != 1:
            raise ValueError(f'loss="{self.loss}" needs atoms of rank one: set atom_rank=1, not {self.atom_rank}.')
        checks.check_choice(self.criterion, "criterion", checks.CRITERIA)
        for name in ("refine", "compression", "certify"):
            checks.check_flag(getattr(self, name), name)
        checks.check_number(self.tol, "tol")
        if self.n_init is not None:
            checks.check_integer(self.n_init, "n_init", 1)
        checks.check_integer(self.max_iter, "max_iter", 1)
        if self.sigma is not None:
            checks.check_number(self.sigma, "sigma")
        read_memory(self.max_memory)

    def _job(self, data: Storage, labels: Labels | None, order: Order, rng: np.random.Generator) -> Job:
        """Return what a fit is given, modes in the order of the data."""
        modes = order.places(checks.check_modes(self.boolean_modes, order.shape, dims_of(labels)))
        settings = self._settings(order.shape, dims_of(labels))
        settings = replace(settings, nonnegative=order.places(settings.nonnegative))
        return Job(data, modes, rng, settings)

    def _settings(self, shape: Sequence[int], dims: Sequence[str] | None) -> Settings:
        """Return the parameters that a fit of a tensor of this shape depends on."""
        given = {name: getattr(self, name) for name in Settings.__dataclass_fields__}
        given = {name: value.item() if isinstance(value, np.generic) else value for name, value in given.items()}
        signs = True if self.loss in ("poisson", "bernoulli") else self.nonnegative
        given["atom_rank"] = None if self.atom_rank == BLOCK else given["atom_rank"]
        return Settings(**(given | {"nonnegative": checks.check_nonnegative(signs, shape, dims)}))

    @contextmanager
    def _watch(
        self, job: Job, state: State, callback: Callback | None, checkpoint: str | PathLike[str] | None
    ) -> Iterator[tuple[Watch, State]]:
        """Yield the Watch of a fit and the state it begins in, that of the checkpoint if there is one."""
        callbacks: list[Callback] = [Bars()] if self.verbose else []
        callbacks += [] if callback is None else [callback]
        if checkpoint is None:
            with Watch(job.rng, callbacks) as watch:
                yield watch, state
            return
        header = describe_fit(self.get_params(), job.data, job.modes, job.rng)
        with locked(Path(checkpoint).expanduser()):  # two processes that share a file would spoil each other's steps
            stages = [stage.name for stage in make_plan(job.data, job.settings)]
            files, state = open_checkpoint(checkpoint, header, job.rng, state, stages)
            with Watch(job.rng, callbacks, files, header) as watch:
                yield watch, state

    def noise_weights(self, X: Any, mode: int | str, *, mask: ArrayLike | None = None) -> dict[str | int, np.ndarray]:
        """Return one over the variance of the noise of each slice along a mode, on average one.

        It is what a fit without weights leaves, and then one with the weights that this gives. They are those that
        ``fit(X, weights=mode)`` uses.

        Examples
        --------
        >>> import boolcp
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, noise=0.1, random_state=0)
        >>> X[0] += 5 * X[0, ::-1]  # a bad channel
        >>> weights = boolcp.BMP(2, random_state=0).noise_weights(X, 0)
        >>> bool(weights[0][0] < 0.1)
        True
        """
        first = clone(self).set_params(certify=False, verbose=0, loss="squared")
        data, labels, order = first._read(X, mask, is_fitted=False)
        given_mode = checks.check_mode(mode, data.ndim, dims_of(labels), name="weights")
        at = order.modes.index(given_mode)
        given: Any = None
        for _ in range(N_NOISE):
            W = order.decompositions([first.fit(X, mask=mask, weights=given).decomposition_])[0]
            R = data.residual(W)
            variance = np.diag(R.gram(at)) / np.maximum(data.n_observed_along(at), 1)
            weights = 1 / np.maximum(variance, NOISE_FLOOR * variance.mean() or 1.0)
            given = {mode: (weights / weights.mean())[order.inverse.rows[at]]}
        return given

    def _read(
        self, X: Any, mask: ArrayLike | None, weights: Weights | None = None, *, is_fitted: bool, is_path: bool = False
    ) -> tuple[Storage, Labels | None, Order]:
        """Return the storage of X, its labels, and the order in which it has X; `is_fitted` says that X is new data.

        New data and lazy arrays stay in the order they are given in. `is_path` says that estimates of all numbers of
        atoms are asked for.
        """
        if isinstance(weights, str | int):
            if is_fitted:
                raise ValueError(f"weights={weights!r} is estimated by `fit` only: pass vectors by mode, or an array.")
            weights = self.noise_weights(X, weights, mask=mask)
        if checks.is_listed(X):
            indices, values, shape = checks.check_listed(X)
            if weights is not None:
                weights = checks.check_listed_weights(weights, X, indices, shape)
            checks.check_loss_data(values, self.loss, indices)
            order = given_order(shape)
            if not is_fitted:
                order, indices, values, weights = list_in_order(indices, values, shape, weights)
            return listed_or_masked(indices, values, [shape[n] for n in order.modes], weights), None, order
        given = X
        X, labels = read_labels(X)
        if is_fitted:
            checks.check_dims(dims_of(labels), self.decomposition_.dims)
        if stays_out(X, self.max_memory):
            if why := self._why_loaded(weights, is_fitted=is_fitted, is_path=is_path):
                needs = {"the tensor in memory, with copies and weights": 5.0 * float_bytes(X.shape, np.dtype(float))}
                advice = f"A fit with {why} loads X: raise max_memory, or fit without {why}, or a part of X."
                check_memory(needs, read_memory(self.max_memory), advice)
            else:
                data = self._read_lazy(X, mask, weights, labels, is_fitted=is_fitted)
                if data is not None:
                    return data, labels, given_order(X.shape)
            X = load(X)
        X, observed = checks.check_tensor(X, mask)
        validate_data(self, given if labels is None else X, reset=not is_fitted, skip_check_array=True)
        checks.check_loss_data(X if observed is None else np.where(observed, X, np.nan), self.loss)
        if weights is not None:
            weights = checks.check_weights(weights, X.shape, dims_of(labels))
            if observed is not None and not (weights * observed).any():
                raise ValueError("weights is zero at every observed entry of X: no entry counts.")
        order = given_order(X.shape)
        if not is_fitted:
            order, X, observed, weights = in_order(X, observed, weights)
        return make_storage(X, observed, weights), labels, order

    def _why_loaded(self, weights: Any, *, is_fitted: bool, is_path: bool) -> str:
        """Return why a lazy array has to be loaded, nothing if it need not be."""
        if self.loss == "bernoulli":
            return "loss='bernoulli'"
        if self.loss != "squared" and is_fitted:
            return "new data under a loss"
        if self.loss == "squared" and checks.is_same(self.nonnegative, False):
            return ""
        own = "a loss or nonnegative parts"
        if weights is not None or self.atom_rank == BLOCK:
            return f"{own} beside " + ("weights" if weights is not None else "dense blocks")
        return f"a path under {own}" if is_path else ""

    def _read_lazy(self, X: Any, mask: Any, weights: Any, labels: Labels | None, *, is_fitted: bool) -> Storage | None:
        """Return the storage of a lazy array, or None if these parameters need it in memory."""
        checks.check_lazy(X, mask)
        weights = checks.check_lazy_weights(weights, X.shape, dims_of(labels))
        validate_data(self, X, reset=not is_fitted, skip_check_array=True)
        if is_fitted:
            return look_at(make_source(X, mask, self.max_memory, weights=weights), read_memory(self.max_memory))
        checks.check_modes(self.boolean_modes, X.shape, dims_of(labels))
        settings = self._settings(X.shape, dims_of(labels))
        return open_lazy(settings, X, mask, self.max_memory, weights)


def decompose(X: Any, n_atoms: int | str = 10, **options: Any) -> BooleanCP:
    """Return the BooleanCP of X in one call; options are those of BMP, and `mask` and `weights`.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, random_state=0)
    >>> boolcp.decompose(X, 2, random_state=0).n_atoms
    2
    """
    how = {name: options.pop(name) for name in ("mask", "weights") if name in options}
    check_options(decompose, options)
    return BMP(n_atoms, **options).fit(X, **how).decomposition_


def check_options(function: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Raise unless the options of a function are parameters of BMP; say what they may be meant for."""
    known = {name for name in BMP._get_param_names() if name != "n_atoms"}
    for name in options.keys() - known:
        close = get_close_matches(name, sorted(known | set(signature(function).parameters) | {"mask", "weights"}))
        meant = f": do you mean {' or '.join(close)}?" if close else ". Options are the parameters of BMP."
        raise TypeError(f"{function.__name__}() has no option {name!r}{meant}")


def dims_of(labels: Labels | None) -> tuple[str, ...] | None:
    """Return the names of the modes, if there are any."""
    return None if labels is None else labels.dims
