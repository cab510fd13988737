import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from everlong.data.batch import Batch
from everlong.errors import EverlongError, RunStopped
from everlong.interventions._draws import uniform
from everlong.interventions.zero import Zero
from everlong.records.files import load_record, save_record
from everlong.runs import Run
from everlong.training.schedule import learning_rate
from tests.training.arms import CONFIG, PHASE, Arm, Tokens, assert_same_to_the_bit, tiny_model


def test_training_lowers_the_loss_and_says_so_in_its_record(tmp_path):
    class Same(Tokens):
        def batch(self, step: int, rows: range | None = None) -> Batch:
            return super().batch(0, rows)

    arm = Arm(tmp_path / "run", "zero")
    record = arm.train(Same(), replace(CONFIG, steps=40))
    losses = [line["loss"] for line in arm.lines()]
    assert record.final_loss < record.first_loss - 0.5
    assert record.first_loss == pytest.approx(np.mean(losses[:4]))
    assert record.final_loss == pytest.approx(np.mean(losses[-4:]))


def test_the_record_counts_tokens_and_names_settings_and_survives_a_round_trip(tmp_path):
    record = Arm(tmp_path / "run").train()
    assert (record.method, record.steps, record.backend) == ("state_passing", 10, "chunked")
    assert record.scored_tokens == record.read_tokens == record.exposure.scored_tokens == 10 * 3 * 8
    assert record.settings["learning_rate"] == 1e-2
    assert record.settings["intervention"]["reset_probability"] == 0.1
    assert record.settings["data_order"] == "shuffled"
    assert record.exposure.ages == (0, 8, 16, 32, 64)
    assert record.exposure.tokens[1] > 0
    save_record(record, tmp_path / "record.json")
    assert load_record(tmp_path / "record.json") == record


def test_every_step_has_a_line_of_metrics(tmp_path):
    arm = Arm(tmp_path / "run", reset_probability=0.0)
    arm.train()
    for step, line in enumerate(arm.lines()):
        assert line["phase"] == PHASE
        assert line["step"] == step
        assert line["learning_rate"] == learning_rate(step, CONFIG)
        assert line["gradient_norm"] > 0
        assert line["state_age_mean"] == 8.0 * step
        assert line["scored_tokens"] == 24 * (step + 1)
        assert line["state_norm"] > 0
    last = json.loads((arm.folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert (
        f"loss {last['loss']:.3f}  {last['tokens_per_second']:,.0f} tokens/s  "
        f"gradient {last['gradient_norm']:.3g}  state {last['state_norm']:.3g}"
    ) in arm.said


def test_the_state_norm_is_the_root_mean_square_over_rows_of_the_norm_of_a_rows_final_state(tmp_path):
    arm = Arm(tmp_path / "run", "zero")
    leaves = arm.model(Tokens().batch(0).tokens).state.leaves
    wanted = torch.cat([leaf.flatten(1) for leaf in leaves], dim=1).norm(dim=1).square().mean().sqrt()
    arm.train()
    assert arm.lines()[0]["state_norm"] == pytest.approx(wanted.item(), rel=1e-5)


def test_two_runs_are_equal_and_leave_the_global_generators_alone(tmp_path):
    one, other = Arm(tmp_path / "one"), Arm(tmp_path / "other")
    before, numpy_before = torch.get_rng_state(), np.random.get_state(legacy=True)
    one.train()
    assert torch.equal(torch.get_rng_state(), before)
    assert str(np.random.get_state(legacy=True)) == str(numpy_before)
    torch.manual_seed(123)
    other.train()
    assert_same_to_the_bit(one, other)


def test_state_passing_that_always_resets_is_the_zero_control(tmp_path):
    passing, zero = Arm(tmp_path / "passing", reset_probability=1.0), Arm(tmp_path / "zero", "zero")
    passing.train()
    zero.train()
    assert passing.lines() == zero.lines()


def test_state_passing_changes_training_from_the_second_step_on(tmp_path):
    passing, zero = Arm(tmp_path / "passing", reset_probability=0.0), Arm(tmp_path / "zero", "zero")
    passing.train()
    zero.train()
    same = [a["loss"] == b["loss"] for a, b in zip(passing.lines(), zero.lines(), strict=True)]
    assert same == [True] + [False] * 9


def test_the_state_that_is_passed_is_the_one_the_model_ended_at(tmp_path):
    """Two steps by hand, without the loop."""
    arm, reference = Arm(tmp_path / "run", reset_probability=0.0), Arm(tmp_path / "none")
    config = replace(CONFIG, steps=2)
    arm.train(config=config)
    model, source, state = reference.model, Tokens(), reference.model.zero_state(3)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.0)
    losses = []
    for step in range(2):
        batch = source.batch(step)
        output = model(batch.tokens, state)
        loss = F.cross_entropy(output.logits.flatten(0, 1), batch.targets.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, config)
        optimizer.step()
        optimizer.zero_grad()
        state, losses = output.state.detach(), [*losses, loss.item()]
    assert [line["loss"] for line in arm.lines()] == pytest.approx(losses, rel=1e-3)


def test_only_scored_targets_count_in_loss_and_record(tmp_path):
    mask = torch.zeros(3, 8, dtype=torch.bool)
    mask[0, 2], mask[2, 5:] = True, True
    arm = Arm(tmp_path / "run", "zero")
    batch = Tokens().batch(0)
    losses = F.cross_entropy(arm.model(batch.tokens).logits.flatten(0, 1), batch.targets.flatten(), reduction="none")
    record = arm.train(Tokens(loss_mask=mask))
    assert arm.lines()[0]["loss"] == pytest.approx(losses.view(3, 8)[mask].mean().item(), rel=1e-6)
    assert record.scored_tokens == record.exposure.scored_tokens == 40
    assert record.read_tokens == 240


def test_an_unscored_prefix_is_read_without_loss(tmp_path):
    mask = torch.ones(3, 8, dtype=torch.bool)
    mask[:, :3] = False
    masked, prefixed = Arm(tmp_path / "masked", "zero"), Arm(tmp_path / "prefixed", "zero")
    prefixed.intervention.unscored_prefix = 3
    masked.train(Tokens(loss_mask=mask))
    record = prefixed.train(Tokens())
    weights = zip(masked.model.parameters(), prefixed.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in weights)
    assert [line["loss"] for line in masked.lines()] == [line["loss"] for line in prefixed.lines()]
    assert {line["state_age_mean"] for line in prefixed.lines()} == {3.0}  # what the first scored token meets
    assert record.scored_tokens == 10 * 3 * 5
    assert record.read_tokens == 10 * 3 * 8
    assert record.context == 5


def test_a_prefix_without_gradient_is_read_by_hand_first(tmp_path):
    """The scored part starts from the detached state after the prefix; with the gradient, the loss is the same."""
    whole, cut = (
        Arm(tmp_path / gradient, "burn_in", longest_prefix=6, gradient=gradient == "on") for gradient in ("on", "off")
    )
    reference = tiny_model()
    for arm in (whole, cut):
        arm.train(config=replace(CONFIG, steps=1))
    batch = Tokens(length=14).batch(0)
    resets = cut.intervention.resets(0, batch.rows, 14)
    assert resets is not None
    state = reference(batch.tokens[:, :6], resets=resets[:, :6]).state.detach()
    logits = reference(batch.tokens[:, 6:], state, resets=resets[:, 6:]).logits
    loss = F.cross_entropy(logits.flatten(0, 1), batch.targets[:, 6:].flatten())
    assert cut.lines()[0]["loss"] == pytest.approx(loss.item(), rel=1e-6)
    assert whole.lines()[0]["loss"] == pytest.approx(loss.item(), rel=1e-5)
    loss.backward()
    norm = torch.nn.utils.get_total_norm([p.grad for p in reference.parameters() if p.grad is not None])
    assert cut.lines()[0]["gradient_norm"] == pytest.approx(norm.item(), rel=1e-5)
    assert whole.lines()[0]["gradient_norm"] != pytest.approx(norm.item(), rel=1e-3)
    age = float((6 - resets.int().argmax(1)).double().mean())
    assert cut.lines()[0]["state_age_mean"] == age


@pytest.mark.parametrize("method", ["state_passing", "tbtt"])
def test_rows_that_are_read_ahead_give_the_first_step_old_states_and_train_nothing(tmp_path, method):
    """By hand: the states after two batches, read by the model as it was; the first step is on the third batch."""
    arm = Arm(tmp_path / "run", method, reset_probability=0.0, prefill_steps=2)
    reference, state, source = tiny_model(), None, Tokens()
    for step in range(2):
        state = reference(source.batch(step).tokens, state).state.detach()
    batch = source.batch(2)
    loss = F.cross_entropy(reference(batch.tokens, state).logits.flatten(0, 1), batch.targets.flatten())
    record = arm.train(config=replace(CONFIG, steps=2))
    first, second = arm.lines()
    assert first["loss"] == pytest.approx(loss.item(), rel=1e-6)
    assert (first["step"], first["state_age_mean"], second["state_age_mean"]) == (0, 16.0, 24.0)
    assert (record.scored_tokens, record.read_tokens) == (2 * 24, 4 * 24)
    assert record.exposure.ages == (0, 8, 16)
    assert record.exposure.tokens[2] == record.exposure.tokens[0]  # all of it meets states of 16 tokens and more
    assert record.intervention["oldest_state"] == 32


@pytest.mark.parametrize(
    ("method", "settings"), [("longer_context", {"factor": 2}), ("tbtt", {"gradient_horizon_chunks": 2})]
)
def test_longer_rows_score_the_tokens_of_more_rows(tmp_path, method, settings):
    arm = Arm(tmp_path / "run", method, **settings)
    record = arm.train()
    assert (record.context, record.scored_tokens) == (16, 10 * 3 * 16)
    assert arm.intervention.row_count(6) == 3
    with pytest.raises(EverlongError, match="--batch-size 7 must be a multiple of 2"):
        arm.intervention.row_count(7)
    assert record.settings["intervention"][next(iter(settings))] == 2


def test_the_record_says_what_the_intervention_did(tmp_path):
    assert Arm(tmp_path / "zero", "zero").train().intervention == {}
    assert Arm(tmp_path / "passing", reset_probability=0.0).train().intervention == {
        "oldest_state": 80,
        "mean_state_age": 80.0,
    }
    did = Arm(tmp_path / "noise", "correlated_noise", rank=2).train().intervention
    assert all(0 < share < 1 for shares in did.values() for share in shares)
    assert len(did["common_share_of_variance"]) == 2


@pytest.mark.parametrize("method", ["state_passing", "fitted_noise", "random_noise", "burn_in", "tbtt"])
def test_the_record_counts_the_rows_that_started_from_zero_all_the_same(tmp_path, method):
    arm = Arm(tmp_path / "run", method, reset_probability=0.4)
    starts = torch.tensor([True, False, False])
    record = arm.train(arm.tokens(starts=starts))
    drawn = torch.stack([uniform(4, step, torch.arange(3)) < 0.4 for step in range(10)])
    assert record.zero_starts == int((drawn | starts if method == "tbtt" else drawn).sum())
    assert record.zero_starts in range(1, 30)
    assert Arm(tmp_path / "zero", "zero").train().zero_starts == 0


def test_a_batch_without_a_scored_target_is_refused(tmp_path):
    with pytest.raises(EverlongError, match="no target of the batch at step 0 is scored"):
        Arm(tmp_path / "run").train(Tokens(loss_mask=torch.zeros(3, 8, dtype=torch.bool)))


def test_a_document_that_begins_inside_a_row_starts_from_zero_and_its_state_is_young(tmp_path):
    resets = torch.zeros(3, 8, dtype=torch.bool)
    resets[:, 6] = True
    packed, whole = Arm(tmp_path / "packed", reset_probability=0.0), Arm(tmp_path / "whole", reset_probability=0.0)
    packed.train(Tokens(resets=resets))
    whole.train()
    assert [line["state_age_mean"] for line in packed.lines()] == [0.0] + [2.0] * 9
    assert packed.lines()[0]["loss"] != whole.lines()[0]["loss"]


def test_a_method_that_needs_another_data_order_is_refused_at_the_start(tmp_path):
    arm = Arm(tmp_path / "run", "tbtt")
    with pytest.raises(
        EverlongError, match="method tbtt needs the data order 'contiguous', the data come in 'shuffled'"
    ):
        arm.train(Tokens())
    assert not (arm.folder / "metrics.jsonl").exists()


def _infinite(module: torch.nn.Module, inputs: tuple, logits: torch.Tensor) -> torch.Tensor:
    return logits * float("inf")


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_a_value_that_is_not_finite_stops_the_run_before_the_weights_change(tmp_path, what):
    arm = Arm(tmp_path / "run")
    kept = {}

    def poison(step: int) -> None:
        if step != 4:
            return
        kept.update({name: parameter.detach().clone() for name, parameter in arm.model.named_parameters()})
        if what == "loss":
            arm.model.lm_head.register_forward_hook(_infinite)
        else:
            arm.model.backbone.norm_f.weight.register_hook(lambda gradient: gradient * float("nan"))

    with pytest.raises(RunStopped) as stop:
        arm.train(Tokens(poison), replace(CONFIG, checkpoint_every=2))
    message = str(stop.value)
    assert message.startswith("arm stopped at step 4: loss ")
    assert f"the last good checkpoint is {arm.folder}/checkpoints/arm/step-000004" in message
    assert stop.value.exit_code == 3
    for name, parameter in arm.model.named_parameters():
        assert torch.equal(parameter, kept[name]), name
    *before, last = arm.lines()
    assert len(before) == 4
    assert last["step"] == 4
    assert last["not_finite"] in message
    assert last["loss" if what == "loss" else "gradient_norm"] is None


@pytest.mark.parametrize("what", ["log", "rewind"])
def test_metrics_that_cannot_be_written_stop_the_run(tmp_path, monkeypatch, what):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Run, what, full)
    with pytest.raises(RunStopped, match=r"metrics cannot be written .*No space left.*there is no earlier checkpoint"):
        Arm(tmp_path / "run").train()


def test_a_model_is_trained_where_and_as_it_is(tmp_path):
    arm = Arm(tmp_path / "run")
    arm.model.double().eval()
    before = {name: id(parameter) for name, parameter in arm.model.named_parameters()}
    arm.train()
    assert arm.model.training
    assert arm.model.dtype == torch.float64
    assert {name: id(parameter) for name, parameter in arm.model.named_parameters()} == before
    assert arm.model.lm_head.weight is arm.model.backbone.embedding.weight
    assert all(parameter.grad is None for parameter in arm.model.parameters())


def test_a_model_can_be_trained_again_by_another_method(tmp_path):
    first, second = Arm(tmp_path / "first", "zero"), Arm(tmp_path / "second")
    first.train()
    second.model = first.model
    start = second.model.backbone.norm_f.weight.detach().clone()
    second.train()
    assert not torch.equal(second.model.backbone.norm_f.weight, start)


def test_the_control_needs_no_data_order():
    assert Zero.data_order == "any"


def test_with_bfloat16_products_the_loss_curve_stays_beside_float32_s(tmp_path):
    """Seen: 1e-3 nats at most over a fall of more than 0.5; a curve of other data or settings is 0.05 away."""

    class Same(Tokens):
        def batch(self, step: int, rows: range | None = None) -> Batch:
            return super().batch(0, rows)

    curves = []
    for mixed in (False, True):
        arm = Arm(tmp_path / str(mixed), "zero")
        arm.train(Same(), replace(CONFIG, steps=30, mixed_precision=mixed))
        assert all(parameter.dtype == torch.float32 for parameter in arm.model.parameters())
        curves.append(np.array([line["loss"] for line in arm.lines()]))
    single, low = curves
    assert single[-1] < single[0] - 0.5
    assert 0 < np.abs(low - single).max() < 0.005


def test_bfloat16_products_are_for_float32_models(tmp_path):
    arm = Arm(tmp_path / "run", "zero")
    arm.model.double()
    with pytest.raises(EverlongError, match=r"mixed-precision.*float64"):
        arm.train(config=replace(CONFIG, mixed_precision=True))
