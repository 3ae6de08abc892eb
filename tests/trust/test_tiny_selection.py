"""Selection on data so small that a split has hardly anything to fit or to judge."""

import warnings

import numpy as np
import pytest

from boolcp.trust.selection import random_half, select_n_atoms


@pytest.mark.parametrize(
    ("shape", "mode"), [((1, 4), -1), ((2, 2), 0), ((3, 2, 1), 1), ((2, 1, 3), 0), ((3, 2, 3, 2), 3), ((4, 3), -1)]
)
@pytest.mark.parametrize("kind", ["noise", "ones", "zeros", "gaps", "one slab"])
def test_slabs_of_tiny_data(shape, mode, kind, rng):
    """Each of these is selected from, or refused with what to do; before, some ended in an IndexError or TypeError."""
    X = {"ones": np.ones(shape), "zeros": np.zeros(shape)}.get(kind, rng.standard_normal(shape))
    if kind == "gaps":
        X[rng.random(shape) < 0.4] = np.nan
    if kind == "one slab":
        np.moveaxis(X, mode, 0)[1:] = 0
    for seed, held_out in enumerate((0.1, 0.5, 0.9)):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # that the choice is the largest, or slices are empty
                options = {"mode": mode, "held_out": held_out, "random_state": seed, "n_init": 1, "max_iter": 5}
                found = select_n_atoms(X, 2, splits=3, scheme="slabs", **options)
        except ValueError as error:
            assert "needs two or more slabs with two or more observed entries each" in str(error)
            n_known = np.isfinite(X).sum(axis=tuple(n for n in range(X.ndim) if n != mode % X.ndim))
            assert np.sum(n_known >= 2) < 2
        else:
            assert np.isfinite(found.errors).all() and 0 <= found.n_atoms <= 2


def test_a_last_mode_of_size_one_has_no_slabs_to_hold_out(rng):
    with pytest.raises(ValueError, match=r"along mode 2 needs two or more slabs .*there are 1: hold out slabs along"):
        select_n_atoms(rng.standard_normal((4, 5, 1)), 2, scheme="slabs")
    with pytest.raises(ValueError, match="two or more observed entries"):
        select_n_atoms(np.ones((1, 1)), 1)


def test_each_held_out_slab_gives_and_keeps_entries(rng):
    known = rng.random((6, 3, 4)) < 0.4
    known[:, 0, :2] = True
    for mode in range(3):
        for _ in range(20):
            given = random_half(known, mode, rng)
            others = tuple(n for n in range(3) if n != mode)
            assert not (given & ~known).any()
            several = known.sum(axis=others) >= 2
            assert given.any(axis=others)[several].all() and (known & ~given).any(axis=others)[several].all()
