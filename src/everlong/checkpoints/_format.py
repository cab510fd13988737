"""What a checkpoint format is: how it is recognised, which names it uses, and how it is written."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from torch import Tensor

from everlong.checkpoints._checkpoint import Checkpoint, Container, Placement, read_json
from everlong.checkpoints._filling import fill_model
from everlong.checkpoints._weights import Weights
from everlong.checkpoints._writing import write_folder
from everlong.errors import EverlongError
from everlong.models.config import LanguageModelConfig
from everlong.models.language_model import LanguageModel

SIDECAR = "everlong.json"
"""Where a foreign folder keeps the training context and the tokenizer: its own config.json has no place for them."""


class CheckpointFormat(ABC):
    """One format. A subclass gives names and configuration; reading weights and writing folders are shared."""

    name: ClassVar[str]
    signature: ClassVar[str]
    """What its config.json has, for messages."""
    default_container: ClassVar[Container] = "safetensors"
    field_names: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Our configuration fields -> the file's, where they differ."""
    tensor_names: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Our tensor names -> the file's, where they differ."""

    @abstractmethod
    def recognises(self, config: Mapping[str, Any]) -> bool:
        """Whether a config.json is of this format."""

    @abstractmethod
    def parse(self, config: Mapping[str, Any], path: Path) -> LanguageModelConfig:
        """The configuration in a config.json; what Everlong does not have is refused by name."""

    @abstractmethod
    def compose(
        self, model: LanguageModel, source: Mapping[str, Any], *, context: int | None, tokenizer: str | None
    ) -> dict[str, Any]:
        """The config.json for a model; ``source`` is the one it came from (or empty), whose unknown keys stay."""

    @abstractmethod
    def tensors(self, model: LanguageModel) -> dict[str, Tensor]:
        """The tensors to store, by the format's names."""

    def read(self, folder: Path, config: Mapping[str, Any], weights: Weights, placement: Placement) -> LanguageModel:
        """The model in a folder; see ``fill_model`` for what is checked."""
        back = {theirs: ours for ours, theirs in self.tensor_names.items()}
        return fill_model(
            self.parse(config, folder / "config.json"),
            weights,
            placement,
            field=lambda name: self.field_names.get(name, name),
            ours=lambda name: back.get(name, name),
            theirs=lambda name: self.tensor_names.get(name, name),
        )

    def read_settings(self, folder: Path, config: Mapping[str, Any]) -> tuple[int | None, str | None]:
        """The training context and the tokenizer's name that the folder states, each None where it does not."""
        path = folder / SIDECAR
        return settings_of(read_json(path), path) if path.is_file() else (None, None)

    def write(
        self,
        model: LanguageModel,
        folder: Path,
        *,
        source: Checkpoint | None = None,
        context: int | None = None,
        tokenizer: str | None = None,
    ) -> None:
        """Writes a model, atomically, in the model's dtype.

        Args:
            model: what to write.
            folder: the target; must not exist.
            source: the checkpoint that the model came from: its other small files go along, and where the format is the
                same its unknown configuration keys and its container (.bin or safetensors) are kept. Shards become one
                file, which the libraries load as well.
            context: the training length in tokens.
            tokenizer: the tokenizer's name.
        """
        same = source is not None and source.format == self.name
        config = self.compose(model, source.config if source and same else {}, context=context, tokenizer=tokenizer)
        files = {"config.json": config}
        if context is not None or tokenizer is not None:
            files |= self.sidecar(context, tokenizer)
        write_folder(
            folder,
            json_files=files,
            tensors=self.tensors(model),
            container=source.container if source and same else self.default_container,
            copy_from=source.own_folder if source else None,
        )

    def sidecar(self, context: int | None, tokenizer: str | None) -> dict[str, dict[str, Any]]:
        """The files beside config.json that keep the settings."""
        return {SIDECAR: {"context": context, "tokenizer": tokenizer}}


def settings_of(content: Mapping[str, Any], path: Path) -> tuple[int | None, str | None]:
    """Context and tokenizer as a JSON file states them."""
    context, tokenizer = content.get("context"), content.get("tokenizer")
    if context is not None and (type(context) is not int or context < 1):
        raise EverlongError(f"{path}: context is {context!r}; it must be a number of tokens, at least 1, or null")
    if tokenizer is not None and not isinstance(tokenizer, str):
        raise EverlongError(f'{path}: tokenizer is {tokenizer!r}; it must be "bytes", a path, an id, or null')
    return context, tokenizer
