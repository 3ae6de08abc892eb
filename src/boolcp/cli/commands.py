"""The command and its parts, in the order of use."""

from typing import Annotated

import typer

from boolcp._version import __version__
from boolcp.cli.applying import complete, convert, transform
from boolcp.cli.demo import demo
from boolcp.cli.fitting import fit, select
from boolcp.cli.folders import export, info, report
from boolcp.cli.options import Grouped, option, takes_options

EXAMPLES = """Decompose a tensor into atoms that are exactly on or off along one mode.

\b
  boolcp demo                                     all steps on a simulated recording
  boolcp info data.mat                            what is in a file
  boolcp fit data.npy -k 10 -o result             decompose it
  boolcp fit epochs-epo.fif -k 6 -o result        MNE epochs with their conditions
  boolcp fit recording.zip --condition Anesthetized --reference average --resample 100 --bin-ms 3000 -k 10
  boolcp info result                              what was found
  boolcp report result                            the same as a page with plots
  boolcp export result --events events.tsv        when atoms are on, for BIDS
  boolcp transform result new.npy -o new.csv      which atoms are on in new trials

Exit codes: 0 done, 1 a bug, 2 wrong input, 130 stopped by Ctrl-C.
"""

app = typer.Typer(
    help=EXAMPLES,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
for function in (demo, info, convert, select, fit, report, export, transform, complete):
    app.command(cls=Grouped)(takes_options(function))


def _version(value: bool) -> None:
    if value:
        print(f"boolcp {__version__}")
        raise typer.Exit


@app.callback()
def boolcp(
    version: Annotated[bool, option("Print the version.", "--version", callback=_version, is_eager=True)] = False,
    debug: Annotated[bool, option("Show the full traceback of an error.", "--debug")] = False,
) -> None:
    """Accept the options of all commands; --debug is handled in `main`."""
