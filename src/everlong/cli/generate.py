"""`everlong generate`."""

import sys
from typing import Any

from everlong.workflows.config import GenerateConfig


def run(config: GenerateConfig) -> int:
    """Writes the prompt and what the model makes of it to standard output, as it comes."""
    from everlong.workflows.generate import generate

    pieces = generate(config)
    _write(sys.stdout, config.prompt)
    for piece in pieces:
        _write(sys.stdout, piece)
    _write(sys.stdout, "\n")
    return 0


def _write(stream: Any, text: str) -> None:
    """Writes text that may hold anything: what the stream's encoding lacks, or would steer a terminal, as "?"."""
    encoding = stream.encoding or "utf-8"
    text = text.encode(encoding, errors="replace").decode(encoding)
    if stream.isatty():
        text = "".join(character if character.isprintable() or character in "\n\t" else "?" for character in text)
    stream.write(text)
    stream.flush()
