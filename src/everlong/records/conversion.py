"""Record of a conversion between checkpoint formats, with its proof."""

from dataclasses import dataclass

from everlong.records.doctor import Checked


@dataclass(frozen=True, kw_only=True)
class Conversion(Checked):
    """A model written in another format, in its dtype, and the proof that it is the same model."""

    source: str
    source_format: str
    target: str
    target_format: str
    architecture: str
    parameters: int
