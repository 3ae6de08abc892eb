"""Random tensors that are Boolean CP decompositions by construction, with noise and missing entries."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from boolcp.checks import check_number
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.result.labels import Labels

Pattern = tuple[int, np.ndarray, list[np.ndarray]]  # the Boolean mode, its bits, one column for each of the other modes
SYN_ATOMS = (3, 9, 15)


class Synthetic(NamedTuple):
    """A tensor with a known answer; it unpacks as ``X, clean, truth``.

    X is the clean tensor plus noise, NaN where missing; clean is ``truth.to_tensor()``, truth its decomposition.

    Examples
    --------
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((5, 6, 7), 2, noise=0.1, random_state=0)
    >>> X.shape, truth.n_atoms
    ((5, 6, 7), 2)
    """

    X: np.ndarray
    clean: np.ndarray
    truth: BooleanCP


def make_boolean_cp(
    shape: Sequence[int],
    n_atoms: int | Sequence[int],
    *,
    p: float = 0.5,
    noise: float = 0.0,
    missing: float = 0.0,
    boolean_modes: Sequence[int] | None = None,
    weights: ArrayLike | None = None,
    random_state: Any = None,
) -> Synthetic:
    """Return a random tensor sum_k z_k (x) u_k (x) w_k, z Boolean along one mode, with noise and missing entries.

    The bits of z are Bernoulli(p) and all other columns are standard normal, as in the paper's synthetic data. The same
    seed gives the same atoms for any `noise` and `missing`. Real columns of the truth have norm one.

    Parameters
    ----------
    shape : sequence of int
        The sizes d_1 .. d_N of the modes, N >= 2.
    n_atoms : int or sequence of int
        The number of atoms, assigned to the allowed modes in turn, or the number along each of the N modes.
    p : float
        Probability that a bit is on, 0 < p <= 1. If all bits of an atom are off, a random one is turned on.
    noise, missing : float
        Standard deviation of the normal noise, and the share of the entries of X that are set to NaN.
    boolean_modes : sequence of int, optional
        The modes along which atoms are Boolean, all of them by default. Only allowed if `n_atoms` is one number.
    weights : array_like of shape (K,), optional
        Nonzero factors that multiply the sizes of the atoms. All ones by default.
    random_state : int, Generator or None
        Seed.

    Examples
    --------
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 30, 40), [2, 0, 1], noise=0.1, random_state=0)
    >>> truth
    BooleanCP(20 x 30 x 40, 3 atoms: 2 along mode 0, 0 along mode 1, 1 along mode 2)
    >>> X.shape, round(float((X - clean).std()), 2)
    ((20, 30, 40), 0.1)
    """
    if not all(isinstance(d, int | np.integer) and d >= 1 for d in shape) or len(shape) < 2:
        raise ValueError(f"shape must hold two or more sizes, all integers >= 1, but it is {shape!r}.")
    shape = tuple(int(d) for d in shape)
    modes = _check_modes(shape, n_atoms, boolean_modes)
    weights = np.asarray(np.ones(len(modes)) if weights is None else weights, dtype=float)
    if weights.shape != (len(modes),) or not np.isfinite(weights).all() or not weights.all():
        what = f"one finite nonzero number for each of the {len(modes)} atoms"
        raise ValueError(f"weights must hold {what}, but it is {weights!r}.")
    if not 0 < p <= 1:
        raise ValueError(f"p is the probability that a bit is on and must lie in (0, 1], but it is {p!r}.")
    check_number(noise, "noise")
    if not 0 <= missing < 1:
        raise ValueError(f"missing is the share of missing entries and must lie in [0, 1), but it is {missing!r}.")
    rng = np.random.default_rng(random_state)
    drawn = [_draw(shape, mode, factor, p, rng) for mode, factor in zip(modes, weights, strict=True)]
    truth = sum_of(shape, drawn)
    clean = truth.to_array()
    X = clean + noise * rng.standard_normal(shape) if noise else clean.copy()
    if n_missing := round(missing * X.size):
        X.reshape(-1)[rng.choice(X.size, n_missing, replace=False, shuffle=False)] = np.nan
    return Synthetic(X, clean, truth)


def load_syn(which: int, *, noise: float = 1.0, missing: float = 0.0, random_state: Any = None) -> Synthetic:
    """Return the paper's Syn0, Syn1 or Syn2: 150 x 150 x 150 with 3, 9 or 15 atoms, spread evenly over the modes.

    Parameters
    ----------
    which : {0, 1, 2}
        The number of the data set.
    noise, missing, random_state
        As in `make_boolean_cp`; the paper fixes the distribution, not the tensor.

    Examples
    --------
    >>> boolcp.datasets.load_syn(1, random_state=0).truth
    BooleanCP(150 x 150 x 150, 9 atoms: 3 along mode 0, 3 along mode 1, 3 along mode 2)
    """
    if not isinstance(which, int | np.integer) or which not in range(len(SYN_ATOMS)):
        raise ValueError(f"which must be 0, 1 or 2 for Syn0, Syn1 or Syn2, but it is {which!r}.")
    return make_boolean_cp((150,) * 3, SYN_ATOMS[which], noise=noise, missing=missing, random_state=random_state)


def _draw(shape: Sequence[int], mode: int, factor: float, p: float, rng: np.random.Generator) -> Pattern:
    """Return random bits and real columns of an atom; the factor multiplies the last column."""
    z = rng.random(shape[mode]) < p
    if not z.any():
        z[rng.integers(len(z))] = True
    real = [rng.standard_normal(d) for n, d in enumerate(shape) if n != mode]
    return mode, z, [*real[:-1], factor * real[-1]]


def sum_of(shape: Sequence[int], patterns: Iterable[Pattern], labels: Labels | None = None) -> BooleanCP:
    """Return patterns as a sum of atoms with real columns of norm one; the weights are their sizes."""
    atoms = [Atom(mode, z, tuple(column[:, None] for column in real)) for mode, z, real in patterns]
    return BooleanCP(shape, atoms, np.ones(len(atoms)), labels).rank_one_terms()


def _check_modes(shape: Sequence[int], n_atoms: int | Sequence[int], boolean_modes: Sequence[int] | None) -> list[int]:
    """Return the Boolean mode of each atom."""
    if not isinstance(n_atoms, int | np.integer):
        counts = list(n_atoms)
        if boolean_modes is not None:
            advice = "leave boolean_modes out, or give n_atoms as one number"
            raise ValueError(f"n_atoms already says how many atoms each mode gets: {advice}.")
        if len(counts) != len(shape) or not all(isinstance(count, int | np.integer) and count >= 0 for count in counts):
            what = f"one number, or one number >= 0 for each of the {len(shape)} modes"
            raise ValueError(f"n_atoms must be {what}, but it is {n_atoms!r}.")
        return [mode for mode, count in enumerate(counts) for _ in range(count)]
    if n_atoms < 0:
        raise ValueError(f"n_atoms must be >= 0, but it is {n_atoms!r}.")
    allowed = list(range(len(shape)) if boolean_modes is None else boolean_modes)
    if not allowed or not all(isinstance(mode, int | np.integer) and 0 <= mode < len(shape) for mode in allowed):
        what = f"one or more modes from 0 to {len(shape) - 1}"
        raise ValueError(f"boolean_modes must list {what}, but it is {boolean_modes!r}.")
    return [int(allowed[k % len(allowed)]) for k in range(n_atoms)]
