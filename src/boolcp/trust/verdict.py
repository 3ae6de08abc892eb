"""One verdict for each atom: stable, significant, informative, or what speaks against it."""

from typing import NamedTuple

import numpy as np

from boolcp.result.atoms import BooleanCP
from boolcp.result.trust import Trust, p_text, stands_out
from boolcp.trust.degeneracy import degeneracy
from boolcp.trust.identifiability import diagnose, is_cheap

ALPHA = 0.05  # false discovery rate below which an atom is significant, by custom
STABLE = 0.8  # share of fits from which an atom is stable; not tuned


class Verdict(NamedTuple):
    """What may be concluded about one atom; None where it has not been tested.

    Attributes
    ----------
    is_stable : bool or None
        It comes back in at least 80 % of the other fits.
    is_significant : bool or None
        It is more than noise, at a false discovery rate of 5 %. Without a test, False for atoms that are no larger than
        those of pure noise.
    is_informative : bool
        No test speaks against it, and it is not on (almost) everywhere or only once, not a duplicate and not canceled.
    text : str
        All of it in words.

    Examples
    --------
    >>> import boolcp
    >>> atom = boolcp.datasets.make_boolean_cp((8, 9, 10), 1, p=1, random_state=0).truth
    >>> boolcp.verdicts(atom)[0].text
    'on in 8 of 8: a baseline'
    """

    is_stable: bool | None
    is_significant: bool | None
    is_informative: bool
    text: str


def verdicts(W: BooleanCP) -> tuple[Verdict, ...]:
    """Return one verdict for each atom of a decomposition, from what is known: `boolcp.assess` tests it.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, noise=1, random_state=0)
    >>> W = boolcp.assess(X, boolcp.decompose(X, 3, random_state=0), n_runs=2, random_state=0)
    >>> for verdict in boolcp.verdicts(W):
    ...     print(verdict.text)
    stable, significant, informative
    stable, significant, informative
    not stable: comes back in 25 % of other fits, though more than noise
    """
    reasons = degeneracy(W).reasons
    known = W.trust or Trust()
    is_small = np.zeros(W.n_atoms, dtype=bool) if known.sigma is None else ~stands_out(W, known.sigma)
    return tuple(_verdict(known, k, reason, bool(is_small[k])) for k, reason in enumerate(reasons))


def _verdict(known: Trust, k: int, reason: str, is_small: bool) -> Verdict:
    """Return the verdict on one atom: what speaks for it, then what speaks against it."""
    is_stable = None if known.stability is None else bool(known.stability[k] >= STABLE)
    is_significant = None if known.p_adjusted is None else bool(known.p_adjusted[k] <= ALPHA)
    against = []
    if is_stable is False and known.stability is not None:
        noise = ", though more than noise" * (is_significant is True)  # maybe a chance mixture of signals
        against.append(f"not stable: comes back in {100 * known.stability[k]:.0f} % of other fits{noise}")
    if is_significant is False and known.p_adjusted is not None:
        is_lost = known.p_value is not None and known.p_value[k] == 1  # the fit to the thinned data has no such atom
        p = p_text(known.p_adjusted[k])
        against.append("not found in thinned data" if is_lost else f"not more than noise (p = {p})")
    elif is_significant is None and is_small:
        is_significant = False
        against.append("no larger than noise")
    against += [reason] if reason else []
    is_tested = is_stable is not None or is_significant is not None
    is_informative = not reason and is_significant is not False and is_stable is not False
    words = ["stable"] * bool(is_stable) + ["significant"] * bool(is_significant and is_stable is not False)
    words += ["informative"] * (is_tested and is_informative)
    text = "; ".join(filter(None, [", ".join(words), ", ".join(against)]))
    return Verdict(is_stable, is_significant, is_informative, text)


def is_noise(W: BooleanCP) -> np.ndarray:
    """Return which atoms may be noise by all tests made, (K,)."""
    return np.array([verdict.is_significant is False for verdict in verdicts(W)], dtype=bool)


def closing_words(W: BooleanCP) -> list[str]:
    """Return the sentences below a table of atoms: what was tested and how, and whether their sum is unique."""
    if not W.n_atoms:
        return []
    known, words = W.trust or Trust(), []
    if known.p_value is not None:
        words.append(f"p: is the atom more than noise? False discovery rate controlled; {known.tested_by}.")
    if known.stability is not None:
        words.append(f"stability: share of {known.stable_over} in which the atom comes back.")
    if known.sigma is not None and known.p_value is None:
        words.append("Atoms are not tested yet: W = boolcp.assess(X, W), or boolcp fit --assess.")
    if is_cheap(W) and not W.undetermined and not is_noise(W).any():
        words.append(diagnose(W).words)
    return words
