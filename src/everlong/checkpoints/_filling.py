"""From a configuration and weights to a model, every disagreement named."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from everlong.checkpoints._checkpoint import Placement, first_line
from everlong.checkpoints._sizes import EMBEDDING, check_sizes
from everlong.checkpoints._weights import Weights
from everlong.errors import EverlongError
from everlong.models.architectures import ARCHITECTURES
from everlong.models.config import LanguageModelConfig
from everlong.models.language_model import LanguageModel

HEAD = "lm_head.weight"


def fill_model(
    config: LanguageModelConfig,
    weights: Weights,
    placement: Placement,
    *,
    field: Callable[[str], str],
    ours: Callable[[str], str],
    theirs: Callable[[str], str],
    config_name: str | None = None,
    demand: tuple[str, str] = ("its config.json asks for", "its config.json has no place for"),
) -> LanguageModel:
    """A model that holds copies of the weights; the global random state is not touched.

    Args:
        config: what the folder's config.json says.
        weights: the tensors by the file's names.
        placement: backend, device and dtype.
        field: our configuration fields -> the file's, for messages.
        ours: the file's tensor names -> ours.
        theirs: our tensor names -> the file's.
        config_name: where the configuration was read, for messages; None: config.json beside the weights.
        demand: what is said of missing and of unexpected tensors.

    Raises:
        EverlongError: sizes contradict each other (both are named), a tensor is missing, unexpected, not floating or
            not finite.
    """
    tensors = {ours(name): tensor for name, tensor in weights.tensors.items()}
    config_name = config_name or str(weights.path.parent / "config.json")
    check_sizes(config, tensors, config_name=config_name, field=field, tensor=theirs)
    with torch.device("meta"):
        model = ARCHITECTURES[config.architecture](config, backend=placement.backend)
    wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if config.tie_embeddings:
        tied = tensors.pop(HEAD, None)
        wanted.pop(HEAD)
        if tied is not None and EMBEDDING in tensors and not torch.equal(tied, tensors[EMBEDDING]):
            raise EverlongError(
                f"{config_name} says {field('tie_embeddings')} true, but {theirs(HEAD)} and {theirs(EMBEDDING)} differ"
            )
    _check_names(wanted, tensors, weights, theirs, demand)
    loaded = {}
    for name, shape in wanted.items():
        tensor = tensors[name]
        if tuple(tensor.shape) != shape:
            raise EverlongError(
                f"{config_name} makes {theirs(name)} {list(shape)}, {weights.path.name} holds {list(tensor.shape)}"
            )
        loaded[name] = _place(tensor, f"{weights.path}: {theirs(name)}", placement)
    if config.tie_embeddings:
        loaded[HEAD] = loaded[EMBEDDING]
    model.load_state_dict(loaded, assign=True)
    if config.tie_embeddings:
        model.lm_head.weight = model.backbone.embedding.weight
    return model.eval()


def _check_names(
    wanted: Mapping[str, object],
    tensors: Mapping[str, Tensor],
    weights: Weights,
    theirs: Callable[[str], str],
    demand: tuple[str, str],
) -> None:
    for what, names in (("lacks", sorted(set(wanted) - set(tensors))), ("has", sorted(set(tensors) - set(wanted)))):
        if names:
            shown = ", ".join(theirs(name) for name in names[:3]) + (f" and {len(names) - 3} more" * (len(names) > 3))
            why = f"which {demand[0] if what == 'lacks' else demand[1]}"
            raise EverlongError(f"{weights.path} {what} {shown}, {why}")


def _place(tensor: Tensor, name: str, placement: Placement) -> Tensor:
    if not tensor.is_floating_point():
        raise EverlongError(f"{name} is {tensor.dtype}; floating weights are needed (quantised ones cannot be read)")
    try:
        # In one order in memory, whatever the file's layout: the same model then computes the same to the bit.
        placed = tensor.to(
            device=placement.device, dtype=placement.dtype, copy=True, memory_format=torch.contiguous_format
        )
    except (RuntimeError, AssertionError) as error:
        raise EverlongError(f"{name} cannot be put on {placement.device}: {first_line(error)}") from error
    if not torch.isfinite(placed).all():
        kind = "NaN" if torch.isnan(placed).any() else "infinity"
        raise EverlongError(f"{name} holds {kind} (as {placement.dtype}); the checkpoint is damaged or has diverged")
    return placed
