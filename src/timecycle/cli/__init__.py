"""The command line: one file per command, which parses arguments and prints results."""

from timecycle.cli.main import main

__all__ = ["main"]
