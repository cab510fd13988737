"""How a model is spread over processes, recomputed and compiled: applied from outside, the model's own file knows none.

    compilation -> activation checkpointing, block by block -> DDP or FSDP2

Accelerate wraps for DDP. It ignores FSDP2 on CPU processes without a word, hence ``fully_shard`` is called here, on a
mesh of the model's own device, and what came of it is checked.
"""

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from functools import partial
from typing import Any, cast

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils.checkpoint import checkpoint

from everlong.models.language_model import LanguageModel, LanguageModelOutput
from everlong.ops.products import products_in
from everlong.state import RecurrentState
from everlong.training.config import EngineConfig
from everlong.training.processes import Processes


class TrainedModel:
    """A model as it is trained.

    Attributes:
        device: of the model.
        dtype: of its weights.
        spec: the leaves of its state.
        module: the model whose parameters are trained. Under FSDP2 a copy of the owner's, which waits in host memory
            and has the values back after ``release``; otherwise the owner's own.
    """

    def __init__(self, model: LanguageModel, config: EngineConfig, processes: Processes, accelerator: Accelerator):
        self._owner, self._config = model, config
        self.device, self.dtype, self.spec = model.device, model.dtype, model.state_spec
        self._shards = config.parallel == "fsdp" and processes.count > 1
        self.module = deepcopy(model) if self._shards else model
        for block in self.module.backbone.blocks:
            if config.compile:
                block.forward = torch.compile(block.forward)
            if config.activation_checkpointing:  # around what is compiled; within, it would keep it from being so
                again = partial(checkpoint, use_reentrant=False, preserve_rng_state=False, context_fn=self._contexts)
                block.forward = partial(again, block.forward)
        self._callable: nn.Module = self.module
        if self._shards:
            model.to("cpu")
            shard(self.module, processes)
        elif processes.count > 1:
            self._callable = accelerator.prepare_model(self.module)

    def __call__(self, tokens: Tensor, state: RecurrentState, *, resets: Tensor | None = None) -> LanguageModelOutput:
        """Reads tokens; the final state is in the dtypes of the model's specification, whatever was computed in."""
        with self._precision():
            output: LanguageModelOutput = self._callable(tokens, state, resets=resets)
        if isinstance(self._callable, FSDPModule) and not torch.is_grad_enabled():
            self._callable.reshard()  # which else the backward pass does: what is saved next are the shards
        leaves = tuple(tensor.to(leaf.dtype) for leaf, tensor in output.state.items())
        return LanguageModelOutput(output.logits, RecurrentState(self.spec, leaves))

    def _precision(self) -> AbstractContextManager[Any]:
        """What is computed in bfloat16. On a CPU autocast's passes over activations cost more than they save."""
        if not self._config.mixed_precision:
            return nullcontext()
        if self.device.type == "cpu":
            return products_in("bfloat16")
        return torch.autocast(self.device.type, torch.bfloat16)

    def _contexts(self) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        """Around a block's first computation, which ``__call__`` is around, and around the one in the backward pass."""
        return nullcontext(), self._precision()

    @contextmanager
    def gradients(self, *, last: bool) -> Iterator[None]:
        """Around the forward and backward pass of a part of a step; processes exchange gradients after the last."""
        skipped: AbstractContextManager[Any] = nullcontext()
        if isinstance(self._callable, FSDPModule):
            self._callable.set_requires_gradient_sync(last)
        elif self._callable is not self.module and not last:
            skipped = cast(Any, self._callable).no_sync()
        with skipped:
            yield

    def warm_up(self, tokens: Tensor) -> None:
        """One forward and backward pass that changes nothing, where processes average gradients by DDP.

        DDP groups the gradients anew after the first pass, and with the groups goes the order in which sums over more
        than two processes are taken. So that no step differs from what it is in a resumed run, none is the first.
        """
        if self._callable is self.module or self._shards:
            return
        state = self.spec.zeros(len(tokens), self.device)
        self(tokens.to(self.device), state).logits.mean().backward()
        self.module.zero_grad(set_to_none=True)

    def release(self, *, trained: bool) -> None:
        """Takes off all that was put on the model, and gives the owner its values, if it was trained to the end."""
        if self._shards:
            values = {name: whole(tensor) for name, tensor in self.module.named_parameters()} if trained else {}
            self._owner.to(self.device)
            with torch.no_grad():
                for name, parameter in self._owner.named_parameters():
                    parameter.copy_(values.get(name, parameter))
        for block in self._owner.backbone.blocks:
            block.__dict__.pop("forward", None)


def make_accelerator(device: torch.device, **settings: Any) -> Accelerator:
    """Accelerate, which leaves the model where its owner put it, in its precision, whatever the environment says."""
    return Accelerator(cpu=device.type == "cpu", device_placement=False, mixed_precision="no", **settings)


def shard(model: LanguageModel, processes: Processes) -> None:
    """FSDP2: parameters, gradients and the optimizer's averages are split over the processes, block by block."""
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view")  # nobody writes into it
    mesh = init_device_mesh(model.device.type, (processes.count,))
    for block in model.backbone.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    plain = [name for name, parameter in model.named_parameters() if not isinstance(parameter, DTensor)]
    assert not plain, f"not sharded: {plain}"


def whole(tensor: Tensor) -> Tensor:
    """A tensor as one process would have it; of a sharded one all processes must ask together."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def spread_like(value: Tensor, model: Tensor) -> Tensor:
    """A whole tensor as this process holds ``model``: sharded as it is, or whole."""
    if not isinstance(model, DTensor):
        return value
    return distribute_tensor(value.to(model.device), model.device_mesh, model.placements, src_data_rank=None)
