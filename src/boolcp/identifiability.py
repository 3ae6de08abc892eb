"""When is a decomposition the only one? Kruskal's condition, rigidity of Boolean factors, and a verdict in words."""

from dataclasses import dataclass, replace
from itertools import combinations, islice
from math import comb

import numpy as np
import scipy.linalg

from boolcp.atoms import BooleanCP
from boolcp.contractions import khatri_rao
from boolcp.rigidity import Rigidity, combination_text, is_rigid, read_matrix

__all__ = [
    "Diagnosis",
    "KruskalCondition",
    "KruskalRank",
    "Rigidity",
    "diagnose",
    "is_rigid",
    "kruskal_condition",
    "kruskal_rank",
    "verdict",
]

TOL = 1e-8  # smallest singular value of unit columns that still counts as independent
MAX_SUBSETS = 200_000  # sets of columns that kruskal_rank looks at before it settles for bounds
CHEAP_ATOMS, CHEAP_NUMBERS = 10, 5_000_000  # beyond, a diagnosis may take minutes
CHUNK = 2**20  # numbers held at a time


class KruskalRank(int):
    """The Kruskal rank as an int (a proved lower bound where it is not exact), with what is known beside it.

    Attributes
    ----------
    upper : int
        Upper bound; equal to the number itself when that is exact.
    witness : tuple of int or None
        Columns that are dependent, one more than `upper`; None if all columns are independent or none were found.

    Examples
    --------
    >>> import numpy as np
    >>> from boolcp.identifiability import kruskal_rank
    >>> rank = kruskal_rank(np.eye(3))
    >>> int(rank), rank.is_exact, rank.witness
    (3, True, None)
    """

    upper: int
    witness: tuple[int, ...] | None

    def __new__(cls, lower, upper, witness=None):
        """Return the lower bound as an int that knows the upper one."""
        self = super().__new__(cls, lower)
        self.upper, self.witness = upper, witness
        return self

    @property
    def is_exact(self):
        """Return True if the two bounds meet."""
        return int(self) == self.upper


@dataclass(frozen=True, eq=False)
class KruskalCondition:
    """Kruskal's condition for one decomposition; true in an `if` when it is proved to hold.

    Attributes
    ----------
    ranks : tuple of KruskalRank
        Kruskal rank of each factor matrix.
    n_atoms : int
        Number R of terms.
    holds : bool or None
        None when the bounds of the ranks do not decide it.

    Examples
    --------
    >>> import boolcp
    >>> truth = boolcp.datasets.make_boolean_cp((20, 20, 20), 4, random_state=0).truth
    >>> condition = boolcp.identifiability.kruskal_condition(truth)
    >>> condition.holds, condition.needed
    (True, 10)
    """

    ranks: tuple[KruskalRank, ...]
    n_atoms: int
    holds: bool | None

    @property
    def needed(self):
        """Return the sum of Kruskal ranks that suffices, 2R + N - 1."""
        return 2 * self.n_atoms + len(self.ranks) - 1

    def __bool__(self):
        return self.holds is True

    def __str__(self):
        ranks = " + ".join(str(int(rank)) if rank.is_exact else f"({int(rank)}..{rank.upper})" for rank in self.ranks)
        verdict = {True: "holds", False: "does not hold", None: "is not decided"}[self.holds]
        return f"Kruskal's condition {verdict}: the Kruskal ranks are {ranks}, {self.needed} is needed"


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """A readable verdict on the identifiability of a decomposition; `str` of it is the text.

    Attributes
    ----------
    kruskal : KruskalCondition or None
        None for atoms that are not of rank one.
    rigidity : dict of int to Rigidity
        For each mode with Boolean atoms.
    verdicts : tuple of str
        One for each atom: "identifiable", "not identifiable" or "not guaranteed".
    reasons : tuple of str
        Why, for each atom.

    Examples
    --------
    >>> import boolcp
    >>> truth = boolcp.datasets.make_boolean_cp((20, 20, 20), 4, random_state=0).truth
    >>> diagnosis = boolcp.identifiability.diagnose(truth)
    >>> diagnosis.is_identifiable.tolist()
    [True, True, True, True]
    """

    kruskal: KruskalCondition | None
    rigidity: dict[int, Rigidity]
    verdicts: tuple[str, ...]
    reasons: tuple[str, ...]
    mode_names: tuple[str, ...]

    @property
    def is_identifiable(self):
        """Return which atoms are proved to be identifiable, (K,)."""
        return np.array([verdict == "identifiable" for verdict in self.verdicts], dtype=bool)

    @property
    def words(self):
        """Return the verdict on all atoms in a sentence or three."""
        n_atoms, n_proved = len(self.verdicts), int(self.is_identifiable.sum())
        n_refuted = self.verdicts.count("not identifiable")
        if n_proved == n_atoms == 1:
            return "This atom is identifiable: no other atom is the same tensor."
        if n_proved == n_atoms:
            return f"These atoms are identifiable: no other {n_atoms} atoms sum to the same tensor."
        words = f"Identifiable: {n_proved} of {n_atoms} atoms."
        if n_refuted:
            words += f" For {n_refuted}, other atoms are known that sum to the same tensor: read them with care."
        if n_proved + n_refuted < n_atoms:
            words += f" For {n_atoms - n_proved - n_refuted}, no condition proves or refutes it."
        return words

    def __bool__(self):
        return all(self.is_identifiable)

    def __str__(self):
        lines = [] if self.kruskal is None else [f"{self.kruskal}."]
        lines += [f"Mode {self.mode_names[mode]} is {rigidity}." for mode, rigidity in self.rigidity.items()]
        pairs = enumerate(zip(self.verdicts, self.reasons, strict=True))
        return "\n".join(lines + [f"Atom {k}: {verdict} ({reason})" for k, (verdict, reason) in pairs])


def kruskal_rank(A, *, tol=TOL, max_subsets=MAX_SUBSETS):
    """Return the Kruskal rank of a matrix: the largest k such that every k columns are independent.

    Exact when the columns are independent altogether, or when no more than `max_subsets` sets of columns have to be
    looked at (about 17 columns at worst); otherwise a proved lower bound with an upper one beside it.

    Parameters
    ----------
    A : array-like of shape (d, K)
        The matrix.
    tol : float
        Columns of norm one are dependent when the smallest singular value is not above `tol`.
    max_subsets : int
        Sets of columns to look at.

    Returns
    -------
    KruskalRank
        An int with the attributes `upper`, `is_exact` and `witness`.

    Examples
    --------
    >>> import numpy as np
    >>> from boolcp.identifiability import kruskal_rank
    >>> A = np.array([[1, 0, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1]])
    >>> kruskal_rank(A), kruskal_rank(A).witness
    (2, (0, 1, 2))
    """
    A = read_matrix(A, "A")
    n_columns = A.shape[1]
    if n_columns == 0:
        return KruskalRank(0, 0)
    norms = np.linalg.norm(A, axis=0)
    if not norms.all():
        return KruskalRank(0, 0, (int(np.argmin(norms)),))
    A = A / norms
    R = np.linalg.qr(A, mode="r") if len(A) > n_columns else A
    rank = _rank(R, tol)
    if rank == n_columns:
        return KruskalRank(rank, rank)
    circuit = _short_circuit(R, rank, tol)
    lower, n_looked = 1, 0
    for size in range(2, len(circuit) + 1):
        n_looked += comb(n_columns, size)
        if n_looked > max_subsets:
            break
        found = _dependent_set(R, size, tol)
        if found is not None:
            return KruskalRank(size - 1, size - 1, found)
        lower = size
    coherence = np.abs(A.T @ A - np.eye(n_columns)).max()
    lower = max(lower, min(int(np.ceil(1 / max(coherence, 1e-12))), rank))  # spark > 1 / coherence
    return KruskalRank(lower, len(circuit) - 1, circuit)


def kruskal_condition(decomposition, *, tol=TOL):
    """Return whether Kruskal's condition holds: the sum of the Kruskal ranks is at least 2R + N - 1.

    For three modes this is R <= (k_1 + k_2 + k_3 - 2) / 2 as in the paper. It suffices for a CP decomposition to be
    unique up to order and scale; a single term always is.

    Parameters
    ----------
    decomposition : BooleanCP with atoms of rank one, (weights, factors), or list of matrices (d_n, R)
        The decomposition or its factor matrices.

    Returns
    -------
    KruskalCondition
        True in an `if` when the condition holds.

    Examples
    --------
    >>> import boolcp
    >>> from boolcp.identifiability import kruskal_condition
    >>> truth = boolcp.datasets.make_boolean_cp((20, 20, 20), 4, random_state=0).truth
    >>> print(kruskal_condition(truth))
    Kruskal's condition holds: the Kruskal ranks are 4 + 4 + 4, 10 is needed
    """
    factors = [np.asarray(A, dtype=float) for A in _factors(decomposition)]
    ranks = tuple(kruskal_rank(A, tol=tol) for A in factors)
    n_atoms = factors[0].shape[1]
    needed = 2 * n_atoms + len(factors) - 1
    if n_atoms <= 1:
        holds: bool | None = all(rank >= n_atoms for rank in ranks)
    elif sum(ranks) >= needed:
        holds = True
    else:
        holds = False if sum(rank.upper for rank in ranks) < needed else None
    return KruskalCondition(ranks, n_atoms, holds)


def diagnose(decomposition):
    """Return a verdict for every atom: identifiable, not identifiable, or not guaranteed, and why.

    Atoms of rank one are identifiable when Kruskal's condition holds. Where it does not, and for atoms of higher
    rank and blocks, they are when all are Boolean along one mode, their Boolean vectors are rigid and their real
    parts independent: the span of the unfolding then holds no other Boolean vectors. They are proved not to be
    when an exchange is known: a block atom whose z takes part in another Boolean vector of the span, or two
    rank-one atoms that differ along one mode only (unless this is their Boolean mode and their bits and weights tell
    them apart). These are statements on the exact decomposition of the tensor that the atoms sum to, whatever the
    noise of the data was.

    Parameters
    ----------
    decomposition : BooleanCP
        The decomposition.

    Returns
    -------
    Diagnosis
        Its `str` is the text; `is_identifiable` has one truth value for each atom.

    Examples
    --------
    >>> import boolcp
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
    modes = sorted(set(W.boolean_mode.tolist()))
    rigidity = {mode: _rigidity_along(W, mode) for mode in modes}
    names = tuple(W.mode_name(mode) for mode in range(W.ndim))
    if kruskal:
        return Diagnosis(
            kruskal, rigidity, ("identifiable",) * W.n_atoms, ("Kruskal's condition holds",) * W.n_atoms, names
        )
    if len(modes) == 1 and rigidity[modes[0]] and _has_independent_parts(W):
        reason = "all atoms are Boolean along one mode, rigid, with independent real parts"
        return Diagnosis(kruskal, rigidity, ("identifiable",) * W.n_atoms, (reason,) * W.n_atoms, names)
    exchanges = _exchanges(W, kruskal, rigidity)
    doubt = _doubt(W, kruskal, rigidity)
    verdicts = tuple("not identifiable" if k in exchanges else "not guaranteed" for k in range(W.n_atoms))
    return Diagnosis(kruskal, rigidity, verdicts, tuple(exchanges.get(k, doubt) for k in range(W.n_atoms)), names)


def verdict(W):
    """Return in one sentence whether the decomposition is the only one; nothing where that takes long to tell.

    Up to 10 atoms, without slices that no entry determines.

    Examples
    --------
    >>> import boolcp
    >>> from boolcp.identifiability import verdict
    >>> verdict(boolcp.datasets.make_boolean_cp((8, 9, 10), 2, random_state=0).truth)
    'These atoms are identifiable: no other 2 atoms sum to the same tensor.'
    """
    diagnosis = cheap_diagnosis(W)
    return "" if diagnosis is None else diagnosis.words


def cheap_diagnosis(W):
    """Return the diagnosis if it takes little time and all entries are determined, else None."""
    numbers = np.prod(W.shape, dtype=float) / max(min(W.shape), 1) * W.n_atoms
    if not 0 < W.n_atoms <= CHEAP_ATOMS or numbers > CHEAP_NUMBERS or W.undetermined:
        return None
    return diagnose(W)


def _exchanges(W, kruskal, rigidity):
    """Return for each atom with a known exchange what it is, {k: text}."""
    found = {}
    if kruskal is not None:
        unit = [A / np.linalg.norm(A, axis=0) for A in W.factors]
        parallel = np.array([np.abs(A.T @ A) > 1 - TOL for A in unit])
        for k, l in combinations(range(W.n_atoms), 2):
            if parallel[:, k, l].sum() >= W.ndim - 1 and not _are_told_apart(W, k, l):
                found[k] = found[l] = f"atoms {k} and {l} differ along one mode at most"
        return found
    for mode, rigid in rigidity.items():
        members = np.flatnonzero(W.boolean_mode == mode)
        if rigid.coefficients is None:
            continue
        for k in members[rigid.coefficients != 0]:
            if W.atoms[k].block is not None:
                text = combination_text(rigid.coefficients, members)
                found[int(k)] = f"{text} is {'Boolean as well' if rigid.witness.any() else 'zero'}"
    return found


def _are_told_apart(W, k, l):
    """Return True if two atoms with the same real part are the only Boolean vectors with their sum.

    The sum has the values c, c' and c + c'. If all three occur and differ, no other weights give them: bits that
    overlap without one holding the other, and weights of different size.
    """
    first, second = W.atoms[k], W.atoms[l]
    if first.mode != second.mode or not is_rigid(np.stack([first.z, second.z], axis=1)):
        return False
    sizes = np.abs(W.weights[[k, l]])
    return bool(abs(sizes[0] - sizes[1]) > 1e-6 * sizes.max())


def _doubt(W, kruskal, rigidity):
    """Return why nothing is proved for the atoms without a known exchange."""
    if kruskal is not None:
        low = [str(n) for n, rank in enumerate(kruskal.ranks) if rank < W.n_atoms]
        return f"Kruskal's condition is not met, {'modes' if len(low) > 1 else 'mode'} {', '.join(low)} short of it"
    if len(rigidity) > 1:
        return "atoms that are not of rank one, Boolean along several modes: no condition is known"
    if any(rigid.holds is None for rigid in rigidity.values()):
        return "too many atoms to decide rigidity"
    return "the Boolean vectors are not rigid" if not all(rigidity.values()) else "the real parts are dependent"


def _rigidity_along(W, mode):
    """Return the Rigidity of the Boolean vectors along one mode, called by the numbers of their atoms."""
    members = np.flatnonzero(W.boolean_mode == mode).tolist()
    rigidity = is_rigid(np.stack([W.atoms[k].z for k in members], axis=1))
    return replace(rigidity, names=tuple(members))


def _has_independent_parts(W):
    """Return True if the real parts of atoms that are Boolean along one mode are independent."""
    if W.n_atoms > np.prod(W.shape, dtype=float) / W.shape[W.atoms[0].mode]:
        return False
    if all(atom.rank == 1 for atom in W.atoms):
        columns = khatri_rao([A for n, A in enumerate(W.factors) if n != W.atoms[0].mode])
    else:
        columns = np.stack([atom.dense_block().ravel() for atom in W.atoms], axis=1)
    return _rank(columns, TOL) == W.n_atoms


def _rank(A, tol):
    return int(np.sum(np.linalg.svd(A, compute_uv=False) > tol))


def _dependent_set(A, size, tol):
    """Return the first `size` columns of A found dependent, or None."""
    n_columns = A.shape[1]
    if size > len(A):
        return tuple(range(size))
    subsets = combinations(range(n_columns), size)
    while block := list(islice(subsets, max(1, CHUNK // (len(A) * size)))):
        values = np.linalg.svd(A[:, np.array(block)].transpose(1, 0, 2), compute_uv=False)[:, -1]
        if values.min() <= tol:
            return block[int(np.argmax(values <= tol))]
    return None


def _short_circuit(A, rank, tol):
    """Return a small set of dependent columns: each column outside a basis with those of the basis it needs."""
    order = scipy.linalg.qr(A, mode="r", pivoting=True)[1]
    basis, rest = order[:rank], order[rank:]
    coefficients = np.linalg.lstsq(A[:, basis], A[:, rest], rcond=None)[0]
    sets = [[*basis[np.abs(c) > tol], column] for c, column in zip(coefficients.T, rest, strict=True)]
    return tuple(sorted(int(column) for column in min(sets, key=len)))


def _factors(decomposition):
    if isinstance(decomposition, BooleanCP):
        return decomposition.factors
    if isinstance(decomposition, tuple) and len(decomposition) == 2 and np.ndim(decomposition[1][0]) == 2:
        return decomposition[1]
    return decomposition
