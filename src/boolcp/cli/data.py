"""The options that say which data a command takes and how it is prepared, shared by all commands that read data."""

import functools
import inspect
import sys
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

import typer

READ, PREPARE = "Reading", "Preparation, in this order"


def _option(*names, text, panel):
    return typer.Option(*names, help=text, rich_help_panel=panel, show_default=False)


@dataclass(frozen=True)
class DataOptions:
    """What to read and how to prepare it, as given on the command line."""

    files: Annotated[list[Path], typer.Argument(help="Data: one file, or several to join.", show_default=False)]
    variable: Annotated[str | None, _option("--variable", "-v", text="Which array of the file.", panel=READ)] = None
    dims: Annotated[str | None, _option("--dims", text="Names of its modes, e.g. channel,time,trial.", panel=READ)] = (
        None
    )
    coord: Annotated[
        list[str],
        _option("--coord", text="Coordinates of a mode from another array, e.g. freq=f_axis. Repeatable.", panel=READ),
    ] = field(default_factory=list)
    sampling_rate: Annotated[
        float | None, _option("--sampling-rate", text="Samples per second, if the file does not say.", panel=READ)
    ] = None
    events: Annotated[
        str | None,
        _option("--events", text="Count events: names of unit, time (ms), trial. Needs --bin-ms.", panel=READ),
    ] = None
    session: Annotated[
        str | None, _option("--session", text="Only this session of a NeuroTycho recording.", panel=READ)
    ] = None
    channels: Annotated[
        str | None, _option("--channels", text="Only these channels, e.g. 1-62,65 or Fz,Cz.", panel=READ)
    ] = None
    skip_bad: Annotated[bool, _option("--skip-bad", text="Go on without channels that cannot be read.", panel=READ)] = (
        False
    )
    electrodes: Annotated[
        Path | None, _option("--electrodes", text="Positions of electrodes, .csv or NeuroTycho map .mat.", panel=READ)
    ] = None
    condition: Annotated[str | None, _option("--condition", text="Only this condition.", panel=PREPARE)] = None
    drop: Annotated[
        list[str], _option("--drop", text="Leave labels out, e.g. channel=63,64. Repeatable.", panel=PREPARE)
    ] = field(default_factory=list)
    reference: Annotated[
        str | None, _option("--reference", text="average, or a .csv of bipolar pairs.", panel=PREPARE)
    ] = None
    notch: Annotated[float | None, _option("--notch", text="Remove the line frequency (Hz).", panel=PREPARE)] = None
    band: Annotated[str | None, _option("--band", text="Band-pass, e.g. 8-13 (Hz).", panel=PREPARE)] = None
    envelope: Annotated[str | None, _option("--envelope", text="Envelope: amplitude, power or log.", panel=PREPARE)] = (
        None
    )
    resample: Annotated[float | None, _option("--resample", text="New sampling rate (Hz).", panel=PREPARE)] = None
    bin_ms: Annotated[
        float | None, _option("--bin-ms", text="Cut into trials of so many milliseconds.", panel=PREPARE)
    ] = None
    n_trials: Annotated[int | None, _option("--n-trials", text="Only the first trials.", panel=PREPARE)] = None
    join: Annotated[
        str | None, _option("--join", text="Join several files along this mode, new or not.", panel=PREPARE)
    ] = None
    log: Annotated[bool, _option("--log", text="Decimal logarithm of all entries.", panel=PREPARE)] = False
    center: Annotated[str | None, _option("--center", text="Subtract the mean along this mode.", panel=PREPARE)] = None
    zscore: Annotated[bool, _option("--zscore", text="Mean 0 and deviation 1 per channel.", panel=PREPARE)] = False


def takes_data(command):
    """Give a command whose first parameter is a DataOptions all its options, for typer to read."""
    own = list(inspect.signature(command).parameters.values())[1:]
    shared = [_parameter(item) for item in fields(DataOptions)]

    @functools.wraps(command)
    def wrapper(**given):
        options = DataOptions(**{item.name: given.pop(item.name) for item in shared})
        return command(options, **given)

    parameters = [shared[0], *own, *shared[1:]]
    wrapper.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    )
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    del wrapper.__wrapped__
    return wrapper


def _parameter(item):
    default: Any = inspect.Parameter.empty
    if item.name != "files":
        default = item.default_factory() if callable(item.default_factory) else item.default
    return inspect.Parameter(item.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=item.type)


def load_data(options):
    """Return the tensor that the options describe, as a DataArray."""
    from boolcp import prepare

    arrays = [_signals(_read(path, options), options) for path in options.files]
    if len(arrays) > 1 and options.join is None:
        raise ValueError(f"{len(arrays)} files were given: say along which mode to join them (--join trial).")
    names = [path.name.partition(".")[0] for path in options.files]
    X = arrays[0] if len(arrays) == 1 else prepare.join(arrays, options.join, names)
    if options.log:
        X = prepare.log10(X)
    if options.center:
        X = prepare.center(X, options.center)
    if options.zscore:
        X = prepare.zscore(X, "channel" if "channel" in X.dims else X.dims[0])
    return X


def _read(path, options):
    """Return the data of a file; in a terminal, ask which array is meant if that is not clear."""
    from boolcp.io.errors import ChoiceError

    try:
        return _open(path, options, options.variable)
    except ChoiceError as error:
        if not sys.stdin.isatty():
            raise
        typer.echo(f"{path} {error.problem}: {', '.join(error.choices)}", err=True)
        return _open(path, options, typer.prompt("Which one", default=error.choices[0], err=True))


def _open(path, options, variable):
    from boolcp.io import open_tensor

    return open_tensor(
        path,
        variable=variable,
        dims=_names(options.dims),
        coords=dict(_pair(text, "--coord") for text in options.coord) or None,
        sampling_rate=options.sampling_rate,
        events=_names(options.events),
        bin_ms=options.bin_ms if options.events else None,
        condition=options.condition,
        session=options.session,
        channels=None if options.channels is None else label_list(options.channels),
        skip_bad=options.skip_bad,
        electrodes=options.electrodes,
        progress=True,
    )


def _signals(X, options):
    """Return a recording after the steps that are done file by file."""
    from boolcp import prepare

    for text in options.drop:
        dim, labels = _pair(text, "--drop")
        X = prepare.drop(X, dim, label_list(labels))
    if options.reference == "average":
        X = prepare.common_average(X)
    elif options.reference:
        from boolcp.io.electrodes import read_pairs

        X = prepare.bipolar(X, read_pairs(options.reference))
    if options.notch:
        X = prepare.notch(X, options.notch)
    if options.band:
        X = prepare.band_pass(X, *_band(options.band))
    if options.envelope:
        X = prepare.envelope(X, options.envelope)
    if options.resample:
        X = prepare.resample(X, options.resample)
    if options.bin_ms and not options.events:
        X = prepare.cut_trials(X, options.bin_ms, n_trials=options.n_trials)
    elif options.n_trials:
        X = X.isel(trial=slice(options.n_trials))
    return X


def label_list(text):
    """Return the labels of a list such as 1-3,7,Fz.

    Examples
    --------
    >>> from boolcp.cli.data import label_list
    >>> label_list("1-3,7,Fz")
    ['1', '2', '3', '7', 'Fz']
    """
    labels = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit() and last.isdigit():
            labels += [str(n) for n in range(int(first), int(last) + 1)]
        elif part.strip():
            labels.append(part.strip())
    return labels


def _names(text):
    return None if text is None else tuple(name.strip() for name in text.split(","))


def _pair(text, option):
    name, _, value = text.partition("=")
    if not name or not value:
        raise ValueError(f"{option} takes NAME=VALUE, got {text!r}.")
    return name.strip(), value.strip()


def _band(text):
    """Return the edges of a band given as 8-13, 8- or -13."""
    low, _, high = text.partition("-")
    try:
        return float(low) if low else None, float(high) if high else None
    except ValueError:
        raise ValueError(f"--band takes two numbers of Hz such as 8-13, got {text!r}.") from None
