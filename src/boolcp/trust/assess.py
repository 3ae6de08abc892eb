"""`assess`: what can be said of each atom, in one call; `consensus`: only the atoms that come back."""

from dataclasses import replace
from typing import Any

import numpy as np

from boolcp.fit import certify, losses
from boolcp.fit.transform import solve_factor
from boolcp.plotting.mode_labels import further_of
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.result.trust import Trust, log_odds, stands_out
from boolcp.storage import make_storage
from boolcp.storage.weighted import SQUARES, Loss
from boolcp.trust.on_off import two_groups
from boolcp.trust.repeated_fits import prepare, unit_mode
from boolcp.trust.replication import OFTEN, replication
from boolcp.trust.verdict import verdicts

OF_THE_FIT = ("smoothness", "correlation", "n_agree", "n_rivals", "n_asked")  # known from the fit alone


def assess(X: Any, W: Any, *, mask: Any = None, weights: Any = None, random_state: Any = None, **how: Any) -> BooleanCP:
    """Return W with what can be said of its atoms: replication, on/off or graded, and the test against noise.

    `summary`, `to_dataframe`, saved files and reports then show them, with one verdict for each atom. Where slices have
    a coordinate "session", fits to each session alone are compared as well.

    Parameters
    ----------
    X : array-like or xarray.DataArray
        The tensor that W decomposes, in memory.
    W : BooleanCP or BMP
        The decomposition.
    mask, weights, random_state, **how
        As in `replication`.

    Examples
    --------
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 60), 2, boolean_modes=[2], noise=1, random_state=0)
    >>> W = boolcp.decompose(X, 3, boolean_modes=[2], random_state=0)
    >>> W = boolcp.assess(X, W, n_parts=4, random_state=0)
    >>> W.replication.tolist()
    [1.0, 1.0, 0.0]
    """
    if isinstance(W, int):
        raise TypeError("assess: the second argument is the decomposition of X: boolcp.decompose(X, n_atoms) first.")
    data, W = prepare(assess, X, W, {}, mask=mask, weights=weights, seed=None)
    atoms = W if W.noise is None else W.noise.whiten_atoms(W)
    values, atoms = data.values if atoms.mean is None else data.values - atoms.mean, replace(atoms, mean=None)
    loss = SQUARES if W.deviance is None else Loss(W.deviance.loss, W.deviance.scale)
    storage = make_storage(values, data.observed, data.weights, loss)
    judge: Any = certify.judge_bits if W.deviance is None else losses.judge
    evidence = judge(storage, atoms)
    atoms = atoms if W.deviance is not None else certify.with_system(atoms, storage)
    kept = {} if W.trust is None else {name: getattr(W.trust, name) for name in OF_THE_FIT}
    W = replace(W, trust=Trust(log_odds(atoms, evidence), evidence.sigma, stands_out(atoms, evidence.sigma), **kept))
    how |= {"mask": mask, "weights": weights, "random_state": random_state}
    W = replication(X, W, **how).decomposition
    labels = further_of(W, unit_mode(W, how.get("mode")), "session")
    if "scheme" in how or labels is None or len(set(labels.tolist())) < 2:
        return W
    alone = replication(X, W, scheme="sessions", **how).decomposition.trust
    assert W.trust is not None and alone is not None
    return replace(W, trust=replace(W.trust, by_session=alone.by_session))


def consensus(
    X: Any, W: Any = 10, *, mask: Any = None, weights: Any = None, random_state: Any = None, **how: Any
) -> BooleanCP:
    """Return only the atoms that replicate: their patterns averaged over the fits, bits and weights of all data.

    Bits of atoms that are on/off are those that are more probable by the amplitudes in data that the fits had not seen.

    Parameters
    ----------
    X, W, mask, weights, random_state, **how
        As in `replication`. All atoms must be Boolean along the mode of the parts.

    Examples
    --------
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 60), 2, boolean_modes=[2], noise=1, random_state=0)
    >>> boolcp.consensus(X, 4, boolean_modes=[2], n_parts=4, random_state=0).n_atoms
    2
    """
    found = replication(X, W, mask=mask, weights=weights, random_state=random_state, **how)
    W, mode = found.decomposition, found.mode
    if any(atom.mode != mode for atom in W.atoms):
        text = f"Some atoms are not Boolean along mode {W.mode_name(mode)}, along which the data were split:"
        raise ValueError(f"{text} fit with boolean_modes=[{mode if W.dims is None else W.dims[mode]!r}].")
    kept = np.flatnonzero(found.share >= OFTEN)
    white = W if W.noise is None else W.noise.whiten_atoms(W)
    data, _ = prepare(consensus, X, W, {}, mask=mask, weights=weights, seed=None)
    storage = make_storage(data.values if white.mean is None else data.values - white.mean, data.observed, data.weights)
    few = white[kept]
    few = replace(few, mean=None, noise=None, atoms=tuple(averaged(white.atoms[k], found.patterns[k]) for k in kept))
    if len(kept):
        bits, judged = solve_factor(storage, few, mode)[0] > 0.5, verdicts(W)
        for i, k in enumerate(kept):
            if judged[k].is_on_off and W.trust is not None and W.trust.amplitude is not None:
                a = W.trust.amplitude[k]
                seen = np.isfinite(a)
                bits[seen, i] = two_groups(a[seen]).log_odds(a[seen]) > 0
        few = replace(few, atoms=tuple(replace(atom, z=z) for atom, z in zip(few.atoms, bits.T, strict=True)))
        few = certify.with_system(few[bits.any(axis=0)], storage)
        assert few.data_inner is not None
        few = replace(few, weights=np.linalg.lstsq(few.observed_gram(), few.data_inner, rcond=None)[0])
    if W.noise is not None:
        few, values = W.noise.restore_atoms(few), np.asarray(X, dtype=float)
        few = certify.with_system(few, make_storage(values if W.mean is None else values - W.mean))
    return replace(few, mean=W.mean, noise=W.noise)


def averaged(atom: Atom, pattern: np.ndarray) -> Atom:
    """Return an atom with an averaged real part, of rank one if it was."""
    V = pattern.reshape(atom.real_shape)
    if atom.rank != 1 or V.ndim > 2:
        return atom if atom.rank is not None else replace(atom, block=V)
    if V.ndim == 1:
        return replace(atom, factors=(V[:, None],))
    U, _, Vt = np.linalg.svd(V, full_matrices=False)
    return replace(atom, factors=(U[:, :1], Vt[:1].T))
