"""Tiny trainings with StatefulTrainer, and what is compared between two of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from transformers import TrainingArguments

from everlong.integrations.transformers import StatefulTrainer
from everlong.interventions.methods import create as create_intervention
from everlong.models.language_model import LanguageModel
from tests.models.tiny import tiny_model

ROWS, LENGTH, STEPS = 4, 8, 6
QUIET: dict[str, Any] = {
    "use_cpu": True,
    "report_to": [],
    "disable_tqdm": True,
    "dataloader_pin_memory": False,
    "logging_strategy": "no",
}


class Streams:
    """Row r of a step goes on where row r of the step before ended; every third step documents begin in two rows."""

    data_order = "contiguous"
    rows_per_step = ROWS

    def __init__(self, steps: int = STEPS):
        self._tokens = torch.randint(11, (ROWS, steps * LENGTH + 1), generator=torch.Generator().manual_seed(5))
        self._steps = steps

    def __len__(self) -> int:
        return self._steps * ROWS

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        return (self[item] for item in range(len(self)))

    def __getitem__(self, item: int) -> dict[str, Tensor]:
        step, row = divmod(item, ROWS)
        read = self._tokens[row, step * LENGTH : (step + 1) * LENGTH + 1]
        begins = step % 3 == 0 and row in (step % 2, 3)
        resets = torch.zeros(LENGTH, dtype=torch.bool)
        resets[5] = row == 1 and step == 1
        return {"input_ids": read[:-1], "shift_labels": read[1:], "starts": torch.tensor(begins), "resets": resets}


def shuffled(steps: int = STEPS, *, masked: bool = False) -> list[dict[str, Tensor]]:
    """Rows as transformers has them; with ``masked``, unequally many labels of them count."""
    generator = torch.Generator().manual_seed(3)
    rows = []
    for number, tokens in enumerate(torch.randint(11, (steps * ROWS, LENGTH), generator=generator)):
        labels = tokens.clone()
        if masked and number % 3 == 0:
            labels[2:] = -100
        rows.append({"input_ids": tokens, "labels": labels})
    return rows


def model_of(architecture: str = "mamba2", **settings: Any) -> LanguageModel:
    return tiny_model(architecture, dtype=torch.float32, **settings)


def other_weights(model: LanguageModel) -> LanguageModel:
    """The same model with weights that nobody may go on from."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.5)
    return model


def trainer_of(
    folder: Path,
    method: str = "state_passing",
    *,
    model: Any = None,
    data: Any = None,
    more: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None,
    **arguments: Any,
) -> StatefulTrainer:
    """A trainer of 6 steps of 4 rows, one after another, with a checkpoint after 3."""
    given: dict[str, Any] = {
        "per_device_train_batch_size": ROWS,
        "max_steps": STEPS,
        "save_steps": 3,
        "learning_rate": 1e-2,
        "train_sampling_strategy": "sequential",
        **QUIET,
        **arguments,
    }
    intervention = create_intervention(method, seed=4, **(settings or {}))
    if data is None:
        data = Streams() if intervention.data_order == "contiguous" else shuffled()
    args = TrainingArguments(output_dir=str(folder), **given)
    given = {"context": LENGTH // intervention.row_contexts} if intervention.row_contexts > 1 else {}
    given.update(more or {})
    return StatefulTrainer(model or model_of(), args, intervention=intervention, train_dataset=data, **given)


def carried(folder: Path, rank: int = 0) -> dict[str, Any]:
    """What a process carried, with the settings."""
    with safe_open(folder / f"everlong-carried-{rank:05d}.safetensors", framework="pt") as file:
        return {**(file.metadata() or {}), **{name: file.get_tensor(name) for name in file.keys()}}  # noqa: SIM118


def weights(folder: Path) -> dict[str, Tensor]:
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    """To the bit."""
    assert one.keys() == other.keys()
    for name, value in one.items():
        same = torch.equal(value, other[name]) if isinstance(value, Tensor) else value == other[name]
        assert same, name


def assert_close(one: dict[str, Tensor], other: dict[str, Tensor], tolerance: float) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        torch.testing.assert_close(value, other[name], rtol=0, atol=tolerance, msg=lambda text, name=name: name + text)
