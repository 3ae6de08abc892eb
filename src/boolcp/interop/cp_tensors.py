"""To and from CP tensors of TensorLy, from CP tensors of pyttb and tensortools: an atom of rank L becomes L terms.

Boolean columns stay exactly 0 and 1. Do not normalize or flip the columns there.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from boolcp.result.atoms import Atom, BooleanCP
from boolcp.result.labels import Labels
from boolcp.system import load_extra


def to_tensorly(W: BooleanCP) -> Any:
    """Return the decomposition as a TensorLy CPTensor.

    Examples
    --------
    >>> boolcp.interop.to_tensorly(boolcp.datasets.make_boolean_cp((4, 5, 6), 2, random_state=0).truth).rank
    2
    """
    terms = W.rank_one_terms()
    pair = terms.weights.copy(), [np.array(A) for A in terms.factors]
    return load_extra("tensorly.cp_tensor", "all").CPTensor(pair)


def from_tensorly(cp: Any, *, boolean_modes: Sequence[int] | None = None, labels: Labels | None = None) -> BooleanCP:
    """Return the BooleanCP of a CP tensor of TensorLy, pyttb or tensortools, with atoms of rank one.

    `cp` may be a pair, too: weights (K,) or None, and factor matrices (d_n, K). `boolean_modes` is the Boolean mode of
    each column; by default it is detected, as the mode along which a column has only one value besides 0.

    Examples
    --------
    >>> truth = boolcp.datasets.make_boolean_cp((4, 5, 6), 2, random_state=0).truth
    >>> boolcp.interop.from_tensorly((truth.weights, truth.factors)).boolean_mode.tolist()
    [0, 1]
    """
    if hasattr(cp, "factor_matrices"):  # pyttb
        cp = cp.weights, cp.factor_matrices
    weights, factors = cp if not hasattr(cp, "factors") or hasattr(cp, "weights") else (None, cp.factors)
    factors = [np.asarray(A, dtype=float) for A in factors]
    n_columns = factors[0].shape[1]
    weights = np.ones(n_columns) if weights is None else np.asarray(weights, dtype=float)
    if boolean_modes is not None and len(boolean_modes) != n_columns:
        raise ValueError(f"There are {n_columns} columns but {len(boolean_modes)} Boolean modes.")
    atoms, sizes = [], []
    for k in range(n_columns):
        columns = [A[:, k] for A in factors]
        mode = _boolean_mode(columns, k) if boolean_modes is None else int(boolean_modes[k])
        on = columns[mode] != 0
        values = columns[mode][on]
        if not len(values) or not np.allclose(values, values[0], rtol=1e-9, atol=0):
            raise ValueError(f"Column {k} is not Boolean along mode {mode}: it has several values besides 0.")
        real = [column for n, column in enumerate(columns) if n != mode]
        if not all(np.any(column) for column in real):
            raise ValueError(f"Column {k} is zero along some mode: remove it first.")
        atoms.append(Atom(mode, on, tuple(column[:, None] for column in real)))
        sizes.append(weights[k] * values[0])
    return BooleanCP(tuple(len(A) for A in factors), tuple(atoms), np.array(sizes), labels).rank_one_terms()


def _boolean_mode(columns: Sequence[np.ndarray], k: int) -> int:
    """Return the mode along which a column has one value besides 0, preferably 1."""
    flat = [n for n, column in enumerate(columns) if np.any(column) and np.ptp(column[column != 0]) == 0]
    if not flat:
        raise ValueError(f"Column {k} is not Boolean along any mode: give boolean_modes, or decompose with boolcp.")
    return next((n for n in flat if np.isin(columns[n], (0, 1)).all()), flat[0])
