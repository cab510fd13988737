"""What test_parallel lets a process of its own do, in which no types are checked: they keep torch.compile from tracing.

Trains two steps plain and compiled, and prints how far the weights are apart and what was compiled.
"""

import sys
from dataclasses import replace
from pathlib import Path

import torch

from tests.training.arms import CONFIG, Arm


def main() -> None:
    torch.set_num_threads(1)
    folder, config = Path(sys.argv[1]), replace(CONFIG, steps=2)
    plain, compiled = Arm(folder / "plain"), Arm(folder / "compiled")
    plain.train(config=config)
    torch._dynamo.utils.counters.clear()
    compiled.train(config=replace(config, compile=True))
    apart = max(
        float((one - other).detach().abs().max())
        for one, other in zip(plain.model.parameters(), compiled.model.parameters(), strict=True)
    )
    print(apart, torch._dynamo.utils.counters["stats"]["unique_graphs"])


if __name__ == "__main__":
    main()
