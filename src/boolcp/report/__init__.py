"""The report: one self-contained HTML page on a decomposition, which opens offline."""

import base64
import io
import json
from importlib import resources

import numpy as np

from boolcp import plotting
from boolcp._version import __version__
from boolcp.atoms import BooleanCP
from boolcp.extras import load_extra
from boolcp.identifiability import diagnose
from boolcp.io import atomic
from boolcp.io.results import make_provenance

__all__ = ["write_report"]

TEMPLATE = "page.html.jinja"
PANEL, IMAGE = (3.4, 2.3), (4.2, 2.3)  # inches
DPI = 150  # of what is an image within the vector pictures
MAX_DIAGNOSED_ATOMS, MAX_DIAGNOSED_NUMBERS = 10, 5_000_000  # beyond, a verdict may take minutes
MAX_NAMES = 60
SETTINGS = {
    "font.size": 8,
    "axes.linewidth": 0.6,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "svg.hashsalt": "boolcp",  # equal reports are equal files
    "svg.fonttype": "path",
}
# what the page shows elsewhere, or not as a parameter
SHOWN_APART = {"history", "parameters", "versions", "data", "command", "random_state", "stop_reason", "is_partial"}


def write_report(W, path, *, provenance=None, history=None, force=False):
    """Write one HTML page on a decomposition: data, fit, table of atoms, a card with pictures for each, and origin.

    The page holds its pictures, loads nothing from elsewhere and runs no script. It is written completely or not at
    all.

    Parameters
    ----------
    W : BooleanCP or BMP
        The decomposition, or a fitted model, which knows its parameters and history.
    path : str or path
        The file, by custom ending in .html.
    provenance : dict, optional
        Where the result comes from, as `boolcp.io.load_provenance` returns it.
    history : sequence, optional
        The steps of the pursuit, `BMP.history_`; those of the provenance if None.
    force : bool
        Replace an existing file.

    Returns
    -------
    None

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
    atomic.write_text(path, render(W, provenance, history), overwrite=force)


def render(W, provenance, history):
    """Return the page as text."""
    jinja2 = load_extra("jinja2", "report")
    matplotlib = load_extra("matplotlib", "report")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(resources.files(__name__).joinpath(TEMPLATE).read_text(encoding="utf-8"))
    with matplotlib.rc_context(SETTINGS):
        return template.render(
            title=_title(W),
            version=__version__,
            modes=describe_modes(W),
            data=describe_data(W, provenance),
            fit=describe_fit(W, provenance),
            figures=fit_figures(W, history),
            atoms=describe_atoms(W),
            verdict=verdict(W),
            origin=describe_origin(provenance),
            command=provenance.get("command", ""),
            code=python_code(provenance),
        )


def describe_modes(W):
    """Return name, size and coordinates of each mode, one dict for each."""
    rows = []
    for n, size in enumerate(W.shape):
        labels = plotting.coordinate_text(W, n)
        has_coords = W.labels is not None and W.labels.dims[n] in W.labels.coords
        further = [] if W.labels is None else [name for name, (dim, _) in W.labels.extra.items() if dim == W.dims[n]]
        rows.append(
            {
                "name": plotting.mode_text(W, n),
                "size": size,
                "range": f"{labels[0]} to {labels[-1]} {_unit(W, n)}".strip() if has_coords and size else "-",
                "further": ", ".join(further) or "-",
                "n_atoms": int(np.sum(W.boolean_mode == n)),
            }
        )
    return rows


def describe_data(W, provenance):
    """Return what is known of the decomposed tensor, as pairs of a name and a text."""
    pairs = [("Shape", W._shape_text())]
    if W.labels is not None and W.labels.name:
        pairs.append(("Quantity", W.labels.name))
    if W.data_norm2 is not None:
        if W.data_gram is None:
            n_entries = np.prod(W.shape, dtype=float)
            pairs.append(("Root mean square", f"{np.sqrt(W.data_norm2 / n_entries):.4g}"))
        pairs.append(("Missing entries", "none" if W.data_gram is None else "some; the fit is over the observed ones"))
    for n, slices in (W.undetermined or {}).items():
        names = [text for text, is_empty in zip(plotting.coordinate_text(W, n), slices, strict=True) if is_empty]
        if names:
            pairs.append((f"Without any data, {plotting.mode_text(W, n)}", _listing(names)))
    data = provenance.get("data", {})
    pairs += [("Source", data["source"])] if data.get("source") else []
    pairs += [("Preparation", "; ".join(map(str, data["preparation"])))] if data.get("preparation") else []
    pairs += [("Type", data["dtype"])] if data.get("dtype") else []
    pairs += [("SHA-256", data["fingerprint"])] if data.get("fingerprint") else []
    return pairs


def describe_fit(W, provenance):
    """Return how good the fit is, as pairs of a name and a text."""
    pairs = [("Atoms", str(W.n_atoms))]
    if _has_shares(W):
        explained = W.explained()
        pairs += [
            ("Variance explained", f"{100 * explained:.2f} %"),
            ("Relative error", f"{np.sqrt(max(1 - explained, 0.0)):.4f}"),
        ]
    if provenance.get("is_partial"):
        pairs.append(("Note", "stopped early: a valid but partial result"))
    if provenance.get("stop_reason"):
        pairs.append(("The pursuit stopped because", provenance["stop_reason"]))
    return pairs


def fit_figures(W, history):
    """Return the pictures of the whole fit: error path and certificates."""
    figures = []
    errors = [plotting.relative_error(step) for step in history]
    if errors:
        text = ", ".join(f"{error:.4f}" for error in errors)
        caption = "Relative error after each atom of the pursuit"
        if _has_shares(W):
            caption += "; the circle is the result"
        figures.append(_figure(lambda ax: _draw_path(W, errors, ax), f"{caption}: {text}", caption))
    if any(np.isfinite(atom.certificate) for atom in W.atoms):
        values = ", ".join(f"atom {k} {_percent(atom.certificate)}" for k, atom in enumerate(W.atoms))
        caption = "Certificate of each atom"
        figures.append(_figure(lambda ax: plotting.plot_certificates(W, ax), f"{caption}: {values}", caption))
    return figures


def describe_atoms(W):
    """Return numbers, words and pictures of each atom, that with the largest share first."""
    has_shares = _has_shares(W)
    alone = W.explained_alone() if has_shares else np.full(W.n_atoms, np.nan)
    unique = W.explained_unique() if has_shares else np.full(W.n_atoms, np.nan)
    order = np.argsort(-alone if has_shares else -np.abs(W.weights), kind="stable")
    diagnosis = _diagnosis(W)
    return [
        {
            "number": int(k),
            "mode": plotting.mode_text(W, W.atoms[k].mode),
            "ones": f"{W.atoms[k].n_ones} of {len(W.atoms[k].z)}",
            "rank": "block" if W.atoms[k].rank is None else str(W.atoms[k].rank),
            "weight": f"{W.weights[k]:.4g}",
            "alone": _percent(alone[k]),
            "unique": _percent(unique[k]),
            "certificate": _percent(W.atoms[k].certificate),
            "on": on_text(W, k),
            "verdict": "" if diagnosis is None else f"{diagnosis.verdicts[k]} ({diagnosis.reasons[k]})",
            "figures": [atom_figure(W, int(k), mode) for mode in plotting.atom_panels(W, k)],
        }
        for k in order
    ]


def atom_figure(W, k, mode):
    """Return one panel of an atom as a picture with its text."""
    atom = W.atoms[k]
    name = "" if isinstance(mode, tuple) else plotting.mode_text(W, mode)
    if mode == atom.mode:
        caption = f"{name}: yellow on, blue off"
        return _figure(
            lambda ax: plotting.plot_boolean(W, k, ax), f"Atom {k} along {name}, on: {on_text(W, k)}", caption
        )
    if isinstance(mode, tuple):
        names = " by ".join(plotting.mode_text(W, n) for n in mode)
        caption = f"real part, {names}"
        return _figure(lambda ax: plotting.plot_real(W, k, mode, ax), f"Atom {k}, {caption}", caption, IMAGE)
    columns = plotting.real_columns(W, k)[mode]
    kind = "leading pattern" if atom.block is not None and W.ndim > 2 else "real part"
    alt = f"Atom {k}, {kind} along {name}"
    if np.isfinite(columns).any():
        peak = int(np.nanargmax(np.abs(columns).max(axis=1)))
        alt += f", largest at {plotting.coordinate_text(W, mode)[peak]} {_unit(W, mode)}".rstrip()
    return _figure(lambda ax: plotting.plot_real(W, k, mode, ax), alt, f"{name}: {kind}")


def on_text(W, k):
    """Return where an atom is on, as words: runs of neighbors as ranges."""
    atom = W.atoms[k]
    names = plotting.coordinate_text(W, atom.mode)
    if not atom.n_ones:
        return "no entry"
    if atom.n_ones == len(atom.z):
        return f"all {len(atom.z)} entries"
    edges = np.flatnonzero(np.diff(np.concatenate([[0], atom.z.astype(int), [0]])))
    runs = [
        ", ".join(names[start:stop]) if stop - start < 3 else f"{names[start]} to {names[stop - 1]}"
        for start, stop in edges.reshape(-1, 2)
    ]
    return f"{_listing(runs)} {_unit(W, atom.mode)}".rstrip()


def verdict(W):
    """Return in words whether the decomposition is the only one, or nothing where that is too costly to tell."""
    diagnosis = _diagnosis(W)
    if diagnosis is None:
        return ""
    n_proved = int(diagnosis.is_identifiable.sum())
    n_refuted = diagnosis.verdicts.count("not identifiable")
    if n_proved == W.n_atoms:
        return (
            f"These atoms are identifiable: no other {W.n_atoms} atoms sum to the same tensor. {diagnosis.reasons[0]}."
        )
    words = f"Identifiable: {n_proved} of {W.n_atoms} atoms."
    if n_refuted:
        words += f" For {n_refuted}, other atoms are known that sum to the same tensor: read them with care."
    if n_proved + n_refuted < W.n_atoms:
        words += f" For {W.n_atoms - n_proved - n_refuted}, no condition proves or refutes it."
    return words


def describe_origin(provenance):
    """Return parameters, seed, versions and the rest of the provenance, as pairs of a name and a text."""
    parameters = provenance.get("parameters", {})
    pairs = [(name, _text(value)) for name, value in provenance.items() if name not in SHOWN_APART]
    if "random_state" in provenance:
        pairs.append(("seed", _text(provenance["random_state"])))
    pairs += [(f"version of {package}", str(number)) for package, number in provenance.get("versions", {}).items()]
    pairs += [(name, _text(value)) for name, value in parameters.items() if name not in ("random_state", "verbose")]
    return pairs


def python_code(provenance):
    """Return the Python that makes the fit again, if the parameters are known."""
    parameters = provenance.get("parameters")
    if not parameters or not provenance.get("method"):
        return ""
    options = ", ".join(f"{name}={value!r}" for name, value in parameters.items() if name != "verbose")
    return f"boolcp.{provenance['method']}({options}).fit(X)"


def _diagnosis(W):
    """Return the verdict on the atoms if it is cheap and all entries are determined, else None."""
    numbers = np.prod(W.shape, dtype=float) / max(min(W.shape), 1) * W.n_atoms
    if not 0 < W.n_atoms <= MAX_DIAGNOSED_ATOMS or numbers > MAX_DIAGNOSED_NUMBERS or W.undetermined:
        return None
    return diagnose(W)


def _figure(draw, alt, caption, size=PANEL):
    """Return a picture as a data address, with its text alternative and caption."""
    load_extra("matplotlib.figure", "report")
    figure = load_extra("matplotlib", "report").figure.Figure(figsize=size, layout="constrained")
    draw(figure.subplots())
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", dpi=DPI, metadata={"Date": None, "Creator": None})
    code = base64.b64encode(buffer.getvalue()).decode()
    return {"source": f"data:image/svg+xml;base64,{code}", "alt": alt, "caption": caption, "is_wide": size == IMAGE}


def _draw_path(W, errors, ax):
    plotting.plot_error_path(errors, ax)
    if _has_shares(W):
        error = np.sqrt(max(1 - W.explained(), 0.0))
        ax.plot([W.n_atoms], [error], "o", markersize=8, markerfacecolor="none", color=plotting.ORANGE)
        ax.set_ylim(0, 1.05 * max([*errors, error]) or 1.0)
        ax.set_xlim(0.5, max(len(errors), W.n_atoms) + 0.5)


def _has_shares(W):
    return bool(W.data_norm2) and W.data_inner is not None and W.n_atoms > 0


def _title(W):
    name = W.labels.name if W.labels is not None and W.labels.name else "tensor"
    return f"{W.n_atoms} {'atom' if W.n_atoms == 1 else 'atoms'} of {name}"


def _unit(W, mode):
    return "" if W.labels is None else W.labels.units.get(W.labels.dims[mode], "")


def _listing(names):
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more


def _percent(share):
    return "-" if np.isnan(share) else f"{100 * share:.1f} %"


def _text(value):
    return value if isinstance(value, str) else json.dumps(value, default=str)
