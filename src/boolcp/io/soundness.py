"""Checks of results that were read from files: a file may be damaged or malicious."""

from typing import Any

import numpy as np

from boolcp.result.atoms import Atom, BooleanCP
from boolcp.result.background import Background
from boolcp.result.trust import Trust

LARGEST_CERTIFICATE = 1 + 1e-6  # a share of a bound, up to rounding
LARGEST_NOISE = 1e150  # its square is a number
NUMBER, NUMBERS = (int, float), [(int, float)]
# what the parts of a provenance are, as far as others rely on it: a type, or [the type of all items]
STEP = {"relative_error": NUMBER}
STABILITY = {"recurrence": NUMBERS, "bit_probability": [list], "n_fits": int, "scheme": str}
RESIDUAL = {"mode_names": [str], "structure": NUMBERS, "lag_correlation": NUMBERS, "rms": NUMBER, "kurtosis": NUMBER}
RESIDUAL |= {"quantiles": NUMBERS, "normal_quantiles": NUMBERS}
PROVENANCE: dict[str, Any] = {"data": {}, "parameters": {}, "versions": {}, "history": [STEP], "stability": STABILITY}
PROVENANCE |= {"residual_check": RESIDUAL, "method": str, "command": str, "stop_reason": str}
DATA = {"n_missing": int, "preparation": list, "source": str, "dtype": str, "fingerprint": str}


def check_decomposition(W: BooleanCP) -> BooleanCP:
    """Return the decomposition, or raise a ValueError if it cannot be the result of a fit."""
    check_finite("the weights", W.weights)
    for k, atom in enumerate(W.atoms):
        if not atom.n_ones:
            raise ValueError(f"atom {k} has no entry that is on")
        if not (np.isnan(atom.certificate) or 0 <= atom.certificate <= LARGEST_CERTIFICATE):
            raise ValueError(f"the certificate of atom {k} is {atom.certificate:g}, not between 0 and 1")
        for part in (atom.block,) if atom.factors is None else atom.factors:
            check_finite(f"the real part of atom {k}", part)
        check_shape(k, atom, W.shape)
        with np.errstate(over="ignore", invalid="ignore"):
            if not np.isfinite(BooleanCP(W.shape, (atom,), W.weights[[k]]).squared_norm):
                raise ValueError(f"atom {k} is too large")
    K = W.n_atoms
    for name, size in (("data_norm2", ()), ("data_inner", (K,)), ("data_gram", (K, K))):
        value = getattr(W, name)
        if value is not None:
            check_finite(name, value)
            check_size(name, value, size)
    if W.data_norm2 is not None and W.data_norm2 < 0:
        raise ValueError(f"the squared norm of the data is {W.data_norm2:g}")
    if W.trust is not None:
        check_trust(W.trust, [len(atom.z) for atom in W.atoms])
    if W.background is not None:
        check_background(W.background, W.shape)
    if W.deviance is not None:
        numbers = W.deviance.scale, W.deviance.total, W.deviance.null, *W.deviance.without
        check_finite("its deviance", np.array(numbers))
    return W


def check_background(background: Background, shape: tuple[int, ...]) -> None:
    """Raise a ValueError unless a background fits a shape and holds numbers."""
    mode, sizes = background.mode, (len(background.left), len(background.right))
    if background.shape != shape or not 0 <= mode < len(shape):
        raise ValueError(f"its background is one of shape {background.shape} along mode {mode}")
    others = int(np.prod(shape[:mode] + shape[mode + 1 :], dtype=np.int64))
    if sizes != (shape[mode], others) or background.left.shape[1:] != background.right.shape[1:]:
        raise ValueError(f"the factors of its background are {background.left.shape} and {background.right.shape}")
    for values in (background.left, background.right, background.degrees_of_freedom, background.share):
        check_finite("its background", values)


def check_shape(k: int, atom: Atom, shape: tuple[int, ...]) -> None:
    """Raise a ValueError unless the real part of an atom has the sizes of the other modes."""
    others = [d for n, d in enumerate(shape) if n != atom.mode]
    found = atom.block.shape if atom.block is not None else [part.shape for part in atom.factors or ()]
    due = tuple(others) if atom.block is not None else [(d, atom.rank) for d in others]
    if found != due:
        raise ValueError(f"the real part of atom {k} has the shape {found}, not {due}")


def check_trust(trust: Trust, sizes: list[int]) -> None:
    """Raise a ValueError unless the measures of trust are numbers for atoms of these sizes, shares from 0 to 1."""
    for parts in (trust.rise, trust.share):
        if parts is not None and [np.shape(part) for part in parts] != [(d,) for d in sizes]:
            raise ValueError("the confidence of its bits is not that of its atoms")
    for values in (*(trust.rise or ()), *(trust.share or ()), *([] if trust.sigma is None else [trust.sigma])):
        check_finite("the confidence of its bits", values)
        if np.any(np.abs(np.asarray(values)) > LARGEST_NOISE):
            raise ValueError("the confidence of its bits is out of range")
    if trust.sigma is not None and not 0 <= trust.sigma <= LARGEST_NOISE:
        raise ValueError(f"the noise level is {trust.sigma:g}")
    for values in (trust.p_value, trust.p_adjusted, trust.stability):
        if values is not None:
            check_size("a p-value or stability", values, (len(sizes),))
        if values is not None and not np.all((values >= 0) & (values <= 1)):
            raise ValueError("a p-value or stability is not between 0 and 1")


def check_size(what: str, values: Any, due: tuple[int, ...]) -> None:
    """Raise a ValueError unless an array has this shape."""
    if np.shape(values) != due:
        raise ValueError(f"{what} has the shape {np.shape(values)}, not {due}")


def check_finite(what: str, values: Any) -> None:
    """Raise a ValueError unless all values are finite numbers."""
    if np.asarray(values).dtype.kind not in "fiub" or not np.isfinite(values).all():
        raise ValueError(f"{what} must be finite numbers")


def check_provenance(provenance: Any) -> dict[str, Any]:
    """Return the provenance, or raise a ValueError if it does not have the structure that `save` gives it."""
    if not isinstance(provenance, dict):
        raise ValueError("its provenance is not a dict")
    for name, due in PROVENANCE.items():
        if name in provenance:
            check_entry(name, provenance[name], due)
    data = provenance.get("data", {})
    for name in DATA.keys() & data.keys():
        check_entry(f"data.{name}", data[name], DATA[name])
    names = [provenance.get("method", "BMP"), *provenance.get("parameters", {})]
    if not all(name.isidentifier() for name in names):  # a report shows them as Python code to run
        raise ValueError("its provenance has a method or parameter that is not a name")
    return provenance


def check_entry(name: str, value: Any, due: Any) -> None:
    """Raise a ValueError unless a value has a type, or is a list or a dict whose items have it."""
    kinds = type(due) if isinstance(due, dict | list) else due
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise ValueError(f"the entry {name!r} of its provenance is {str(value)[:40]!r}")
    if isinstance(due, list):
        for item in value:
            check_entry(name, item, due[0])
    elif isinstance(due, dict) and isinstance(value, dict):
        for part, kind in due.items():
            check_entry(f"{name}.{part}", value.get(part), kind)
