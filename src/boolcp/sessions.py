"""Several sessions or subjects: patterns are shared, bits and amplitudes belong to each of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from boolcp import checks
from boolcp.bmp import BMP, check_options
from boolcp.fit.certify import atom_system
from boolcp.fit.transform import solve_factor
from boolcp.prepare import join
from boolcp.result.atoms import BooleanCP
from boolcp.result.labels import is_labelled, read_labels
from boolcp.storage import make_storage
from boolcp.system import load_extra

N_TURNS = 3  # of bits and amplitudes of a session
ALIKE = 1.1  # ratio of standard deviations up to which all entries count alike, which is faster


def fit_sessions(
    sessions: Any, n_atoms: int, *, shared: Sequence[int | str] = ("channel", "time"), **options: Any
) -> BMP:
    """Fit several sessions or subjects at once and return the BMP: patterns are shared, bits and amplitudes are not.

    Its `decomposition_` is that of all sessions, one after another along the Boolean mode, with a coordinate "session".
    Its `sessions_` has for each name the BooleanCP of that session, whose weights are the amplitudes there. A session
    counts by how much it varies over trials. A new subject gets bits by `transform`.

    Parameters
    ----------
    sessions : sequence, or mapping of names
        One array or DataArray for each session, with any number of trials. Labels along the shared modes are matched:
        a channel that a session lacks is missing there.
    n_atoms : int
        Number of atoms.
    shared : sequence of int or str
        The modes that correspond, by name or index; the other one is Boolean.
    **options
        Parameters of BMP. A mean, and the covariance of ``noise="separable"``, are those of all sessions.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((9, 8, 50), 2, boolean_modes=[2], noise=0.1, random_state=0)
    >>> model = boolcp.fit_sessions({"a": X[:, :, :20], "b": X[:, :, 20:]}, 2, shared=(0, 1), random_state=0)
    >>> model.sessions_["b"].shape
    (9, 8, 30)
    """
    check_options(fit_sessions, options)
    named = dict(sessions if isinstance(sessions, Mapping) else enumerate(sessions))
    if len(set(map(str, named))) < max(len(named), 2):
        raise ValueError(f"Two or more sessions are needed, each with a name of its own, got {list(named)}.")
    arrays = [session_array(name, X) for name, X in named.items()]
    dims = arrays[0].dims
    known = [dims[checks.check_mode(n, len(dims), dims, name="shared")] for n in shared]
    over = [dim for dim in dims if dim not in known]
    if len(over) != 1 or any(set(X.dims) != set(dims) for X in arrays):
        raise ValueError("Sessions must have the same modes, all of which but one are named in shared=.")
    if any(len({X.sizes[dim] for X in arrays}) > 1 and dim not in arrays[0].coords for dim in known):
        raise ValueError("Sessions of different sizes along a shared mode need labels there, as a DataArray has.")
    if any(X.get_index(dim).has_duplicates for X in arrays for dim in known):
        raise ValueError("Labels along a shared mode repeat in a session: give each entry its own.")
    X = join([X.transpose(*dims) for X in arrays], over[0], [str(name) for name in named], is_sessions=True)
    mode = dims.index(over[0])
    model = BMP(n_atoms, boolean_modes=[mode], **options).fit(X, weights=session_weights(X))
    W, labels = model.decomposition_, X["session"].values
    places = {str(name): np.flatnonzero(labels == str(name)) for name in named}
    model.sessions_ = {name: own_part(X.isel({over[0]: at}), W, mode, at) for name, at in places.items()}
    return model


def session_array(name: Any, X: Any) -> Any:
    """Return a session as a DataArray of numbers, NaN where they are missing; an error names it."""
    try:
        values, observed = checks.check_tensor(read_labels(X)[0], None)
    except (TypeError, ValueError) as error:
        raise type(error)(f"Session {name!r}: {error}") from None
    values = values if observed is None else np.where(observed, values, np.nan)
    return X.copy(data=values) if is_labelled(X) else load_extra("xarray", "files").DataArray(values)


def session_weights(X: Any) -> Any:
    """Return how much each slice of joined sessions counts: one over the variance of its session over slices."""
    groups = X.groupby("session")
    levels = (groups - groups.mean(X["session"].dims[0])).groupby("session").std(...)
    if not bool((levels > 0).all()):
        raise ValueError("A session does not vary over its slices: its noise level cannot be estimated.")
    levels = levels if levels.max() > ALIKE * levels.min() else levels * 0 + 1
    return X["session"].copy(data=levels.sel(session=X["session"].values).values ** -2.0)


def own_part(X: Any, W: BooleanCP, mode: int, places: np.ndarray) -> BooleanCP:
    """Return the patterns of W with the bits and amplitudes of one session; an atom never on there keeps its weight."""
    values, labels = read_labels(X)
    values = values if W.mean is None else values - W.mean
    observed, bits = ~np.isnan(values), np.array([atom.z[places] for atom in W.atoms])
    data = make_storage(np.where(observed, values, 0.0), None if observed.all() else observed)
    white = data if W.noise is None else make_storage(W.noise.whiten(values))
    known, V = {"data_norm2": data.squared_norm}, replace(W, mean=None)
    for turn in range(N_TURNS):
        bits = solve_factor(white, V, mode)[0].T > 0.5 if turn else bits
        atoms = tuple(replace(atom, z=z) for atom, z in zip(W.atoms, bits, strict=True))
        G, b = atom_system(data, atoms)
        own = np.linalg.lstsq(G, b, rcond=None)[0]
        V = BooleanCP(values.shape, atoms, np.where(own > 0, own, W.weights), labels, noise=W.noise, **known)
    return replace(V, mean=W.mean, data_inner=b, data_gram=G)
