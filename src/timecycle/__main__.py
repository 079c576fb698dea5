"""`python -m timecycle`, and the command `timecycle`, are the command line."""

import sys


def main() -> int:
    """Run the command line; Ctrl-C ends it in one line at any time."""
    try:
        from timecycle.cli import main as run  # noqa: PLC0415, here: torch takes seconds, in which people change their mind

        return run()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
