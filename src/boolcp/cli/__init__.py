"""The `boolcp` command: from a file to a saved decomposition without writing code.

Input: paths and options. Output: files, messages and an exit code. Only typer is imported; names of `boolcp` are
imported when a command uses them, so that ``--help`` answers at once.
"""

import sys
import warnings
from collections.abc import Sequence
from typing import Any

WRONG_INPUT, BUG, INTERRUPTED = 2, 1, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 done, 1 a bug, 2 wrong input, 130 stopped by Ctrl-C."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    is_debug = "--debug" in arguments  # allowed anywhere, before or after the name of the command
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        from boolcp.cli.commands import app
    except ImportError as error:
        return _fail(f"the command needs the package {error.name!r}: pip install 'boolcp[files]'", WRONG_INPUT)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            app(arguments, prog_name="boolcp")
    except SystemExit as stop:
        if isinstance(getattr(stop.__context__, "__cause__", None), KeyboardInterrupt):  # typer catches it
            return _fail("stopped by Ctrl-C; no result was written", INTERRUPTED)
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
        if is_debug:
            raise
        return _fail(str(error) or type(error).__name__, WRONG_INPUT)
    except Exception as error:
        if is_debug:
            raise
        text = f"unexpected {type(error).__name__}: {error}. Run it again with --debug and report the output"
        return _fail(text, BUG)
    return 0


def run() -> None:
    """Run the command and leave with its exit code: the entry point of the script `boolcp`."""
    from boolcp.cli.answers import at_work, guard_streams

    guard_streams()
    with at_work():
        code = main()
    sys.stdout.flush()
    lost = getattr(sys.stdout, "error", "")
    if lost and code == 0:  # the reader must not mistake missing output for success
        text = f"standard output could not be written ({lost}); the files of the result are complete"
        code = _fail(text, WRONG_INPUT)
    sys.stderr.flush()
    sys.exit(code)


def _show_warning(message: Warning | str, *details: Any, **options: Any) -> None:
    """Show a warning in one line, without the code that it comes from."""
    print(f"boolcp: warning: {' '.join(str(message).split())}", file=sys.stderr)


def _fail(text: str, code: int) -> int:
    print(f"boolcp: {' '.join(text.split())}", file=sys.stderr)
    return code
