"""Run the command by `python -m boolcp`."""

from boolcp.cli import run

if __name__ == "__main__":
    run()
