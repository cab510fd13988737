"""The five lines for people with a loop of their own: what docs/own-loop.md shows, run as it stands there."""

import re
from pathlib import Path

import torch

from everlong.data._chunks import Chunks
from everlong.data.contiguous_streams import ContiguousStreams
from everlong.data.shuffled_chunks import ShuffledChunks
from everlong.interventions.methods import INTERVENTIONS
from everlong.models.architectures import create
from tests.data.test_shuffled_chunks import corpus_of
from tests.models.tiny import TINY

SNIPPET = Path(__file__).resolve().parents[2] / "docs" / "own-loop.md"


class Tokens:
    """A corpus whose tokens the tiny model knows."""

    def __init__(self, source):
        self.source = source

    def batch(self, step: int):
        batch = self.source.batch(step)
        batch.tokens.remainder_(11)
        batch.targets.remainder_(11)
        return batch


def run(code: str, order: type[Chunks] = ShuffledChunks, steps: int = 4) -> dict:
    torch.manual_seed(0)
    model = create("mamba2", **TINY["mamba2"])
    source = Tokens(order(corpus_of(41, 33, 50, 37), length=8, batch_size=3, seed=0))
    names = {"model": model, "source": source, "steps": steps}
    names["optimizer"] = torch.optim.AdamW(model.parameters(), lr=1e-2)
    exec(compile(code, str(SNIPPET), "exec"), names)
    return names


def snippet() -> str:
    (code,) = re.findall(r"```python\n(.*?)```", SNIPPET.read_text(encoding="utf-8"), re.DOTALL)
    return code


def test_the_snippet_trains_and_carries_the_state():
    before = create("mamba2", **TINY["mamba2"])
    names = run(snippet())
    method, model = names["method"], names["model"]
    assert method.name == "state_passing"
    assert int(method.ages(torch.arange(3)).max()) == 3 * 8  # before the last of four rows in a chain
    assert not torch.equal(before.lm_head.weight, model.lm_head.weight)
    assert names["loss"].isfinite()


def test_five_lines_are_numbered_in_it():
    assert re.findall(r"# (\d): ", snippet()) == ["1", "2", "3", "4", "5"]


def test_it_takes_every_method_that_reads_rows_of_one_context():
    code = snippet()
    assert 'create("state_passing", seed=0, reset_probability=0.1)' in code
    for name, kind in INTERVENTIONS.items():
        if name in ("burn_in", "longer_context"):
            continue
        order = ContiguousStreams if kind.data_order == "contiguous" else ShuffledChunks
        named = code.replace('"state_passing", seed=0, reset_probability=0.1', f'"{name}", seed=0')
        assert run(named, order)["method"].name == name
