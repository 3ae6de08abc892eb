import naive
import pytest

from boolcp.maxcut import maximize_boolean_quadratic, maximize_boolean_rayleigh

SOLVERS = [(maximize_boolean_quadratic, False), (maximize_boolean_rayleigh, True)]


@pytest.mark.parametrize(("solve", "is_ratio"), SOLVERS)
def test_equals_the_best_of_all_vectors(solve, is_ratio, rng):
    for seed in range(100):
        d = int(rng.integers(1, 13))
        X = rng.standard_normal((d, int(rng.integers(1, 2 * d + 1))))
        optimum, _ = naive.best_boolean(X @ X.T, is_ratio)
        result = solve(X @ X.T, random_state=seed)
        assert result.value == pytest.approx(optimum, rel=1e-10)
        assert result.bound >= optimum
        assert result.z.any()
