"""The only checks of user input: what comes in here is trusted behind."""

import numbers
import warnings

import numpy as np

SCORES = ("normalized", "published")


def check_tensor(X, mask=None, *, name="X"):
    """Return X as a real floating-point array of order >= 2, complete and finite, copied only to change its dtype.

    float32 and float64 are kept, integers and Booleans become float64.
    """
    if np.ma.isMaskedArray(X):
        mask = ~np.ma.getmaskarray(X) if mask is None else mask
        X = X.data
    if hasattr(X, "toarray"):
        raise TypeError(f"{name} is a sparse matrix; sparse data is not supported: pass {name}.toarray().")
    X = np.asarray(X)
    if X.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {name} is {X.dtype}; pass its real part, or |{name}|.")
    if X.dtype.kind not in "fiub":
        X = _to_numbers(X, name)
    if X.ndim < 2:
        raise ValueError(
            f"{name} has {X.ndim} dimension(s); a tensor with at least 2 is needed. Reshape your data, for instance "
            f"to (channels, time, trials)."
        )
    if X.size == 0:
        raise ValueError(
            f"{name} is empty: {_empty_text(X)} (shape={X.shape}) while a minimum of 1 is required in each mode."
        )
    if X.dtype not in (np.float32, np.float64):
        X = X.astype(np.float64)
    check_complete(X, check_mask(mask, X.shape), name)
    return X


def _empty_text(X):
    return "0 sample(s)" if X.shape[0] == 0 else "0 feature(s)"


def _to_numbers(X, name):
    if X.dtype.kind == "O":
        try:
            return X.astype(np.float64)
        except (TypeError, ValueError) as error:
            what = "argument must be a string or a real number"
            raise type(error)(
                f"{name} has dtype object and entries that are not numbers ({error}; {what})."
            ) from None
    raise ValueError(
        f"{name} has dtype {X.dtype}; numbers are needed. Convert it, e.g. {name}.astype(float)."
    )


def check_mask(mask, shape):
    """Return the mask as a Boolean array (True = observed), or None."""
    if mask is None:
        return None
    mask = np.asarray(mask)
    if mask.shape != tuple(shape):
        raise ValueError(
            f"mask has shape {mask.shape} but X has {tuple(shape)}; give one Boolean for each entry of X."
        )
    if mask.dtype != bool:
        if not np.isin(mask, (0, 1)).all():
            raise ValueError("mask must be Boolean, True where an entry of X is observed.")
        mask = mask.astype(bool)
    if not mask.any():
        raise ValueError("mask is False everywhere: no entry of X is observed.")
    return mask


def check_complete(X, mask, name):
    """Raise unless every entry is finite and observed."""
    finite = np.isfinite(X)
    if finite.all() and (mask is None or mask.all()):
        return
    if np.isnan(X).all():
        raise ValueError(f"{name} is NaN everywhere: no entry is observed.")
    observed = finite | np.isnan(X) if mask is None else finite | ~mask
    if not observed.all():
        raise ValueError(
            f"{name} contains infinity in {np.sum(~observed)} entries; set them to NaN or remove them."
        )
    raise ValueError(
        f"{name} has missing entries (NaN, or False in the mask): not supported yet. Remove or fill the slices that "
        f"hold them."
    )


def check_modes(boolean_modes, ndim, dims=None):
    """Return the allowed Boolean modes as a sorted tuple of indices."""
    if boolean_modes is None:
        return tuple(range(ndim))
    if isinstance(boolean_modes, str | numbers.Integral):
        boolean_modes = [boolean_modes]
    modes = [_mode_index(mode, ndim, dims) for mode in boolean_modes]
    if not modes:
        raise ValueError("boolean_modes is empty; name at least one mode, or None for all.")
    return tuple(sorted(set(modes)))


def _mode_index(mode, ndim, dims):
    if isinstance(mode, str):
        if dims is None:
            raise ValueError(
                f"boolean_modes names {mode!r} but X has no dimension names; use indices 0..{ndim - 1}."
            )
        if mode not in dims:
            raise ValueError(f"boolean_modes names {mode!r}, which is not among the dimensions {dims} of X.")
        return dims.index(mode)
    if isinstance(mode, bool) or not isinstance(mode, numbers.Integral):
        raise TypeError(f"boolean_modes holds {mode!r}; modes are indices (int) or dimension names (str).")
    if not -ndim <= mode < ndim:
        raise ValueError(f"boolean_modes holds {mode}, but X has only the modes 0..{ndim - 1}.")
    return int(mode) % ndim


def check_integer(value, name, minimum):
    """Raise unless value is an integer of at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}.")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}.")


def check_number(value, name, *, positive=False):
    """Raise unless value is a finite real number >= 0 (> 0 if `positive`)."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, got {value!r}.")
    if not np.isfinite(value) or value < 0 or (positive and value == 0):
        raise ValueError(f"{name} must be finite and {'above' if positive else 'at least'} 0, got {value}.")


def check_atom_rank(atom_rank):
    """Raise unless atom_rank is None, "auto" or an integer >= 1."""
    if atom_rank is None or (isinstance(atom_rank, str) and atom_rank == "auto"):
        return
    if isinstance(atom_rank, str):
        raise ValueError(f'atom_rank must be an integer, None (block atoms) or "auto", got {atom_rank!r}.')
    check_integer(atom_rank, "atom_rank", 1)


def check_score(score):
    """Raise unless the score is a known one."""
    if score not in SCORES:
        raise ValueError(f"score must be one of {SCORES}, got {score!r}.")


def make_generator(random_state):
    """Return the one random Generator of a fit; a Generator is used as it is, so that two fits differ."""
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**32, dtype=np.uint64))
    if random_state is np.random:
        return np.random.default_rng()
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"random_state must be None, an integer or a numpy Generator, got {random_state!r}."
        ) from None


def warn_zero():
    """Warn that a zero tensor has nothing to decompose."""
    warnings.warn("X is zero everywhere: the decomposition has no atoms.", UserWarning, stacklevel=3)
