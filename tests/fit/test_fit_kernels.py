from itertools import combinations

import numpy as np
import pytest

from boolcp import decompose
from boolcp.fit._kernels import descend_bits


def cost(S, q, b):
    return b @ S @ b - 2 * q @ b


@pytest.mark.parametrize("is_symmetric", [True, False])
def test_descent_ends_where_no_flip_of_one_or_two_bits_helps(is_symmetric, rng):
    S = rng.standard_normal((20, 7, 7))
    S = S @ np.swapaxes(S, 1, 2) if is_symmetric else S
    Q, B = rng.standard_normal((20, 7)), (rng.random((20, 7)) < 0.5).astype(float)
    start = sum(map(cost, S, Q, B))
    fall = descend_bits(S, Q, B)
    assert fall == pytest.approx(start - sum(map(cost, S, Q, B)))
    for form, q, b in zip(S, Q, B, strict=True):
        for chosen in [*combinations(range(7), 1), *combinations(range(7), 2)]:
            other = b.copy()
            other[list(chosen)] = 1 - other[list(chosen)]
            assert cost(form, q, other) >= cost(form, q, b) - 1e-9


def test_descent_ends_if_the_form_is_a_rounding_error(rng):
    """Where flips gain nothing but errors, they are no reason to go on."""
    scale = 10.0 ** rng.integers(-14, 8, (400, 1, 1))
    S = rng.standard_normal((400, 11, 11)) * scale
    S -= np.swapaxes(S, 1, 2) * (1 - 1e-15)  # nearly antisymmetric: b'Sb is an error
    B = (rng.random((400, 11)) < 0.5).astype(float)
    descend_bits(S, np.zeros((400, 11)), B)
    assert np.isin(B, (0, 1)).all()


@pytest.mark.slow
def test_more_atoms_than_a_constant_tensor_can_hold():
    """The quadratic form of the bits is a rounding error here, and not symmetric."""
    X = np.ones((3, 3, 3, 3))
    mask = np.random.default_rng(0).random(X.shape) > 0.3
    W = decompose(X, 40, mask=mask, compression=False, random_state=541)
    np.testing.assert_allclose(W.to_tensor()[mask], 1, atol=1e-6)
