"""What a fitted BMP does with data: fill in what is missing, factors of new data, the share that is explained."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from boolcp import checks, inputs
from boolcp.fit.plan import block_equations, design, explained_share
from boolcp.fit.polish import decide_rows
from boolcp.result.labels import read_labels
from boolcp.storage import stays_out
from boolcp.storage.lazy import filled_array
from boolcp.threads import one_thread


def complete(model, X, *, mask=None):
    """Return X with its missing entries filled by the decomposition, the observed ones untouched.

    Entries in slices that have no observed entry at all stay NaN.

    Parameters
    ----------
    X : array-like or xarray.DataArray
        The tensor that was fitted, with NaN (or False in `mask`) where entries are missing.
    mask : array-like of bool, optional
        True where X is observed.

    Returns
    -------
    ndarray or xarray.DataArray
        A copy of X, filled. Of a lazy X a dask array, filled block by block when it is computed.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, missing=0.3, random_state=0)
    >>> filled = boolcp.BMP(n_atoms=2, random_state=0).fit(X).complete(X)
    >>> bool(boolcp.metrics.rmse(filled, clean) < 1e-6)
    True
    """
    check_is_fitted(model)
    W = model.decomposition_
    values, labels = read_labels(X)
    inputs.check_dims(W, labels)
    if stays_out(values, model.max_memory):
        checks.check_lazy(values, mask)
        inputs.check_shape(W, values.shape, None)
        filled = filled_array(values, mask, W)
    else:
        values, observed = checks.check_tensor(values, mask)
        inputs.check_shape(W, values.shape, None)
        filled = np.array(values)
        if observed is not None:
            filled[~observed] = W.to_tensor()[~observed]
    return filled if labels is None else X.copy(data=filled)


def transform(model, X, *, mode=0, mask=None):
    """Return the factor of new data along one mode, the other factors fixed.

    Parameters
    ----------
    X : array-like
        New data with the fitted sizes in all modes but `mode` (new trials, say).
    mode : int or str
        The mode that is new: its index, or its name if the fitted data had names.
    mask : array-like of bool, optional
        True where X is observed.

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
    check_is_fitted(model)
    data, _ = inputs.read_tensor(model, X, mask, reset=False)
    mode = checks.check_mode(mode, model.decomposition_.ndim, model.decomposition_.dims)
    inputs.check_shape(model.decomposition_, data.shape, mode)
    blocks, boolean = design(model.decomposition_, mode)
    if not len(blocks):
        return np.zeros((data.shape[mode], 0), dtype=data.dtype)
    with one_thread():
        H, P = block_equations(data, mode, blocks)
        rows = decide_rows(H, P, boolean, np.zeros_like(P))
    return rows.astype(data.dtype)


def fit_transform(model, X, y=None, *, mask=None):
    """Decompose X and return its factor along mode 0.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 3, noise=0.1, random_state=0)
    >>> boolcp.BMP(n_atoms=3, random_state=0).fit_transform(X).shape
    (20, 3)
    """
    return model.fit(X, y, mask=mask).transform(X, mask=mask)


def inverse_transform(model, X, *, mode=0):
    """Return the tensor whose factor along `mode` is X, as `transform` gives it.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 3, noise=0.1, random_state=0)
    >>> model = boolcp.BMP(n_atoms=3, random_state=0).fit(X)
    >>> model.inverse_transform(model.transform(X)).shape
    (20, 25, 30)
    """
    check_is_fitted(model)
    X = np.asarray(X)
    W = model.decomposition_
    mode = checks.check_mode(mode, W.ndim, W.dims)
    blocks, _ = design(W, mode)
    if X.ndim != 2 or X.shape[1] != len(blocks):
        raise ValueError(f"X has shape {X.shape}; a matrix with {len(blocks)} columns is needed.")
    others = W.shape[:mode] + W.shape[mode + 1 :]
    return np.moveaxis(np.tensordot(X, blocks.reshape(len(blocks), *others), axes=1), 0, mode)


def explained_anew(model, X, y=None):
    """Return the share of variance of X that is explained when its factor along mode 0 is solved anew.

    This is `model.score(X)`. Block atoms that are dense along mode 0 are judged as they are, and only on data of
    the fitted shape.
    """
    check_is_fitted(model)
    W = model.decomposition_
    if stays_out(read_labels(X)[0], model.max_memory):
        data, _ = inputs.read_tensor(model, X, None, reset=False)
        inputs.check_shape(W, data.shape, 0)
        return explained_share(data, W)
    values, observed = checks.check_tensor(read_labels(X)[0])
    if values.shape == W.shape and any(atom.rank is None and atom.mode != 0 for atom in W.atoms):
        estimate = W.to_tensor()  # dense blocks have no factor along mode 0 to solve for
    else:
        estimate = model.inverse_transform(model.transform(X))
    error = np.square(values - estimate, dtype=float)
    total = np.square(values, dtype=float)
    if observed is not None:
        error, total = error[observed], total[observed]
    return 1 - float(error.sum() / total.sum()) if total.any() else 1.0
