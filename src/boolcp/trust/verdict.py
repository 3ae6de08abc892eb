"""One verdict for each atom, from replication, on/off and the test against noise."""

from typing import NamedTuple

import numpy as np

from boolcp.plotting.mode_labels import has_names, is_unordered, mode_text
from boolcp.result.atoms import BooleanCP
from boolcp.result.trust import Trust, p_text
from boolcp.trust.degeneracy import degeneracy
from boolcp.trust.identifiability import diagnose, is_cheap
from boolcp.trust.on_off import is_on_off
from boolcp.trust.replication import OFTEN

ALPHA = 0.05  # false discovery rate below which an atom is more than noise, by custom
CORRELATED = 0.1  # root mean square correlation of the residual that is worth a word


class Verdict(NamedTuple):
    """What may be concluded about one atom, and all of it in words; None where it has not been tested.

    It `replicates` if its pattern comes back in at least 60 % of the fits to parts of the data, and is on/off if its
    amplitudes in slices that a fit has not seen are two groups, not one hump. It is significant if it is more than
    noise that is independent between slices, at a false discovery rate of 5 %; without a test, False for atoms no
    larger than those of pure noise. It `passes` if it replicates, is on/off, does not come in runs, and is not doubled
    or canceled by other atoms.

    Examples
    --------
    >>> atom = boolcp.datasets.make_boolean_cp((8, 9, 10), 1, p=1, random_state=0).truth
    >>> boolcp.verdicts(atom)[0].text
    'on in 8 of 8: a baseline'
    """

    replicates: bool | None
    is_on_off: bool | None
    is_significant: bool | None
    passes: bool
    text: str


def verdicts(W: BooleanCP) -> tuple[Verdict, ...]:
    """Return one verdict for each atom of a decomposition, from what is known: `boolcp.assess` tests it.

    Examples
    --------
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 60), 2, boolean_modes=[2], noise=1, random_state=0)
    >>> W = boolcp.decompose(X, 3, boolean_modes=[2], random_state=0)
    >>> for verdict in boolcp.verdicts(boolcp.assess(X, W, n_parts=4, random_state=0)):
    ...     print(verdict.text)
    comes back in 100 % of the parts, on/off (d' 20.0)
    comes back in 100 % of the parts, on/off (d' 19.9)
    not replicated: comes back in 0 % of the parts
    """
    return tuple(_verdict(W, k, reason) for k, reason in enumerate(degeneracy(W).reasons))


def _verdict(W: BooleanCP, k: int, reason: str) -> Verdict:
    """Return the verdict on one atom: what speaks for it, then what speaks against it."""
    known, atom = W.trust or Trust(), W.atoms[k]
    good, bad = list[str](), [reason] * bool(reason)
    replicates = on_off = significant = None
    has_runs = known.has_runs is not None and bool(known.has_runs[k])
    if known.replication is not None:
        replicates = bool(known.replication[k] >= OFTEN)
        words = f"comes back in {100 * known.replication[k]:.0f} % of the parts"
        (good if replicates else bad).append(words if replicates else words.replace("comes", "not replicated: comes"))
    if replicates and W.on_off is not None and np.isfinite(W.on_off.evidence[k]) and not atom.is_baseline:
        on_off = is_on_off(float(W.on_off.evidence[k]), min(atom.n_ones, len(atom.z) - atom.n_ones), len(atom.z))
        shown = f"on/off (d' {W.on_off.d_prime[k]:.1f})" if on_off else "not shown to be on/off"
        (good if on_off else bad).append(shown)
        if has_runs:
            bad.append(f"comes in runs along {mode_text(W, atom.mode)} ({runs_words(W, k)})")
    if known.p_adjusted is not None and np.isfinite(known.p_adjusted[k]):
        significant = bool(known.p_adjusted[k] <= ALPHA)
        if not significant and replicates is not False and not on_off:  # signed ranks of a quarter have little power
            bad.append(f"not more than noise (p = {p_text(known.p_adjusted[k])})")
    elif known.stands_out is not None and not known.stands_out[k]:
        significant = False
        bad += ["no larger than noise"] if replicates is None else []
    passes = bool(replicates and on_off and not has_runs and not reason)
    return Verdict(replicates, on_off, significant, passes, "; ".join(filter(None, [", ".join(good), ", ".join(bad)])))


def runs_words(W: BooleanCP, k: int) -> str:
    """Say what it means that neighbors are alike: along channels, or entries that have names, it is not drift."""
    return (
        "not independent" if is_unordered(W, mode := W.atoms[k].mode) or has_names(W, mode) else "a slow state or drift"
    )


def is_noise(W: BooleanCP) -> np.ndarray:
    """Return which atoms may be noise by all tests made, (K,)."""
    return np.array([not v.passes and (v.is_significant is False or v.replicates is False) for v in verdicts(W)], bool)


def closing_words(W: BooleanCP) -> list[str]:
    """Return the sentences below a table of atoms: what was tested and how, what to try, whether they are unique."""
    if not W.n_atoms:
        return []
    known = W.trust or Trust()
    words = [f"replication: share of {known.parts} in which the pattern comes back."] * (known.replication is not None)
    if known.p_value is not None:
        tested = {mode_text(W, atom.mode) for atom, p in zip(W.atoms, known.p_value, strict=True) if np.isfinite(p)}
        modes = " and ".join(sorted(tested))
        words.append(f"p: is the atom more than noise that is independent along {modes}? False discoveries controlled.")
    if known.sigma is not None and known.replication is None:
        words.append("Atoms are not tested yet: W = boolcp.assess(X, W), or boolcp fit --assess.")
    words += next_words(W)
    if all(one.passes for one in verdicts(W)) and is_cheap(W) and not W.undetermined:
        words.append(diagnose(W).words)
    return words


def next_words(W: BooleanCP) -> list[str]:
    """Return what to try next: where no atom passes, and where the residual is correlated."""
    known, words = W.trust or Trust(), []
    if known.correlation and max(known.correlation) >= CORRELATED:
        size, worst = max(known.correlation), mode_text(W, int(np.argmax(known.correlation)))
        words.append(f'The residual is correlated along {worst} (by {size:.2f}), like a signal: try noise="separable".')
    if W.n_atoms and known.replication is not None and not any(one.passes for one in verdicts(W)):
        advice = "a baseline, resampling to the bandwidth of the signal, band power or an envelope"
        words.append(f"No atom passes all tests. Try next: {advice}, other numbers of atoms, more data.")
        if (at := known.split_mode) is not None and at not in W.members:
            wanted = f"boolean_modes=[{W.dims[at] if W.dims else at!r}] asks for atoms there"
            words[-1] = f"Whether atoms are on/off is tested along {mode_text(W, at)} alone: {wanted}."
    return words
