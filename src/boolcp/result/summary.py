"""Descriptions of a decomposition: the table of its atoms, as text and in HTML, and one line."""

import math
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from boolcp.result.trust import Trust, p_text, rival_words, sure_share

if TYPE_CHECKING:
    from boolcp.result.atoms import BooleanCP

VERDICT = "verdict"
BASELINES = "Baselines, on (almost) everywhere:"
MANY = 3  # number of atoms from which the summary mentions that all are Boolean along one mode


def summary(W: "BooleanCP") -> str:
    """Return the title, the table of atoms and the sentences about all of them, as text."""
    rows = _table(W)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    sides = [str.ljust if head == VERDICT else str.rjust for head in rows[0]]  # words to the left, numbers to the right
    cells = [[side(cell, width) for side, cell, width in zip(sides, row, widths, strict=True)] for row in rows]
    head, *lines = ["  ".join(row).rstrip() for row in cells]
    atoms, baselines = _apart(W, lines)
    return "\n".join([_title(W), head, *atoms, *[BASELINES] * bool(baselines), *baselines, *_closing_words(W)])


def html_text(W: "BooleanCP") -> str:
    """Return the summary in HTML, as notebooks show it."""
    head, *rows = _table(W)
    bodies = ["".join(part) for part in _apart(W, [_html_row(row, "td") for row in rows])]
    if bodies[1]:
        bodies[1] = f'<tr><td colspan="{len(head)}" style="text-align: left">{BASELINES}</td></tr>{bodies[1]}'
    table = f"<table><thead>{_html_row(head, 'th')}</thead><tbody>{''.join(bodies)}</tbody></table>"
    return "".join([f"<p>{escape(_title(W))}</p>", table, *(f"<p>{escape(line)}</p>" for line in _closing_words(W))])


def _apart(W: "BooleanCP", rows: list[str]) -> tuple[list[str], list[str]]:
    """Return the rows of atoms that are on or off, those that pass all tests first, and those of baselines."""
    from boolcp.trust.verdict import verdicts

    passing = [verdict.passes for verdict in verdicts(W)]
    pairs = [(W.atoms[k], rows[k]) for k in sorted(range(W.n_atoms), key=lambda k: not passing[k])]
    return [row for atom, row in pairs if not atom.is_baseline], [row for atom, row in pairs if atom.is_baseline]


def _html_row(cells: tuple[str, ...], tag: str) -> str:
    """Return a row of a table, whose cells stand apart on every page."""
    wrap = ["normal" if len(cell) > 20 else "nowrap" for cell in cells]
    looks = [f'style="padding: 0.2em 0.6em; text-align: left; white-space: {one}"' for one in wrap]
    return f"<tr>{''.join(f'<{tag} {a}>{escape(cell)}</{tag}>' for a, cell in zip(looks, cells, strict=True))}</tr>"


def _title(W: "BooleanCP") -> str:
    """Return one line: the number of atoms, the shape and, after a fit, the share of variance explained."""
    share = "" if W.data_gram is None or W.mean is not None else " of the observed entries"
    total = f", {100 * W.explained():.1f} % of the {explained_word(W)}{share} explained" if has_shares(W) else ""
    return f"{apart_text(W)} of a {shape_text(W)} tensor{total}"


def explained_word(W: "BooleanCP") -> str:
    """Return what shares are of: the variance, around the mean if that is apart, or the deviance under a loss."""
    if W.mean is not None:
        return "variance around the mean"
    return "variance" if W.deviance is None else f"{W.deviance.loss.capitalize()} deviance"


def has_shares(W: "BooleanCP") -> bool:
    """Return True if shares of variance are known."""
    return bool(W.data_norm2) and W.data_inner is not None and W.n_atoms > 0


def _table(W: "BooleanCP") -> list[tuple[str, ...]]:
    """Return the column heads and one row of texts for each atom."""
    from boolcp.trust.verdict import is_noise, verdicts

    columns = {
        "atom": [str(k) for k in range(W.n_atoms)],
        "mode": [W.mode_name(atom.mode) for atom in W.atoms],
        "ones": [f"{atom.n_ones}/{len(atom.z)}" for atom in W.atoms],
        "rank": ["block" if atom.rank is None else str(atom.rank) for atom in W.atoms],
        "weight": [f"{weight:.4g}" for weight in W.weights],
    }
    missing = np.full(W.n_atoms, np.nan)
    shares = {
        "alone": W.explained_alone() if has_shares(W) else missing,
        "unique": W.explained_unique() if has_shares(W) else missing,
        "certificate": np.array([atom.certificate for atom in W.atoms], dtype=float),
    }
    known, sure, judged = W.trust or Trust(), sure_share(W), verdicts(W)
    if sure is not None:  # the bits of an atom of noise mean nothing
        shares["sure bits"] = np.where(is_noise(W), np.nan, sure)
    shares |= {} if known.replication is None else {"replication": known.replication}
    rough = ("sure bits", "replication")
    columns |= {name: [percent(x, 0 if name in rough else 1) for x in values] for name, values in shares.items()}
    columns["certificate"] = [proved_percent(atom.certificate) for atom in W.atoms]
    if known.p_adjusted is not None:
        columns["p"] = ["-" if np.isnan(p) else p_text(p) for p in known.p_adjusted]
    if any(verdict.text for verdict in judged):
        columns[VERDICT] = [verdict.text for verdict in judged]
    return [tuple(columns), *zip(*columns.values(), strict=True)]


def _closing_words(W: "BooleanCP") -> list[str]:
    """Return the number of parameters and the sentences about all atoms, one in each line."""
    from boolcp.trust.verdict import closing_words

    known, certificates = W.trust or Trust(), [atom.certificate for atom in W.atoms]
    sizes = f"{W.n_parameters} parameters and {W.n_bits} bits for {math.prod(W.shape)} entries."
    said = [sizes, mean_words(W), asked_words(W)]
    if certificates and not np.isnan(certificates).any():
        which = "its bits reach" if W.n_atoms == 1 else "the bits of every atom reach"
        said.append(f"Proved: {which} at least {proved_percent(min(certificates))} of the best possible score.")
    limited = (W.parameters or {}).get("boolean_modes") is not None
    if not limited and W.n_atoms >= MANY and len(W.members) == 1:
        mode, advice = W.atoms[0].mode, "choose other modes with boolean_modes"
        if W.ndim == 2:
            advice = f"boolean_modes=[{W.dims[1 - mode] if W.dims else 1 - mode!r}] asks for the other mode"
        said.append(f"All atoms are on or off along mode {W.mode_name(mode)}; {advice} (docs/guide/boolean_modes.md).")
    if W.labels is not None and W.labels.name == "count" and W.deviance is None:
        said.append('The entries are counts: loss="poisson" takes their noise into account.')
    repeats = [n for n in range(W.ndim) if W.dims and W.dims[n] in ("trial", "epoch", "subject")]
    if W.trust is not None and not limited and repeats and set(W.members) - set(repeats):
        name = W.mode_name(repeats[0])
        said.append(f"Every mode was allowed to be Boolean; boolean_modes=[{name!r}] keeps atoms to the {name}s.")
    return [words for words in (*said, rival_words(known), *closing_words(W)) if words]


def asked_words(W: "BooleanCP") -> str:
    """Say that fewer atoms were found than requested, or nothing."""
    n_asked = 0 if W.trust is None else W.trust.n_asked
    return f"{n_asked} atoms were requested: further ones would only repeat these or fit noise." if n_asked else ""


def mean_words(W: "BooleanCP") -> str:
    """Say that the mean over a mode was fitted apart from the atoms, or nothing."""
    if W.mean is None:
        return ""
    modes = [W.mode_name(n) for n in range(W.ndim) if W.mean.shape[n] < W.shape[n]]
    return f"Mean over {', '.join(modes)} fitted apart from the atoms: shares are of what varies around it."


def proved_percent(share: float) -> str:
    """Return a proved share in percent, rounded down, as a proof has to be."""
    return "-" if np.isnan(share) else f"{np.floor(1000 * share + 1e-9) / 10:.1f} %"


def apart_text(W: "BooleanCP") -> str:
    """Return the number of atoms in words, baselines counted apart."""
    n_baselines = sum(atom.is_baseline for atom in W.atoms)
    counts = ((W.n_atoms - n_baselines, "atom"), (n_baselines, "baseline"))
    words = [f"{n} {name}{'' if n == 1 else 's'}" for n, name in counts if n]
    return " and ".join(words) or "0 atoms"


def shape_text(W: "BooleanCP") -> str:
    """Return the sizes of the modes, with their names if they have any."""
    sizes = [f"{d} {name}" for d, name in zip(W.shape, W.dims, strict=True)] if W.dims else map(str, W.shape)
    return " x ".join(sizes)


def percent(share: float, digits: int = 1) -> str:
    """Return a share as text."""
    return "-" if np.isnan(share) else f"{100 * share:.{digits}f} %"


def entry_label(W: "BooleanCP", mode: int, entry: int) -> str:
    """Return the mode and the coordinate of an entry along it as text, or its number."""
    if W.labels is None:
        return f"mode {mode}, entry {entry}"
    name = W.labels.dims[mode]
    value = W.labels.coords[name][entry] if name in W.labels.coords else entry
    return f"{name} {value:.6g}" if isinstance(value, float | np.floating) else f"{name} {value}"
