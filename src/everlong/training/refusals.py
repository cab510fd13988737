"""What the engine cannot do, refused before any work."""

import torch

from everlong.errors import EverlongError
from everlong.training._trackers import check_trackers
from everlong.training.config import EngineConfig
from everlong.training.processes import Processes


def check_engine(config: EngineConfig, *, rows: int, dtype: torch.dtype) -> None:
    """Raises where a training cannot be carried out as it is asked for.

    Args:
        config: how it is to be carried out.
        rows: of a batch, over all processes.
        dtype: of the model's weights.

    Raises:
        EverlongError: a tracker is not installed, the rows cannot be shared evenly, or mixed precision is asked for
            where the weights are not float32.
    """
    check_trackers(config.trackers)
    Processes().parts_of(rows, config.gradient_accumulation)
    if config.mixed_precision and dtype != torch.float32:
        raise EverlongError(
            f"--mixed-precision is for float32 models; this one is {str(dtype).removeprefix('torch.')}: "
            "leave it out, or give --dtype float32"
        )
