"""Rigidity: whether the span of Boolean vectors contains other Boolean vectors."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

MAX_ATOMS = 24  # Boolean columns whose 2^K combinations is_rigid tries; not tuned
CHUNK = 2**20  # combinations held at a time


@dataclass(frozen=True, eq=False)
class Rigidity:
    """Whether the span of Boolean columns contains another Boolean vector; true in an `if` when it is proved not to.

    Attributes
    ----------
    holds : bool or None
        None when there were too many columns to decide.
    witness : ndarray of bool, shape (d,), or None
        A Boolean vector of the span that is not a column (all False if the columns are dependent).
    coefficients : ndarray of shape (K,) or None
        The combination of columns that gives it.
    names : tuple of int or None
        The numbers of the columns in the text, from 0 if None.

    Examples
    --------
    >>> import boolcp
    >>> boolcp.identifiability.is_rigid([[1, 1], [1, 0], [0, 1]]).holds
    True
    """

    holds: bool | None
    witness: np.ndarray | None = None
    coefficients: np.ndarray | None = None
    names: tuple[int, ...] | None = None

    def __bool__(self) -> bool:
        return self.holds is True

    def __str__(self) -> str:
        if self.holds:
            return "rigid: the span holds no other Boolean vector"
        if self.coefficients is None or self.witness is None:
            return "not decided: too many atoms"
        terms = combination_text(self.coefficients, self.names)
        return f"not rigid: {terms} is {'Boolean as well' if self.witness.any() else 'zero'}"


def is_rigid(Z: ArrayLike, *, max_atoms: int = MAX_ATOMS) -> Rigidity:
    """Return, as a Rigidity, whether the span of Z contains no Boolean vectors but zero and its columns.

    A vector of the span is known from its entries in K independent rows of Z. All 2^K Boolean choices of these
    are completed to vectors of the span, row after row, and dropped at the first entry that is not 0 or 1.

    Parameters
    ----------
    Z : array-like of 0 and 1, shape (d, K)
        Boolean vectors as columns.
    max_atoms : int
        Columns up to which all combinations are tried; with more, nothing is decided.

    Examples
    --------
    >>> import boolcp
    >>> print(boolcp.identifiability.is_rigid([[1, 0], [1, 0], [0, 1], [0, 0]]))
    not rigid: z_0 + z_1 is Boolean as well
    """
    Z = read_matrix(Z, "Z")
    if not np.isin(Z, (0, 1)).all():
        raise ValueError("Z must hold zeros and ones only.")
    n_columns = Z.shape[1]
    if n_columns == 0:
        return Rigidity(True)
    rows, rank = _independent_rows(Z)
    if rank < n_columns:
        null = np.linalg.svd(Z)[2][-1]
        return Rigidity(False, np.zeros(len(Z), dtype=bool), _tidy(null / np.abs(null).max()))
    if n_columns > max_atoms:
        return Rigidity(None)
    T = scipy.linalg.solve(Z[rows].T, Z.T).T  # a vector of the span is T b, b its entries in `rows`
    bits = _surviving_bits(T, Z[rows])
    if bits is None:
        return Rigidity(True)
    return Rigidity(False, np.rint(T @ bits).astype(bool), _tidy(np.linalg.solve(Z[rows], bits)))


def _independent_rows(Z: np.ndarray) -> tuple[np.ndarray, int]:
    """Return rows of Z that are a well-conditioned basis of its row space, and their number."""
    R, order = scipy.linalg.qr(Z.T, mode="r", pivoting=True)
    diagonal = np.abs(np.diag(R))
    rank = int(np.sum(diagonal > 1e-9 * max(diagonal.max(initial=0.0), 1.0)))
    return order[:rank], rank


def _surviving_bits(T: np.ndarray, basis: np.ndarray) -> np.ndarray | None:
    """Return Boolean b, neither zero nor a row of `basis`' columns, with T b Boolean, or None."""
    n_columns = T.shape[1]
    rows = np.unique(np.round(T, 9), axis=0)
    is_unit = (np.abs(rows).sum(axis=1) == 1) & (rows.max(axis=1) == 1)
    rows = rows[~is_unit & rows.any(axis=1)]
    rows = rows[np.argsort(-np.count_nonzero(rows, axis=1), kind="stable")]
    known = {0, *(int(code) for code in basis.T @ 2.0 ** np.arange(n_columns))}
    for start in range(0, 2**n_columns, CHUNK):
        codes = np.arange(start, min(start + CHUNK, 2**n_columns))
        for row in rows:
            values = _table(row, codes)
            codes = codes[(np.abs(values) < 1e-6) | (np.abs(values - 1) < 1e-6)]
            if len(codes) <= 1:
                break
        for code in codes.tolist():
            bits = code >> np.arange(n_columns) & 1
            values = T @ bits
            if code not in known and np.all(np.minimum(np.abs(values), np.abs(values - 1)) < 1e-6):
                return bits.astype(float)
    return None


def _table(row: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return sum_k row[k] b_k for the bits b of each code, through tables of 12 bits each."""
    values = np.zeros(len(codes))
    for low in range(0, len(row), 12):
        part = row[low : low + 12]
        sums = (np.arange(2 ** len(part))[:, None] >> np.arange(len(part)) & 1) @ part
        values += sums[codes >> low & 2 ** len(part) - 1]
    return values


def _tidy(coefficients: np.ndarray) -> np.ndarray:
    """Return coefficients with rounding errors set to zero and integers made exact."""
    rounded = np.rint(coefficients)
    return np.where(np.abs(coefficients - rounded) < 1e-7, rounded, coefficients) + 0.0


def combination_text(coefficients: np.ndarray, names: Iterable[int] | None = None) -> str:
    """Return the text of a combination such as `z_0 - z_2 + 0.5 z_3`."""
    names = range(len(coefficients)) if names is None else names
    text = ""
    for name, c in zip(names, coefficients, strict=True):
        if c:
            size = "" if abs(c) == 1 else f"{abs(c):.3g} "
            sign = ("-" if c < 0 else "") if not text else (" - " if c < 0 else " + ")
            text += f"{sign}{size}z_{name}"
    return text


def read_matrix(A: ArrayLike, name: str) -> np.ndarray:
    """Return A as a matrix of floats after checking that it is one, and finite."""
    matrix = np.asarray(A, dtype=float)
    if matrix.ndim != 2 or not np.isfinite(matrix).all():
        raise ValueError(f"{name} must be a matrix of finite numbers, got shape {matrix.shape}.")
    return matrix
