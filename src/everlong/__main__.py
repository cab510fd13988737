"""`python -m everlong` is the command line."""

import sys

from everlong.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
