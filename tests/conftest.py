import hypothesis
import numpy as np
import pytest

hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=40, database=None)
hypothesis.settings.load_profile("fixed")


@pytest.fixture
def rng():
    return np.random.default_rng(20181017)
