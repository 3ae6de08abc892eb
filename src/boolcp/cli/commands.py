"""The commands, in the order of use: each calls one function of the library."""

from pathlib import Path
from typing import Annotated, Any

import typer

from boolcp._version import __version__
from boolcp.cli.answers import answer
from boolcp.cli.data import DataOptions
from boolcp.cli.options import Atoms, Force, Grouped, Jobs, Json, ModelOptions, model_option, option, takes_options

EXAMPLES = """Decompose a tensor into atoms that are exactly on or off along one mode.

\b
  boolcp demo                                     all steps on a simulated recording
  boolcp info data.mat                            what is in a file
  boolcp fit data.npy -k 10 -o result             decompose it
  boolcp fit epochs-epo.fif -k 6 -o result        MNE epochs with their conditions
  boolcp fit recording.zip --condition Anesthetized --reference average --resample 100 --bin-ms 3000 -k 10
  boolcp info result                              what was found
  boolcp report result                            the same as a page with plots
  boolcp transform result new.npy -o new.csv      which atoms are on in new trials

Exit codes: 0 done, 1 a bug, 2 wrong input, 130 stopped by Ctrl-C.
"""

app = typer.Typer(
    help=EXAMPLES,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)

ResultPath = Annotated[
    Path, typer.Argument(metavar="RESULT", help="A folder that fit wrote, or a saved result, .nc.", show_default=False)
]
Table = Annotated[Path | None, option("Write the table, .csv.", "--out", "-o")]
Tensor = Annotated[Path, option("The new file, .nc or .npy.", "--out", "-o")]


def _version(is_asked: bool) -> None:
    if is_asked:
        print(f"boolcp {__version__}")
        raise typer.Exit


@app.callback()
def boolcp(
    version: Annotated[bool, option("Print the version.", "--version", callback=_version, is_eager=True)] = False,
    debug: Annotated[bool, option("Show the full traceback of an error.", "--debug")] = False,
) -> None:
    """Accept the options of all commands; --debug is handled in `main`."""


@app.command(short_help="Run all steps on a simulated recording.")
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the demo.")] = Path("boolcp-demo"),
    seed: Annotated[int, typer.Option(help="Equal seeds give equal results.")] = 0,
    force: Force = False,
) -> None:
    """Simulate a recording, write it to files, read them, prepare, decompose, save and report."""
    from boolcp.cli.demo import run_demo

    run_demo(out, seed=seed, is_forced=force)


@app.command(short_help="Describe a data file, a recording or a result.")
def info(
    file: Annotated[Path, typer.Argument(help="A data file, a recording, or a result.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Describe a data file, a recording or a saved result."""
    from boolcp.cli.answers import describe

    lines, values = describe(file)
    answer("\n".join(lines), values, as_json=as_json)


@app.command(short_help="Read, prepare and write a tensor to one file.", cls=Grouped)
@takes_options
def convert(data: DataOptions, out: Tensor, force: Force = False, as_json: Json = False) -> None:
    """Read and prepare data and write the tensor to one file, .nc (with labels) or .npy."""
    from boolcp.cli.applying import run_convert

    run_convert(data, out, is_forced=force, as_json=as_json)


@app.command(short_help="Choose the number of atoms by the error on held-out data.", cls=Grouped)
@takes_options
def select(
    model: ModelOptions,
    data: DataOptions,
    max_atoms: Annotated[int, model_option("Largest number to try.")] = 10,
    splits: Annotated[int, typer.Option(help="Random splits.")] = 5,
    scheme: Annotated[str, typer.Option(help="Hold out entries, or slabs of the last mode.")] = "entries",
    jobs: Jobs = 1,
    out: Table = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Choose the number of atoms by the error on held-out data.

    \b
    Example:
      boolcp select data.nc --max-atoms 15 --jobs 4 -o errors.csv
    """  # noqa: D301
    from boolcp.cli.testing import run_select

    options = {"max_atoms": max_atoms, "splits": splits, "scheme": scheme, "n_jobs": jobs}
    run_select(data, model, out, is_forced=force, as_json=as_json, **options)


@app.command(short_help="Decompose the data and save the result in a folder.", cls=Grouped)
@takes_options
def fit(
    model: ModelOptions,
    data: DataOptions,
    n_atoms: Annotated[str, model_option("Number of atoms, or auto for that of select.", "--n-atoms", "-k")] = "10",
    out: Annotated[Path | None, option("Folder of the result.", "--out", "-o")] = None,
    assess: Annotated[bool, option("Test whether atoms are more than noise and come back.", "--assess")] = False,
    test: Annotated[list[str], option("Test the atoms against this column of the trials. Repeatable.")] = [],  # noqa: B006
    blocks: Annotated[str | None, option("Compare trials only within groups of this column (sessions).")] = None,
    checkpoint: Annotated[Path | None, option("File for the progress; resume from it if it exists.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Decompose the data and save the result in a folder.

    The folder holds decomposition.nc (the result, for boolcp.load and xarray), summary.csv (one row for each atom) and
    fit.log (parameters and versions). Ctrl-C abandons the present step and saves what was found before it.

    \b
    Examples:
      boolcp fit data.npy -k 10 -o result
      boolcp fit data.npy --dims channel,time,trial --trials trials.csv --test drug --assess -k 5
      boolcp fit eeg.mat -v y --dims time,channel --sampling-rate 250 --bin-ms 3000 -k 5
      boolcp fit awake.npz asleep.npz -v psd --dims channel,freq --join state --log --center state -k 4
      boolcp fit raw.fif --cut go --window -200,800ms --reject 150 -k 6 --boolean-modes trial
      boolcp fit spikes.npz --events neuron,time,trial --bin-ms 20 -k 8 --loss poisson
      boolcp fit large.npy -k 40 -o result --checkpoint large.ckpt
    """  # noqa: D301
    from boolcp.cli.fitting import run_fit

    tests: dict[str, Any] = {"is_assessed": assess, "tested": test, "blocks": blocks}
    saving: dict[str, Any] = {"checkpoint": checkpoint, "is_forced": force, "as_json": as_json}
    raise typer.Exit(run_fit(data, model, n_atoms, out, **tests, **saving))


@app.command(short_help="Test how often atoms come back in other fits.", cls=Grouped)
@takes_options
def stability(
    model: ModelOptions,
    data: DataOptions,
    n_atoms: Atoms = 10,
    result: Annotated[Path | None, option("Test the atoms of this saved result instead of those of a new fit.")] = None,
    scheme: Annotated[str, typer.Option(help="Fits to halves, to bootstrap samples, or with other seeds.")] = "halves",
    runs: Annotated[int, typer.Option(help="Number of other fits; for halves, of halvings with two each.")] = 5,
    jobs: Jobs = 1,
    out: Table = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Test how often each atom comes back in other fits, along the last mode.

    \b
    Example:
      boolcp stability data.nc --result result --scheme bootstrap -o stability.csv
    """  # noqa: D301
    from boolcp.cli.testing import run_stability

    options = {"scheme": scheme, "n_runs": runs, "n_jobs": jobs}
    run_stability(data, model, n_atoms, result=result, out=out, is_forced=force, as_json=as_json, **options)


@app.command(short_help="Write a saved result as one HTML page.")
def report(result: ResultPath, force: Force = False, as_json: Json = False) -> None:
    """Write a saved result as one HTML page with plots, report.html in its folder; it opens offline."""
    from boolcp.cli.folders import run_report

    path = run_report(result, is_forced=force)
    answer(str(path), {"path": path}, as_json=as_json)


@app.command(short_help="Apply a saved result to new trials.", cls=Grouped)
@takes_options
def transform(
    result: ResultPath,
    data: DataOptions,
    out: Annotated[Path, option("A table, .csv or .tsv, or .nc.", "--out", "-o")],
    mode: Annotated[str | None, option("The mode with new entries; by default trial, or the last.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Apply a saved result to new data: which atoms are on in each new trial, or how strong they are there.

    The new data need the modes and labels of the fit, except along the new mode, and the same preparation. The
    labels of the new mode and the columns of its table of trials are kept.
    """
    from boolcp.cli.applying import run_transform

    run_transform(result, data, out, mode=mode, is_forced=force, as_json=as_json)


@app.command(short_help="Fill the missing entries (NaN) of a tensor.", cls=Grouped)
@takes_options
def complete(
    model: ModelOptions,
    data: DataOptions,
    out: Tensor,
    n_atoms: Atoms = 10,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Fill the missing entries (NaN) of a tensor from its decomposition; the others stay unchanged."""
    from boolcp.cli.applying import run_complete

    run_complete(data, model, n_atoms, out, is_forced=force, as_json=as_json)
