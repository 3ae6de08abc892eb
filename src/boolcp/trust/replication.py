"""Does an atom come back in data that its fit has not seen? Fits to parts of the slices, and what they hold of it.

Recurrence alone is no evidence: components of correlated noise come back as well. The slices that a fit has not seen
therefore give amplitudes for its patterns, which show whether the atom is on and off (`trust/on_off.py`), and whether
it is more than noise of any covariance within a slice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.stats
from numpy.random import Generator

from boolcp import checks
from boolcp.metrics import match
from boolcp.plotting.mode_labels import further_of, is_named, mode_text, plural
from boolcp.result.atoms import Atom, BooleanCP, pattern
from boolcp.result.trust import Trust
from boolcp.trust.on_off import is_on_off, two_groups
from boolcp.trust.repeated_fits import Repeat, fit_part, prepare, run_all, table_text, unit_mode

WORDS = {
    "quarters": "to three quarters of {}",
    "halves": "to halves of {}",
    "sessions": "to single sessions of {}",
    "seeds": "with other seeds",
}
ALIKE = 0.7  # |cosine| from which a pattern is the same
OFTEN = 0.6  # share of the fits from which an atom replicates
OWN = 0.3  # norm of a pattern beside the others below which they take no part in its amplitude
DOUBT = 0.65  # of the log odds of bits that is left where the atom is not shown to be on/off (seeds 2000 to 2025)
FEW, CENTERED = 9, 1e-8  # slices whose ranks show nothing of an atom that is on in some; a mean that counts as none
FIRST = 4  # directions of the first block that is shrunk; each later one ends twice as far
IN_RUNS = 2.6  # standard errors of the correlation of neighbors


@dataclass(frozen=True, eq=False)
class Replication:
    """How often each atom comes back in fits to parts of the data, and what slices show that these have not seen.

    Attributes
    ----------
    decomposition : BooleanCP
        The decomposition with all of it in its `trust`.
    cosine : ndarray of shape (n_fits, K)
        |Cosine| of the pattern of each atom and of its match in each fit, in the units of the fit.
    share : ndarray of shape (K,)
        Share of the fits in which the atom comes back, with a |cosine| of at least 0.7.
    patterns : tuple of ndarray
        The pattern of each atom, averaged over the fits in which it comes back; norm one.
    mode : int
        The mode along which the data were split.

    Examples
    --------
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 60), 2, boolean_modes=[2], noise=0.5, random_state=0)
    >>> found = boolcp.replication(X, 2, boolean_modes=[2], n_parts=4, random_state=0)
    >>> found, len(found.summary().splitlines())
    (Replication(4 fits to three quarters of mode 2; atoms come back in 100 %, 100 %), 4)
    """

    decomposition: BooleanCP
    cosine: np.ndarray
    share: np.ndarray
    patterns: tuple[np.ndarray, ...]
    mode: int

    def summary(self) -> str:
        """Return a table as text: how often each atom came back, how alike, its bits, and whether it is on/off."""
        W, known = self.decomposition, self.decomposition.trust
        assert known is not None and known.same_bits is not None and known.on_off is not None
        rows = [["atom", "came back", "cosine", "same bits", "on/off"]]
        for k in range(W.n_atoms):
            bits = "-" if np.isnan(known.same_bits[k]) else f"{100 * known.same_bits[k]:.0f} %"
            evidence = "-" if np.isnan(known.on_off[k]) else f"{known.on_off[k]:.1f}"
            rows.append([str(k), f"{100 * self.share[k]:.0f} %", f"{self.cosine[:, k].mean():.3f}", bits, evidence])
        return table_text(f"replication in {known.parts}", rows)

    def __repr__(self) -> str:
        shares = ", ".join(f"{100 * share:.0f} %" for share in self.share)
        parts = "" if self.decomposition.trust is None else self.decomposition.trust.parts
        return f"Replication({parts}; atoms come back in {shares})"


def replication(
    X: Any,
    W: Any = 10,
    *,
    scheme: str = "quarters",
    mode: int | str | None = None,
    n_parts: int = 8,
    sessions: Sequence[Any] | None = None,
    mask: Any = None,
    weights: Any = None,
    n_jobs: int | None = None,
    random_state: Any = None,
    verbose: int = 0,
    **options: Any,
) -> Replication:
    """Return how often each atom of W comes back in fits to parts of X, as a Replication.

    Parameters
    ----------
    X : array-like or xarray.DataArray
        The tensor, in memory.
    W : BooleanCP, BMP or int
        The decomposition of X, or the number of atoms of a new one.
    scheme : {"quarters", "halves", "sessions", "seeds"}
        Fits without a random quarter (or half) of the slices along `mode` each, to the slices of one session each, or
        to all data with other seeds, which asks only whether the search finds the atom again.
    mode : int or str, optional
        The mode along which the data are split, whose entries should be independent: by default the one named trial,
        epoch, subject or session, else the only Boolean mode, else the last.
    n_parts : int
        Number of fits.
    sessions : sequence, optional
        For each slice along `mode` its session, with ``scheme="sessions"``; by default the coordinate "session".
    mask : array-like of bool, optional
        True where X is observed.
    weights : array-like, optional
        How much each entry counts, as in `BMP.fit`.
    n_jobs : int, optional
        Number of processes; by default all cores if a fit takes long. The result does not depend on it.
    random_state : int, Generator or None
        Seed.
    verbose : int
        1 shows a progress bar.
    **options
        Parameters of BMP; by default those that W was fitted with.

    Examples
    --------
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 60), 2, boolean_modes=[2], noise=0.5, random_state=0)
    >>> W = boolcp.decompose(X, 3, boolean_modes=[2], random_state=0)
    >>> print(boolcp.replication(X, W, n_parts=4, random_state=0).summary())
    replication in 4 fits to three quarters of mode 2
    atom  came back  cosine  same bits  on/off
       0      100 %   1.000      100 %   192.3
       1      100 %   1.000      100 %   196.4
       2        0 %   0.299          -       -
    """
    checks.check_choice(scheme, "scheme", tuple(WORDS))
    checks.check_integer(n_parts, "n_parts", 1)
    rng, seed = checks.make_generator(random_state).spawn(2)
    data, W = prepare(replication, X, W, options, mask=mask, weights=weights, seed=seed)
    at = unit_mode(W, mode)
    sessions = further_of(W, at, "session") if sessions is None else sessions
    draws = draw_parts(data.values.shape[at], scheme, n_parts, sessions, rng)
    models = run_all(fit_part, [(data, at, places, one) for places, one in draws], n_jobs, verbose)
    fits = [model.decomposition_ for model in models]
    return compare(data, W, at, [places for places, _ in draws], fits, fits_text(len(fits), scheme, W, at))


def fits_text(n: int, scheme: str, W: BooleanCP, mode: int) -> str:
    """Return how many fits there are, and to which data."""
    what = f"the {plural(W, mode)}" if is_named(W, mode) else mode_text(W, mode)
    return f"{n} fit{'s' * (n != 1)} {WORDS[scheme].format(what)}"


def draw_parts(
    d: int, scheme: str, n_parts: int, sessions: Sequence[Any] | None, rng: Generator
) -> list[tuple[np.ndarray, Generator]]:
    """Return the slices of each fit, sorted, with its generator."""
    if scheme == "sessions":
        if sessions is None or len(sessions) != d or len(set(map(str, sessions))) < 2:
            raise ValueError(f'scheme="sessions" needs sessions: {d} labels, one for each slice, of two or more kinds.')
        labels = np.array([str(one) for one in sessions])
        parts = [np.flatnonzero(labels == one) for one in dict.fromkeys(labels.tolist())]
    elif scheme == "seeds":
        parts = [np.arange(d)] * n_parts
    else:
        if d < 4:
            raise ValueError(f"Parts need four or more slices, and the mode has {d}: name another one with mode=.")
        n_groups = {"halves": 2, "quarters": 4}[scheme]
        rounds = [np.array_split(rng.permutation(d), n_groups) for _ in range(-(-n_parts // n_groups))]
        parts = [np.setdiff1d(np.arange(d), group) for groups in rounds for group in groups][:n_parts]
    return list(zip(parts, rng.spawn(len(parts)), strict=True))


def compare(
    data: Repeat, W: BooleanCP, mode: int, places: Sequence[np.ndarray], fits: Sequence[BooleanCP], over: str
) -> Replication:
    """Return what fits to some slices hold of the atoms of W, and what the other slices show."""
    K, d = W.n_atoms, data.values.shape[mode]
    atoms = W if W.noise is None else W.noise.whiten_atoms(W)
    values = data.values if data.observed is None else np.where(data.observed, data.values, atoms.to_array())
    values = values if atoms.mean is None else values - atoms.mean
    rows = np.moveaxis(values, mode, 0).reshape(d, -1)
    own = [pattern(atom, mode) for atom in atoms.atoms]
    bases = {} if W.noise is None else {n: np.linalg.eigh(S)[1][:, ::-1] for n, S in W.noise.covariances.items()}
    cosine, same = np.zeros((len(fits), K)), np.full((len(fits), K), np.nan)
    has_zero = W.mean is None and np.abs(rows.mean(axis=0)).max() > CENTERED * np.abs(rows).max()
    p_values = np.full((len(fits), K), 1.0 if has_zero and d - min(map(len, places)) > FEW else np.nan)
    totals, counts, means = np.zeros((K, d)), np.zeros((K, d)), [p.copy() for p in own]
    for r, (V, seen) in enumerate(zip(fits, places, strict=True)):
        found = [pattern(atom, mode) for atom in V.atoms]
        calm = [pattern(calmed(V, j, bases), mode) for j in range(V.n_atoms)] if bases else found
        hidden = np.setdiff1d(np.arange(d), seen)
        for k, j, cos in match(atoms, V, mode=mode):
            cosine[r, k] = abs(cos)
            if abs(cos) < ALIKE:
                continue
            means[k] += np.sign(cos) * found[j]
            z = V.atoms[j].z if W.mean is None or cos > 0 else ~V.atoms[j].z
            same[r, k] = np.mean(z == (W.atoms[k].z[seen] if W.atoms[k].mode == mode else W.atoms[k].z))
            if W.atoms[k].mode == mode and len(hidden) > 1:
                strengths = amplitudes(rows, calm, j)
                strengths -= 0.0 if W.mean is None else strengths.mean()
                a = np.sign(cos) * strengths[hidden] / (atoms.weights[k] or 1.0)
                totals[k, hidden] += a
                counts[k, hidden] += 1
                if has_zero and len(hidden) > FEW and np.any(a):
                    b = np.sign(V.weights[j]) * strengths[hidden]  # W has seen these slices, V has not
                    p_values[r, k] = scipy.stats.wilcoxon(b, alternative="greater").pvalue
    held_out = np.where(counts > 0, totals / np.maximum(counts, 1), np.nan)
    share = np.mean(cosine >= ALIKE, axis=0)
    same_bits = np.array([np.nanmean(c) if np.isfinite(c).any() else np.nan for c in same.T])
    trust = judged(W, mode, held_out, p_values, replace(W.trust or Trust(), replication=share, same_bits=same_bits))
    alone: dict[str, Any] = {"by_session": cosine.T} if "single sessions" in over else {}
    patterns = tuple(mean / max(float(np.linalg.norm(mean)), 1e-300) for mean in means)
    return Replication(replace(W, trust=replace(trust, parts=over, **alone)), cosine, share, patterns, mode)


def calmed(V: BooleanCP, j: int, bases: Mapping[int, np.ndarray]) -> Atom:
    """Return an atom of whitened data with less noise in its real part, if that has rank one.

    Along each mode, directions are sorted by the variance of the noise, and blocks of them are shrunk by their share of
    noise (T. T. Cai, Ann. Stat. 27, 1999): a signal that is smoother than the noise, or rougher, fills few of them.
    """
    atom, size, factors = V.atoms[j], abs(float(V.weights[j])), []
    n_off = np.inf if V.mean is None else max(len(atom.z) - atom.n_ones, 1)
    variance = max((V.trust or Trust()).sigma or 1.0, 1.0) ** 2 * (1 / max(atom.n_ones, 1) + 1 / n_off)
    if atom.rank != 1 or atom.factors is None:
        return atom
    for mode, A in zip([n for n in range(V.ndim) if n != atom.mode], atom.factors, strict=True):
        if mode in bases:
            c = bases[mode].T @ A[:, 0] * (size / max(float(np.linalg.norm(A)), 1e-300))
            blocks = np.split(c, [n for n in FIRST * 2 ** np.arange(30) if n < len(c)])
            c = np.concatenate([b * max(1 - len(b) * variance / max(float(b @ b), 1e-300), 0.0) for b in blocks])
            A = (bases[mode] @ c)[:, None] if c.any() else A
        factors.append(A)
    return replace(atom, factors=tuple(factors))


def amplitudes(rows: np.ndarray, patterns: Sequence[np.ndarray], j: int) -> np.ndarray:
    """Return the amplitude of one pattern in each row, beside the others of the same fit."""
    p = patterns[j]
    others = np.array([q for i, q in enumerate(patterns) if i != j]).reshape(-1, len(p))
    v = p - others.T @ np.linalg.lstsq(others.T, p, rcond=None)[0] if len(others) else p
    v = v if np.linalg.norm(v) >= OWN else p
    return np.asarray(rows @ v / (v @ p))


def judged(W: BooleanCP, mode: int, held_out: np.ndarray, p_values: np.ndarray, trust: Trust) -> Trust:
    """Return the trust with what amplitudes of held-out slices show: on/off, runs, and the test against noise."""
    K = W.n_atoms
    evidence, groups, runs, p = np.full(K, np.nan), np.full((K, 4), np.nan), np.zeros(K, bool), np.full(K, np.nan)
    odds = list(trust.odds) if trust.odds is not None else None
    for k, atom in enumerate(W.atoms):
        if atom.mode != mode:
            continue
        a, known = held_out[k], np.isfinite(held_out[k])
        if odds is not None and (W.trust or Trust()).replication is None:
            odds[k] = DOUBT * odds[k]
        if known.sum() < 4:
            continue
        found = two_groups(a[known])
        evidence[k], groups[k] = found.evidence, found[1:]
        runs[k] = correlated(a[known])
        p[k] = np.nan if runs[k] else np.minimum(1.0, 2 * np.median(p_values[:, k]))
        n_smaller = min(atom.n_ones, len(atom.z) - atom.n_ones)
        if odds is not None and is_on_off(found.evidence, n_smaller, len(atom.z)):
            odds[k] = np.where(known, np.where(atom.z, 1, -1) * found.log_odds(np.where(known, a, 0.0)), odds[k])
    tested, adjusted = np.isfinite(p), p.copy()
    if tested.any():
        adjusted[tested] = scipy.stats.false_discovery_control(p[tested])
    seen = [held_out[k] if atom.mode == mode else np.full(len(atom.z), np.nan) for k, atom in enumerate(W.atoms)]
    return replace(
        trust,
        odds=None if odds is None else tuple(odds),
        amplitude=tuple(seen),
        on_off=evidence,
        groups=groups,
        has_runs=runs,
        p_value=p if tested.any() else None,
        p_adjusted=adjusted if tested.any() else None,
        split_mode=mode,
    )


def correlated(a: np.ndarray) -> bool:
    """Return True if neighbors are more alike than independent numbers are."""
    a = a - a.mean()
    size = float(a @ a)
    return bool(size > 0 and float(a[1:] @ a[:-1]) / size * np.sqrt(len(a)) > IN_RUNS)
