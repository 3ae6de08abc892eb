"""What fits or reads the data many times needs them in memory, and says what to do if they are on disk."""

import numpy as np
import pytest

import boolcp
from boolcp import baselines
from boolcp.datasets import make_boolean_cp

da = pytest.importorskip("dask.array")
SHAPE = (24, 40, 30)


def test_functions_that_fit_many_times_refuse_data_on_disk():
    data = make_boolean_cp(SHAPE, 2, noise=0.5, random_state=0)
    array = da.from_array(data.X, chunks=(-1, 10, -1))
    for run in (boolcp.select_n_atoms, boolcp.replication):
        with pytest.raises(MemoryError, match=rf"{run.__name__} fits X many times .* on a part"):
            run(array, 2)
    with pytest.raises(MemoryError, match="assess fits X many times"):
        boolcp.assess(array, data.truth)


def test_maps_of_files_that_fit_are_loaded(tmp_path):
    data = make_boolean_cp((8, 9, 10), 1, noise=0.5, random_state=0)
    np.save(tmp_path / "X.npy", data.X)
    arrays = (np.load(tmp_path / "X.npy", mmap_mode="r"), data.X)
    lazy, plain = (boolcp.replication(X, data.truth, n_parts=1, random_state=0) for X in arrays)
    np.testing.assert_array_equal(lazy.cosine, plain.cosine)


def test_what_loads_a_tensor_that_does_not_fit_gives_an_estimate():
    huge = da.zeros((3000, 10**7, 2000), chunks=(3000, 10, 2000), dtype=np.float32)
    for run in (boolcp.AtomicNorm(1.0).fit, baselines.LFM(2).fit):
        with pytest.raises(MemoryError, match=r"720 TB .*Only BMP"):
            run(huge)
