import re
from collections import Counter

import numpy as np
import pytest

from everlong.data.tokenizers import load_tokenizer
from everlong.tasks.config import RecallConfig
from everlong.tasks.recall import Recall


@pytest.mark.parametrize("facts", [1, 7, 40])
@pytest.mark.parametrize("distance", [0, 5, 33, 500])
def test_the_fact_asked_for_stands_at_the_exact_distance(tokenizer, facts, distance):
    task = Recall(RecallConfig(), tokenizer)
    parameters = {"facts": facts, "distance": distance}
    for index in range(3):
        length = task.shortest_length(parameters) + 100 * index
        example = task.example({**parameters, "length": length}, seed=0, index=index)
        text = f" {tokenizer.decode(example.prompt).strip()}"
        key = re.findall(r" ([a-z]{2}) is$", text)[0]
        fact = [*task.ids(f" {key} is"), *task.ids(f" {example.target}"), *task.ids(".")]
        ids = example.prompt.tolist()
        at = next(i for i in range(len(ids)) if ids[i : i + len(fact)] == fact)
        asked = len(task.ids(f" {key} is"))
        assert len(ids) - asked - (at + len(fact)) == distance
        assert len(re.findall(r" [b-z]{2} is [0-9]\.", text)) == facts == len(example.options)


def test_without_a_distance_the_facts_come_first_and_in_training_anywhere(tokenizer):
    evaluated, trained = (Recall(RecallConfig(), tokenizer, training=training) for training in (False, True))
    parameters = {"length": 400, "facts": 3, "distance": None}
    places = {
        task: [
            tokenizer.decode(task.example(parameters, seed=0, index=index).prompt).strip().index(" is ")
            for index in range(8)
        ]
        for task in (evaluated, trained)
    }
    assert set(places[evaluated]) == {2}
    assert len(set(places[trained])) > 4


@pytest.mark.parametrize("facts", [2, 10, 14, 25])
def test_a_guess_from_frequency_scores_chance(tokenizer, facts):
    task = Recall(RecallConfig(), tokenizer)
    parameters = {"length": 600, "facts": facts, "distance": None}
    examples = [task.example(parameters, seed=0, index=index) for index in range(400)]
    floors = task.floors(parameters, examples)
    assert floors["chance"] == pytest.approx(1 / min(facts, 10))
    assert floors["most frequent"] == pytest.approx(floors["chance"], abs=0.04)
    answers = Counter(example.target for example in examples)
    assert len(answers) == 10
    assert max(answers.values()) / 400 < 0.17
    assert np.ptp(list(Counter(examples[0].options).values())) <= 1


@pytest.mark.parametrize(("distance", "floor"), [(0, 1.0), (30, 0.28), (None, 1 / 16)])
def test_the_last_value_is_a_floor_for_a_fact_that_stands_near(distance, floor):
    task = Recall(RecallConfig(), load_tokenizer("bytes"))
    parameters = {"length": 512, "facts": 16, "distance": distance}
    examples = [task.example(parameters, seed=0, index=index) for index in range(200)]
    said = [re.findall(r" ([0-9])\.", task.text(example.prompt))[-1] for example in examples]
    scores = [
        task.score(example, example.answer, task.ids(f" {last}."))["accuracy"]
        for example, last in zip(examples, said, strict=True)
    ]
    assert task.floors(parameters, examples)["last value"] == pytest.approx(np.mean(scores))
    assert np.mean(scores) == pytest.approx(floor, abs=0.12)


@pytest.mark.parametrize(
    ("said", "right"), [(" V.", 1), ("V\n", 1), (" V7", 0), ("  V", 0), (" .V", 0), (" V", 0), ("", 0)]
)
def test_the_first_thing_written_must_be_the_value_and_end_within_what_is_written(said, right):
    task = Recall(RecallConfig(), load_tokenizer("bytes"))
    example = task.example({"length": 200, "facts": 2, "distance": None}, seed=0, index=0)
    written = task.ids(said.replace("V", example.target))
    assert len(written) <= task.tokens_to_write(example)
    assert task.score(example, example.answer, written)["accuracy"] == right
