"""BMP: the public entry to Boolean matching pursuit, a scikit-learn estimator."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from difflib import get_close_matches
from inspect import signature
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn import get_config
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from boolcp import checks
from boolcp.fit.certify import left_correlation, with_system
from boolcp.fit.checkpoint import Checkpoint, read_parameters
from boolcp.fit.fit import EXTRA, Fit, path_of, run
from boolcp.fit.losses import make_loss
from boolcp.fit.neighbors import plain_graphs, read_graphs
from boolcp.fit.spec import STOP_REASONS, Spec
from boolcp.fit.transform import column_names, design, fills, solve_factor
from boolcp.fit.watch import Bars, Progress
from boolcp.io.atomic import locked
from boolcp.io.errors import reading
from boolcp.prepare.whiten import read_noise
from boolcp.result.atoms import BooleanCP, with_mean
from boolcp.result.labels import Labels, aligned, is_labelled, labelled, labelled_factor, read_aligned
from boolcp.result.noise import Noise
from boolcp.storage import describe, make_storage, stays_out
from boolcp.storage.dense import n_observed
from boolcp.storage.lazy import Lazy, filled, open_or_load
from boolcp.storage.protocol import Storage
from boolcp.storage.weighted import SQUARES, Loss, Weighted
from boolcp.system import one_thread, read_memory

AUTO, BLOCK = "auto", "block"

Callback = Callable[[Progress], Any]


class BMP(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Boolean matching pursuit: a tensor as a sum of atoms that are on or off along one mode and real along the others.

    Parameters
    ----------
    n_atoms : int or "auto"
        Number of atoms K. "auto": the largest, up to 10, whose atoms all replicate (`select_n_atoms`).
    boolean_modes : list of int or str, optional
        The modes allowed to be Boolean: indices, or names of dimensions. None: all that have more than one entry.
    atom_rank : int or "block"
        Rank L of the real part of each atom; 1 is the Boolean CP of the paper's Eq. (1). "block": a dense real part,
        Algorithm 2 to the letter.
    loss : {"squared", "huber", "poisson", "bernoulli"}
        What is minimized. "huber" grows linearly beyond 1.5 standard deviations of the noise, for artifacts; "poisson"
        is for counts, "bernoulli" for entries from 0 to 1: W is their mean, with nonnegative real parts. All but
        "squared" take atoms of rank one.
    nonnegative : bool or list of int or str
        Keep the real parts of all atoms at zero or above: along all modes, or along those listed.
    mean : bool
        Fit the mean over the one Boolean mode as well, like an intercept: atoms then say how slices differ.
        Bits and their complement say the same then: those with fewer ones are returned.
    noise : {"white", "separable"}, mapping or mne.Covariance
        The noise of the entries. "separable": a covariance along each mode that is real in all atoms, estimated from
        what varies over the Boolean mode, for recordings whose noise is smooth in space and time; a mapping such as
        ``{"channel": S}`` gives them. The fit runs on the whitened tensor, which must be complete; patterns and weights
        come back in the units of X. Slices along the Boolean mode may have `weights`.
    adjacency : mapping, optional
        Graphs along modes where the bits of neighbors tend to agree, such as ``{"channel": A, "time": "chain"}``: an
        adjacency matrix (dense or scipy.sparse), a pair of it and the labels of its rows, "chain", or "auto": by the
        coordinates x, y, z of X, else a chain. For each edge and atom smoothness * sigma^2 * (z_i - z_j)^2 is added to
        the loss. For complete data in memory.
    smoothness : float or "auto"
        How much an edge counts, in units of the noise variance sigma^2. "auto": for atoms whose bits clearly tend to
        agree with their neighbors 14 over the mean number of these, more where noise is correlated; 0 for others.
    refine : bool
        Correct all factors after each atom and search from several starts. False: Algorithm 1 as printed.
    n_init : int, optional
        Maximum number of starts. It ends when two starts reach the same loss. None: at most 16, 40 of a matrix.
    max_iter : int
        Maximum number of sweeps of a polish; of the first over small data in memory four times as many.
    sigma : float, optional
        Standard deviation of the noise where entries are missing; estimated from the data if None.
    certify : bool
        Compute the certificate of each atom.
    random_state : int, Generator or None
        Seed. The same seed gives the same result.
    verbose : int
        1 shows a progress bar for each stage in a terminal.
    max_memory : int, str or None
        Memory that the fit of a lazy array may use: bytes, or a text such as "3GB"; None: all available memory. A
        memory map larger than half of it is read in slabs.

    Attributes
    ----------
    decomposition_, path_ : BooleanCP, tuple of BooleanCP
        The result, and the estimates with 0, 1, .. K atoms, each corrected in all factors.
    history_, n_iter_ : tuple of AtomRecord, int
        For each atom of the path: loss, relative error, mode, number of ones, certificate (of Algorithm 1 as printed,
        otherwise NaN), seconds; and the number of steps of the pursuit.
    n_passes_ : int
        Number of passes over a lazy array; 0 for one in memory.
    converged_, stop_reason_ : bool, str
        False if the pursuit stopped before it reached `n_atoms` without explaining the tensor; why it stopped.
    selection_ : Selection
        With ``n_atoms="auto"``, how many atoms come back for each number of atoms, and the choice.

    Examples
    --------
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 3, noise=0.1, random_state=0)
    >>> model = boolcp.BMP(n_atoms=3, random_state=0).fit(X)
    >>> model.decomposition_.n_atoms, model.get_feature_names_out().tolist(), model.summary()[:7]
    (3, ['atom_0', 'atom_1', 'atom_2'], '3 atoms')
    >>> boolcp.metrics.hamming_error(model.decomposition_, truth)
    0.0
    >>> A = model.fit_transform(X)  # the factor along mode 0; `transform` takes new data along any mode
    >>> A.shape, model.transform(X[:, :, 20:], mode=2).shape, model.inverse_transform(A).shape, round(model.score(X), 3)
    ((20, 3), (10, 3), (20, 25, 30), 0.99)
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, missing=0.3, random_state=0)
    >>> bool(boolcp.metrics.rmse(boolcp.BMP(2, random_state=0).fit(X).complete(X), clean) < 1e-6)
    True
    >>> boolcp.BMP.as_published(5)
    BMP(atom_rank='block', n_atoms=5, refine=False)
    """

    def __new__(cls, *given: Any, **options: Any) -> "BMP":
        """Return a new instance; an option that is misspelled raises an error with the name that may be meant."""
        if unknown := options.keys() - set(cls._get_param_names()):
            check_options(cls, dict.fromkeys(unknown))
        return super().__new__(cls)

    def __init__(
        self,
        n_atoms: int | str = 10,
        *,
        boolean_modes: Sequence[int | str] | int | str | None = None,
        atom_rank: int | str = 1,
        loss: str = "squared",
        nonnegative: bool | Sequence[int | str] = False,
        mean: bool = False,
        noise: Any = "white",
        adjacency: Any = None,
        smoothness: Any = "auto",
        refine: bool = True,
        n_init: int | None = None,
        max_iter: int = 50,
        sigma: float | None = None,
        certify: bool = True,
        random_state: Any = None,
        verbose: int = 0,
        max_memory: float | str | None = None,
    ) -> None:
        self.n_atoms: Any = n_atoms
        self.boolean_modes, self.atom_rank, self.loss, self.nonnegative = boolean_modes, atom_rank, loss, nonnegative
        self.mean, self.noise, self.refine, self.n_init, self.max_iter = mean, noise, refine, n_init, max_iter
        self.adjacency, self.smoothness = adjacency, smoothness
        self.sigma, self.certify, self.random_state = sigma, certify, random_state
        self.verbose, self.max_memory = verbose, max_memory

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.three_d_array = True
        return tags

    @classmethod
    def as_published(cls, n_atoms: int = 10, **options: Any) -> "BMP":
        """Return a BMP that does exactly what the paper prints: block atoms, and only their weights are corrected."""
        return cls(n_atoms, atom_rank=BLOCK, refine=False, **options)

    def fit(
        self,
        X: Any,
        y: None = None,
        *,
        mask: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        checkpoint: str | PathLike[str] | None = None,
        callback: Callback | None = None,
    ) -> "BMP":
        """Decompose X and return the fitted estimator.

        Parameters
        ----------
        X : array-like or xarray.DataArray, shape (d_1, .., d_N), N >= 2
            The tensor, of any real dtype and memory order; it is never changed. A lazy array (dask, zarr, h5py, or a
            large memory map) is read in slabs; (indices, values, shape) or a sparse.COO array lists observed entries.
        y : None
            Ignored.
        mask : array-like of bool, optional
            True where X is observed.
        weights : array-like or xarray.DataArray, optional
            How much each entry counts in the loss, sum w (x - W)^2, best one over the variance of its noise; 0 means
            missing. Any shape that numpy broadcasts against X, e.g. (d_1, 1, 1), or a DataArray with some of its modes.
        checkpoint : str or path, optional
            A file for the progress, written at the end of each stage and at most once a second in between. If it
            exists, the fit resumes from it and returns what an uninterrupted fit would have returned; a file from
            different data or parameters raises an error. Its previous version is kept as ``<checkpoint>.previous``.
        callback : callable, optional
            Called with a `Progress` after each step. If it returns True or raises KeyboardInterrupt, the fit stops with
            the best result so far. If it returns "refine", only the pursuit stops, and its atoms are refined. Ctrl-C
            raises KeyboardInterrupt too, after the best result so far is set.
        """
        from boolcp.trust.degeneracy import degeneracy

        if self.n_atoms == AUTO:
            return self._fit_chosen(X, mask, weights, checkpoint=checkpoint, callback=callback)
        self._check_parameters()
        if callback is not None and not callable(callback):
            raise TypeError(f"callback must be a function of one argument, the Progress of the fit, got {callback!r}.")
        data, labels, modes, noise = self._read(X, mask, weights, is_fitted=False)
        checks.check_enough(self.n_atoms, data.shape, n_observed(data))
        seed = checks.make_seed(self.random_state)
        with one_thread():  # also for |X|^2: several threads would round it differently when a fit is resumed
            fit = Fit(data, self._spec(data, modes, labels))
            state, file = fit.begin(seed), None
            with nullcontext() if checkpoint is None else locked(Path(checkpoint).expanduser()):
                if checkpoint is not None:  # two processes that share a file would spoil each other's steps
                    file = Checkpoint(checkpoint, self._identity(seed, data, modes, fit.spec.graphs))
                    state = file.begin(state)
                callbacks: list[Callback] = [*([Bars()] if self.verbose else []), *([callback] if callback else [])]
                state = run(fit, state, callbacks, file)
        W = state.result
        assert W is not None and W.trust is not None
        is_cut = state.stop_reason in ("stopped", "interrupted", "cut")
        n_asked = int(self.n_atoms * (W.n_atoms < self.n_atoms and not is_cut))
        trust = replace(W.trust, n_asked=n_asked)
        if noise is None and len(W.members) == 1:
            trust = replace(trust, correlation=left_correlation(data, W))
        values = X if labels is None else X.data

        def finished(V: BooleanCP) -> BooleanCP:
            """Return an estimate in the units of the data, with labels, mean and noise."""
            units = data
            if noise is not None:
                counts = None if data.weights is None else data.weights.to_array()
                units = make_storage(np.asarray(values, dtype=float), None, counts, center=data.center)
                V = with_system(noise.restore_atoms(V), units)
            V = V if data.center is None else with_mean(V, values, units)
            return replace(V, labels=labels, noise=noise)

        own = {"n_atoms", "random_state", "verbose", "max_memory", "noise"}  # the covariance is that of the whole
        shared = {name: value for name, value in self.get_params().items() if name not in own}
        shared |= {"boolean_modes": None if self.boolean_modes is None else list(modes), "certify": False}
        empty = {} if data.weights is None else checks.find_empty(data.weights)
        shared |= W.parameters or {}
        self.decomposition_ = W = replace(finished(W), trust=trust, undetermined=empty, parameters=shared)
        self.history_, self.n_iter_ = state.history, len(state.history)
        self.path_: tuple[BooleanCP, ...] = ()  # Ctrl-C may come before there is one
        self.stop_reason_, self.n_passes_ = STOP_REASONS[state.stop_reason], data.n_passes
        self.converged_ = state.stop_reason in ("n_atoms", "explained", "zero")
        with one_thread():
            self.path_ = tuple(map(finished, path_of(fit, state)))
        checks.warn_of_fit(W, n_observed(data), is_zero=state.stop_reason == "zero")
        if any((poor := degeneracy(W)).reasons):
            checks.warn_degenerate(poor.faults, poor.score)
        if state.stop_reason == "interrupted":
            raise KeyboardInterrupt(f"the fit has kept the {W.n_atoms} atoms found so far (decomposition_)")
        return self

    def _fit_chosen(self, X: Any, mask: ArrayLike | None, weights: ArrayLike | None, **how: Any) -> "BMP":
        """Fit as many atoms as `select_n_atoms` chooses."""
        from boolcp.trust.selection import select_n_atoms

        if how["checkpoint"] is not None:
            advice = "call boolcp.select_n_atoms first, and pass the number it chooses"
            raise ValueError(f'n_atoms="auto" runs many fits, which have no checkpoint: {advice}.')
        own = {"n_atoms", "random_state", "verbose", "certify"}
        options = {name: value for name, value in self.get_params().items() if name not in own}
        rng, seed = checks.make_generator(self.random_state).spawn(2)
        given: dict[str, Any] = {"mask": mask, "weights": weights}
        try:
            self.selection_ = select_n_atoms(X, random_state=seed, verbose=self.verbose, **given, **options)
        except KeyboardInterrupt:  # of one of its fits, which says that it has kept its atoms
            raise KeyboardInterrupt("the number of atoms was not chosen yet: there is no result") from None
        if not self.selection_.n_atoms:
            checks.warn_no_atom()
        chosen = clone(self).set_params(n_atoms=max(self.selection_.n_atoms, 1), random_state=rng)
        try:
            chosen.fit(X, **given, **how)
        finally:  # after Ctrl-C as well
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
        weights: ArrayLike | None = None,
        callback: Callback | None = None,
        verbose: int = 0,
    ) -> "BMP":
        """Resume a fit from its checkpoint, with its parameters and its random state, and return the fitted BMP.

        Parameters
        ----------
        path : str or path
            The file that was passed to `fit` as `checkpoint`. If it is damaged, its previous version is used.
        X, mask, weights
            The data of that fit; different data raise an error.
        callback, verbose : callable, int, optional
            As in `fit` and `BMP`; the callback is not called for steps that the checkpoint already contains.

        Examples
        --------
        >>> import pathlib, tempfile
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
            checks.make_seed(model.random_state)
        return model.fit(X, mask=mask, weights=weights, checkpoint=path, callback=callback)

    def complete(self, X: Any, *, mask: ArrayLike | None = None, weights: ArrayLike | None = None) -> Any:
        """Return X with its missing entries filled in from the decomposition; observed entries keep their values.

        In memory, a low-rank estimate of what the atoms leave is added where it predicts held-out entries.
        Unless the decomposition explains the observed entries to the tolerance, fills are clipped to the range of what
        is observed, with a warning (not for a lazy X) if some were far outside, and shrunk towards the mean by as much
        as the noise asks for. Slices without any observed entry stay NaN. For a lazy X the result is a dask array.

        Parameters
        ----------
        X, mask, weights
            The tensor that was fitted, as in `fit`; entries that are NaN, masked or of weight zero are filled.
        """
        check_is_fitted(self)
        W = self.decomposition_
        values, mask, weights, labels = read_aligned(X, mask, weights, like=W.labels)
        checks.check_shape(np.shape(values), W.shape, None)
        if weights is not None:
            known = checks.check_weights(weights, values.shape) > 0
            mask = known if mask is None else known & np.asarray(mask, dtype=bool)
        if stays_out(values, self.max_memory):
            found = filled(values, mask, W)
        else:
            values, observed = checks.check_tensor(values, mask)
            found = np.array(values)
            if observed is not None:
                found[~observed] = fills(W, values, observed, is_shrunk=self.loss == "squared")
        return found if labels is None else aligned(X, W.labels).copy(data=found).transpose(*X.dims).reindex_like(X)

    def transform(
        self, X: Any, *, mode: int | str = 0, mask: ArrayLike | None = None, weights: ArrayLike | None = None
    ) -> Any:
        """Return the factor of new data along one mode, the other factors fixed.

        Parameters
        ----------
        X, mask, weights : array-like
            New data as in `fit`, such as new trials, with the fitted sizes in all modes except `mode`.
        mode : int or str
            The mode along which the data are new: its index, or its name if the fitted data had names.

        Returns
        -------
        ndarray of shape (X.shape[mode], K), a DataArray for a DataArray
            One column for each atom: exactly 0/1 where the atom is Boolean along `mode`, else real. An atom of rank
            L > 1 that is real along `mode` has L columns.
        """
        check_is_fitted(self)
        W = self.decomposition_
        mode = checks.check_mode(mode, W.ndim, W.dims)
        if W.noise is not None and mode in W.noise.covariances:
            new = next(W.dims[n] if W.dims else n for n in range(W.ndim) if n not in W.noise.covariances)
            what = f"The noise model has a covariance along mode {mode}: there cannot be new data along it"
            raise ValueError(f"{what}. Name the mode that is new, as in mode={new!r}.")
        data, *_ = self._read(X, mask, weights, is_fitted=True, mode=mode)
        with one_thread():
            values = solve_factor(data, W, mode)[0].astype(data.dtype)
        found = labelled_factor(values, column_names(W, mode), X, W.dims[mode] if W.dims else mode)
        wanted = getattr(self, "_sklearn_output_config", {}).get("transform", get_config()["transform_output"])
        return found.to_pandas() if wanted == "pandas" and is_labelled(found) else found  # a DataFrame has the labels

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the columns of `transform` along mode 0: atom_0, atom_1, .."""
        check_is_fitted(self)
        return np.array(column_names(self.decomposition_, 0), dtype=object)

    def summary(self) -> str:
        """Return the summary of the decomposition, `BooleanCP.summary`."""
        check_is_fitted(self)
        return self.decomposition_.summary()

    def fit_transform(
        self, X: Any, y: None = None, *, mask: ArrayLike | None = None, weights: ArrayLike | None = None
    ) -> Any:
        """Decompose X and return its factor along mode 0."""
        return self.fit(X, y, mask=mask, weights=weights).transform(X, mask=mask, weights=weights)

    def inverse_transform(self, X: Any, *, mode: int | str = 0) -> Any:
        """Return the tensor whose factor along `mode` is X, as `transform` gives it; a DataArray for a DataArray."""
        check_is_fitted(self)
        A, W = np.asarray(X), self.decomposition_
        mode = checks.check_mode(mode, W.ndim, W.dims)
        blocks, _ = design(W, mode)
        if A.ndim != 2 or A.shape[1] != len(blocks):
            what = f"X has shape {A.shape}, but the factor along mode {mode} has {len(blocks)} columns"
            raise ValueError(f"{what}: pass a matrix with that many columns, as `transform` returns it.")
        found = np.moveaxis(np.tensordot(A, blocks, axes=1), 0, mode)
        found = found if W.mean is None else found + W.mean
        if W.dims is None or not is_labelled(X):
            return found
        own = {name: coord for name, coord in X.coords.items() if coord.dims == (W.dims[mode],)}
        return labelled(found, W.labels, without=W.dims[mode]).assign_coords(own)

    def score(self, X: Any, y: None = None, *, weights: ArrayLike | None = None) -> float:
        """Return the share of variance of X that is explained when its factor along mode 0 is solved for again.

        With a noise model: along the first mode without a covariance, and the share of whitened data.
        Block atoms that are dense along mode 0 are scored as they are, which needs data of the fitted shape.
        """
        check_is_fitted(self)
        W = self.decomposition_
        mode = 0 if W.noise is None else min(set(range(W.ndim)) - set(W.noise.covariances))
        data, *_ = self._read(X, None, weights, is_fitted=True, mode=mode)
        with one_thread():
            has_blocks = any(atom.rank is None and atom.mode != 0 for atom in W.atoms)
            if has_blocks and W.noise is None and data.shape == W.shape:
                total = data.residual(replace(W, mean=None)).squared_norm
                return 1 - total / data.squared_norm if data.squared_norm else 1.0
            total, null = solve_factor(data, W, mode)[1], data.squared_norm
        if isinstance(data, Weighted) and data.loss.is_rate:
            null = data.total(np.full(data.shape, data.loss.null(data.x, data.w)))
        return 1 - total / null if null > 0 else 1.0

    def _check_parameters(self) -> None:
        """Raise if a parameter is invalid."""
        checks.check_integer(self.n_atoms, "n_atoms", 1, other="" if self.n_atoms == AUTO else ' or "auto"')
        if self.atom_rank is None or (isinstance(self.atom_rank, str) and self.atom_rank != BLOCK):
            kinds = 'an integer or "block" (dense real parts, once None)'
            raise ValueError(f"atom_rank must be {kinds}, got {self.atom_rank!r}: write 1 for products of columns.")
        if self.atom_rank != BLOCK:
            checks.check_integer(self.atom_rank, "atom_rank", 1, other=' or "block"')
        checks.check_choice(self.loss, "loss", checks.LOSSES)
        for name in ("refine", "certify", "mean"):
            if not isinstance(value := getattr(self, name), bool | np.bool_):
                raise TypeError(f"{name} must be True or False, got {value!r}.")
        asked = self._asked()
        is_other, has_noise = self.loss != "squared" or asked["nonnegative parts"], asked["a noise model"]
        if not self.refine and (is_other or self.mean or has_noise):
            raise ValueError("Losses, nonnegative parts, a mean and a noise model need refine=True.")
        if self.atom_rank == BLOCK and not isinstance(self.nonnegative, bool):
            raise ValueError("Dense blocks are nonnegative along all modes or none: set nonnegative=True, not a list.")
        if self.loss != "squared" and self.atom_rank != 1:
            raise ValueError(f'loss="{self.loss}" needs atoms of rank one: set atom_rank=1, not {self.atom_rank}.')
        if is_other and (self.mean or has_noise):
            what = "mean=True" if self.mean else "A noise model"
            raise ValueError(f'{what} needs loss="squared" and nonnegative=False.')
        if self.adjacency is not None and (self.loss != "squared" or self.atom_rank == BLOCK or not self.refine):
            raise ValueError('adjacency needs loss="squared", an integer atom_rank and refine=True.')
        if not isinstance(self.adjacency, Mapping | list | None):
            raise TypeError('adjacency must name the mode of each graph, such as {"channel": "auto"}.')
        if self.smoothness != AUTO:
            checks.check_number(self.smoothness, "smoothness")
        if self.n_init is not None:
            checks.check_integer(self.n_init, "n_init", 1)
        checks.check_integer(self.max_iter, "max_iter", 1)
        if self.sigma is not None:
            checks.check_number(self.sigma, "sigma")
        if self.max_memory is not None:
            read_memory(self.max_memory)

    def _spec(self, data: Storage, modes: tuple[int, ...], labels: Labels | None) -> Spec:
        """Return what a fit depends on besides its data."""
        graphs = read_graphs(self.adjacency, data.shape, labels) if self.adjacency else {}
        if not set(graphs) <= set(modes):
            raise ValueError("adjacency has a graph along a mode where no atom can be Boolean: see boolean_modes.")
        if graphs and (data.weights is not None or data.n_passes):
            raise ValueError(
                "adjacency needs complete data in memory without weights, sessions with all channels and equal noise."
            )
        rank, tol = None if self.atom_rank == BLOCK else int(self.atom_rank), np.sqrt(10 * np.finfo(data.dtype).eps)
        same = ("refine", "n_init", "max_iter", "sigma", "certify", "smoothness")
        given: dict[str, Any] = {name: getattr(self, name) for name in same}
        return Spec(int(self.n_atoms), modes, rank, tol=max(1e-6, float(tol)), graphs=graphs, **given)

    def _identity(self, seed: int, data: Storage, modes: tuple[int, ...], graphs: Mapping[int, Any]) -> dict[str, Any]:
        """Return what identifies a fit in its checkpoint, ready for JSON."""
        kept = {name: value for name, value in self.get_params().items() if name != "verbose"}
        kept["adjacency"] = plain_graphs(graphs) if graphs else None
        kept["random_state"] = None if self.random_state is None else seed
        if not isinstance(self.noise, str):
            raise ValueError('A checkpoint needs noise="white" or "separable": whiten X first, boolcp.Noise.whiten.')
        return {"parameters": kept, "data": describe(data) | {"Boolean modes": list(modes)}}

    def _asked(self) -> dict[str, bool]:
        """Return for everything that needs X in memory whether the parameters ask for it."""
        return {
            f"loss='{self.loss}'": self.loss in ("poisson", "bernoulli"),
            "atom_rank='block'": self.atom_rank == BLOCK,
            "mean=True": self.mean,
            "a noise model": not isinstance(self.noise, str) or self.noise != "white",
            "adjacency": self.adjacency is not None,
            "nonnegative parts": not isinstance(self.nonnegative, bool | np.bool_) or bool(self.nonnegative),
            "refine=False": not self.refine,
        }

    def _read(
        self, X: Any, mask: ArrayLike | None, weights: Any = None, *, is_fitted: bool, mode: int | None = None
    ) -> tuple[Storage, Labels | None, tuple[int, ...], Noise | None]:
        """Return the storage of X, its labels, Boolean modes and noise; `is_fitted` says that X is new along a mode."""
        given = X = checks.array_of_listed(X) if not isinstance(X, np.ndarray) and checks.is_listed(X) else X
        known = self.decomposition_ if is_fitted else None
        fitted = None if known is None else known.labels
        free = [] if fitted is None or mode is None else [fitted.dims[mode]]
        X, mask, weights, labels = read_aligned(X, mask, weights, like=fitted, free=free)
        dims = None if labels is None else labels.dims
        if stays_out(X, self.max_memory):
            checks.check_lazy(X, mask)
            why = "new data" if is_fitted else next((what for what, is_so in self._asked().items() if is_so), "")
            rank = EXTRA + int(self.n_atoms) * (1 if self.atom_rank == BLOCK else int(self.atom_rank))
            how: dict[str, Any] = {"rank": rank, "max_memory": self.max_memory, "needs_memory": why}
            modes = checks.check_modes(self.boolean_modes, X.shape, dims)
            found = open_or_load(X, mask, weights, loss=make_loss(self.loss, np.zeros(1)), **how)
            if isinstance(found, Lazy):
                validate_data(self, given if labels is None else X, reset=not is_fitted, skip_check_array=True)
                return found, labels, modes, None
            X, mask, weights = found
        X, observed = checks.check_tensor(X, mask)
        if mode != 1:  # scikit-learn calls mode 1 features, which may be new as well
            validate_data(self, given if labels is None else X, reset=not is_fitted, skip_check_array=True)
        if self.loss in ("poisson", "bernoulli"):
            checks.check_loss_data(X if observed is None else np.where(observed, X, np.nan), self.loss)
        if weights is not None:
            weights = checks.check_weights(weights, X.shape)
            if observed is not None and not (weights * observed).any():
                raise ValueError("weights is zero at every observed entry of X: no entry counts.")
        modes = checks.check_modes(self.boolean_modes, X.shape, dims)
        signs = True if self.loss in ("poisson", "bernoulli") else self.nonnegative
        options: dict[str, Any] = {"nonnegative": checks.check_nonnegative(signs, X.shape, dims)}
        entries = X if observed is None else X[observed]
        loss = SQUARES if self.loss == "squared" else make_loss(self.loss, entries)
        if known is not None:
            checks.check_shape(X.shape, known.shape, mode, known.dims)
            if known.deviance is not None:
                loss = Loss(known.deviance.loss, known.deviance.scale)
            if known.mean is not None:
                if any(m not in (1, d) for m, d in zip(known.mean.shape, X.shape, strict=True)):
                    raise ValueError("The mean of the fit is known only for data that are new along the Boolean mode.")
                X = X - known.mean
        elif self.mean:
            if len(modes) != 1:
                raise ValueError("mean=True needs one Boolean mode: name it, as in boolean_modes=[2].")
            options["center"] = modes[0]
        noise = known.noise if known is not None else None
        if known is None and self._asked()["a noise model"]:
            others = tuple(n for n in range(X.ndim) if n not in modes)
            if observed is not None or (weights is not None and np.ptp(weights, axis=others).any()):
                what = "complete data, and weights along the Boolean mode at most"
                raise ValueError(f"A noise model needs {what}: fill or reject what is missing.")
            noise = read_noise(self.noise, X, modes, labels, weights)
        X = X if noise is None else noise.whiten(X)
        return make_storage(X, observed, weights, loss, **options), labels, modes, noise


_own = signature(BMP.__init__)  # `__new__` would hide it
BMP.__signature__ = _own.replace(parameters=list(_own.parameters.values())[1:])


def decompose(X: Any, n_atoms: int | str = 10, **options: Any) -> BooleanCP:
    """Return the BooleanCP of X in one call; options are those of BMP, and `mask` and `weights`.

    Examples
    --------
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, random_state=0)
    >>> boolcp.decompose(X, 2, random_state=0).n_atoms
    2
    """
    how = {name: options.pop(name) for name in ("mask", "weights") if name in options}
    check_options(decompose, options)
    return BMP(n_atoms, **options).fit(X, **how).decomposition_


def check_options(function: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Raise if an option of a function is no parameter of BMP; the message names the one that may be meant."""
    known = {name for name in BMP._get_param_names() if name != "n_atoms"}
    for name in options.keys() - known:
        close = get_close_matches(name, sorted({*known, *signature(function).parameters, "mask", "weights"} - {name}))
        close = ["n_atoms"] if name in ("rank", "n_components", "n_factors") else close  # of TensorLy, scikit-learn
        meant = f": do you mean {' or '.join(close)}?" if close else ". Options are the parameters of BMP."
        raise TypeError(f"{function.__name__}() has no option {name!r}{meant}")
