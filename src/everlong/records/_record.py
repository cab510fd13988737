"""The base of all records, below the modules that hold them."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Record:
    """What every record is: a frozen dataclass that can be written and read back."""
