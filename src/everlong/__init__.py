"""Everlong: how far a recurrent language model can really read, why it breaks there, and its repair, proven.

    everlong.create(name, vocab_size=...)    a fresh model
    everlong.load(folder)                    a model from a folder, file or hub id
    everlong.diagnose(DiagnoseConfig(...)), everlong.repair(RepairConfig(...)), everlong.train(TrainConfig(...))

Names are imported on first use: ``import everlong`` is quick and does not import torch.
"""

from importlib import import_module
from typing import Any

_EXPORTS = {
    "ConvertConfig": "everlong.workflows.config",
    "DataConfig": "everlong.data.config",
    "DiagnoseConfig": "everlong.workflows.config",
    "DiagnosisConfig": "everlong.diagnostics.config",
    "DoctorConfig": "everlong.workflows.config",
    "EvaluateConfig": "everlong.workflows.config",
    "EverlongError": "everlong.errors",
    "GenerateConfig": "everlong.workflows.config",
    "RepairConfig": "everlong.workflows.config",
    "RuntimeConfig": "everlong.workflows.config",
    "TrainConfig": "everlong.workflows.config",
    "convert": "everlong.workflows.convert",
    "create": "everlong.models.architectures",
    "diagnose": "everlong.workflows.diagnose",
    "doctor": "everlong.workflows.doctor",
    "evaluate": "everlong.workflows.evaluate",
    "experiment": "everlong.workflows.experiment",
    "generate": "everlong.workflows.generate",
    "load": "everlong.loading",
    "load_tokenizer": "everlong.data.tokenizers",
    "repair": "everlong.workflows.repair",
    "report": "everlong.workflows.report",
    "train": "everlong.workflows.train",
}

__all__ = sorted(_EXPORTS)  # pyright: ignore[reportUnsupportedDunderAll]  (names are lazy)


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'everlong' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
