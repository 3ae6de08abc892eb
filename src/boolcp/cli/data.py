"""The options for reading and preparing data, shared by all commands that read data."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

import boolcp
from boolcp.cli.answers import note
from boolcp.cli.options import REPEATS, option

DataArray = Any
_file, _step = partial(option, panel="Reading"), partial(option, panel="Preparation, in this order")


@dataclass(frozen=True)
class DataOptions:
    """What to read and how to prepare it, as given on the command line."""

    files: Annotated[list[Path], typer.Argument(help="Data: one file, or several sessions.", metavar="FILE...")]
    variable: Annotated[str | None, _file("Array of the file; trial_* reads trials.", "--variable", "-v")] = None
    dims: Annotated[str | None, _file("Names of its modes, e.g. channel,time,trial.", metavar="MODES")] = None
    coord: Annotated[list[str], _file("A coordinate, NAME[:MODE]=ARRAY. Repeatable.")] = field(default_factory=list)
    trials: Annotated[Path | None, _file("Table of trials or events, .csv or .tsv.")] = None
    sampling_rate: Annotated[float | None, _file("Samples per second, if the file does not say.", metavar="HZ")] = None
    events: Annotated[str | None, _file("Count events: names of unit, time (ms), trial. Needs --bin-ms.")] = None
    session: Annotated[str | None, _file("Only this session of a NeuroTycho recording.")] = None
    channels: Annotated[str | None, _file("Only these channels, e.g. 1-62,65 or Fz,Cz.")] = None
    skip_bad: Annotated[bool, _file("Skip NeuroTycho channels that cannot be read.", "--skip-bad")] = False
    electrodes: Annotated[Path | None, _file("Positions of channels, .csv or NeuroTycho map .mat.")] = None
    weights: Annotated[Path | None, _file("A file with a weight for each entry.")] = None
    condition: Annotated[str | None, _step("Only this condition: a label, or COLUMN=LABEL of the trials.")] = None
    drop: Annotated[list[str], _step("Drop labels, e.g. channel=63,64. Repeatable.")] = field(default_factory=list)
    reference: Annotated[str | None, _step("average, or a .csv of bipolar pairs.")] = None
    band: Annotated[str | None, _step("Band-pass, e.g. 8-13 (Hz).", metavar="LOW-HIGH")] = None
    envelope: Annotated[str | None, _step("amplitude, power or log.", words=("amplitude", "power", "log"))] = None
    resample: Annotated[float | None, _step("New sampling rate.", metavar="HZ")] = None
    bin_ms: Annotated[float | None, _step("Length of consecutive trials, or of bins of spikes.", metavar="MS")] = None
    cut: Annotated[str | None, _step("Cut at events: their condition, COLUMN=LABEL, or all.")] = None
    window: Annotated[str | None, _step("Around events, e.g. -200,800ms or -0.2,0.8s.", metavar="START,STOP")] = None
    align: Annotated[str | None, _step("Column of the events that becomes time 0.", metavar="COLUMN")] = None
    reject: Annotated[float | None, _step("Largest plausible peak to peak of a channel in a trial.")] = None
    reject_table: Annotated[Path | None, _step("Table of bad parts, e.g. with columns channel, trial.")] = None
    baseline: Annotated[str | None, _step("Subtract the mean of a time, as -200,0ms.", metavar="START,STOP")] = None
    n_trials: Annotated[int | None, _step("Only the first trials.")] = None
    join: Annotated[str | None, _step("Join files along this mode, not as sessions.", metavar="MODE")] = None
    names: Annotated[str | None, _step("Names of the joined files, e.g. awake,asleep.")] = None
    log: Annotated[bool, _step("Decimal logarithm of all entries.", "--log")] = False
    center: Annotated[str | None, _step("Subtract the mean along this mode.", metavar="MODE")] = None
    zscore: Annotated[bool, _step("Scale each channel to mean 0 and standard deviation 1.", "--zscore")] = False


def load_weights(options: DataOptions, X: DataArray) -> dict[str, Any]:
    """Return the weights that the options name, as `fit` takes them."""
    if options.weights is None:
        from boolcp.sessions import session_weights

        is_joined = len(options.files) > 1 and options.join is None
        return {"weights": boolcp.result.labels.align(session_weights(X), X, partial=True)} if is_joined else {}
    weights, name = boolcp.open_tensor(options.weights), f"--weights {options.weights}"
    is_named = set(weights.dims) <= set(X.dims)
    return {"weights": boolcp.result.labels.align(weights, X, name=name, partial=True) if is_named else weights.data}


def load_data(options: DataOptions, *, is_fitted: bool = True) -> DataArray:
    """Return the tensor that the options describe, and print its sizes; `is_fitted` says that a fit comes next."""
    X = _scaled(_joined([_signals(_read(path, options), options) for path in options.files], options), options)
    missing = float(X.isnull().mean()) if X.chunks is None else 0.0
    others = f" and {len(options.files) - 1} more" if len(options.files) > 1 else ""
    gaps = f", {100 * missing:.1f} % missing" if missing else ""
    note(f"{options.files[0]}{others}: {boolcp.io.reading.sizes_text(X)}{gaps}")
    if X.attrs.get("left_out"):
        note(f"Channels marked as bad are left out: {', '.join(map(str, X.attrs['left_out']))}.")
    for line in boolcp.prepare.common.outlier_lines(X):
        note(f"{line} Leave them out with --drop channel=.., if they are bad.")
    if is_fitted and X.ndim == 2 and "time" in X.dims:
        known = sorted({str(label) for label in boolcp.prepare.list_events(X).get("condition", [])})
        events = f", or at its events with --cut ({', '.join([*known[:5], 'all'])})" if known else ""
        sizes = " x ".join(f"{size} {dim}" for dim, size in X.sizes.items())
        text = f"The recording is continuous, {sizes}: a matrix without trials, of which atoms say little. Cut it into"
        warnings.warn(f"{text} trials, for example with --bin-ms 3000{events}.", boolcp.BoolcpWarning, stacklevel=2)
    return X


def _read(path: Path, options: DataOptions) -> DataArray:
    """Return the data of a file."""
    same = ("variable", "sampling_rate", "condition", "session", "skip_bad", "electrodes")
    given = {name: getattr(options, name) for name in same} | {"dims": _names(options.dims)}
    coords: dict[str, Any] = {}
    for name, source in (_pair(text, "--coord") for text in options.coord):
        name, _, mode = name.partition(":")
        coords[name] = (mode, source) if mode else source
    channels = None if options.channels is None else label_list(options.channels)
    given |= {"coords": coords or None, "events": _names(options.events), "channels": channels}
    given["trials"] = options.trials if len(options.files) == 1 else None
    if path.suffix.lower() == ".nwb":
        given |= {"window_ms": _window(options.window), "align": options.align}
    if options.events or "align" in given:
        given["bin_ms"] = options.bin_ms
    return boolcp.open_tensor(path, progress=True, **given)


def _signals(X: DataArray, options: DataOptions) -> DataArray:
    """Return a recording after the preparation steps that apply to each file."""
    prepare = boolcp.prepare
    for text in options.drop:
        X = _drop(X, *_pair(text, "--drop"))
    if options.reference == "average":
        X = prepare.common_average(X)
    elif options.reference is not None:
        X = prepare.bipolar(X, boolcp.io.coordinates.read_pairs(options.reference))
    steps: list[tuple[Any, Callable[..., Any]]] = [
        (options.band, lambda X, text: prepare.band_pass(X, *_span(text, "--band", "8-13 (Hz)", separator="-"))),
        (options.envelope, prepare.envelope),
        (options.resample, prepare.resample),
        (options, _cut),
        (options.reject, lambda X, limit: prepare.reject(X, peak_to_peak=limit)),
        (options.reject_table, lambda X, path: prepare.reject(X, table=boolcp.io.read_table(path))),
        (options.baseline, lambda X, text: prepare.baseline(X, *_span(text, "--baseline", "-0.2,0s", "s"))),
    ]
    for value, step in steps:
        X = X if value is None else step(X, value)
    return X


def _drop(X: DataArray, dim: str, labels: str) -> DataArray:
    """Return X without these labels of a mode."""
    prepare = boolcp.prepare
    Y = X.drop_isel({dim: prepare.choose.positions(X, dim, label_list(labels))})
    if not Y.sizes[dim]:
        raise ValueError(f"--drop {dim}={labels}: nothing is left of mode {dim!r}.")
    return prepare.common.noted(Y, X, f"drop {dim} {labels}")


def _cut(X: DataArray, options: DataOptions) -> DataArray:
    """Return a recording cut into trials as requested: consecutive, at events, or not at all."""
    prepare, n_trials, is_signal = boolcp.prepare, options.n_trials, "unit" not in X.dims
    has_events = bool(prepare.list_events(X)) and (options.trials is not None or options.window is not None)
    events = options.cut or ("all" if has_events and "trial" not in X.dims and not options.bin_ms else None)
    if options.bin_ms and options.cut:
        raise ValueError("--bin-ms cuts into consecutive trials, --cut at events: give one of the two.")
    if events is not None:
        return prepare.cut_trials(X, _window(options.window), events=events, align=options.align, n_trials=n_trials)
    if options.bin_ms and not options.events and is_signal:
        return prepare.cut_trials(X, options.bin_ms, n_trials=n_trials)
    if (options.window or options.align) and is_signal:
        raise ValueError("--window and --align are for cutting at events: the data have none (--trials, --cut).")
    if not n_trials:
        return X
    prepare.common.need_mode(X, "trial", "--n-trials")
    note = f"select the first {n_trials} of {X.sizes['trial']} trials"
    return X if n_trials >= X.sizes["trial"] else prepare.common.noted(X.isel(trial=slice(n_trials)), X, note)


def _joined(arrays: list[DataArray], options: DataOptions) -> DataArray:
    """Return the data of several files as one."""
    if len(arrays) == 1:
        return arrays[0]
    over = [str(dim) for dim in arrays[0].dims if dim in REPEATS]
    if options.join is None and not over:
        raise ValueError(f"{len(arrays)} files without trials: say along which mode to join them (--join state).")
    names = _names(options.names) or tuple(path.name.partition(".")[0] for path in options.files)
    if len(names) != len(arrays):
        raise ValueError(f"--names has {len(names)} names for {len(arrays)} files: give one for each.")
    X = boolcp.prepare.join(arrays, options.join or over[0], names, is_sessions=options.join is None)
    return X if options.trials is None else boolcp.io.coordinates.with_trials(X, options.trials, options.files[0])


def _scaled(X: DataArray, options: DataOptions) -> DataArray:
    """Return the tensor after the steps that apply to all files."""
    import numpy as np

    from boolcp.prepare.common import floating, need_mode, noted

    if options.log:
        if n_bad := int((X <= 0).sum()):
            raise ValueError(f"--log needs positive entries, but {n_bad} are not (for an envelope use --envelope log).")
        X = noted(np.log10(floating(X)), X, "log10", "log10 {}")
    if options.center:
        need_mode(X, options.center, "--center")
        X = noted(floating(X) - floating(X).mean(options.center), X, f"center along {options.center}")
    return boolcp.prepare.zscore(X, "channel" if "channel" in X.dims else X.dims[0]) if options.zscore else X


def label_list(text: str) -> list[str]:
    """Return the labels of a list such as 1-3,7,Fz."""
    labels = []
    for part in filter(None, map(str.strip, text.split(","))):
        first, _, last = part.partition("-")
        is_range = first.isdigit() and last.isdigit()
        labels += [str(n) for n in range(int(first), int(last) + 1)] if is_range else [part]
    return labels


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name.strip() for name in text.split(","))


def _pair(text: str, option: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not name or not value:
        raise ValueError(f"{option} takes NAME=VALUE, got {text!r}.")
    return name.strip(), value.strip()


def _window(text: str | None) -> tuple[float, float] | None:
    start, stop = (0.0, 0.0) if text is None else _span(text, "--window", "-200,800ms", "ms")
    if start is None or stop is None:
        raise ValueError(f"--window takes two numbers such as -200,800ms, got {text!r}.")
    return None if text is None else (start, stop)


def _span(
    text: str, option: str, example: str, unit: str = "", separator: str = ","
) -> tuple[float | None, float | None]:
    """Return two numbers, either of which may be omitted; times must say their unit, ms or s."""
    given = next((name for name in ("ms", "s") if unit and text.endswith(name)), "")
    scale = {("ms", "s"): 1e-3, ("s", "ms"): 1e3}.get((given, unit), 1.0)
    try:
        edges = text.removesuffix(given).split(separator)
        low, high = (scale * float(edge) if edge.strip() else None for edge in edges)
    except ValueError:
        raise ValueError(f"{option} takes two numbers such as {example}, got {text!r}.") from None
    if unit and not given and (low or high):
        raise ValueError(f"{option} {text} may mean ms or s: write the unit, as in {text}ms or {text}s.")
    return low, high
