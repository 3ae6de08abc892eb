"""What becomes of a decomposition: tables, a file, pictures, a report; the rooms above are fetched when called."""

from boolcp.result import labels


def to_xarray(W):
    """Return the decomposition as an xarray Dataset with the dims and coordinates of its tensor.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, noise=0.1, random_state=0)
    >>> W = boolcp.decompose(X, 2, random_state=0)
    >>> sorted(W.to_xarray().data_vars)[:3]
    ['alone', 'boolean_mode', 'certificate']
    >>> W.to_xarray()["factor_mode0"].shape
    (8, 2)
    """
    return labels.to_xarray(W)


def to_dataframe(W):
    """Return one row for each atom as a pandas DataFrame.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, noise=0.1, random_state=0)
    >>> W = boolcp.decompose(X, 2, random_state=0)
    >>> W.to_dataframe().columns.tolist()
    ['boolean_mode', 'n_ones', 'size', 'rank', 'weight', 'certificate', 'alone', 'unique']
    """
    return labels.to_dataframe(W)


def save(W, path, *, overwrite=False):
    """Save the decomposition in one netCDF file, which `boolcp.load` reads.

    Examples
    --------
    >>> import tempfile, boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, noise=0.1, random_state=0)
    >>> W = boolcp.decompose(X, 2, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     W.save(f"{folder}/result.nc")
    ...     boolcp.load(f"{folder}/result.nc")
    BooleanCP(8 x 9 x 10, 2 atoms: 1 along mode 0, 1 along mode 1, 0 along mode 2, explained 0.9870)
    """
    from boolcp.io.results import save

    save(W, path, overwrite=overwrite)


def plot(W, atoms=None):
    """Draw all atoms, or those listed, and return the matplotlib Figure: one row for each, one column per mode.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, noise=0.1, random_state=0)
    >>> W = boolcp.decompose(X, 2, random_state=0)
    >>> len(W.plot().axes) >= 6  # two atoms, three modes
    True
    """
    from boolcp.plotting import plot_atoms

    return plot_atoms(W, atoms)


def report(W, path, *, force=False):
    """Write one self-contained HTML page on the decomposition.

    Examples
    --------
    >>> import tempfile, boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, noise=0.1, random_state=0)
    >>> W = boolcp.decompose(X, 2, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     W.report(f"{folder}/report.html")
    ...     "<html" in open(f"{folder}/report.html", encoding="utf-8").read()
    True
    """
    from boolcp.report import write_report

    write_report(W, path, force=force)
