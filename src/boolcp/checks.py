"""The only checks of user input: what passes them is trusted from then on."""

import numbers
import warnings
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from boolcp.system import check_memory, float_bytes, read_memory

LOSSES = ("squared", "huber", "poisson", "bernoulli")
# Largest entries between which the products that a fit forms neither vanish nor overflow, for up to 10^9 entries
RANGES = {"float32": (1e-18, 1e14), "float64": (1e-70, 1e70)}
N_NAMED = 5  # atoms that a warning names
FEW = 100  # atoms that no fit refuses: it ends soon when nothing is left


class BoolcpWarning(UserWarning):
    """A warning of this library, about something that the user can act on.

    Examples
    --------
    >>> import warnings
    >>> warnings.simplefilter("error", boolcp.BoolcpWarning)
    """


class DegenerateAtomsWarning(BoolcpWarning):
    """Atoms of a fit are on once, duplicate or canceling (see `degeneracy`), or too many for the data.

    Examples
    --------
    >>> import warnings
    >>> warnings.simplefilter("ignore", boolcp.DegenerateAtomsWarning)
    """


def check_tensor(X: Any, mask: ArrayLike | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Return X as a real floating-point array of order >= 2 and its mask (True = observed), None if it is complete.

    X is copied only to change its dtype: float32 and float64 are kept, integers and Booleans become float64. NaN is
    missing; a numpy masked array has its own mask, with the opposite meaning.
    """
    own = ~np.ma.getmaskarray(X) if np.ma.isMaskedArray(X) else True
    X = X if type(X) is np.ndarray and X.dtype.kind != "O" else _to_array(X)
    check_kind_and_order(X)
    X = X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)
    given = own if mask is None else own & check_mask(mask, X.shape)
    observed: np.ndarray = given & ~np.isnan(X)
    is_complete = bool(observed.all())
    if not observed.any():
        raise ValueError("X is NaN (or masked) everywhere: no entry is observed.")
    known = True if is_complete else observed  # reductions without a mask are faster
    largest = max(np.fmax.reduce(X, None, initial=0, where=known), -np.fmin.reduce(X, None, initial=0, where=known))
    check_largest(largest, X.dtype, 0 if np.isfinite(largest) else int(np.isinf(X[observed]).sum()))
    return X, None if is_complete else observed


def check_largest(largest: float, dtype: np.dtype, n_infinite: int = 0) -> None:
    """Raise if entries are infinite, or arithmetic in this dtype is unreliable for the largest one; zero is fine."""
    if n_infinite:
        raise ValueError(f"X contains infinity in {n_infinite} entries; set them to NaN if they are missing.")
    low, high = RANGES[str(dtype)]
    if largest and not low <= largest <= high:
        what = f"The largest entry of X is {largest:.3g} in size, but {dtype} arithmetic is reliable only from"
        raise ValueError(f"{what} {low:g} to {high:g}. Change the unit, e.g. X / {largest:.1g}.")


def is_lazy(X: Any) -> bool:
    """Return True if X is an array that is not in memory: of dask, zarr or h5py. None of them is imported."""
    room = type(X).__module__.partition(".")[0]
    return room in ("dask", "zarr", "h5py") and hasattr(X, "chunks") and hasattr(X, "dtype")


def find_map(X: Any) -> np.memmap | None:
    """Return the np.memmap that an array is a view of, or None; a copy-on-write map is not its file."""
    while isinstance(X, np.ndarray):
        if isinstance(X, np.memmap) and X.filename is not None and X.mode != "c":
            return X
        X = X.base
    return None


def check_lazy(X: Any, mask: Any) -> None:
    """Raise if a lazy X is not real or of order < 2, or its mask has another shape; nothing is computed."""
    check_kind_and_order(X)
    if any(np.isnan(d) for d in X.shape):
        raise ValueError(f"X has unknown sizes {X.shape}; call X.compute_chunk_sizes() first.")
    if mask is not None and not is_lazy(mask):
        check_mask(mask, X.shape)
    elif mask is not None and mask.shape != X.shape:
        raise ValueError(f"mask has shape {mask.shape}, but X has shape {X.shape}: pass a mask of the same shape.")
    elif mask is not None and mask.dtype != bool:
        raise ValueError(f"mask has dtype {mask.dtype}; a lazy one must be Boolean, e.g. mask.astype(bool).")


def check_kind_and_order(X: Any) -> None:
    """Raise if X has no real numbers, fewer than two modes, or no entries."""
    if X.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: X is {X.dtype}; pass its real part, or |X|.")
    if X.dtype.kind not in "fiub":
        raise ValueError(f"X has dtype {X.dtype}; numbers are needed. Convert it, e.g. X.astype(float).")
    if X.ndim < 2:
        advice = "Reshape your data, for instance to (channels, time, trials)."
        raise ValueError(f"X has {X.ndim} dimension(s); a tensor with at least 2 is needed. {advice}")
    if 0 in X.shape:
        what = "0 sample(s)" if X.shape[0] == 0 else "0 feature(s)"
        raise ValueError(f"X is empty: {what} (shape={X.shape}) while a minimum of 1 is required in each mode.")


def _to_array(X: Any) -> np.ndarray:
    """Return X as an array, Python objects as numbers; what is no array raises an error with advice."""
    if is_listed(X):
        advice = "which only `fit` and `transform` take; pass an array with NaN where entries are missing"
        raise TypeError(f"X is a list of observed entries, {advice}.")
    if hasattr(X, "toarray") or hasattr(X, "todense"):
        advice = "pass X.toarray(), or the observed entries as (indices, values, shape)"
        raise TypeError(f"X is a sparse matrix, which is not supported: {advice}.")
    if isinstance(X, str | PurePath):
        raise TypeError(f"X is the text {str(X)!r}, not an array; read a file with boolcp.open_tensor(path).")
    if type(X).__module__.startswith("mne."):
        raise TypeError(f"X is a {type(X).__name__} of MNE: boolcp.interop.from_mne(X) keeps its labels and units.")
    if is_lazy(X):
        needs = {"the tensor in memory, with copies": 3.0 * float_bytes(X.shape, X.dtype)}
        advice = "Only BMP reads it part by part."
        check_memory(needs, read_memory(None), advice, limit_name="the available memory")
    try:
        X = np.asarray(X)
    except ValueError as error:
        advice = "lists of lists must all have the same length, with NaN where entries are missing"
        raise ValueError(f"X cannot be converted to an array ({error}); {advice}.") from None
    try:
        return X.astype(np.float64) if X.dtype.kind == "O" else X
    except (TypeError, ValueError) as error:
        what = f"entries that are not numbers ({error}; argument must be a string or a real number)"
        text = f"X has dtype object and {what}. Pass an array of numbers, with NaN where entries are missing."
        raise type(error)(text) from None


def check_mask(given: ArrayLike, shape: Sequence[int]) -> np.ndarray:
    """Return the mask as a Boolean array (True = observed)."""
    mask = np.asarray(given)
    if mask.dtype.kind not in "biuf":
        raise TypeError(f"mask must be an array of the shape of X, True where an entry is observed, got {given!r}.")
    if mask.shape != tuple(shape):
        raise ValueError(f"mask has shape {mask.shape}, but X has shape {tuple(shape)}: pass a mask of the same shape.")
    if mask.dtype != bool and not np.isin(mask, (0, 1)).all():
        raise ValueError("mask must be Boolean, True where an entry of X is observed.")
    if not mask.any():
        raise ValueError("mask is False everywhere: no entry of X is observed.")
    return mask.astype(bool, copy=False)


def check_weights(weights: Any, shape: Sequence[int]) -> np.ndarray:
    """Return a weight for each entry, from what broadcasts against X."""
    try:
        weights = np.asarray(weights, dtype=float)
    except (TypeError, ValueError):
        what = "an array that broadcasts against X, e.g. of shape (d_1, 1, 1), or a DataArray"
        raise ValueError(f"weights must be numbers: {what}.") from None
    try:
        weights = np.broadcast_to(weights, tuple(shape))
    except ValueError:
        what = f"weights has shape {weights.shape}, which does not broadcast against X of shape {tuple(shape)}"
        advice = "for one weight for each slice along mode n, reshape it to size 1 in all other modes"
        raise ValueError(f"{what}: {advice}.") from None
    bad = np.argwhere(~(np.isfinite(weights) & (weights >= 0)))
    if len(bad):
        place = tuple(bad[0].tolist())
        raise ValueError(f"weights must be finite and at least 0, but it is {weights[place]} at {place}.")
    if not weights.any():
        raise ValueError("weights is zero everywhere: no entry of X counts.")
    return weights


def is_listed(X: Any) -> bool:
    """Return True if X is a list of observed entries: (indices, values, shape), or a sparse.COO array."""
    is_sparse = type(X).__module__.partition(".")[0] == "sparse" and hasattr(X, "coords") and hasattr(X, "data")
    return is_sparse or (isinstance(X, tuple) and len(X) == 3 and np.ndim(X[0]) == 2)


def array_of_listed(X: Any) -> np.ndarray:
    """Return a list of observed entries as an array with NaN elsewhere."""
    indices, values, shape = X if isinstance(X, tuple) else (X.coords.T, X.data, X.shape)
    indices, values, shape = np.asarray(indices), np.asarray(values), tuple(int(d) for d in shape)
    if indices.shape != (len(values), len(shape)) or values.ndim != 1:
        what = f"{len(values)} values with indices of shape {indices.shape} for a tensor of shape {shape}"
        raise ValueError(f"X lists {what}; indices must be (number of values, {len(shape)}).")
    if indices.dtype.kind not in "iu" or (indices < 0).any() or (indices >= shape).any():
        raise ValueError(f"The indices of X must be integers from 0 to one less than the sizes {shape}.")
    if values.dtype.kind not in "fiub":
        raise ValueError(f"The values of X have dtype {values.dtype}; real numbers are needed.")
    if len(np.unique(np.ravel_multi_index(tuple(indices.T), shape))) < len(indices):
        raise ValueError("X lists some entries twice; list each observed entry once.")
    dtype = values.dtype if values.dtype in (np.float32, np.float64) else np.dtype(float)
    needs = {"the array of a list of entries": 3.0 * float_bytes(shape, dtype)}
    check_memory(needs, read_memory(None), "Fit a part of it.", limit_name="the available memory")
    array = np.full(shape, np.nan, dtype=dtype)
    array[tuple(indices.T)] = values
    return array


def find_empty(weights: Any) -> dict[int, np.ndarray]:
    """Return the slices without any weight by mode, {mode: (d_n,) bool}, only for modes that have some."""
    ones = [np.ones((d, 1)) for d in weights.shape]
    empty = {n: weights.mttkrp(ones, n)[:, 0] == 0 for n in range(len(ones))}
    return {mode: slices for mode, slices in empty.items() if slices.any()}


def check_modes(
    boolean_modes: Sequence[int | str] | int | str | None, shape: Sequence[int], dims: Sequence[str] | None = None
) -> tuple[int, ...]:
    """Return the allowed Boolean modes as a sorted tuple of indices.

    None allows all modes except those of size one, unless there are no others: a single bit is always on.
    """
    if boolean_modes is None:
        return tuple(n for n, d in enumerate(shape) if d > 1) or tuple(range(len(shape)))
    given = [boolean_modes] if isinstance(boolean_modes, str | int | np.integer) else boolean_modes
    modes = [check_mode(mode, len(shape), dims, name="boolean_modes") for mode in given]
    if not modes:
        raise ValueError("boolean_modes is empty; name at least one mode, or pass None for all.")
    return tuple(sorted(set(modes)))


def check_mode(mode: int | str, ndim: int, dims: Sequence[str] | None = None, *, name: str = "mode") -> int:
    """Return a mode given by index or by name as an index; `name` is the name of the argument."""
    if isinstance(mode, str):
        if dims is None:
            raise ValueError(f"{name} names {mode!r}, but X has no dimension names; use indices 0 to {ndim - 1}.")
        if mode not in dims:
            given = f"{name} names {mode!r}, which is not among the modes of X ({', '.join(dims)})"
            raise ValueError(f"{given}: choose among these, or name the modes differently (dims=, --dims).")
        return dims.index(mode)
    if isinstance(mode, bool) or not isinstance(mode, numbers.Integral):
        raise TypeError(f"{name} holds {mode!r}; modes are indices (int) or dimension names (str).")
    if not -ndim <= mode < ndim:
        raise ValueError(f"{name} holds {mode}, but X has only the modes 0 to {ndim - 1}.")
    return int(mode) % ndim


def check_integer(value: Any, name: str, minimum: int, *, other: str = "") -> None:
    """Raise if value is no integer of at least `minimum`; the message names the `other` choice."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer{other}, got {value!r}.")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}.")


def check_enough(n_atoms: int, shape: Sequence[int], n_entries: int) -> None:
    """Raise if many atoms of rank one have more free numbers than there are observed entries."""
    most = n_entries // (sum(shape) - len(shape) + 1)
    if n_atoms > max(most, FEW):
        text = f"n_atoms is {n_atoms}, but {most} atoms have as many free numbers as X has entries"
        raise ValueError(f"{text}: they explain noise as well. Ask for far fewer.")


def check_number(value: Any, name: str, *, positive: bool = False) -> None:
    """Raise if value is no finite real number >= 0 (> 0 if `positive`)."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, got {value!r}.")
    if not np.isfinite(float(value)) or value < 0 or (positive and value == 0):
        raise ValueError(f"{name} must be finite and {'above' if positive else 'at least'} 0, got {value}.")


def check_loss_data(values: np.ndarray, loss: str) -> None:
    """Raise if a loss cannot take an entry: negative counts, or probabilities outside 0 to 1."""
    bad = np.argwhere((values < 0) | (values > (1 if loss == "bernoulli" else np.inf)))  # NaN is missing
    if len(bad):
        place = tuple(bad[0].tolist())
        due = "0 or larger" if loss == "poisson" else "from 0 to 1"
        raise ValueError(f'loss="{loss}" needs entries {due}, but X is {values[place]:g} at {place}.')


def check_nonnegative(nonnegative: Any, shape: Sequence[int], dims: Sequence[str] | None = None) -> tuple[int, ...]:
    """Return the modes along which real parts are nonnegative, from True, False or a list of modes."""
    if isinstance(nonnegative, bool | np.bool_):
        return tuple(range(len(shape))) if nonnegative else ()
    given: Any = [nonnegative] if isinstance(nonnegative, str | int | np.integer) else nonnegative
    return tuple(sorted({check_mode(mode, len(shape), dims, name="nonnegative") for mode in given}))


def check_choice(value: object, name: str, choices: Sequence[str]) -> None:
    """Raise if value is none of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}.")


def check_shape(
    shape: Sequence[int], fitted: Sequence[int], mode: int | None, dims: Sequence[str] | None = None
) -> None:
    """Raise if a shape differs from the fitted one, except along one mode (None: in any mode)."""
    other = [n for n, sizes in enumerate(zip(shape, fitted, strict=False)) if sizes[0] != sizes[1]]
    if len(shape) != len(fitted) or any(n != mode for n in other):
        allowed = "pass data of that shape" if mode is None else f"only mode {mode} may differ"
        if mode is not None and len(other) == 1 and len(shape) == len(fitted):
            new = repr(dims[other[0]] if dims else other[0])
            allowed = f"`transform` takes data that are new along mode {new} as mode={new}"
        raise ValueError(f"X has shape {tuple(shape)}, but {tuple(fitted)} was fitted: {allowed}.")


def make_generator(random_state: Any) -> np.random.Generator:
    """Return a random Generator; a given Generator is used directly, so that two calls differ."""
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**32, dtype=np.uint64))
    if random_state is np.random:
        return np.random.default_rng()
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        text = f"random_state must be None, an integer or a numpy Generator, got {random_state!r}."
        raise type(error)(text) from None


def make_seed(random_state: Any) -> int:
    """Return the seed of a fit: the integer that was given, or one drawn from a Generator."""
    if isinstance(random_state, numbers.Integral) and not isinstance(random_state, bool) and int(random_state) >= 0:
        return int(random_state)
    return int(make_generator(random_state).integers(2**63))


def warn_of_fit(W: Any, n_entries: int, *, is_zero: bool) -> None:
    """Warn about slices without any observed entry, more free numbers than entries, or a tensor that is zero."""
    for mode, slices in (W.undetermined or {}).items():
        text = f"{slices.sum()} slice(s) along mode {repr(W.dims[mode]) if W.dims else mode} have no observed entry: "
        text += "their factor entries are undetermined (NaN where real, False where Boolean)."
        warnings.warn(text, BoolcpWarning, stacklevel=3)
    if W.deviance is not None and W.deviance.total > W.deviance.null:
        text = "The atoms fit worse than the mean of the data does: ask for more of them, or do not stop the fit early."
        warnings.warn(text, DegenerateAtomsWarning, stacklevel=3)
    if W.n_parameters > n_entries:
        text = f"The atoms have {W.n_parameters} free numbers for {n_entries} observed entries: so many explain any "
        text += "data, noise as well. Ask for fewer atoms, or let n_atoms='auto' choose."
        warnings.warn(text, DegenerateAtomsWarning, stacklevel=3)
    if is_zero:
        warnings.warn("X is zero everywhere: the decomposition has no atoms.", BoolcpWarning, stacklevel=3)


def warn_no_atom() -> None:
    """Warn that no atom comes back in fits to parts of the data."""
    text = "For no number of atoms all come back in fits to halves of the data: one is fitted, which may be noise. "
    text += "The phase of raw voltage differs between bins: try its band power or envelope, averages of trials, or a "
    text += "number of atoms of your own with boolcp.assess (--assess)."
    warnings.warn(text, BoolcpWarning, stacklevel=4)


def warn_degenerate(reasons: Sequence[str], scores: np.ndarray) -> None:
    """Warn about atoms that should not be interpreted alone, with any share of each that the others can replace."""
    replaced = [f"; degeneracy {score:.2f}" * (round(score, 2) > 0) for score in scores.tolist()]
    faults = [f"atom {k} ({why}{replaced[k]})" for k, why in enumerate(reasons) if why]
    if faults:
        more = f" and {len(faults) - N_NAMED} more" if len(faults) > N_NAMED else ""
        text = f"Some atoms should not be interpreted alone: {', '.join(faults[:N_NAMED])}{more}. "
        text += "Fewer atoms may avoid this; boolcp.degeneracy(W) has all of them."
        warnings.warn(text, DegenerateAtomsWarning, stacklevel=3)


def warn_clipped(n_outside: int, n_fills: int, low: float, high: float) -> None:
    """Warn about fills far outside the range of the observed entries, if there are any."""
    if n_outside:
        text = f"{n_outside} of {n_fills} filled entries were far outside the range of the data and were clipped to "
        text += f"[{low:.4g}, {high:.4g}]: the observed entries do not determine all atoms. Use fewer atoms, or choose "
        text += "their number with select_n_atoms."
        warnings.warn(text, BoolcpWarning, stacklevel=4)


def warn_mean(share: float) -> None:
    """Warn that fills are close to the mean of the observed entries, because the atoms hardly exceed the noise."""
    text = "The fit explains the observed entries hardly better than noise would: imputed values were shrunk to "
    text += f"{share:.0%} of their deviation from the mean. Use fewer atoms, atom_rank=1, or choose the number of "
    text += "atoms with select_n_atoms."
    warnings.warn(text, BoolcpWarning, stacklevel=5)
