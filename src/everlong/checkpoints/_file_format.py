"""What a format of one file is: no config.json, the sizes are read from the tensors."""

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from torch import Tensor

from everlong.checkpoints._checkpoint import Checkpoint, Placement, read_json
from everlong.checkpoints._format import SIDECAR, settings_of
from everlong.errors import EverlongError
from everlong.models.language_model import LanguageModel


class FileFormat(ABC):
    """One format. The training context is in everlong.json beside the file, or in the file's name (-ctx4096)."""

    name: ClassVar[str]
    writable: ClassVar[bool] = True

    @abstractmethod
    def recognises(self, path: Path) -> bool:
        """Whether a file is of this format, by its name and its first bytes."""

    @abstractmethod
    def read(self, path: Path, placement: Placement) -> LanguageModel:
        """The model in a file."""

    @abstractmethod
    def read_tensors(self, path: Path) -> Mapping[str, Tensor]:
        """The tensors in a file, by its names."""

    def stored_dtypes(self, path: Path, tensors: Mapping[str, Tensor]) -> Mapping[str, int]:
        """The dtypes that a file holds -> the number of tensors of each; ``tensors`` is what was read from it."""
        return Counter(str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values())

    def read_settings(self, path: Path) -> tuple[int | None, str | None]:
        """The training context and the tokenizer's name, each None where they are not stated."""
        sidecar = path.parent / SIDECAR
        if sidecar.is_file():
            return settings_of(read_json(sidecar), sidecar)
        stated = re.search(r"-ctx(\d+)", path.stem)
        return int(stated[1]) if stated else None, None

    def write(
        self,
        model: LanguageModel,
        folder: Path,
        *,
        source: Checkpoint | None = None,
        context: int | None = None,
        tokenizer: str | None = None,
    ) -> None:
        """Writes a model's folder, atomically, in the model's dtype; see ``CheckpointFormat.write``."""
        raise EverlongError(f"the {self.name} format is read only; save the model in another format")
