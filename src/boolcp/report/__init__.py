"""The report: a decomposition as one self-contained HTML page that opens offline.

A decomposition enters, with its labels and the record of its fit. One file leaves, with charts, tables, texts and
the libraries that they need. The page loads nothing from elsewhere.
"""

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from types import SimpleNamespace
from typing import Any

import numpy as np

from boolcp._version import __version__
from boolcp.extras import load_extra
from boolcp.io import atomic
from boolcp.io.results import make_provenance
from boolcp.plotting.mode_labels import CONDITION
from boolcp.report import assets, charts, ordering, pictures, story, words
from boolcp.report.tested import find_tests
from boolcp.result.atoms import BooleanCP
from boolcp.result.trust import Trust
from boolcp.trust.identifiability import cheap_diagnosis
from boolcp.trust.verdict import is_noise

__all__ = ["write_report"]

COLUMNS = ("alone", "unique", "certificate")
PLOTLY = "plotly/plotly-cartesian.min.js"  # which draws the charts, without the kinds that are not used here


def write_report(
    W: BooleanCP,
    path: str | PathLike[str],
    *,
    provenance: dict[str, Any] | None = None,
    history: Any = None,
    stability: Any = None,
    residual: Any = None,
    force: bool = False,
) -> None:
    """Write an HTML page about a decomposition: data, fit, table of atoms, a card with charts for each, and origin.

    The page loads nothing from elsewhere. Labels and values show on hover, the table sorts and filters, and a selected
    atom is highlighted everywhere. Without scripts and in print, still pictures replace the charts. The page is
    written completely or not at all.

    Parameters
    ----------
    W : BooleanCP or BMP
        The decomposition, or a fitted model, which knows its parameters and history.
    path : str or path
        The file; its name usually ends in .html.
    provenance : dict, optional
        Where the result comes from, as `boolcp.io.load_provenance` returns it.
    history : sequence, optional
        The steps of the pursuit, `BMP.history_`; those of the provenance if None.
    stability : Stability, optional
        How often the atoms of this decomposition come back in other fits; by default what W records.
    residual : ResidualCheck, optional
        The result of `boolcp.residuals.residual_check`; by default that of the provenance.
    force : bool
        Replace an existing file.

    Examples
    --------
    >>> import boolcp, pathlib, tempfile
    >>> from boolcp.report import write_report
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, random_state=0)
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "report.html"
    >>> write_report(boolcp.BMP(2, random_state=0).fit(X), path)
    >>> path.read_text().count('<article class="card"')
    2
    """
    atomic.check_free(path, overwrite=force)
    if provenance is None:
        provenance = make_provenance(W) if hasattr(W, "decomposition_") else {}
    W = getattr(W, "decomposition_", W)
    if not isinstance(W, BooleanCP):
        raise TypeError(f"write_report takes a BooleanCP or a fitted model, got {type(W).__name__}.")
    history = provenance.get("history", ()) if history is None else history
    if residual is None and provenance.get("residual_check"):
        stored = provenance["residual_check"]
        residual = SimpleNamespace(**stored, is_noise=max(stored["structure"]) <= 1)
    residual = residual if W.deviance is None else None  # noise of counts is neither normal nor white
    W = W if stability is None else with_stability(W, stability)
    page = render(W, provenance, history, residual)
    atomic.write_text(path, page, overwrite=force)


def render(W: BooleanCP, provenance: dict[str, Any], history: Any, residual: Any = None) -> str:
    """Return the page as text."""
    jinja2 = load_extra("jinja2", "report")
    matplotlib = load_extra("matplotlib", "report")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["unbroken"] = words.unbroken
    template = environment.from_string(assets.own_file("page.html.jinja"))
    datatables, datatables_style = assets.datatables_files()
    glue = assets.own_file("glue.js")
    diagnosis = None if is_noise(W).any() else cheap_diagnosis(W)
    S, tests = in_order(W, list(provenance.get("tests") or ())), find_tests(W, provenance)
    with matplotlib.rc_context(pictures.SETTINGS):
        atoms = sorted(words.describe_atoms(W), key=lambda atom: atom["is_baseline"])  # these come last
        for atom in atoms:
            k = atom["number"]
            is_told = W.atoms[k].z.all() or story.detail_text(W, k, tests) == atom["on"]
            atom |= {"figures": pictures.atom_figures(S, k), "detail": story.card_text(W, k, tests), "is_told": is_told}
        shares = [name for name in COLUMNS if any(atom[name] != "-" for atom in atoms)]
        return template.render(
            title=words.title_of(W, provenance),
            subtitle=words.subtitle_of(W),
            story=story.paragraphs(story.tell(W, provenance, tests, residual)),
            version=__version__,
            has_products=any(atom.rank != 1 for atom in W.atoms),
            modes=words.describe_modes(W),
            data=words.describe_data(W, provenance),
            fit=[*words.describe_fit(W, provenance), *words.describe_residual(W, residual)],
            figures=pictures.fit_figures(W, history, residual),
            atoms=atoms,
            colors=charts.atom_colors(W.n_atoms),
            columns=[*words.trust_columns(W), *((name, name) for name in shares)],
            shares=shares,
            notes=[*words.share_notes(W, shares), *words.trust_notes(W)],
            has_verdicts=any(atom["verdict"] for atom in atoms),
            together=pictures.together_figures(S) if W.n_atoms > 1 else [],
            groups=pictures.group_parts(W, tests) if W.n_atoms else [],
            verdict=words.verdict(diagnosis),
            origin=words.describe_origin(provenance),
            command=provenance.get("command", ""),
            code=words.python_code(provenance),
            labels=assets.to_json(words.search_labels(W)),
            libraries=[
                {"name": name, "type": kind, "text": text}
                for name, source in (("datatables", datatables), ("plotly", assets.own_file(PLOTLY)))
                for kind, text in [assets.held_script(source)]
            ],
            datatables_style=datatables_style,
            style=assets.own_file("style.css"),
            glue=glue,
            glue_hash=assets.script_hash(glue),
        )


def in_order(W: BooleanCP, tested: Sequence[str] = ()) -> BooleanCP:
    """Return W with the entries of each mode in the order of their groups: by a tested column, else by condition."""
    if W.labels is not None:
        rank = {name: n for n, name in enumerate(dict.fromkeys([*tested, CONDITION]))}
        extra = sorted(W.labels.extra.items(), key=lambda pair: rank.get(pair[0], len(rank)))
        W = replace(W, labels=replace(W.labels, extra=dict(extra)))
    for mode, order in ordering.group_orders(W).items():
        W = ordering.reordered(W, mode, order)
    return W


def with_stability(W: BooleanCP, stability: Any) -> BooleanCP:
    """Return W with the stability of its atoms, which must be those of the Stability."""
    atoms = stability.decomposition.atoms
    if len(atoms) != W.n_atoms or not all(
        a.mode == b.mode and np.array_equal(a.z, b.z) for a, b in zip(atoms, W.atoms, strict=True)
    ):
        raise ValueError("stability belongs to a different decomposition: write the report of stability.decomposition.")
    known = replace(W.trust or Trust(), stability=stability.recurrence, stable_over=stability.over)
    return replace(W, trust=known)
