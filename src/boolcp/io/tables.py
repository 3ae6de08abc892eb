"""Tables of trials and events: .csv and .tsv files, through pandas."""

from pathlib import Path
from typing import Any

from boolcp.extras import load_extra
from boolcp.io.errors import FileError, check_exists, reading
from boolcp.prepare import add_table, set_events
from boolcp.prepare.tables import ONSETS

MISSING = ["", "n/a", "N/A", "nan", "NaN"]  # not "NA" or "None", which may be conditions

DataArray = Any
DataFrame = Any


def read_table(path: str | Path) -> DataFrame:
    r"""Return a table as a pandas DataFrame: columns separated by commas or semicolons (.csv) or by tabs (.tsv).

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from boolcp.io import read_table
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "trials.csv"
    >>> _ = path.write_text("trial,drug,dose\n0,propofol,1.5\n1,none,\n")
    >>> read_table(path)["drug"].tolist()
    ['propofol', 'none']
    """
    path = Path(check_exists(path))
    if path.suffix.lower() not in (".csv", ".tsv", ".txt"):
        raise FileError(path, f"the ending {path.suffix or '(none)'} is not that of a table", "Use .csv or .tsv.")
    pandas = load_extra("pandas", "labels")
    with reading(path, "table"):
        with path.open(encoding="utf-8-sig") as file:
            head = file.readline()
        separator = max("\t;,", key=head.count)
        options = {"sep": separator, "keep_default_na": False, "na_values": MISSING, "encoding": "utf-8-sig"}
        table = pandas.read_csv(path, skipinitialspace=True, **options)
    if not len(table):
        raise FileError(path, "the table has no rows", "It needs a line of names and one row for each trial.")
    return table


def with_trials(X: DataArray, trials: Any, path: Path) -> DataArray:
    """Return X with a table of trials: coordinates of its trials, or events of a continuous recording."""
    source = path
    if isinstance(trials, str | Path):
        source, trials = Path(trials), read_table(trials)
    names = list(getattr(trials, "columns", trials))
    is_continuous = "time" in X.dims and "trial" not in X.dims
    try:
        if is_continuous and any(name in ONSETS for name in names):
            return set_events(X, trials)
        return add_table(X, trials)
    except (TypeError, ValueError) as error:
        raise FileError(source, str(error).rstrip("."), "Check the table of trials (trials=, --trials).") from error
