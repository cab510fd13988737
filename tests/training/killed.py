"""The process that test_resume kills: it trains until step 7, says so by making a file, and waits there."""

import sys
import time
from pathlib import Path

import torch

from tests.training.arms import Arm, Tokens

if __name__ == "__main__":
    folder, method, marker = sys.argv[1:]

    def wait_at_step_7(step: int) -> None:
        if step == 7:
            Path(marker).touch()
            time.sleep(600)

    torch.set_num_threads(1)
    Arm(Path(folder), method).train(Tokens(wait_at_step_7))
