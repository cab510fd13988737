"""transformers' Trainer with our states: it trains as a loop of one's own does, and goes on to the bit."""

import json
from pathlib import Path

import datasets
import pytest
import torch
from torch.nn import functional as F

from everlong.checkpoints._checkpoint import Checkpoint
from everlong.data.contiguous_streams import ContiguousStreams
from everlong.integrations.ordered_rows import OrderedRows
from everlong.interventions.methods import INTERVENTIONS, create
from everlong.loading import load, open_model, save
from everlong.models.architectures import ARCHITECTURES
from tests.data.test_shuffled_chunks import corpus_of
from tests.integrations.trainers import (
    LENGTH,
    ROWS,
    STEPS,
    Streams,
    assert_close,
    assert_same,
    carried,
    model_of,
    other_weights,
    shuffled,
    trainer_of,
    weights,
)

SETTINGS = {"burn_in": {"longest_prefix": 3}}  # of rows of 8 tokens
TOLERANCE = 2e-6  # of a weight after 6 steps of 1e-2, where float32 sums are taken in another order


def own_loop(model, method, data, *, shift):
    """The five lines of docs, with the optimizer that the Trainer has."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    for step in range(STEPS):
        rows = [data[step * ROWS + row] for row in range(ROWS)]
        tokens = torch.stack([row["input_ids"] for row in rows])
        starts = torch.stack([row["starts"] for row in rows]) if "starts" in rows[0] else torch.zeros(ROWS).bool()
        resets = torch.stack([row["resets"] for row in rows]) if "resets" in rows[0] else None
        initial = method.initial_state(starts, model.state_spec, step, torch.arange(ROWS))
        ages = method.ages(torch.arange(ROWS))
        output = model(tokens, initial, resets=resets)
        labels = torch.stack([row["labels" if shift else "shift_labels"] for row in rows])
        logits, targets = (output.logits[:, :-1], labels[:, 1:]) if shift else (output.logits, labels)
        F.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.param_groups[0]["lr"] = 1e-2 * (1 - step / STEPS)  # the Trainer's default schedule
        optimizer.step()
        optimizer.zero_grad()
        ages = ages + LENGTH
        if resets is not None:
            ages = torch.where(resets.any(1), LENGTH - resets.int().argmax(1), ages)
        method.observe(output.state.detach(), ages)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", ["state_passing", "tbtt"])
def test_it_trains_as_a_loop_of_ones_own_does(tmp_path, architecture, name):
    trainer = trainer_of(tmp_path, name, model=model_of(architecture))
    trainer.train()
    model, method = model_of(architecture), create(name, seed=4)
    own_loop(model, method, trainer.train_dataset, shift=name == "state_passing")
    assert_close(dict(trainer.language_model.state_dict()), dict(model.state_dict()), TOLERANCE)
    ours, theirs = trainer.intervention.state_dict(), method.state_dict()
    assert torch.equal(torch.as_tensor(ours["ages"]), torch.as_tensor(theirs["ages"]))
    assert len(ours) > 2
    for leaf, value in ours.items():
        torch.testing.assert_close(value, theirs[leaf], rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "strategy"), [*((name, "sequential") for name in INTERVENTIONS), ("state_passing", "random")]
)
def test_six_steps_are_three_a_resume_and_three_to_the_bit(tmp_path, name, strategy):
    given = {"settings": SETTINGS.get(name), "train_sampling_strategy": strategy}
    whole = trainer_of(tmp_path / "whole", name, **given)
    whole.train()
    first = tmp_path / "whole" / "checkpoint-3"
    resumed = trainer_of(tmp_path / "resumed", name, model=other_weights(model_of()), **given)
    resumed.train(resume_from_checkpoint=str(first))
    ends = [tmp_path / which / "checkpoint-6" for which in ("whole", "resumed")]
    assert_same(*[weights(end) for end in ends])
    assert_same(*[carried(end) for end in ends])
    optimizers = [torch.load(end / "optimizer.pt", weights_only=True)["state"] for end in ends]
    for one, other in zip(optimizers[0].values(), optimizers[1].values(), strict=True):
        assert_same(one, other)
    then, now = weights(first), weights(ends[0])
    assert all(not torch.equal(then[name], now[name]) for name in then)


@pytest.mark.parametrize("name", ["state_passing", "fitted_noise"])
def test_parts_of_a_step_give_the_whole_step(tmp_path, name):
    """Unequally many targets count in the parts; draws are by the row of the step."""
    whole = trainer_of(tmp_path / "whole", name, data=shuffled(masked=True))
    parts = trainer_of(
        tmp_path / "parts",
        name,
        data=shuffled(masked=True),
        per_device_train_batch_size=ROWS // 2,
        gradient_accumulation_steps=2,
    )
    losses = [trainer.train().training_loss for trainer in (whole, parts)]
    assert losses[0] == pytest.approx(losses[1], rel=0, abs=TOLERANCE)
    assert_close(whole.language_model.state_dict(), parts.language_model.state_dict(), TOLERANCE)
    assert len(parts.intervention.state_dict()) > 2


def test_a_second_training_begins_anew(tmp_path, monkeypatch):
    trainer = trainer_of(tmp_path, save_strategy="no")
    trainer.train()
    seen = []
    initial_state = trainer.intervention.initial_state

    def watch(*arguments):
        state = initial_state(*arguments)
        seen.append(sum(float(leaf.abs().sum()) for leaf in state.leaves))
        return state

    monkeypatch.setattr(trainer.intervention, "initial_state", watch)
    trainer.train()
    assert seen[0] == 0
    assert max(seen[1:]) > 0


def test_evaluation_starts_from_zero_and_leaves_what_is_carried_alone(tmp_path):
    held_out = shuffled(2, masked=True)[:6]
    trainer = trainer_of(tmp_path, "random_noise", more={"eval_dataset": held_out}, per_device_eval_batch_size=3)
    trainer.train()
    before = trainer.intervention.state_dict()
    loss = trainer.evaluate()["eval_loss"]
    tokens, labels = (torch.stack([row[name] for row in held_out]) for name in ("input_ids", "labels"))
    with torch.no_grad():
        logits = trainer.language_model(tokens).logits
    batches = [
        F.cross_entropy(logits[rows, :-1].flatten(0, 1), labels[rows, 1:].flatten())
        for rows in (slice(0, 3), slice(3, 6))
    ]
    assert loss == pytest.approx(float(sum(batches) / 2), abs=1e-6)
    assert_same(before, trainer.intervention.state_dict())


def test_evaluation_gives_logits_and_labels_as_they_were_given(tmp_path):
    held_out = shuffled(1)
    seen = []
    more = {"eval_dataset": held_out, "compute_metrics": lambda found: seen.append(found) or {}}
    trainer_of(tmp_path, more=more).evaluate()
    assert seen[0].predictions.shape == (ROWS, LENGTH, 12)
    assert seen[0].label_ids.tolist() == [row["labels"].tolist() for row in held_out]


def test_labels_are_shifted_here_and_shift_labels_are_not(tmp_path):
    rows = shuffled()
    shifted = [
        {"input_ids": row["input_ids"], "shift_labels": torch.cat([row["labels"][1:], torch.tensor([-100])])}
        for row in rows
    ]
    losses = [trainer_of(tmp_path / str(i), data=data).train().training_loss for i, data in enumerate((rows, shifted))]
    assert losses[0] == losses[1]


def test_no_label_is_predicted_across_documents(tmp_path):
    rows = shuffled()
    for row in rows:
        row["resets"] = torch.arange(LENGTH) == 3
    told = [{**row, "labels": row["labels"].masked_fill(row["resets"], -100)} for row in rows]
    losses = [trainer_of(tmp_path / str(i), data=data).train().training_loss for i, data in enumerate((rows, told))]
    assert losses[0] == losses[1]


def test_a_reset_at_the_first_token_is_a_start(tmp_path):
    """So what a row starts from is the intervention's affair: TBTT begins a document there, state passing does not."""
    by_starts, by_resets = Streams(), list(Streams())
    for row in by_resets:
        row["resets"] = row["resets"] | (row.pop("starts") & (torch.arange(LENGTH) == 0))
    trainers = [
        trainer_of(tmp_path / str(i), "tbtt", data=data, more={"data_order": "contiguous"})
        for i, data in enumerate((by_starts, by_resets))
    ]
    losses = [trainer.train().training_loss for trainer in trainers]
    assert losses[0] == losses[1]
    assert_same(*[trainer.intervention.state_dict() for trainer in trainers])


def test_a_dataset_of_datasets_loses_the_columns_that_nobody_reads(tmp_path):
    rows = [{name: column.tolist() for name, column in row.items()} for row in shuffled()]
    data = datasets.Dataset.from_list([{**row, "text": "unread"} for row in rows])
    losses = [
        trainer_of(tmp_path / str(i), data=each).train().training_loss for i, each in enumerate((data, shuffled()))
    ]
    assert losses[0] == losses[1]


def test_the_data_orders_of_everlong_are_data_sets_for_it(tmp_path):
    corpus = corpus_of(41, 33, 50, 37)
    for document in corpus.documents:
        document.tokens.setflags(write=True)
        document.tokens[:] %= 11
    order = ContiguousStreams(corpus, length=LENGTH, batch_size=ROWS, seed=0)
    rows = OrderedRows(order, steps=STEPS)
    trainer = trainer_of(tmp_path, "tbtt", data=rows)
    trainer.train()
    model, method = model_of(), create("tbtt", seed=4)
    own_loop(model, method, rows, shift=False)
    assert_close(dict(trainer.language_model.state_dict()), dict(model.state_dict()), TOLERANCE)


def test_checkpoints_are_models_in_our_format_and_keep_context_and_tokenizer(tmp_path):
    save(model_of(), tmp_path / "start", context=LENGTH, tokenizer="bytes")
    start = open_model(tmp_path / "start", backend="chunked")
    trainer = trainer_of(tmp_path / "run", model=start)
    trainer.train()
    folder = tmp_path / "run" / "checkpoint-6"
    found = open_model(folder)
    assert isinstance(found, Checkpoint)
    assert (found.format, found.context, found.tokenizer) == ("everlong", LENGTH, "bytes")
    assert_same(dict(found.model.state_dict()), dict(trainer.language_model.state_dict()))
    pickled = {path.name for path in folder.iterdir() if path.suffix in (".pt", ".pth", ".bin")}
    assert pickled == {"optimizer.pt", "scheduler.pt", "rng_state.pth"}  # the Trainer's own
    trainer.save_model(str(tmp_path / "end"))
    assert sorted(path.name for path in (tmp_path / "end").iterdir()) == ["config.json", "model.safetensors"]
    trainer.save_model(str(tmp_path / "end"))  # as the Trainer does, over what is there


def test_the_best_model_is_taken_up_at_the_end(tmp_path):
    more = {"eval_dataset": shuffled(1)}
    evaluating = {"eval_strategy": "steps", "eval_steps": 3, "load_best_model_at_end": True, "greater_is_better": True}
    trainer = trainer_of(tmp_path, more=more, **evaluating, metric_for_best_model="loss")  # so the worst of the two
    trainer.train()
    best = Path(str(trainer.state.best_model_checkpoint))
    assert best.name == "checkpoint-3"
    assert_same(dict(load(best).state_dict()), dict(trainer.language_model.state_dict()))


def test_in_bfloat16_states_stay_in_float32(tmp_path):
    trainer = trainer_of(tmp_path, bf16=True)
    assert trainer.train().training_loss == pytest.approx(trainer_of(tmp_path / "b").train().training_loss, rel=0.02)
    values = trainer.intervention.state_dict()
    assert {torch.as_tensor(value).dtype for name, value in values.items() if name.startswith("leaf.")} == {
        torch.float32
    }


def test_weight_decay_falls_where_it_does_in_our_own_loop(tmp_path):
    trainer = trainer_of(tmp_path, model=model_of("mamba1"), weight_decay=0.1)
    names = trainer.get_decay_parameter_names(trainer.language_model)
    assert "backbone.layers.0.mixer.in_proj.weight" in names
    assert not [name for name in names if "A_log" in name or "norm" in name or name.endswith(".D")]


def test_what_is_carried_is_plain_and_checked(tmp_path):
    trainer_of(tmp_path / "run").train()
    start = tmp_path / "run" / "checkpoint-3"
    file = start / "everlong-carried-00000.safetensors"
    settings = json.loads(carried(start)["settings"])
    assert (settings["step"], settings["rows_per_step"], settings["method"]) == (3, ROWS, "state_passing")
    content = file.read_bytes()

    def told(method="state_passing", **arguments):
        with pytest.raises(Exception, match="everlong-carried-00000") as raised:
            trainer_of(tmp_path / "other", method, **arguments).train(resume_from_checkpoint=str(start))
        return str(raised.value)

    assert "rows_per_step 2, was 4" in told(per_device_train_batch_size=2)
    assert "method random_noise, was state_passing" in told("random_noise")
    file.write_bytes(content[:-5])
    assert "torn" in told()
    file.unlink()
    assert "is missing" in told()


def test_another_models_checkpoint_is_refused(tmp_path):
    trainer_of(tmp_path / "run").train()
    trainer = trainer_of(tmp_path / "other", model=model_of(d_state=5))
    with pytest.raises(Exception, match="another model's checkpoint: d_state 5, was 6"):
        trainer.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-3"))
