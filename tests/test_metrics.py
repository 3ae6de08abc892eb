from itertools import permutations

import naive
import numpy as np
import pytest
from samples import random_decomposition

from boolcp.datasets import make_boolean_cp
from boolcp.metrics import factor_match_score, hamming_error, rmse
from boolcp.result.atoms import Atom, BooleanCP

SHAPE = (6, 7, 8)


def cosine(first, second):
    a, b = naive.atom(first).ravel(), naive.atom(second).ravel()
    return abs(a @ b) / np.linalg.norm(a) / np.linalg.norm(b)


def test_rmse_of_arrays_and_decompositions_leaves_missing_entries_out(rng):
    W = random_decomposition(SHAPE, "rank two", rng)
    Y = naive.tensor(W)
    assert rmse(W, Y) == pytest.approx(0, abs=1e-12)
    Y[0, 0, 0] += 3 * np.sqrt(Y.size)
    assert rmse(W, Y) == rmse(Y, W) == pytest.approx(3)
    assert rmse([[1, 2], [3, 4]], np.array([[1, 2], [3, 0]])) == 2
    X, Y = np.array([[1.0, np.nan], [5.0, 0.0]]), np.array([[2.0, 9.0], [np.nan, 1.0]])
    assert rmse(X, Y) == 1
    with pytest.raises(ValueError, match="every entry is NaN"):
        rmse(np.full((2, 2), np.nan), np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"same shape, but they have \(6, 7, 8\) and \(6, 7, 1\)"):
        rmse(random_decomposition(SHAPE, "block", rng), np.zeros((6, 7, 1)))


@pytest.mark.parametrize("counts", [([2, 3, 0], [2, 3, 0]), ([3, 1, 2], [1, 3, 0]), ([4, 0, 0], [2, 2, 2])])
def test_hamming_error_is_that_of_the_best_permutation(counts, rng):
    for _ in range(10):
        estimate, truth = (make_boolean_cp(SHAPE, n, random_state=rng).truth for n in counts)
        wrong = 0.0
        for mode, d in enumerate(SHAPE):
            true = [atom.z for atom in truth.atoms if atom.mode == mode]
            found = [atom.z for atom in estimate.atoms if atom.mode == mode]
            if true and found:
                wrong += naive.best_matching(np.array([[(a != b).sum() for b in found] for a in true]))
            wrong += d / 2 * max(len(true) - len(found), 0)
        assert hamming_error(estimate, truth) == pytest.approx(wrong / sum(len(a.z) for a in truth.atoms))


def test_hamming_error_counts_bits_of_columns_and_blocks(rng):
    truth = make_boolean_cp((10, 5, 5), [2, 0, 0], random_state=0).truth
    z = np.array(truth.atoms[1].z)
    z[[0, 4, 7]] ^= True
    other = BooleanCP(truth.shape, (Atom(0, z, truth.atoms[1].factors), truth.atoms[0]), [1.0, 1.0])
    assert hamming_error(truth, truth) == 0
    assert hamming_error(other, truth) == 3 / 20
    assert hamming_error(truth[:0], truth) == 0.5
    assert hamming_error(truth, truth[:1]) == 0  # an atom in excess costs nothing
    W = random_decomposition(SHAPE, "mixed", rng)
    assert hamming_error(W[::-1], W) == 0


@pytest.mark.parametrize("sizes", [(4, 4), (2, 4), (5, 3)])
@pytest.mark.parametrize("kind", ["rank one", "block"])
def test_factor_match_score_is_that_of_the_best_permutation(sizes, kind, rng):
    for _ in range(5):
        estimate, truth = (random_decomposition(SHAPE, kind, rng, n_atoms=n) for n in sizes)
        cosines = np.array([[cosine(a, b) for b in truth.atoms] for a in estimate.atoms])
        best = -naive.best_matching(-cosines) / max(sizes)
        assert factor_match_score(estimate, truth) == pytest.approx(best)
        assert factor_match_score(truth, estimate) == pytest.approx(best)


def test_factor_match_score_is_one_up_to_order_and_sign(rng):
    W = random_decomposition(SHAPE, "rank one", rng)
    turned = BooleanCP(SHAPE, W.atoms[::-1], -3 * W.weights[::-1])
    assert factor_match_score(turned, W) == pytest.approx(1)
    assert factor_match_score(W[:3], W) == pytest.approx(3 / W.n_atoms)


def test_a_cp_pair_scores_by_the_product_of_cosines(rng):
    A, B = ([rng.standard_normal((d, 3)) for d in SHAPE] for _ in range(2))

    def score(order):
        pairs = [(a[:, k], b[:, j]) for k, j in enumerate(order) for a, b in zip(A, B, strict=True)]
        cosines = [abs(a @ b) / np.linalg.norm(a) / np.linalg.norm(b) for a, b in pairs]
        return sum(np.prod(cosines[3 * k : 3 * k + 3]) for k in range(3)) / 3

    best = max(score(order) for order in permutations(range(3)))
    assert factor_match_score((None, A), (np.array([1.0, 2.0, 3.0]), B)) == pytest.approx(best)
    W = random_decomposition(SHAPE, "rank one", rng)
    assert factor_match_score((np.ones(W.n_atoms), W.factors), W) == pytest.approx(1)


def test_metrics_say_what_does_not_fit(rng):
    W = random_decomposition(SHAPE, "rank one", rng)
    other = random_decomposition((6, 7), "rank one", rng)
    pairs, block = [np.ones((d, 1)) for d in SHAPE], random_decomposition(SHAPE, "block", rng)
    for metric, estimate, truth, error, words in (
        (hamming_error, other, W, ValueError, "same shape"),
        (factor_match_score, other, W, ValueError, "same shape"),
        (hamming_error, W, W[:0], ValueError, "truth has no atoms"),
        (factor_match_score, W[:0], W[:0], ValueError, "no atoms"),
        (hamming_error, np.zeros(SHAPE), W, TypeError, "estimate must be a BooleanCP"),
        (factor_match_score, (None, [np.ones((2, 1))] * 3), W, ValueError, "equal sizes"),
        (factor_match_score, (None, pairs), block, ValueError, "not of rank one"),
    ):
        with pytest.raises(error, match=words):
            metric(estimate, truth)
