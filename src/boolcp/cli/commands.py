"""The commands: each is a door to a function of the library."""

from pathlib import Path
from typing import Annotated

import typer

from boolcp._version import __version__
from boolcp.cli.data import DataOptions, load_data, takes_data

FIT = "Fit"
EXAMPLES = """Decompose a tensor into atoms that are exactly on or off along one mode.

\b
  boolcp demo                                     a simulated recording, the whole way
  boolcp info data.mat                            what is in a file
  boolcp fit data.npy -k 10 -o result             decompose it
  boolcp fit recording.zip --condition Anesthetized --reference average --resample 100 --bin-ms 3000 -k 10
  boolcp info result                              what was found
  boolcp report result                            the same as a page with pictures

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

Out = Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the result.", show_default=False)]
Force = Annotated[bool, typer.Option("--force", help="Replace results that exist.", show_default=False)]
Jobs = Annotated[int, typer.Option("--jobs", "-j", help="Processes.")]
Seed = Annotated[int, typer.Option("--seed", help="Equal seeds give equal results.")]


def _version(is_asked):
    if is_asked:
        typer.echo(f"boolcp {__version__}")
        raise typer.Exit


@app.callback()
def boolcp(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the full traceback of an error.")] = False,
):
    """Take the options of all commands; --debug is handled in `main`."""


@app.command()
def info(file: Annotated[Path, typer.Argument(help="A data file, a recording, or a result.", show_default=False)]):
    """Tell what is in a data file, a recording or a saved result."""
    from boolcp.cli.show import describe

    for line in describe(file):
        typer.echo(line)


@app.command()
@takes_data
def fit(
    data: DataOptions,
    n_atoms: Annotated[int, typer.Option("--n-atoms", "-k", help="Number of atoms.", rich_help_panel=FIT)] = 10,
    out: Out = None,
    boolean_modes: Annotated[
        str | None, typer.Option("--boolean-modes", help="Modes allowed to be Boolean, e.g. trial,channel.")
    ] = None,
    atom_rank: Annotated[
        str, typer.Option("--atom-rank", help="Rank of the real part: a number, auto, or block.")
    ] = "1",
    criterion: Annotated[
        str, typer.Option("--criterion", help="normalized, or published as in the paper.")
    ] = "normalized",
    refine: Annotated[bool, typer.Option(help="Correct all factors after the pursuit.")] = True,
    n_init: Annotated[int, typer.Option("--n-init", help="Starts of the refinement at most.")] = 10,
    stability: Annotated[
        int,
        typer.Option("--stability", help="Fits to bootstrap samples of the last mode that test the atoms; 0: none."),
    ] = 0,
    max_memory: Annotated[
        str | None,
        typer.Option("--max-memory", help="Memory for data that is not loaded, e.g. 3GB.", show_default=False),
    ] = None,
    seed: Seed = 0,
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", help="File of the steps done; if it exists, go on from it.", show_default=False),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Fail if there is no checkpoint to go on from.", show_default=False)
    ] = False,
    force: Force = False,
):
    """Decompose the data and save the result in a folder.

    The folder gets decomposition.nc (the result, for boolcp.load and xarray), summary.csv (one row for each atom) and
    fit.log (parameters and versions). Ctrl-C stops after the atom that is being searched and saves the atoms so far;
    in the refinement it saves the best so far.

    \b
    Examples:
      boolcp fit data.npy -k 10 -o result
      boolcp fit eeg.mat -v y --dims time,channel --sampling-rate 250 --bin-ms 3000 -k 5
      boolcp fit awake.npz asleep.npz -v psd --dims channel,freq --join state --log --center state -k 4
      boolcp fit spikes.npz --events neuron,time,trial --bin-ms 20 -k 8
      boolcp fit large.npy -k 40 -o result --checkpoint large.ckpt
    """  # noqa: D301
    from boolcp.cli.fitting import run_fit

    parameters = {
        "n_atoms": n_atoms,
        "boolean_modes": boolean_modes,
        "atom_rank": atom_rank,
        "criterion": criterion,
        "refine": refine,
        "n_init": n_init,
        "max_memory": max_memory,
        "random_state": seed,
    }
    kept = {"checkpoint": checkpoint, "is_resumed": resume, "n_stability": stability}
    raise typer.Exit(run_fit(data, parameters, out, is_forced=force, **kept))


@app.command()
@takes_data
def select(
    data: DataOptions,
    max_atoms: Annotated[int, typer.Option("--max-atoms", help="Largest number tried.")] = 10,
    splits: Annotated[int, typer.Option("--splits", help="Random splits.")] = 5,
    scheme: Annotated[str, typer.Option("--scheme", help="Hold out entries, or slabs of the last mode.")] = "entries",
    jobs: Jobs = 1,
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the table, .csv.", show_default=False)] = None,
    force: Force = False,
):
    """Choose the number of atoms by the error on held-out data.

    \b
    Example:
      boolcp select data.nc --max-atoms 15 --jobs 4 -o errors.csv
    """  # noqa: D301
    from boolcp.cli.fitting import run_select

    run_select(data, out, is_forced=force, max_atoms=max_atoms, splits=splits, scheme=scheme, n_jobs=jobs, seed=seed)


@app.command(short_help="Fill the missing entries (NaN) of a tensor.")
@takes_data
def complete(
    data: DataOptions,
    out: Annotated[Path, typer.Option("--out", "-o", help="The filled tensor, .nc or .npy.", show_default=False)],
    n_atoms: Annotated[int, typer.Option("--n-atoms", "-k", help="Number of atoms.")] = 10,
    seed: Seed = 0,
    force: Force = False,
):
    """Fill the missing entries (NaN) of a tensor by its decomposition; the others are not touched.

    \b
    Example:
      boolcp complete gaps.npy -k 5 -o filled.npy
    """  # noqa: D301
    from boolcp.cli.fitting import run_complete

    run_complete(data, out, n_atoms=n_atoms, seed=seed, is_forced=force)


@app.command(short_help="Read, prepare and write a tensor to one file.")
@takes_data
def convert(
    data: DataOptions,
    out: Annotated[Path, typer.Option("--out", "-o", help="The new file, .nc or .npy.", show_default=False)],
    force: Force = False,
):
    """Read and prepare data and write the tensor to one file, .nc (with labels) or .npy.

    \b
    Example:
      boolcp convert recording.zip --condition Anesthetized --reference average --bin-ms 3000 -o anesthetized.nc
    """  # noqa: D301
    from boolcp.io.atomic import check_free
    from boolcp.io.reading import sizes_text
    from boolcp.io.writing import write_tensor

    check_free(out, overwrite=force)
    X = load_data(data)
    write_tensor(X, out, overwrite=force)
    typer.echo(f"{out}: {sizes_text(X)}")


@app.command(short_help="Write a saved result as one HTML page.")
def report(
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="A folder that fit wrote, or a saved result, .nc.", show_default=False)
    ],
    force: Force = False,
):
    """Write a saved result as one HTML page with pictures, report.html in its folder; it opens offline.

    \b
    Example:
      boolcp report result
    """  # noqa: D301
    from boolcp.cli.fitting import run_report

    typer.echo(run_report(out, is_forced=force))


@app.command(short_help="Simulate a recording and go the whole way.")
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the demo.")] = Path("boolcp-demo"),
    seed: Seed = 0,
    force: Force = False,
):
    """Simulate a recording, write it as files, read them, prepare, decompose, save, draw and report."""
    from boolcp.cli.demo import run_demo

    run_demo(out, seed=seed, is_forced=force)


@app.command()
def reproduce(
    name: Annotated[
        str, typer.Argument(help="Which experiment of the paper, fig1 to fig4 or theory.", show_default=False)
    ],
    quick: Annotated[bool, typer.Option("--quick", help="Smaller, in minutes.", show_default=False)] = False,
    seeds: Annotated[int | None, typer.Option("--seeds", help="Number of repetitions.", show_default=False)] = None,
    out: Out = None,
    jobs: Jobs = 1,
    recording: Annotated[
        Path | None, typer.Option("--recording", help="A NeuroTycho folder or zip, else simulated.", show_default=False)
    ] = None,
):
    """Compute an experiment of the paper anew and draw its figure."""
    from boolcp import experiments

    done = experiments.reproduce(name, quick=quick, seeds=seeds, out=out, jobs=jobs, recording=recording)
    for path in (done.table, *done.figures):
        typer.echo(path)
