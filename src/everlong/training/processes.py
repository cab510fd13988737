"""The processes that work on one run, started by torchrun: what they send each other. Alone, nothing is sent."""

import atexit
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

import torch
from torch import Tensor
from torch import distributed as dist

from everlong import launch
from everlong.errors import EverlongError, RunInterrupted, RunStopped

PATIENCE = timedelta(hours=12)  # torchrun sees a process die at once; a diagnosis on the first may take long
KINDS = (EverlongError, RunStopped, RunInterrupted)

Result = TypeVar("Result")


class Processes:
    """All processes of a run, this one among them.

    Attributes:
        count: how many there are.
        rank: this one's number, from 0.
    """

    def __init__(self):
        self.count, self.rank = launch.process_count(), launch.process_rank()
        if self.count > 1 and not dist.is_initialized():
            backends = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            dist.init_process_group(backends, timeout=PATIENCE)
            atexit.register(_leave)
        joined = dist.get_world_size() if dist.is_initialized() else 1
        assert joined == self.count, f"{joined} processes came together, torchrun started {self.count}"

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes and speaks."""
        return self.rank == 0

    def parts_of(self, rows: int, accumulation: int) -> list[range]:
        """The rows of a batch that this process reads in a step, part by part.

        Raises:
            EverlongError: the rows cannot be shared evenly.
        """
        count = self.count * accumulation
        if rows % count:
            raise EverlongError(
                f"--batch-size {rows} cannot be shared evenly by {self.count} processes in --gradient-accumulation "
                f"{accumulation} parts: give a multiple of {count}"
            )
        size = rows // count
        first = self.rank * accumulation * size
        return [range(first + part * size, first + (part + 1) * size) for part in range(accumulation)]

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum of a tensor over all processes, on each of them."""
        if self.count > 1:
            tensor = tensor.detach().clone(memory_format=torch.contiguous_format)
            dist.all_reduce(tensor)
        return tensor

    def gather(self, tensor: Tensor) -> Tensor:
        """The tensors of all processes, of one shape, after each other along the first axis."""
        if self.count == 1:
            return tensor
        gathered = [torch.empty_like(tensor) for _ in range(self.count)]
        dist.all_gather(gathered, tensor.contiguous())
        return torch.cat(gathered)

    def share(self, text: str, *, source: int = 0) -> str:
        """The text that one process gives, on all of them."""
        if self.count == 1:
            return text
        content = torch.frombuffer(bytearray(text.encode() or b"\0"), dtype=torch.uint8)
        size = torch.tensor([len(content)])
        dist.broadcast(size, source)
        content = content if self.rank == source else torch.empty(int(size), dtype=torch.uint8)
        dist.broadcast(content, source)
        return bytes(content.numpy()).decode().rstrip("\0")

    def together(self, work: Callable[[], Result]) -> Result:
        """Does work on this process, and raises on all of them where it raised an error for people on any.

        Raises:
            EverlongError: the one of the first process that had one.
        """
        result, error = None, None
        try:
            result = work()
        except EverlongError as raised:
            error = raised
        if self.count > 1:
            mine = next((number for number, kind in reversed([*enumerate(KINDS, 1)]) if isinstance(error, kind)), 0)
            codes = self.gather(torch.tensor([mine]))
            failed = codes.nonzero().flatten().tolist()
            if failed:
                first = failed[0]
                told = self.share(str(error), source=first)
                text = f"process {first}: {told}" if first else told
                error = KINDS[int(codes[first]) - 1](text) if self.rank != first else error
        if error:
            raise error
        return result  # type: ignore[return-value]

    def on_main(self, work: Callable[[], object]) -> None:
        """Lets the first process do something while the others wait; its error for people is raised on all."""
        self.together(work if self.is_main else lambda: None)

    @contextmanager
    def expecting_each_other(self, last_good: Callable[[], str]) -> Iterator[None]:
        """Says in a line that another process has gone, in place of the library's words.

        Raises:
            RunStopped: one has.
        """
        try:
            yield
        except RuntimeError as error:
            if self.count == 1 or not _is_lost_peer(error):
                raise
            raise RunStopped(f"another of the {self.count} processes has gone; {last_good()}") from error


def _is_lost_peer(error: RuntimeError) -> bool:
    return isinstance(error, dist.DistError) or "gloo" in str(error).lower()


def _leave() -> None:
    """While Python is whole: a thread of a group that outlives it can abort the process (pytorch 179291)."""
    gc.collect()  # a model under DDP, which holds the group, may stand in a cycle
    if dist.is_initialized():
        dist.destroy_process_group()
