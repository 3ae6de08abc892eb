"""Several sessions or subjects: patterns are shared, bits and amplitudes belong to each of them."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from boolcp import checks
from boolcp.bmp import AUTO, BLOCK, BMP, check_options
from boolcp.contractions import gram_product
from boolcp.fit.certify import atom_system, by_size, certify_on, with_system
from boolcp.fit.neighbors import plain_graphs, read_graphs
from boolcp.fit.sweep import best_bits
from boolcp.fit.transform import solve_factor
from boolcp.prepare import join
from boolcp.prepare.whiten import separable_noise
from boolcp.result.atoms import BooleanCP, with_mean
from boolcp.result.columns import Columns, to_columns
from boolcp.result.labels import is_labelled, read_labels
from boolcp.result.noise import Noise, power
from boolcp.result.trust import ABOVE_FLOOR, Evidence, Trust, log_odds, noise_floor
from boolcp.storage import make_storage
from boolcp.storage.dense import quadratic
from boolcp.storage.protocol import Storage
from boolcp.system import load_extra, one_thread

N_TURNS = 3  # of bits and amplitudes of a session
N_SWEEPS, LITTLE = 50, 1e-6  # of all factors by generalized least squares: at most, and a gain that ends them
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
        Parameters of BMP. With ``noise="separable"`` each session has a covariance of its own, and a mean with
        ``mean=True``; new data, certificates, block atoms and fits with a graph have those of all sessions.

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
    weights, labels = np.expand_dims(session_weights(X).values, [dims.index(dim) for dim in known]), X["session"].values
    if isinstance(graphs := options.get("adjacency"), Mapping | list):  # no edges between sessions
        found = read_graphs(graphs, X.shape, read_labels(X)[1])
        for A in [found[mode]] if mode in found else []:
            A.data[labels[A.indices] != np.repeat(labels, np.diff(A.indptr))] = 0.0
            A.eliminate_zeros()
        options["adjacency"] = plain_graphs(found)
    model = BMP(n_atoms, boolean_modes=[mode], **options).fit(X, weights=weights)
    places = {str(name): np.flatnonzero(labels == str(name)) for name in named}
    alone = {name: X.isel({over[0]: at}) for name, at in places.items()}
    noises = [model.decomposition_.noise] * len(named)
    if options.get("noise") == "separable" and model.atom_rank != BLOCK and model.adjacency is None:
        with one_thread():
            parts = [own_units(alone[name].values, mode, at, is_centered=model.mean) for name, at in places.items()]
            model.decomposition_, noises = with_own_noise(model, X, parts, weights), [part.noise for part in parts]
    model.sessions_ = {
        name: own_part(alone[name], model.decomposition_, mode, at, noise)
        for (name, at), noise in zip(places.items(), noises, strict=True)
    }
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
    """Return how much each slice of joined sessions counts: 1 / variance of its session over slices, at most 1."""
    groups = X.groupby("session")
    levels = (groups - groups.mean(X["session"].dims[0])).groupby("session").std(...)
    if not bool((levels > 0).all()):
        raise ValueError("A session does not vary over its slices: its noise level cannot be estimated.")
    levels = levels / levels.min() if levels.max() > ALIKE * levels.min() else levels * 0 + 1
    return X["session"].copy(data=levels.sel(session=X["session"].values).values ** -2.0)


class Part(NamedTuple):
    """A session in units of its own noise: S^-1/2 along each real mode, and the slices, around their mean if asked."""

    noise: Noise
    roots: dict[int, np.ndarray]
    data: Storage
    places: np.ndarray
    mode: int
    is_centered: bool

    def equations(self, W: Columns, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return H and S^-1/2 P that the factor of mode n meets here; of bits H and P with a column for each atom."""
        factors = [W.matrices[m] if m == self.mode else self.roots[m] @ A for m, A in enumerate(W.matrices)]
        factors[self.mode] = self.around(W.matrices[self.mode][self.places])
        H, P = gram_product(factors, n), np.asarray(self.data.mttkrp(factors, n), dtype=float)
        S = np.eye(W.n_atoms)[W.owner]
        return (S.T @ H @ S, P @ S) if n == self.mode else (H, self.roots[n] @ P)

    def around(self, Z: np.ndarray) -> np.ndarray:
        """Return bits as the data are: around their mean, or as they are."""
        return Z - Z.mean(axis=0) if self.is_centered else Z


def own_units(X: np.ndarray, mode: int, places: np.ndarray, *, is_centered: bool) -> Part:
    """Return a session in units of its noise, whose covariances are estimated from what varies over its slices."""
    R = X - X.mean(axis=mode, keepdims=True)
    noise = separable_noise(R, [n for n in range(X.ndim) if n != mode])
    roots = {n: power(S, -0.5) for n, S in noise.covariances.items()}
    return Part(noise, roots, make_storage(noise.whiten(R if is_centered else X)), places, mode, is_centered)


def with_own_noise(model: BMP, X: Any, parts: Sequence[Part], weights: np.ndarray) -> BooleanCP:
    """Return the decomposition by generalized least squares, in which each session has a covariance of its own.

    A pattern that is shared in the units of the data differs between sessions once these are whitened, so no stack of
    them has the same atoms. What lowers the sum of |S_s^-1/2 (X_s - W_s)|^2 is searched from the fit with the common
    covariance, and from the fit to each session alone, which is better where covariances differ much.
    """
    W, mode = model.decomposition_, parts[0].mode
    n_atoms, starts = max(W.n_atoms, 1) if model.n_atoms == AUTO else int(model.n_atoms), [to_columns(W)]
    alone = clone(model).set_params(n_atoms=n_atoms, certify=False, verbose=0)
    for part in parts:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", checks.BoolcpWarning)
            C = to_columns(alone.fit(X.isel({X.dims[mode]: part.places})).decomposition_)
        Z = np.zeros((X.shape[mode], len(C.owner)))
        Z[part.places] = C.matrices[mode]
        starts.append(C.with_matrices([Z if n == mode else A for n, A in enumerate(C.matrices)]))
    tried = [generalized(C, parts) for C in starts if C.n_atoms]
    if not tried:
        return W
    best = min(tried, key=lambda C: C.loss)
    counts = checks.check_weights(weights, X.shape)
    units = make_storage(X.values, None, counts, center=mode if model.mean else None)
    V = with_system(by_size(best.to_decomposition()), units)
    V = replace(with_mean(V, X.values, units) if model.mean else V, labels=W.labels, noise=W.noise)
    assert W.trust is not None
    trust = replace(own_trust(V, W.trust, parts, best.loss), n_asked=n_atoms * (V.n_atoms < n_atoms))
    V = replace(V, parameters=W.parameters, trust=trust)
    return certify_on(V, X, None, weights, "quick") if model.certify else V


def generalized(W: Columns, parts: Sequence[Part]) -> Columns:
    """Return W after sweeps over bits and real factors, each of which lowers the whitened loss of all sessions."""
    best = own_bits(W, parts)
    for _ in range(N_SWEEPS):
        matrices = list(best.matrices)
        for n in parts[0].roots:
            A, W = np.array(matrices[n]), best.with_matrices(matrices)
            known = [(part.roots[n] @ part.roots[n], *part.equations(W, n)) for part in parts]
            for k in range(A.shape[1]):
                left = sum(H[k, k] * S for S, H, _ in known)
                right = sum(P[:, k] - S @ (A @ H[:, k]) for S, H, P in known)
                A[:, k] += np.linalg.solve(left, right) if np.any(left) else 0.0
            matrices[n] = A
        before, best = best, own_bits(best.with_matrices(matrices), parts)
        if not best.loss < (1 - LITTLE) * before.loss:
            break
    return best


def own_bits(W: Columns, parts: Sequence[Part]) -> Columns:
    """Return W with the best bits of each session in units of its own noise, and the loss of all."""
    mode, loss = parts[0].mode, 0.0
    Z = W.matrices[mode][:, np.unique(W.owner, return_index=True)[1]]
    for part in parts:
        (H, P), A = part.equations(W, mode), Z[part.places]
        Z[part.places] = A = best_bits(H, P + (A - part.around(A)) @ H, A)
        loss += part.data.squared_norm - 2 * float(np.vdot(P, A)) + quadratic(H, part.around(A))
    return W.with_matrices([Z[:, W.owner] if n == mode else A for n, A in enumerate(W.matrices)], loss)


def own_trust(W: BooleanCP, trust: Trust, parts: Sequence[Part], loss: float) -> Trust:
    """Return the evidence for bits and atoms in units of the noise of each session."""
    C, Z = to_columns(W), np.array([atom.z for atom in W.atoms], dtype=float).T
    rise, square, gram = np.zeros(Z.shape), np.zeros(Z.shape), np.zeros((W.n_atoms, W.n_atoms))
    for part in parts:
        (H, P), A = part.equations(C, part.mode), Z[part.places]
        rise[part.places] = H.diagonal() + 2 * (2 * A - 1) * (P - part.around(A) @ H)
        square[part.places] = H.diagonal()
        gram += part.around(A).T @ part.around(A) * H
    size2, n_left = square.mean(axis=0), float(np.prod(W.shape)) - W.n_parameters - W.n_bits
    sigma = float(np.sqrt(loss / max(n_left, 1.0)))
    odds = log_odds(replace(W, weights=np.sqrt(size2)), Evidence(tuple(rise.T), tuple((square / size2).T), sigma))
    least: np.ndarray = np.linalg.pinv(gram, hermitian=True)
    floors = np.array([noise_floor(atom) for atom in W.atoms]) + ABOVE_FLOOR
    return replace(trust, odds=odds, sigma=sigma, stands_out=least.diagonal() < (floors * sigma) ** -2.0)


def own_part(X: Any, W: BooleanCP, mode: int, places: np.ndarray, noise: Noise | None) -> BooleanCP:
    """Return the patterns of W with the bits and amplitudes of one session; an atom never on there keeps its weight."""
    values, labels = read_labels(X)
    atoms, mean = tuple(replace(atom, z=atom.z[places]) for atom in W.atoms), W.mean
    if mean is not None and noise is not W.noise:
        mean = (values - BooleanCP(values.shape, atoms, W.weights).to_array()).mean(axis=mode, keepdims=True)
    values = values if mean is None else values - mean
    observed = ~np.isnan(values)
    data = make_storage(np.where(observed, values, 0.0), None if observed.all() else observed)
    white = data if noise is None else make_storage(noise.whiten(values))
    known, V = {"data_norm2": data.squared_norm}, replace(W, mean=None)
    for turn in range(N_TURNS):
        if turn and not (W.parameters or {}).get("adjacency"):  # else neighbors have had their say
            bits = solve_factor(white, V, mode)[0].T > 0.5
            atoms = tuple(replace(atom, z=z) for atom, z in zip(atoms, bits, strict=True))
        V = BooleanCP(values.shape, atoms, np.ones(len(atoms)), labels, noise=noise, **known)
        U = V if noise is None else noise.whiten_atoms(V)
        G, b = atom_system(white, U.atoms)
        own = np.linalg.lstsq(G, b, rcond=None)[0] / U.weights
        V = replace(V, weights=np.where(own > 0, own, W.weights))
    G, b = atom_system(data, atoms)
    return replace(V, mean=mean, data_inner=b, data_gram=G)
