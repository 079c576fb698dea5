"""The entry point of `python -m timecycle` and of the command `timecycle`."""

import sys


def main() -> int:
    """Run the command line; Ctrl-C prints one line at any time, also during imports."""
    try:
        from timecycle.cli import main as run  # noqa: PLC0415, here: importing torch takes seconds

        return run()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
