"""Try an installed boolcp outside its clone: `make test-extras` runs this with each extra alone."""

import importlib
import sys
from pathlib import Path

# what an extra brings, as modules of boolcp and of other packages that must import with it
BRINGS = {
    "plot": ["boolcp.plotting", "boolcp.report", "matplotlib", "jinja2", "itables"],
    "files": ["boolcp.io", "boolcp.cli", "xarray", "h5py", "h5netcdf", "pymatreader", "zarr", "typer"],
    "dask": ["dask.array", "distributed"],
    "mne": ["mne", "pynwb"],
    "all": ["boolcp.cli", "boolcp.report", "boolcp.baselines", "tensorly"],
}


def main(extra=""):
    import boolcp

    assert "site-packages" in Path(boolcp.__file__).parts, f"{boolcp.__file__} is not an installed package"
    for name in BRINGS.get(extra, []):
        importlib.import_module(name)
    X, _, truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, noise=0.1, random_state=0)
    W = boolcp.decompose(X, 2, random_state=0)
    assert boolcp.metrics.hamming_error(W, truth) == 0.0
    if extra in ("files", "mne", "all"):
        W.save("result.nc", overwrite=True)
        assert boolcp.load("result.nc").n_atoms == 2
    if extra in ("plot", "all"):
        W.plot()
        W.report("report.html", force=True)
    if not extra:
        try:
            W.to_xarray()
        except ImportError as error:
            assert "boolcp[" in str(error), error
        else:
            raise AssertionError("xarray is there without an extra")
    print(f"boolcp {boolcp.__version__} with {extra or 'no extra'}: good")


if __name__ == "__main__":
    main(*sys.argv[1:])
