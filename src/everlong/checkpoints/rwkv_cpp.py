"""rwkv.cpp's .bin files of RWKV-6 (its docs/FILE_FORMAT.md, rwkv_file_format.inc), read only; quantised ones widened.

Little-endian: six int32 (magic, version, vocabulary, width, layers, type), then for each tensor int32 axes, key length
and type, int32 sizes with the fastest axis first, the key, the data. Quantised types hold blocks of 32 values:

    Q5_0   fp16 d, 32 fifth bits, 16 bytes of two low nibbles       value = (q - 16) d
    Q5_1   fp16 d, fp16 m, fifth bits, nibbles as in Q5_0           value = q d + m
    Q8_0   fp16 d, 32 int8                                          value = q d

The low nibbles are the first 16 values of a block, the high ones the last 16. rwkv.cpp's converter transposes the
low-rank maps (python/convert_pytorch_to_ggml.py).
"""

import math
import mmap
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from everlong.checkpoints._checkpoint import Placement, first_line
from everlong.checkpoints._file_format import FileFormat
from everlong.checkpoints.rwkv import build, config_of
from everlong.errors import EverlongError
from everlong.models.language_model import LanguageModel

MAGIC, VERSIONS = 0x67676D66, (100, 101)
TYPES = {0: "FP32", 1: "FP16", 2: "Q4_0", 3: "Q4_1", 7: "Q5_0", 8: "Q5_1", 9: "Q8_0"}
BLOCKS = {  # how the data of a type are laid out, and how many values a block holds
    "FP32": (np.dtype("<f4"), 1),
    "FP16": (np.dtype("<f2"), 1),
    "Q5_0": (np.dtype([("d", "<f2"), ("fifth", "<u4"), ("nibbles", "u1", 16)]), 32),
    "Q5_1": (np.dtype([("d", "<f2"), ("m", "<f2"), ("fifth", "<u4"), ("nibbles", "u1", 16)]), 32),
    "Q8_0": (np.dtype([("d", "<f2"), ("q", "i1", 32)]), 32),
}
IN_TORCH = {"FP32": "float32", "FP16": "float16"}
TRANSPOSED = ("time_maa_w1", "time_maa_w2", "time_decay_w1", "time_decay_w2")


class RWKVCppFormat(FileFormat):
    """Float and quantised files alike."""

    name = "rwkv.cpp"
    writable = False

    def recognises(self, path: Path) -> bool:
        """By the magic number."""
        if path.suffix != ".bin":
            return False
        with path.open("rb") as file:
            return file.read(4) == struct.pack("<i", MAGIC)

    def read_tensors(self, path: Path) -> Mapping[str, Tensor]:
        """Floats of 32 bits, whatever the file holds."""
        return dict(read_tensors(path))

    def stored_dtypes(self, path: Path, tensors: Mapping[str, Tensor]) -> Mapping[str, int]:
        """What the file holds, before it is widened: float32, Q5_1, ..."""
        return Counter(IN_TORCH.get(kind, kind) for _, kind, _, _ in _entries(path))

    def read(self, path: Path, placement: Placement) -> LanguageModel:
        """The model in a file, whose header is checked against its tensors."""
        tensors = dict(read_tensors(path))
        for name, tensor in tensors.items():
            if name.endswith(TRANSPOSED) and tensor.ndim > 1:
                tensors[name] = tensor.transpose(-1, -2)
            elif name.endswith(("time_decay", "time_faaaa")) and tensor.ndim == 3:
                tensors[name] = tensor.squeeze(-1)
        config = config_of(tensors, path)
        found = {"vocabulary": config.vocab_size, "width": config.d_model, "layers": config.n_layer}
        with path.open("rb") as file:
            stated = struct.unpack("<3i", file.read(20)[8:])
        for (name, size), said in zip(found.items(), stated, strict=True):
            if size != said:
                raise EverlongError(f"{path}: the header says {name} {said}, the tensors say {size}")
        return build(tensors, path, placement)


def read_tensors(path: Path) -> Iterator[tuple[str, Tensor]]:
    """Names and tensors, floats of 32 bits, in the axes' usual order.

    Raises:
        EverlongError: the file is torn, or of a type or version that is not read.
    """
    for name, kind, sizes, blocks in _entries(path):
        yield name, torch.from_numpy(_values(blocks, kind)).view(*sizes)


def _entries(path: Path) -> Iterator[tuple[str, str, tuple[int, ...], np.ndarray]]:
    """Name, type, sizes in the axes' usual order, and blocks as they are stored, of every tensor."""
    try:
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        version = struct.unpack_from("<i", content, 4)[0]
        if version not in VERSIONS:
            raise EverlongError(f"{path} has version {version} of rwkv.cpp's format; known: 100, 101")
        position = 24
        while position < len(content):
            axes, key_length, kind = struct.unpack_from("<3i", content, position)
            sizes = struct.unpack_from(f"<{axes}i", content, position + 12)
            if not 1 <= axes <= 3 or key_length < 1 or min(sizes) < 1:
                raise ValueError(f"a tensor of sizes {list(sizes)}, its name {key_length} bytes long")
            position += 12 + 4 * axes
            name = content[position : position + key_length].decode("utf-8")
            position += key_length
            kind = TYPES.get(kind, f"type {kind}")
            if kind not in BLOCKS or (version == VERSIONS[0] and BLOCKS[kind][1] > 1):
                known = ", ".join(BLOCKS)
                raise EverlongError(f"{path}: {name} is {kind} of version {version}; known: {known} of version 101")
            layout, size = BLOCKS[kind]
            count = math.prod(sizes)
            if count % size:
                raise ValueError(f"{name} has {count} numbers, no whole number of {kind}'s blocks of {size}")
            blocks = np.frombuffer(content, layout, count // size, position)
            position += blocks.nbytes
            yield name, kind, sizes[::-1], blocks
    except (OSError, struct.error, ValueError) as error:
        raise EverlongError(f"{path} is torn or no rwkv.cpp file: {first_line(error)}") from error


def _values(blocks: np.ndarray, kind: str) -> np.ndarray:
    """Floats of 32 bits, one axis."""
    if kind in ("FP32", "FP16"):
        return blocks.astype(np.float32)
    scale = blocks["d"].astype(np.float32)[:, None]
    if kind == "Q8_0":
        return (blocks["q"] * scale).ravel()
    nibbles = np.concatenate([blocks["nibbles"] & 15, blocks["nibbles"] >> 4], axis=1)
    fifth = blocks["fifth"][:, None] >> np.arange(32, dtype=np.uint32) & 1
    quantised = (nibbles | fifth << 4).astype(np.float32)
    if kind == "Q5_0":
        return ((quantised - 16) * scale).ravel()
    return (quantised * scale + blocks["m"].astype(np.float32)[:, None]).ravel()
