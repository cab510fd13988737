"""Records as an evaluation leaves them, made up: wide tables, notes, floors of several kinds."""

import numpy as np

from everlong.records.tasks import Score, TaskCell, TaskEvaluation

MEASURES = {
    "passkey": ("accuracy", "forced_accuracy"),
    "babilong": ("accuracy", "accuracy_by_words", "valid", "forced_accuracy"),
    "copying": ("character_accuracy", "free_character_accuracy", "exact_match"),
    "recall": ("accuracy", "valid", "forced_accuracy"),
}
NOTE = "3 of 9 questions are left out"


def cell(task, mean, floors=None, **parameters):
    """The first measure has the mean; the others differ from it, so that none can be taken for another."""
    values = (np.arange(20) < round(20 * mean)).astype(float)
    scores = {}
    for place, name in enumerate(MEASURES[task]):
        one = mean if place == 0 else (mean + 0.07 * place) % 1
        scores[name] = Score(mean=one, lower=max(one - 0.1, 0.0), upper=min(one + 0.1, 1.0))
    scores["nats"] = Score(mean=2.25 + mean, lower=2.125, upper=13.5)
    return TaskCell(
        task=task,
        parameters=parameters,
        examples=20,
        tokens_read=100,
        scores=scores,
        floors=floors or {"chance": 0.1, "most frequent": 0.2, "last value": 0.125},
        values=dict.fromkeys(scores, values),
        notes=(NOTE,) if parameters.get("question") == "qa1" else (),
        seconds=1.0,
    )


def evaluation(task, cells, **fields):
    """All cells of a task."""
    return TaskEvaluation(
        **{
            "task": task,
            "measures": MEASURES[task],
            "length_is": "letters of the string" if task == "copying" else "tokens of prompt and answer",
            "settings": {"wording": "compact"},
            "model": "tiny",
            "architecture": "gla",
            "parameters": 7,
            "context": 512,
            "tokenizer": "bytes",
            "cells": tuple(cells),
            "confidence": 0.95,
            "seed": 0,
            "backend": "chunked",
            "device": "cpu",
            "dtype": "float32",
            "seconds": 1.0,
            **fields,
        }
    )


PASSKEY = evaluation(
    "passkey", [cell("passkey", mean, length=n, depth=d) for n, mean in ((256, 1.0), (1024, 0.4)) for d in (0.1, 0.9)]
)
QUESTIONS = [f"qa{number}" for number in range(1, 11)]
BABILONG = evaluation(
    "babilong", [cell("babilong", i / 10, length=n, question=q) for n in (0, 262_144) for i, q in enumerate(QUESTIONS)]
)
COPYING = evaluation("copying", [cell("copying", 0.01 * n, length=n) for n in (20, 50)])
RECALL = evaluation(
    "recall", [cell("recall", 0.2, length=n, facts=f, distance=d) for n in (256, 512) for f in (2, 8) for d in (0, 30)]
)
EVALUATIONS = (PASSKEY, BABILONG, COPYING, RECALL)
