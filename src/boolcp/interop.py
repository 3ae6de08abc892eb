"""To and from other packages: TensorLy, tensortools, pyttb and MNE. Boolean columns stay exactly 0 and 1.

The other packages know sums of products only, so an atom of rank L becomes L of them, and block atoms have no
counterpart. Do not normalize or flip the columns over there: that spoils the zeros and ones.
"""

import html

import numpy as np

from boolcp.extras import load_extra
from boolcp.result.atoms import Atom, BooleanCP

CHUNK_SECONDS = 60  # of a continuous MNE recording read at a time


def to_tensorly(W):
    """Return the decomposition as a TensorLy CPTensor.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((4, 5, 6), 2, random_state=0)
    >>> boolcp.interop.to_tensorly(truth).rank
    2
    """
    module = load_extra("tensorly.cp_tensor", "baselines")
    terms = W.rank_one_terms()
    return module.CPTensor((terms.weights.copy(), [np.array(A) for A in terms.factors]))


def from_tensorly(cp, *, boolean_modes=None, labels=None):
    """Return the BooleanCP of a TensorLy CPTensor, or of any pair (weights, factors).

    Parameters
    ----------
    cp : CPTensor or pair
        Weights (K,) or None, and factor matrices (d_n, K).
    boolean_modes : sequence of int, optional
        The Boolean mode of each column; found by itself if left out (a column with one value besides 0).
    labels : Labels, optional
        Names and coordinates of the modes.

    Returns
    -------
    BooleanCP
        Atoms of rank one, their real columns scaled to norm one.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((4, 5, 6), 2, random_state=0)
    >>> boolcp.interop.from_tensorly(boolcp.interop.to_tensorly(truth)).boolean_mode.tolist()
    [0, 1]
    """
    weights, factors = cp
    factors = [np.asarray(A, dtype=float) for A in factors]
    n_columns = factors[0].shape[1]
    weights = np.ones(n_columns) if weights is None else np.asarray(weights, dtype=float)
    if boolean_modes is not None and len(boolean_modes) != n_columns:
        raise ValueError(f"There are {n_columns} columns but {len(boolean_modes)} Boolean modes.")
    atoms, sizes = [], []
    for k in range(n_columns):
        columns = [A[:, k] for A in factors]
        mode = _boolean_mode(columns, k) if boolean_modes is None else int(boolean_modes[k])
        on = columns[mode] != 0
        values = columns[mode][on]
        if not len(values) or not np.allclose(values, values[0], rtol=1e-9, atol=0):
            raise ValueError(f"Column {k} is not Boolean along mode {mode}: it has several values besides 0.")
        real = [column for n, column in enumerate(columns) if n != mode]
        norms = [np.linalg.norm(column) for column in real]
        if min(norms) == 0:
            raise ValueError(f"Column {k} is zero along some mode: remove it first.")
        atoms.append(Atom(mode, on, tuple((v / norm)[:, None] for v, norm in zip(real, norms, strict=True))))
        sizes.append(weights[k] * values[0] * np.prod(norms))
    return BooleanCP(tuple(len(A) for A in factors), tuple(atoms), np.array(sizes), labels)


def to_pyttb(W):
    """Return the decomposition as a pyttb ktensor.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((4, 5, 6), 2, random_state=0)
    >>> boolcp.interop.to_pyttb(truth).shape
    (4, 5, 6)
    """
    pyttb = load_extra("pyttb", "interop")
    terms = W.rank_one_terms()
    return pyttb.ktensor([np.asfortranarray(A, dtype=float) for A in terms.factors], terms.weights.copy())


def from_pyttb(ktensor, *, boolean_modes=None, labels=None):
    """Return the BooleanCP of a pyttb ktensor; see `from_tensorly`.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((4, 5, 6), 2, random_state=0)
    >>> boolcp.interop.from_pyttb(boolcp.interop.to_pyttb(truth)).n_atoms
    2
    """
    return from_tensorly((ktensor.weights, ktensor.factor_matrices), boolean_modes=boolean_modes, labels=labels)


def to_tensortools(W):
    """Return the decomposition as a tensortools KTensor, the weights folded into a real column of each atom.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((4, 5, 6), 2, random_state=0)
    >>> boolcp.interop.to_tensortools(truth).rank
    2
    """
    module = load_extra("tensortools.tensors", "interop")
    terms = W.rank_one_terms()
    factors = [np.array(A) for A in terms.factors]
    for k, atom in enumerate(terms.atoms):
        factors[1 if atom.mode == 0 else 0][:, k] *= terms.weights[k]
    return module.KTensor(factors)


def from_tensortools(ktensor, *, boolean_modes=None, labels=None):
    """Return the BooleanCP of a tensortools KTensor; see `from_tensorly`.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((4, 5, 6), 2, random_state=0)
    >>> boolcp.interop.from_tensortools(boolcp.interop.to_tensortools(truth)).n_atoms
    2
    """
    return from_tensorly((None, ktensor.factors), boolean_modes=boolean_modes, labels=labels)


def from_mne(inst, *, picks="data"):
    """Return MNE Epochs as a DataArray channel x time x trial, or Raw as channel x time.

    Parameters
    ----------
    inst : mne.Epochs or mne.io.Raw
        The recording. A Raw need not be loaded: it is read piece by piece.
    picks : str or list
        Which channels, as MNE takes them.

    Returns
    -------
    DataArray
        In float32, with channel names, their positions "x", "y", "z" (m) where known, and times in seconds. Epochs
        have the coordinate "condition" along the trials, Raw lists annotations that last as conditions.

    Examples
    --------
    >>> import boolcp, mne, numpy as np
    >>> raw = mne.io.RawArray(np.zeros((2, 100)), mne.create_info(["Fz", "Cz"], 100.0, "eeg"), verbose=False)
    >>> dict(boolcp.interop.from_mne(raw).sizes)
    {'channel': 2, 'time': 100}
    """
    load_extra("mne", "mne")
    xarray = load_extra("xarray", "labels")
    inst = inst.copy()
    if hasattr(inst, "event_id"):
        inst.load_data()
    inst.pick(picks, verbose="ERROR")
    coords = {"channel": ("channel", np.array(inst.ch_names))} | _positions(inst)
    coords["time"] = "time", np.asarray(inst.times), {"units": "s"}
    rate = float(inst.info["sfreq"])
    if hasattr(inst, "event_id"):
        names = {code: name for name, code in inst.event_id.items()}
        values = inst.get_data(copy=False, verbose="ERROR").astype(np.float32).transpose(1, 2, 0)
        coords["trial"] = "trial", np.asarray(inst.selection)
        coords["condition"] = "trial", np.array([names[code] for code in inst.events[:, 2]], dtype=str)
        X = xarray.DataArray(values, coords, ("channel", "time", "trial"), name="epochs")
        return X.assign_attrs(units="SI", sampling_rate=rate)
    values = np.empty((len(inst.ch_names), len(inst.times)), np.float32)
    step = max(int(CHUNK_SECONDS * rate), 1)
    for start in range(0, values.shape[1], step):
        stop = min(start + step, values.shape[1])
        values[:, start:stop] = inst.get_data(start=start, stop=stop, verbose="ERROR")
    X = xarray.DataArray(values, coords, ("channel", "time"), name="raw")
    X.attrs = {"units": "SI", "sampling_rate": rate}
    lasting = [(a["description"], a["onset"], a["duration"]) for a in inst.annotations if a["duration"] > 0]
    if lasting:
        onset = inst.first_time  # MNE counts from the start of the acquisition
        X.attrs["condition_label"] = [str(label) for label, _, _ in lasting]
        X.attrs["condition_start"] = [float(start - onset) for _, start, _ in lasting]
        X.attrs["condition_stop"] = [float(start - onset + length) for _, start, length in lasting]
    return X


def add_to_report(W, report, *, title="Boolean atoms", figure=None):
    """Add the summary of a decomposition, and a figure if one is given, to an mne.Report, and return the report.

    Examples
    --------
    >>> import boolcp, mne
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((4, 5, 6), 2, random_state=0)
    >>> report = boolcp.interop.add_to_report(truth, mne.Report(verbose=False))
    >>> len(report.html)
    1
    """
    load_extra("mne", "mne")
    report.add_html(f"<pre>{html.escape(W.summary())}</pre>", title=f"{title}: summary", tags=("boolcp",))
    if figure is not None:
        report.add_figure(figure, title=f"{title}: factors", tags=("boolcp",))
    return report


def _boolean_mode(columns, k):
    """Return the mode along which a column has one value besides 0, one of exact ones first."""
    flat = [n for n, column in enumerate(columns) if np.any(column) and np.ptp(column[column != 0]) == 0]
    if not flat:
        raise ValueError(f"Column {k} is Boolean along no mode: give boolean_modes, or decompose with boolcp.")
    ones = [n for n in flat if np.isin(columns[n], (0, 1)).all()]
    return (ones or flat)[0]


def _positions(inst):
    """Return the coordinates x, y, z of the channels if all are known."""
    places = np.array([channel["loc"][:3] for channel in inst.info["chs"]], dtype=float)
    if not np.isfinite(places).all() or not places.any(axis=1).all():
        return {}
    return {axis: ("channel", places[:, n], {"units": "m"}) for n, axis in enumerate("xyz")}
