"""The report: a decomposition as one self-contained HTML page that opens offline, with charts, tables and texts.

A decomposition with its provenance enters; one HTML file leaves. Each chart is drawn once, by Plotly in the browser.
"""

import base64
import hashlib
import re
from importlib import resources
from os import PathLike
from types import SimpleNamespace
from typing import Any

import numpy as np

from boolcp._version import __version__
from boolcp.io import atomic
from boolcp.io.results import make_provenance
from boolcp.plotting import condition_means
from boolcp.plotting.mode_labels import MAX_GROUPS, condition_of, further_of, groups_of, mode_text, plural
from boolcp.report import charts, conditions, words
from boolcp.result.atoms import BooleanCP
from boolcp.result.trust import Trust
from boolcp.system import load_extra
from boolcp.trust.verdict import closing_words

__all__ = ["write_report"]

PLOTLY = "plotly/plotly-cartesian.min.js"  # which draws the charts, without the kinds that are not used here


def write_report(
    W: BooleanCP,
    path: str | PathLike[str],
    *,
    provenance: dict[str, Any] | None = None,
    residual: Any = None,
    force: bool = False,
) -> None:
    """Write an HTML page about a decomposition: headline, table of atoms, a card with charts for each, fit and origin.

    The page loads nothing from elsewhere. Labels and values show on hover, the table sorts and filters, and a selected
    atom is highlighted everywhere. The page is written completely or not at all.

    W may be a fitted model, which knows its parameters and history. `provenance` says where a decomposition comes from,
    as `boolcp.io.load_provenance` returns it; `residual` is the result of `boolcp.residuals.residual_check`, by default
    the one in the provenance. `force` replaces an existing file.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, random_state=0)
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "report.html"
    >>> boolcp.report.write_report(boolcp.BMP(2, random_state=0).fit(X), path)
    >>> path.read_text().count('<article class="card"')
    2
    """
    atomic.check_free(path, overwrite=force)
    if provenance is None:
        provenance = make_provenance(W) if hasattr(W, "decomposition_") else {}
    W = getattr(W, "decomposition_", W)
    if not isinstance(W, BooleanCP):
        raise TypeError(f"write_report takes a BooleanCP or a fitted model, got {type(W).__name__}.")
    if residual is None and provenance.get("residual_check"):
        stored = provenance["residual_check"]
        residual = SimpleNamespace(**stored, is_noise=max(stored["structure"]) <= 1)
    residual = residual if W.deviance is None else None  # noise of counts is neither normal nor white
    atomic.write_text(path, render(W, provenance, residual), overwrite=force)


def render(W: BooleanCP, provenance: dict[str, Any], residual: Any) -> str:
    """Return the page as text."""
    jinja2 = load_extra("jinja2", "plot")
    options = {"autoescape": True, "undefined": jinja2.StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    environment = jinja2.Environment(**options)
    environment.filters["unbroken"] = words.unbroken
    folder = resources.files(load_extra("itables", "plot")).joinpath("html")  # DataTables sorts and filters the table
    datatables, datatables_style = (
        folder.joinpath(f"dt_bundle.{end}").read_text(encoding="utf-8") for end in ("js", "css")
    )
    glue, tests = own_file("glue.js"), conditions.find_tests(W, provenance)
    S = conditions.in_order(W, list(provenance.get("tests") or ()))
    atoms, columns = words.describe_atoms(W, tests), words.atom_columns(W)
    for atom in atoms:
        atom["figures"] = charts.atom_figures(S, atom["number"])
    notes, remarks = [(head, note) for head, note, *_ in columns], words.remarks(W, residual)
    errors = [float(step["relative_error"]) for step in provenance.get("history", ())]
    return environment.from_string(own_file("page.html.jinja")).render(
        title=words.title_of(W, provenance),
        subtitle=words.subtitle_of(W),
        version=__version__,
        headline=words.headline(W, provenance),
        remarks=remarks,
        atoms=atoms,
        heads=[head for head, *_ in columns],
        notes=notes,
        closing=[line for line in closing_words(W) if line not in remarks and line.split(":")[0] not in dict(notes)],
        has_products=any(atom.rank != 1 for atom in W.atoms),
        has_mean=W.mean is not None,
        colors=charts.atom_colors(W.n_atoms),
        together=charts.together_figures(S) if W.n_atoms > 1 else [],
        groups=group_parts(W, tests) if W.n_atoms else [],
        fit=words.describe_fit(W, provenance, residual),
        figures=[charts.path_figure(errors)] if errors else [],
        data=words.describe_data(W, provenance),
        modes=words.describe_modes(W),
        origin=words.describe_origin(provenance),
        command=provenance.get("command", ""),
        code=words.python_code(provenance),
        labels=charts.to_json(words.search_labels(W)),
        libraries=[held_script("datatables", datatables), held_script("plotly", own_file(PLOTLY))],
        datatables_style=datatables_style,
        style=own_file("style.css"),
        glue=glue,
        glue_hash=script_hash(glue),
    )


def group_parts(W: BooleanCP, tests: conditions.Tests) -> list[dict[str, Any]]:
    """Return a table of the atoms for each coordinate with a few groups, with charts, and for each covariate."""
    parts = [session_part(W, mode) for mode in range(W.ndim) if further_of(W, mode, "session") is not None]
    groups = [pair for pair in groups_of(W, list(tests)) if pair[1] != "session"]
    for mode, name in [*groups, *((test.mode, name) for name, test in tests.items() if not test.conditions)]:
        test, place = tests.get(name), mode_text(W, mode)
        means: Any = condition_means(W, mode, name) if test is None or test.conditions else None
        heads = [] if test is None else ["effect", "AUC", "p"] if means else ["rank correlation", "p"]
        rows = [[] if test is None else conditions.test_cells(test, k) for k in range(W.n_atoms)]
        kinds = ("mean of the real part", "share of ones") if means else ("real part", "bits")
        for c, group in enumerate(means.conditions if means else ()):
            heads.append(f"{group} ({means.counts[c]})")
            rows = [[*cells, conditions.mean_cell(means, k, c)] for k, cells in enumerate(rows)]
        what = [kinds[int(atom.mode == mode)] for atom in W.atoms]
        title = f"{'By' if means else 'With'} {name}" + f" along {place}" * (place != name)
        part = {"title": title, "columns": ("atom", "what"), "heads": heads, "figures": []}
        part |= {"rows": list(zip(range(W.n_atoms), what, rows, strict=True))}
        part |= {"figures": charts.group_figures(means, name)} if means else {}
        parts.append(part | {"note": "" if test is None else conditions.test_note(test, name)})
    return parts


def session_part(W: BooleanCP, mode: int) -> dict[str, Any]:
    """Return a table with one row for each session: for each atom what is on, how strong, and found in it alone."""
    means, known, labels = condition_means(W, mode, "session"), W.trust or Trust(), condition_of(W, mode, "session")
    order, rows, unknown = list(dict.fromkeys(labels.tolist())), [], np.full(len(labels), np.nan)
    for c, name in enumerate(means.conditions):
        cells = [conditions.mean_cell(means, k, c) for k in range(W.n_atoms)]
        for k, atom in enumerate(W.atoms):
            sizes = known.amplitude[k] if known.amplitude and atom.mode == mode else unknown
            here = np.isfinite(sizes) & (labels == name)
            if atom.z[here].any() and not atom.z[here].all():
                cells[k] += f"; size {sizes[here & atom.z].mean() - sizes[here & ~atom.z].mean():.2f}"
            cells[k] += "" if known.by_session is None else f"; alone {known.by_session[k, order.index(name)]:.2f}"
        rows.append((name, str(means.counts[c]), cells))
    note = "size: mean amplitude in unseen entries, on less off, as a share of the weight; alone: |cosine| of its "
    note = f"{note}pattern in a fit to that session alone." if known.by_session is not None else ""
    heads = [f"atom {k}" for k in range(W.n_atoms)]
    figures = charts.group_figures(means, "session") if len(order) <= MAX_GROUPS else []
    part = {"title": f"Sessions along {mode_text(W, mode)}", "columns": ("session", plural(W, mode)), "note": note}
    return part | {"rows": rows, "heads": heads, "figures": figures}


def own_file(name: str) -> str:
    """Return a file of this package as text."""
    return resources.files("boolcp.report").joinpath(name).read_text(encoding="utf-8")


def held_script(name: str, source: str) -> dict[str, str]:
    """Return name, type and text of a script element: unchanged, or as JSON if HTML would misread it."""
    if re.search(r"<!--|</?script", source, re.IGNORECASE):
        return {"name": name, "type": "application/json", "text": charts.to_json(source)}
    return {"name": name, "type": "text/plain", "text": source}


def script_hash(source: str) -> str:
    """Return the hash with which the page allows only this inline script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"
