"""Is a decomposition unique? Kruskal's condition, rigidity of Boolean factors, and a verdict in words."""

from dataclasses import dataclass, replace
from itertools import combinations, islice
from math import comb
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from boolcp.result.atoms import BooleanCP

__all__ = ["Diagnosis", "KruskalCondition", "Rigidity", "diagnose", "is_rigid", "kruskal_condition", "kruskal_rank"]

REFUTED = "not identifiable"
CHEAP_ATOMS, CHEAP_NUMBERS = 10, 5_000_000  # beyond, a diagnosis may take minutes
TOL = 1e-8  # smallest singular value of unit columns that still counts as independent
MAX_SUBSETS = 200_000  # sets of columns that kruskal_rank tries, all of those of 17 columns; not tuned
MAX_ATOMS = 20  # Boolean columns whose 2^K combinations is_rigid tries; not tuned
CHUNK = 2**20  # numbers, or combinations, held at a time


@dataclass(frozen=True, eq=False)
class KruskalCondition:
    """The Kruskal rank of each factor matrix and the number R of terms; true in an `if` when they prove uniqueness.

    Examples
    --------
    >>> truth = boolcp.datasets.make_boolean_cp((20, 20, 20), 4, random_state=0).truth
    >>> boolcp.identifiability.kruskal_condition(truth).holds
    True
    """

    ranks: tuple[int, ...]
    n_atoms: int

    @property
    def needed(self) -> int:
        """Return the sum of Kruskal ranks that suffices, 2R + N - 1."""
        return 2 * self.n_atoms + len(self.ranks) - 1

    @property
    def holds(self) -> bool:
        """Return True if the sum suffices; a single term is always unique."""
        return min(self.ranks) >= self.n_atoms if self.n_atoms <= 1 else sum(self.ranks) >= self.needed

    def __bool__(self) -> bool:
        return self.holds

    def __str__(self) -> str:
        verdict = "holds" if self.holds else "does not hold"
        ranks = " + ".join(map(str, self.ranks))
        return f"Kruskal's condition {verdict}: the Kruskal ranks are {ranks}, {self.needed} is needed"


def kruskal_condition(decomposition: Any) -> KruskalCondition:
    """Return whether Kruskal's condition holds: the sum of the Kruskal ranks is at least 2R + N - 1.

    For three modes this is R <= (k_1 + k_2 + k_3 - 2) / 2 as in the paper. It suffices for a CP decomposition, given as
    a BooleanCP with atoms of rank one or a list of matrices (d_n, R), to be unique up to order and scale.

    Examples
    --------
    >>> truth = boolcp.datasets.make_boolean_cp((20, 20, 20), 4, random_state=0).truth
    >>> print(boolcp.identifiability.kruskal_condition(truth))
    Kruskal's condition holds: the Kruskal ranks are 4 + 4 + 4, 10 is needed
    """
    factors = decomposition.factors if isinstance(decomposition, BooleanCP) else decomposition
    return KruskalCondition(tuple(kruskal_rank(A) for A in factors), np.shape(factors[0])[1])


def kruskal_rank(A: Any) -> int:
    """Return the Kruskal rank of a matrix: the largest k such that every k columns are independent.

    Beyond 17 dependent columns it may be a lower bound: no more than 200,000 sets of columns are tried.

    Examples
    --------
    >>> boolcp.identifiability.kruskal_rank([[1, 0, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1]])
    2
    """
    A = read_matrix(A, "A")
    n_columns = A.shape[1]
    norms = np.linalg.norm(A, axis=0)
    if not norms.all() or not n_columns:
        return 0
    A = A / norms
    if len(A) > n_columns:
        A = scipy.linalg.qr(A, mode="r")[0][:n_columns]
    if (rank := int(np.linalg.matrix_rank(A, tol=TOL))) == n_columns:
        return rank
    n_tried = 0
    for size in range(2, rank + 1):
        n_tried += comb(n_columns, size)
        if n_tried > MAX_SUBSETS:
            return size - 1
        subsets = combinations(range(n_columns), size)
        while block := list(islice(subsets, max(1, CHUNK // (len(A) * size)))):
            if np.linalg.svd(A[:, np.array(block)].transpose(1, 0, 2), compute_uv=False)[:, -1].min() <= TOL:
                return size - 1
    return rank


@dataclass(frozen=True, eq=False)
class Rigidity:
    """Whether the span of Boolean columns contains another Boolean vector; true in an `if` when it is proved not to.

    `holds` is None when there were too many columns to decide. `witness` (d,) is a Boolean vector of the span that is
    not a column (all False if the columns are dependent), `coefficients` (K,) the combination of columns that gives it,
    `names` the numbers of the columns in the text.

    Examples
    --------
    >>> boolcp.identifiability.is_rigid([[1, 1], [1, 0], [0, 1]]).holds
    True
    """

    holds: bool | None
    witness: np.ndarray | None = None
    coefficients: np.ndarray | None = None
    names: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return self.holds is True

    def __str__(self) -> str:
        if self.coefficients is None:
            return "rigid: the span holds no other Boolean vector" if self.holds else "not decided: too many atoms"
        return f"not rigid: {self.exchange}"

    @property
    def exchange(self) -> str:
        """Return which combination is Boolean, or zero, such as `z_0 - z_2 + 0.5 z_3`."""
        coefficients, text = np.asarray(self.coefficients), ""
        for k, c in zip(self.names or range(len(coefficients)), coefficients, strict=True):
            size = "" if abs(c) == 1 else f"{abs(c):.3g} "
            sign = ("-" if c < 0 else "") if not text else (" - " if c < 0 else " + ")
            text += f"{sign}{size}z_{k}" if c else ""
        return f"{text} is {'Boolean as well' if np.any(self.witness) else 'zero'}"


def is_rigid(Z: ArrayLike) -> Rigidity:
    """Return, as a Rigidity, whether the span of Z (d, K) contains no Boolean vectors but zero and its columns.

    All 2^K Boolean choices of the entries in K independent rows are completed to vectors of the span, and dropped at
    the first entry that is not 0 or 1. With more than 20 columns nothing is decided, unless they are dependent.

    Examples
    --------
    >>> print(boolcp.identifiability.is_rigid([[1, 0], [1, 0], [0, 1], [0, 0]]))
    not rigid: z_0 + z_1 is Boolean as well
    """
    Z = read_matrix(Z, "Z")
    if not np.isin(Z, (0, 1)).all():
        raise ValueError("Z must hold zeros and ones only.")
    n_columns = Z.shape[1]
    if n_columns == 0:
        return Rigidity(True)
    R, order = scipy.linalg.qr(Z.T, mode="r", pivoting=True)
    diagonal = np.abs(np.diag(R))
    if np.sum(diagonal > 1e-9 * diagonal.max(initial=1.0)) < n_columns:
        null = np.linalg.eigh(Z.T @ Z)[1][:, 0]
        return Rigidity(False, np.zeros(len(Z), dtype=bool), tidy(null / np.abs(null).max()))
    if n_columns > MAX_ATOMS:
        return Rigidity(None)
    basis = Z[order[:n_columns]]  # well-conditioned rows
    T = scipy.linalg.solve(basis.T, Z.T).T  # a vector of the span is T b, b its entries in these rows
    rows = np.unique(np.round(T, 9), axis=0)
    rows = rows[np.argsort(-np.count_nonzero(rows, axis=1), kind="stable")]  # those that exclude most first
    for start in range(0, 2**n_columns, CHUNK):
        bits = np.arange(start, min(start + CHUNK, 2**n_columns))[:, None] >> np.arange(n_columns) & 1
        for row in rows:
            values = bits @ row
            bits = bits[np.minimum(np.abs(values), np.abs(values - 1)) < 1e-6]
        for b in bits:
            if b.any() and not (basis.T == b).all(axis=1).any():
                return Rigidity(False, np.rint(T @ b).astype(bool), tidy(np.linalg.solve(basis, b)))
    return Rigidity(True)


def tidy(coefficients: np.ndarray) -> np.ndarray:
    """Return coefficients with rounding errors set to zero and integers made exact."""
    rounded = np.rint(coefficients)
    return np.where(np.abs(coefficients - rounded) < 1e-7, rounded, coefficients) + 0.0


def read_matrix(A: ArrayLike, name: str) -> np.ndarray:
    """Return A as a matrix of floats after checking that it is one, and finite."""
    matrix = np.asarray(A, dtype=float)
    if matrix.ndim != 2 or not np.isfinite(matrix).all():
        raise ValueError(f"{name} must be a matrix of finite numbers, got shape {matrix.shape}.")
    return matrix


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """A readable verdict on the identifiability of a decomposition; `str` of it is the text.

    `kruskal` is None for atoms that are not of rank one; `rigidity` is for each mode with Boolean atoms; `verdicts` are
    "identifiable", "not identifiable" or "not guaranteed" for each atom, `reasons` why.

    Examples
    --------
    >>> truth = boolcp.datasets.make_boolean_cp((20, 20, 20), 4, random_state=0).truth
    >>> boolcp.identifiability.diagnose(truth).is_identifiable.tolist()
    [True, True, True, True]
    """

    kruskal: KruskalCondition | None
    rigidity: dict[int, Rigidity]
    verdicts: tuple[str, ...]
    reasons: tuple[str, ...]
    mode_names: tuple[str, ...]

    @property
    def is_identifiable(self) -> np.ndarray:
        """Return which atoms are proved to be identifiable, (K,)."""
        return np.array([verdict == "identifiable" for verdict in self.verdicts], dtype=bool)

    @property
    def words(self) -> str:
        """Return the verdict on the sum of all atoms in a few sentences."""
        n_atoms, refuted = len(self.verdicts), [str(k) for k, text in enumerate(self.verdicts) if text == REFUTED]
        n_open = n_atoms - len(refuted) - int(self.is_identifiable.sum())
        if self:
            one = "atom is the same tensor" if n_atoms == 1 else f"{n_atoms} atoms give the same sum"
            return f"Unique: no other {one}."
        known = f"Not unique: other atoms in place of {', '.join(refuted)} give the same sum; do not read them alone."
        some = f" for the other {n_open}" if refuted else ""
        unknown = f"Whether other atoms could give the same sum is not known{some}."
        return " ".join([known] * bool(refuted) + [unknown] * bool(n_open))

    def __bool__(self) -> bool:
        return bool(self.is_identifiable.all())

    def __str__(self) -> str:
        lines = [] if self.kruskal is None else [f"{self.kruskal}."]
        lines += [f"Mode {self.mode_names[mode]} is {rigid}." for mode, rigid in self.rigidity.items()]
        pairs = enumerate(zip(self.verdicts, self.reasons, strict=True))
        return "\n".join(lines + [f"Atom {k}: {verdict} ({reason})" for k, (verdict, reason) in pairs])


def diagnose(decomposition: BooleanCP) -> Diagnosis:
    """Return a verdict for every atom, as a Diagnosis: identifiable, not identifiable, or not guaranteed, and why.

    Atoms of rank one are identifiable when Kruskal's condition holds; all others when they are Boolean along one mode,
    with rigid Boolean vectors and independent real parts. They are not when an exchange is known: a block whose z is
    part of another Boolean vector of the span, or two rank-one atoms that differ along one mode only (unless their bits
    and weights distinguish them). This is about the exact sum of the atoms, whatever the noise of the data was.

    Examples
    --------
    >>> truth = boolcp.datasets.make_boolean_cp((20, 20, 20), [1, 1, 0], random_state=0).truth
    >>> print(boolcp.identifiability.diagnose(truth))
    Kruskal's condition holds: the Kruskal ranks are 2 + 2 + 2, 6 is needed.
    Mode 0 is rigid: the span holds no other Boolean vector.
    Mode 1 is rigid: the span holds no other Boolean vector.
    Atom 0: identifiable (Kruskal's condition holds)
    Atom 1: identifiable (Kruskal's condition holds)
    """
    W = decomposition
    if not isinstance(W, BooleanCP):
        raise TypeError(f"decomposition must be a BooleanCP, but it is a {type(W).__name__}.")
    kruskal = kruskal_condition(W) if W.n_atoms and all(atom.rank == 1 for atom in W.atoms) else None
    rigidity = {}
    for mode, members in W.members.items():
        rigid = is_rigid(np.stack([W.atoms[k].z for k in members], axis=1))
        rigidity[mode] = replace(rigid, names=tuple(members.tolist()))
    names = tuple(W.mode_name(mode) for mode in range(W.ndim))
    reason = "Kruskal's condition holds" if kruskal else ""
    if not kruskal and len(rigidity) == 1 and all(rigidity.values()):
        blocks = np.stack([atom.dense_block().ravel() for atom in W.atoms], axis=1)
        if np.linalg.matrix_rank(blocks, tol=TOL) == W.n_atoms:
            reason = "all atoms are Boolean along one mode, rigid, with independent real parts"
    exchanges = {} if reason else find_exchanges(W, kruskal, rigidity)
    verdict = "identifiable" if reason else "not guaranteed"
    reason = reason or explain_doubt(W, kruskal, rigidity)
    verdicts = tuple(REFUTED if k in exchanges else verdict for k in range(W.n_atoms))
    reasons = tuple(exchanges.get(k, reason) for k in range(W.n_atoms))
    return Diagnosis(kruskal, rigidity, verdicts, reasons, names)


def is_cheap(W: BooleanCP) -> bool:
    """Return True if a diagnosis of W takes little time."""
    numbers = np.prod(W.shape, dtype=float) / max(min(W.shape), 1) * W.n_atoms
    return bool(W.n_atoms <= CHEAP_ATOMS and numbers <= CHEAP_NUMBERS)


def find_exchanges(W: BooleanCP, kruskal: KruskalCondition | None, rigidity: dict[int, Rigidity]) -> dict[int, str]:
    """Return for each atom with a known exchange what it is, {k: text}."""
    found: dict[int, str] = {}
    if kruskal is not None:
        unit = [A / np.linalg.norm(A, axis=0) for A in W.factors]
        parallel = np.array([np.abs(A.T @ A) > 1 - TOL for A in unit])
        for k, l in combinations(range(W.n_atoms), 2):
            if parallel[:, k, l].sum() >= W.ndim - 1 and not are_distinct(W, k, l):
                found[k] = found[l] = f"atoms {k} and {l} differ along one mode at most"
        return found
    for mode, rigid in rigidity.items():
        if rigid.coefficients is not None:
            members = W.members[mode][rigid.coefficients != 0].tolist()
            found |= dict.fromkeys([k for k in members if W.atoms[k].block is not None], rigid.exchange)
    return found


def are_distinct(W: BooleanCP, k: int, l: int) -> bool:
    """Return True if no other Boolean vectors and weights give the sum of two atoms with the same real part."""
    first, second = W.atoms[k], W.atoms[l]
    if first.mode != second.mode or not is_rigid(np.stack([first.z, second.z], axis=1)):
        return False
    sizes = np.abs(W.weights[[k, l]])  # of different size: the values c, c' and c + c' of the sum all differ
    return bool(abs(sizes[0] - sizes[1]) > 1e-6 * sizes.max())


def explain_doubt(W: BooleanCP, kruskal: KruskalCondition | None, rigidity: dict[int, Rigidity]) -> str:
    """Explain why nothing is proved for the atoms without a known exchange."""
    if kruskal is not None:
        low = [str(n) for n, rank in enumerate(kruskal.ranks) if rank < W.n_atoms]
        return f"Kruskal's condition is not met, {'modes' if len(low) > 1 else 'mode'} {', '.join(low)} short of it"
    if len(rigidity) > 1:
        return "atoms that are not of rank one, Boolean along several modes: no condition is known"
    if any(rigid.holds is None for rigid in rigidity.values()):
        return "too many atoms to decide rigidity"
    return "the Boolean vectors are not rigid" if not all(rigidity.values()) else "the real parts are dependent"
