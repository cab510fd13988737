"""BlinkDL's RWKV-6 in one .pth file: a state dict in the names of RWKV-LM, without a configuration.

Norms add 1e-5, the group norm 64e-5 (1e-5 times the square of head_size_divisor, 8), in every published model.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from everlong.checkpoints._checkpoint import Checkpoint, Placement
from everlong.checkpoints._file_format import FileFormat
from everlong.checkpoints._filling import fill_model
from everlong.checkpoints._format import SIDECAR
from everlong.checkpoints._names import NameTable
from everlong.checkpoints._weights import Weights, read_weights
from everlong.checkpoints._writing import write_folder
from everlong.errors import EverlongError
from everlong.models.config import RWKV6Config
from everlong.models.language_model import LanguageModel

NAMES = NameTable(
    {
        "backbone.embedding.": "emb.",
        "backbone.embedding_norm.": "blocks.0.ln0.",
        "backbone.layers.{}.norm.": "blocks.{}.ln1.",
        "backbone.layers.{}.norm2.": "blocks.{}.ln2.",
        "backbone.layers.{}.mixer.": "blocks.{}.att.",
        "backbone.layers.{}.mlp.": "blocks.{}.ffn.",
        "backbone.norm_f.": "ln_out.",
        "lm_head.": "head.",
    }
)
EPSILON, GROUP_EPSILON = 1e-5, 64e-5
VECTORS = (*(f"time_maa_{which}" for which in "xwkvrg"), "time_decay")  # stored as [1, 1, C]
OTHERS = {"blocks.0.att.a0": "RWKV-7", "blocks.0.att.time_mix_k": "RWKV-4 or RWKV-5"}


class RWKVFormat(FileFormat):
    """Written as model.pth in a folder; a tied head is stored twice, and found to be tied when it is read."""

    name = "rwkv"

    def recognises(self, path: Path) -> bool:
        """By the ending."""
        return path.suffix == ".pth"

    def read(self, path: Path, placement: Placement) -> LanguageModel:
        """The model in a file."""
        return build(self.read_tensors(path), path, placement)

    def read_tensors(self, path: Path) -> Mapping[str, Tensor]:
        """The state dict."""
        return read_weights(path.parent, path).tensors

    def tensors(self, model: LanguageModel) -> dict[str, Tensor]:
        """The state dict under BlinkDL's names, in his layouts."""
        return {NAMES.theirs(name): _shaped(name, tensor) for name, tensor in model.state_dict().items()}

    def write(
        self,
        model: LanguageModel,
        folder: Path,
        *,
        source: Checkpoint | None = None,
        context: int | None = None,
        tokenizer: str | None = None,
    ) -> None:
        """model.pth, with the settings in everlong.json beside it."""
        config = model.config
        if not isinstance(config, RWKV6Config):
            raise EverlongError(f"the rwkv format holds rwkv6 models, this one is {config.architecture}")
        wanted = {"norm_epsilon": EPSILON, "group_norm_epsilon": GROUP_EPSILON, "expand_v": config.expand_k}
        for name, value in wanted.items():
            if getattr(config, name) != value:
                raise EverlongError(f"{name} is {getattr(config, name)}; the rwkv format has {value} only")
        stated = context is not None or tokenizer is not None
        write_folder(
            folder,
            json_files={SIDECAR: {"context": context, "tokenizer": tokenizer}} if stated else {},
            tensors=self.tensors(model),
            container="pth",
            copy_from=source.own_folder if source else None,
        )


def build(tensors: Mapping[str, Tensor], path: Path, placement: Placement) -> LanguageModel:
    """The model that tensors in BlinkDL's names and layouts make, with the file's name for messages."""
    config = config_of(tensors, path)
    ours = {NAMES.ours(name): tensor for name, tensor in tensors.items()}
    flat = {name: tensor.flatten() if name.endswith(VECTORS) else tensor for name, tensor in ours.items()}
    return fill_model(
        config,
        Weights(tensors=flat, path=path, container="pth"),
        placement,
        field=lambda name: name,
        ours=lambda name: name,
        theirs=NAMES.theirs,
        config_name=f"{path}: what its first tensors say",
        demand=("its other tensors ask for", "an RWKV-6 model has no place for"),
    )


def config_of(tensors: Mapping[str, Tensor], path: Path) -> RWKV6Config:
    """The sizes that the tensors have.

    Raises:
        EverlongError: they are no RWKV-6 model.
    """

    def shape(name: str, axes: int = 2) -> tuple[int, ...]:
        if name not in tensors or tensors[name].ndim != axes:
            kind = next((kind for other, kind in OTHERS.items() if other in tensors), None)
            found = f"it looks like {kind}" if kind else f"it has no {name} of {axes} axes"
            raise EverlongError(f"{path} is no RWKV-6 model: {found}")
        return tuple(tensors[name].shape)

    rank = shape("blocks.0.att.time_maa_w2", 3)[1]
    rows, width = shape("emb.weight")
    head = tensors.get("head.weight")
    return RWKV6Config(
        vocab_size=rows,
        d_model=width,
        n_layer=1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("blocks.")),
        norm_epsilon=EPSILON,
        group_norm_epsilon=GROUP_EPSILON,
        tie_embeddings=head is not None and torch.equal(head, tensors["emb.weight"]),
        headdim=shape("blocks.0.att.time_faaaa")[1],
        expand_k=shape("blocks.0.att.receptance.weight")[0] / width,
        expand_v=shape("blocks.0.att.value.weight")[0] / width,
        proj_low_rank_dim=rank,
        gate_low_rank_dim=shape("blocks.0.att.time_decay_w1")[1],
        intermediate_size=shape("blocks.0.ffn.key.weight")[0],
    )


def _shaped(name: str, tensor: Tensor) -> Tensor:
    return tensor.view(1, 1, -1) if name.endswith(VECTORS) else tensor
