"""Errors for people: the offending value, what is allowed, what to do. The command line makes each an exit code."""


class EverlongError(Exception):
    """Bad input: one line that names the value, the allowed ones and the way out. Exit code 2."""

    exit_code = 2


class RunStopped(EverlongError):
    """The run had to stop (a loss that is not finite, a full disk); the message names what is safe. Exit code 3."""

    exit_code = 3


class RunInterrupted(EverlongError):
    """Ctrl-C or SIGTERM: the step was finished and saved; the message says how to go on. Exit code 130."""

    exit_code = 130
