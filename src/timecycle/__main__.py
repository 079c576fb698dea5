"""`python -m timecycle` is the command line."""

import sys

from timecycle.cli import main

sys.exit(main())
