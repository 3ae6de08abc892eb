"""Is a decomposition unique? Kruskal's condition, rigidity of Boolean factors, and a verdict in words."""

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from boolcp.result.atoms import BooleanCP
from boolcp.trust.kruskal import TOL, KruskalCondition, KruskalRank, kruskal_condition, kruskal_rank, numerical_rank
from boolcp.trust.rigidity import Rigidity, combination_text, is_rigid

__all__ = [
    "Diagnosis",
    "KruskalCondition",
    "KruskalRank",
    "Rigidity",
    "diagnose",
    "is_rigid",
    "kruskal_condition",
    "kruskal_rank",
]

REFUTED = "not identifiable"
CHEAP_ATOMS, CHEAP_NUMBERS = 10, 5_000_000  # beyond, a diagnosis may take minutes


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
    def is_identifiable(self) -> np.ndarray:
        """Return which atoms are proved to be identifiable, (K,)."""
        return np.array([verdict == "identifiable" for verdict in self.verdicts], dtype=bool)

    @property
    def words(self) -> str:
        """Return the verdict on the sum of all atoms in a few sentences."""
        n_atoms, refuted = len(self.verdicts), [k for k, text in enumerate(self.verdicts) if text == REFUTED]
        n_open = n_atoms - len(refuted) - int(self.is_identifiable.sum())
        if not refuted and not n_open:
            one = "atom is the same tensor" if n_atoms == 1 else f"{n_atoms} atoms give the same sum"
            return f"Unique: no other {one}."
        words = []
        if refuted:
            which = ", ".join(map(str, refuted))
            words.append(
                f"Not unique: other atoms in place of {which} give the same sum; do not read them alone."
            )
        if n_open:
            some = "" if n_open == n_atoms else f" for the other {n_open}"
            words.append(f"Whether other atoms could give the same sum is not known{some}.")
        return " ".join(words)

    def __bool__(self) -> bool:
        return bool(self.is_identifiable.all())

    def __str__(self) -> str:
        lines = [] if self.kruskal is None else [f"{self.kruskal}."]
        lines += [f"Mode {self.mode_names[mode]} is {rigidity}." for mode, rigidity in self.rigidity.items()]
        pairs = enumerate(zip(self.verdicts, self.reasons, strict=True))
        return "\n".join(lines + [f"Atom {k}: {verdict} ({reason})" for k, (verdict, reason) in pairs])


def diagnose(decomposition: BooleanCP) -> Diagnosis:
    """Return a verdict for every atom, as a Diagnosis: identifiable, not identifiable, or not guaranteed, and why.

    Atoms of rank one are identifiable when Kruskal's condition holds. Where it does not, and for atoms of higher
    rank and blocks, they are when all are Boolean along one mode, their Boolean vectors are rigid and their real
    parts independent: the span of the unfolding then holds no other Boolean vectors. They are proved not to be
    when an exchange is known: a block atom whose z is part of another Boolean vector of the span, or two
    rank-one atoms that differ along only one mode (unless this is their Boolean mode and their bits and weights
    distinguish them). These are statements about the exact decomposition of the tensor that the atoms sum to, whatever
    the noise of the data was.

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
    rigidity = {}
    for mode, members in W.members.items():
        rigid = is_rigid(np.stack([W.atoms[k].z for k in members], axis=1))
        rigidity[mode] = replace(rigid, names=tuple(members.tolist()))
    names = tuple(W.mode_name(mode) for mode in range(W.ndim))
    reason = "Kruskal's condition holds" if kruskal else ""
    if not kruskal and len(rigidity) == 1 and all(rigidity.values()) and _has_independent_parts(W):
        reason = "all atoms are Boolean along one mode, rigid, with independent real parts"
    if reason:
        return Diagnosis(kruskal, rigidity, ("identifiable",) * W.n_atoms, (reason,) * W.n_atoms, names)
    exchanges = _exchanges(W, kruskal, rigidity)
    doubt = _doubt(W, kruskal, rigidity)
    verdicts = tuple(REFUTED if k in exchanges else "not guaranteed" for k in range(W.n_atoms))
    return Diagnosis(kruskal, rigidity, verdicts, tuple(exchanges.get(k, doubt) for k in range(W.n_atoms)), names)


def cheap_diagnosis(W: BooleanCP) -> Diagnosis | None:
    """Return the diagnosis if it takes little time and all entries are determined, else None."""
    numbers = np.prod(W.shape, dtype=float) / max(min(W.shape), 1) * W.n_atoms
    if not 0 < W.n_atoms <= CHEAP_ATOMS or numbers > CHEAP_NUMBERS or W.undetermined:
        return None
    return diagnose(W)


def _exchanges(W: BooleanCP, kruskal: KruskalCondition | None, rigidity: dict[int, Rigidity]) -> dict[int, str]:
    """Return for each atom with a known exchange what it is, {k: text}."""
    found: dict[int, str] = {}
    if kruskal is not None:
        unit = [A / np.linalg.norm(A, axis=0) for A in W.factors]
        parallel = np.array([np.abs(A.T @ A) > 1 - TOL for A in unit])
        for k, l in combinations(range(W.n_atoms), 2):
            if parallel[:, k, l].sum() >= W.ndim - 1 and not _are_told_apart(W, k, l):
                found[k] = found[l] = f"atoms {k} and {l} differ along one mode at most"
        return found
    for mode, rigid in rigidity.items():
        members = W.members[mode]
        if rigid.coefficients is None:
            continue
        for k in members[rigid.coefficients != 0]:
            if W.atoms[k].block is not None:
                text = combination_text(rigid.coefficients, members)
                found[int(k)] = f"{text} is {'Boolean as well' if np.any(rigid.witness) else 'zero'}"
    return found


def _are_told_apart(W: BooleanCP, k: int, l: int) -> bool:
    """Return True if two atoms with the same real part are the only Boolean vectors with their sum.

    The sum has the values c, c' and c + c'. If all three occur and differ, no other weights give them: bits that
    overlap without one holding the other, and weights of different size.
    """
    first, second = W.atoms[k], W.atoms[l]
    if first.mode != second.mode or not is_rigid(np.stack([first.z, second.z], axis=1)):
        return False
    sizes = np.abs(W.weights[[k, l]])
    return bool(abs(sizes[0] - sizes[1]) > 1e-6 * sizes.max())


def _doubt(W: BooleanCP, kruskal: KruskalCondition | None, rigidity: dict[int, Rigidity]) -> str:
    """Explain why nothing is proved for the atoms without a known exchange."""
    if kruskal is not None:
        low = [str(n) for n, rank in enumerate(kruskal.ranks) if rank < W.n_atoms]
        return f"Kruskal's condition is not met, {'modes' if len(low) > 1 else 'mode'} {', '.join(low)} short of it"
    if len(rigidity) > 1:
        return "atoms that are not of rank one, Boolean along several modes: no condition is known"
    if any(rigid.holds is None for rigid in rigidity.values()):
        return "too many atoms to decide rigidity"
    return "the Boolean vectors are not rigid" if not all(rigidity.values()) else "the real parts are dependent"


def _has_independent_parts(W: BooleanCP) -> bool:
    """Return True if the real parts of atoms that are Boolean along one mode are independent."""
    if W.n_atoms > np.prod(W.shape, dtype=float) / W.shape[W.atoms[0].mode]:
        return False
    return numerical_rank(np.stack([atom.dense_block().ravel() for atom in W.atoms], axis=1)) == W.n_atoms
