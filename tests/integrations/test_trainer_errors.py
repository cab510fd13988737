"""What StatefulTrainer refuses, in a line that says what to do."""

import pytest
import torch

from everlong.errors import EverlongError
from tests.integrations.trainers import LENGTH, ROWS, Streams, model_of, shuffled, trainer_of


def told(work) -> str:
    with pytest.raises(EverlongError) as raised:
        work()
    message = str(raised.value)
    assert "\n" not in message
    return message


def train(tmp_path, method="state_passing", **settings) -> str:
    return told(lambda: trainer_of(tmp_path, method, **settings).train())


def with_column(name, column) -> list:
    return [{**row, name: column} for row in shuffled()]


def without(name) -> list:
    return [{key: value for key, value in row.items() if key != name} for row in shuffled()]


def test_a_model_that_is_not_ours(tmp_path):
    message = told(lambda: trainer_of(tmp_path, model=torch.nn.Linear(2, 2)))
    assert message.startswith("the model is a Linear; StatefulTrainer trains Everlong's: everlong.load(MODEL)")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("activation_checkpointing", True),
        ("auto_find_batch_size", True),
        ("average_tokens_across_devices", False),
        ("label_smoothing_factor", 0.1),
        ("neftune_noise_alpha", 5.0),
        ("use_liger_kernel", True),
    ],
)
def test_arguments_that_cannot_be_served(tmp_path, name, value):
    assert f"StatefulTrainer does not take {name}" in told(lambda: trainer_of(tmp_path, **{name: value}))


def test_arguments_of_trainer_that_cannot_be_served(tmp_path):
    for name in ("compute_loss_func", "model_init"):
        more = {name: model_of}
        assert f"StatefulTrainer does not take {name}: " in told(lambda more=more: trainer_of(tmp_path, more=more))


def test_tbtt_needs_streams(tmp_path):
    message = train(tmp_path, "tbtt", data=shuffled())
    assert "the method tbtt needs the data order 'contiguous', the rows come in 'shuffled' order" in message


def test_rows_that_would_be_read_ahead(tmp_path):
    message = train(tmp_path, settings={"prefill_steps": 4})
    assert message == "StatefulTrainer does not take prefill_steps=4: everlong's own loop has it"


def test_state_passing_needs_rows_that_are_unrelated(tmp_path):
    message = train(tmp_path, data=Streams())
    assert "the method state_passing needs the data order 'shuffled', the rows come in 'contiguous' order" in message


def test_streams_are_not_to_be_shuffled(tmp_path):
    message = train(tmp_path, "tbtt", train_sampling_strategy="random")
    assert message.endswith("would break: give train_sampling_strategy='sequential'")


def test_streams_say_where_documents_begin(tmp_path):
    rows = [{name: row[name] for name in ("input_ids", "shift_labels")} for row in Streams()]
    assert "give `starts`" in train(tmp_path, "tbtt", data=rows, more={"data_order": "contiguous"})


def test_rows_that_do_not_go_on_are_no_streams(tmp_path):
    """The rows of two streams exchanged in step 2."""
    rows = list(Streams())
    rows[8], rows[9] = rows[9], rows[8]
    message = train(tmp_path, "tbtt", data=rows, more={"data_order": "contiguous"})
    assert message.startswith("row 0 of step 2 begins with token ")
    assert message.endswith("item i + 4 of the data must go on where item i ends")


def test_streams_are_also_checked_over_a_resume(tmp_path):
    trainer_of(tmp_path / "run", "tbtt", max_steps=3).train()
    rows = list(Streams())
    rows[13], rows[14] = rows[14], rows[13]
    resumed = trainer_of(tmp_path / "run", "tbtt", data=rows, more={"data_order": "contiguous"})
    message = told(lambda: resumed.train(resume_from_checkpoint=True))
    assert message.startswith("row 1 of step 3 begins with token ")


def test_rows_a_step_are_those_of_the_data_order(tmp_path):
    message = train(tmp_path, "tbtt", per_device_train_batch_size=2)
    assert message.startswith("the data have 4 rows a step, the processes read 2: per_device_train_batch_size 2 x ")


def test_a_last_batch_of_fewer_rows(tmp_path):
    message = train(tmp_path, data=shuffled()[:-1], num_train_epochs=1)
    assert message.endswith("would have 3 rows, of 23, where every one needs 4: give dataloader_drop_last=True")
    trainer_of(tmp_path, data=shuffled()[:-1], dataloader_drop_last=True, max_steps=-1, num_train_epochs=1).train()


def test_a_last_step_of_fewer_parts(tmp_path):
    """Three parts of two rows and a step of one part; not where training ends before it."""
    given = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "data": shuffled()[:14]}
    words = "the last step of an epoch would have 1 parts, where every one needs gradient_accumulation_steps 2: "
    assert train(tmp_path, **given, max_steps=-1, num_train_epochs=2).startswith(words)
    assert train(tmp_path, **given, max_steps=4).startswith(words)
    trainer_of(tmp_path, **given, max_steps=3).train()
    trainer_of(tmp_path, **{**given, "data": shuffled()[:16]}, max_steps=-1, num_train_epochs=2).train()


def test_a_last_step_of_fewer_parts_where_the_data_do_not_say_their_length(tmp_path):
    class Rows(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(shuffled()[:6])

    given = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "data": Rows()}
    message = train(tmp_path, **given, max_steps=3)
    assert message.startswith("the last step of an epoch would have 1 parts, where every one needs ")


@pytest.mark.parametrize(
    ("method", "settings", "wanted"),
    [
        ("longer_context", {"factor": 2}, 16),
        ("tbtt", {"gradient_horizon_chunks": 4}, 32),
        ("burn_in", {"longest_prefix": 3}, 11),
    ],
)
def test_rows_of_another_length_than_the_method_reads(tmp_path, method, settings, wanted):
    """In rows of one training length, longer_context would be the zero control, and the horizon that of one chunk."""
    message = train(tmp_path, method, settings=settings, more={"context": LENGTH})
    assert message.startswith(f"the rows have 8 tokens, the method {method} reads {wanted} for a training length of 8")
    fitting = LENGTH - 3 if method == "burn_in" else LENGTH * LENGTH // wanted
    trainer_of(tmp_path, method, settings=settings, more={"context": fitting}).train()


@pytest.mark.parametrize(("method", "setting"), [("longer_context", "factor"), ("tbtt", "gradient_horizon_chunks")])
def test_rows_of_several_training_lengths_where_that_is_not_known(tmp_path, method, setting):
    message = train(tmp_path, method, settings={setting: 4}, more={"context": None})
    assert message.startswith(f"the method {method} reads rows of 4 training lengths, and the model does not say")
    assert message.endswith("give context=, in tokens")


def test_batches_that_change_where_the_data_do_not_say_their_length(tmp_path):
    class Rows(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(shuffled()[:6])

    message = train(tmp_path, data=Rows(), max_steps=2)
    assert message.startswith("a batch of step 1 has 2 rows, every one needs 4: give dataloader_drop_last=True")


def test_padded_rows(tmp_path):
    mask = torch.ones(LENGTH, dtype=torch.int64)
    trainer_of(tmp_path, data=with_column("attention_mask", mask)).train()
    mask = mask.clone()
    mask[-1] = 0
    assert "padded rows" in train(tmp_path, data=with_column("attention_mask", mask))


def test_labels_are_needed_and_of_one_kind(tmp_path):
    assert train(tmp_path, data=without("labels")).startswith("a batch has no labels: give labels")
    both = with_column("shift_labels", torch.zeros(LENGTH, dtype=torch.int64))
    assert train(tmp_path, data=both).startswith("a batch has labels and shift_labels: give labels")


def test_input_ids_are_needed(tmp_path):
    message = train(tmp_path, data=[{"labels": row["labels"]} for row in shuffled()])
    assert message.startswith("a batch has no input_ids of shape [B, T] (its columns: labels)")


def test_columns_of_another_shape(tmp_path):
    short = with_column("labels", torch.zeros(LENGTH - 1, dtype=torch.int64))
    assert train(tmp_path, data=short) == "labels of a batch has shape [4, 7], input_ids need [4, 8]"
    assert "starts of a batch has shape [4, 8], input_ids need [4]" in train(
        tmp_path, data=with_column("starts", torch.zeros(LENGTH, dtype=torch.bool))
    )


def test_a_step_without_targets(tmp_path):
    rows = shuffled()
    for row in rows[ROWS : 2 * ROWS]:
        row["labels"] = torch.full((LENGTH,), -100)
    assert train(tmp_path, data=rows).startswith("no target of step 1 is scored")
