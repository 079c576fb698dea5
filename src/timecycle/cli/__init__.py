"""The command line: parses and prints, only. One file for each verb."""

from timecycle.cli.main import main

__all__ = ["main"]
