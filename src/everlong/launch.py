"""How this process was started: alone, or by torchrun as one of several that work on one run. Free of torch."""

import os

from everlong.errors import EverlongError


def process_count() -> int:
    """Processes that work on this run, over all machines.

    Raises:
        EverlongError: the environment is neither torchrun's nor that of a process alone.
    """
    return _number("WORLD_SIZE") if "LOCAL_RANK" in os.environ else 1


def process_rank() -> int:
    """This process's number among them, from 0."""
    return _number("RANK") if process_count() > 1 else 0


def local_rank() -> int:
    """This process's number among those on its machine, from 0: the number of its GPU."""
    return _number("LOCAL_RANK") if process_count() > 1 else 0


def is_main() -> bool:
    """Whether this process is the one that writes and speaks."""
    return process_rank() == 0


def _number(name: str) -> int:
    value = os.environ.get(name)
    if value is None or not value.isdecimal():
        found = "is not there" if value is None else f"is {value!r}, which is no number"
        raise EverlongError(
            f"LOCAL_RANK is set in the environment, as torchrun sets it, but {name} {found}: start with torchrun, or "
            "unset LOCAL_RANK"
        )
    return int(value)


def command(arguments: str) -> str:
    """The command that starts a verb as this process was started."""
    count = process_count()
    if count == 1:
        return f"everlong {arguments}"
    each = int(os.environ.get("LOCAL_WORLD_SIZE", count))
    machines = f"--nnodes {count // each} " if count > each else ""
    return f"torchrun {machines}--nproc_per_node {each} -m everlong {arguments}"
