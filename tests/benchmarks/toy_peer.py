"""A peer of test_beside: answers with the seconds that are best for one way of waiting, and stops at "end"."""

import os
import sys


def main(best: str) -> None:
    """The child."""
    for line in sys.stdin:
        if line.strip() == "end":
            sys.exit("it has had enough")
        print(1.0 if os.environ.get("OMP_WAIT_POLICY", "none") == best else 2.0, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
