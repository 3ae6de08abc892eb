"""BMP: the door to Boolean matching pursuit, a scikit-learn estimator."""

from dataclasses import replace
from functools import partial

from sklearn.base import BaseEstimator, TransformerMixin

from boolcp import applying, checks, inputs
from boolcp.fit.plan import compressed, find_undetermined, run
from boolcp.fit.pursuit import STOP_REASONS
from boolcp.fit.resuming import describe_fit, fitted_before, read_parameters
from boolcp.fit.starts import refine_path
from boolcp.fit.steps import Bars, Steps, open_steps
from boolcp.threads import one_thread


class _Score:
    """`score` is a parameter here and a method in scikit-learn: it is set as the one and read as the other."""

    def __get__(self, model, owner):
        return owner._explained if model is None else model._explained

    def __set__(self, model, value):
        vars(model)["score"] = value


class BMP(TransformerMixin, BaseEstimator):
    """Boolean matching pursuit: a tensor as a sum of atoms that are on or off along one mode and real along the others.

    Parameters
    ----------
    n_atoms : int
        Number of atoms K.
    boolean_modes : list of int or str, optional
        The modes allowed to be Boolean (indices, or names of dimensions for an xarray DataArray). None allows all
        that have more than one entry.
    atom_rank : int, None or "auto"
        Rank of the real part of each atom. 1: z (x) u (x) w, the Boolean CP of the paper's Eq. (1); an integer L: z
        times a block of rank L; None: a dense block, Algorithm 2 to the letter; "auto": chosen by the noise level.
    score : {"normalized", "published"}
        What the atom search maximizes: z'Cz / |z|^2, the true decrease of the loss, or z'Cz as printed in the paper.
    alpha : float
        Weight of the l1 penalty on the weights (the atomic norm of Eq. (3)). The factors do not feel it.
    refine : bool
        Correct all factors after the pursuit (relax, round, polish), not only the weights.
    n_init : int
        Number of starts of the refinement at most; fewer are used when two of them agree.
        Three times as many where fewer than 10 entries are observed for each free parameter.
    max_iter : int
        Sweeps of a polish at most.
    sigma : float, optional
        Standard deviation of the noise, for `atom_rank="auto"`; estimated from the data if None.
    compression : bool
        Search on a projection to the leading directions of each mode when that is much smaller, and finish on the
        full tensor.
    certify : bool
        Compute the certificate of each atom.
    tol : float
        The pursuit stops when |X - W| <= tol |X|.
    random_state : int, Generator or None
        Seed. Equal seeds give equal results.
    warm_start : bool
        Let `fit`, called again on the same data with a larger `n_atoms`, add atoms to those found before instead of
        starting over. Not with ``atom_rank="auto"``.
    verbose : int
        1 shows a progress bar for each stage, in a terminal.
    max_memory : int, str or None
        Memory that a fit of a lazy array may take: bytes, or a text such as "3GB"; None is what is available. A fit
        that needs more is refused with an estimate. A memory map of more than half of it is read in slabs.

    Attributes
    ----------
    decomposition_ : BooleanCP
        The result.
    path_ : tuple of BooleanCP
        The pursuit's estimates W^0 .. W^K, one for each number of atoms.
    history_ : tuple of AtomRecord
        For each atom of the path: loss, relative error, mode, number of ones, certificate, seconds. The refined fit of
        a tensor with missing entries leaves these certificates out (NaN) and has those of `decomposition_` only.
    n_iter_ : int
        Number of steps of the pursuit.
    n_passes_ : int
        Number of passes over a lazy array; 0 for one in memory.
    converged_ : bool
        False when the pursuit stopped before the number of atoms asked for without explaining the tensor.
    stop_reason_ : str
        Why the pursuit stopped, or that the callback stopped the fit.

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

    score = _Score()

    def __init__(
        self,
        n_atoms=10,
        *,
        boolean_modes=None,
        atom_rank=1,
        score="normalized",
        alpha=0.0,
        refine=True,
        n_init=10,
        max_iter=50,
        sigma=None,
        compression=True,
        certify=True,
        tol=1e-6,
        random_state=None,
        warm_start=False,
        verbose=0,
        max_memory=None,
    ):
        self.n_atoms = n_atoms
        self.boolean_modes = boolean_modes
        self.atom_rank = atom_rank
        self.score = score
        self.alpha = alpha
        self.refine = refine
        self.n_init = n_init
        self.max_iter = max_iter
        self.sigma = sigma
        self.compression = compression
        self.certify = certify
        self.tol = tol
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.max_memory = max_memory

    def get_params(self, deep=True):
        """Return the parameters, as scikit-learn does.

        Examples
        --------
        >>> import boolcp
        >>> boolcp.BMP(5).get_params()["n_atoms"]
        5
        """
        return super().get_params(deep) | {"score": vars(self)["score"]}

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.three_d_array = True
        return tags

    @classmethod
    def as_published(cls, n_atoms=10, **options):
        """Return a BMP that does exactly what the paper prints.

        Published score, block atoms, weights-only correction.

        Examples
        --------
        >>> import boolcp
        >>> boolcp.BMP.as_published(5)
        BMP(atom_rank=None, n_atoms=5, refine=False, score='published')
        """
        return cls(n_atoms, atom_rank=None, score="published", refine=False, **options)

    def fit(self, X, y=None, *, mask=None, checkpoint=None, callback=None):
        """Decompose X.

        Parameters
        ----------
        X : array-like or xarray.DataArray, shape (d_1, .., d_N), N >= 2
            The tensor; any real dtype and memory order. It is not changed. A lazy array (of dask, zarr or h5py, or a
            large memory map) is read in slabs and never loaded as a whole.
        y : None
            Ignored.
        mask : array-like of bool, optional
            True where X is observed.
        checkpoint : str or path, optional
            A file that is written after each step (atom, start, sweep over the full data), at most once a second or
            as often as takes a tenth of the time, and at the end of each stage. If it exists, from a fit of the same
            data with the same parameters, the fit goes on from there and gives what it would have given without the
            interruption; a finished one gives its result. That of another fit is an error. The file before it stays as
            ``<checkpoint>.previous``.
        callback : callable, optional
            Called as ``callback(progress)`` with a `Progress` after each step. If it returns True, or raises
            KeyboardInterrupt, the fit ends with the best result so far; "refine" ends the pursuit only, and its
            atoms are refined.

        Returns
        -------
        BMP
            The fitted estimator.

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
        inputs.check_parameters(self)
        checks.check_callback(callback)
        data, labels = inputs.read_tensor(self, X, mask, reset=True)
        modes = checks.check_modes(self.boolean_modes, data.shape, None if labels is None else labels.dims)
        rng = checks.make_generator(self.random_state)
        with one_thread(), self._steps(callback, checkpoint, data, modes, rng) as steps:
            start = steps.do("start", partial(fitted_before, self, data))
            pursuit, W = steps.do("result", partial(run, self, data, modes, rng, steps, start), rng)
        undetermined = find_undetermined(data)
        checks.warn_undetermined(undetermined, labels)
        self.path_ = tuple(replace(W_k, labels=labels, undetermined=undetermined) for W_k in pursuit.path)
        self.history_ = pursuit.history
        self.decomposition_ = replace(W, labels=labels, undetermined=undetermined)
        self.n_iter_ = len(pursuit.history)
        self.stop_reason_ = STOP_REASONS[pursuit.stop_reason]
        self.n_passes_ = getattr(data, "n_passes", 0)
        self.converged_ = pursuit.stop_reason in ("n_atoms", "explained", "zero")
        self._fitted_parameters = self.get_params()
        if pursuit.stop_reason == "zero":
            checks.warn_zero()
        return self

    @classmethod
    def resume(cls, path, X, mask=None, *, callback=None, verbose=0):
        """Return the BMP that goes on from a checkpoint of `fit`, with its parameters and its random state.

        The result is the one of a fit that was never interrupted, to the last bit if machine, versions and memory
        order of X are the same.

        Parameters
        ----------
        path : str or path
            The file that was given as `checkpoint`. If it is damaged, the one before it is used.
        X, mask
            The data of that fit; other data are refused.
        callback : callable, optional
            As in `fit`; steps that the checkpoint holds are not told again.
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
        return cls(**read_parameters(path), verbose=verbose).fit(X, mask=mask, checkpoint=path, callback=callback)

    def fit_path(self, X, *, mask=None):
        """Return the refined estimates with 0, 1, .., n_atoms atoms, each corrected in all factors.

        Where `path_` holds the steps of the pursuit, this refines every number of atoms in turn, starting from the
        one before: what `select_n_atoms` compares. The estimator itself is not changed.

        Examples
        --------
        >>> import boolcp
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 3, noise=0.1, random_state=0)
        >>> path = boolcp.BMP(n_atoms=3, random_state=0).fit_path(X)
        >>> [round(boolcp.metrics.rmse(W, clean), 2) for W in path]
        [1.01, 0.76, 0.51, 0.01]
        """
        inputs.check_parameters(self)
        data, labels = inputs.read_tensor(self, X, mask, reset=True)
        modes = checks.check_modes(self.boolean_modes, data.shape, None if labels is None else labels.dims)
        rng = checks.make_generator(self.random_state)
        with one_thread(), self._steps() as steps:
            if not self.refine or self.atom_rank != 1 or data.ndim == 2:
                path = run(self, data, modes, rng, steps)[0].path
            else:
                path = refine_path(data, compressed(self, data, steps), self.n_atoms, modes, rng, steps=steps)
        return tuple(replace(W, labels=labels) for W in path)

    complete, transform, fit_transform = applying.complete, applying.transform, applying.fit_transform
    inverse_transform, _explained = applying.inverse_transform, applying.explained_anew

    def _steps(self, callback=None, checkpoint=None, data=None, modes=None, rng=None):
        """Return the Steps of a fit; those of a checkpoint if it is given."""
        callbacks = [Bars()] if self.verbose else []
        callbacks += [] if callback is None else [callback]
        if checkpoint is None:
            return Steps(callbacks=callbacks)
        return open_steps(checkpoint, describe_fit(self, data, modes, rng), rng, callbacks)


def decompose(X, n_atoms=10, **options):
    """Return the BooleanCP of X in one call; options are those of BMP, and `mask`.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, random_state=0)
    >>> boolcp.decompose(X, 2, random_state=0).n_atoms
    2
    """
    mask = options.pop("mask", None)
    return BMP(n_atoms, **options).fit(X, mask=mask).decomposition_
