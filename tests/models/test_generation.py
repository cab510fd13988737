"""Generation: whoever is beside it, a row is continued as it is alone, in time and memory that do not grow."""

import pytest
import torch

from everlong.errors import EverlongError
from everlong.models import generation
from everlong.models.config import SamplingConfig
from everlong.models.generation import Writer, choose, generate, read_prompts

from .tiny import asymmetric_state, names, tiny_model, tokens_for

LENGTHS = (5, 1, 13, 5, 29)
SAMPLED = SamplingConfig(temperature=0.9, top_k=7, top_p=0.95)


def prompts_for(model):
    return [tokens_for(model, 1, length, seed=length)[0] for length in LENGTHS]


def assert_close(state, other):
    for found, wanted in zip(state.leaves, other.leaves, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("architecture", names())
def test_rows_of_different_lengths_are_continued_as_each_alone(architecture, monkeypatch):
    monkeypatch.setattr(generation, "LONGEST_PIECE", 4)
    model = tiny_model(architecture)
    together = model.generate(prompts_for(model), max_new_tokens=12)
    for row, prompt in enumerate(prompts_for(model)):
        alone = model.generate(prompt[None], max_new_tokens=12)
        assert torch.equal(together.tokens[row], alone.tokens[0])
        assert_close(together.state.rows(slice(row, row + 1)), alone.state)


@pytest.mark.parametrize("architecture", names())
def test_generation_goes_on_as_reading_the_same_tokens_would(architecture):
    model = tiny_model(architecture)
    prompt, state = tokens_for(model, 1, 9), asymmetric_state(model, 1)
    generated = model.generate(prompt, state, 6)
    everything = torch.cat([prompt, generated.tokens[0][None]], dim=1)
    with torch.no_grad():
        output = model(everything, state)
    likeliest = output.logits[0, 8:-1, : model.config.vocab_size].argmax(dim=1)
    assert torch.equal(likeliest, generated.tokens[0])
    assert_close(generated.state, output.state)


@pytest.mark.parametrize("architecture", names())
def test_a_common_prefix_is_read_once_and_changes_nothing(architecture, monkeypatch):
    model = tiny_model(architecture)
    prefix = tokens_for(model, 1, 20)[0]
    prompts = [torch.cat([prefix, torch.tensor(end)]) for end in ([1], [2, 3], [2, 4, 5])]
    shapes = []
    advance = model.advance
    monkeypatch.setattr(
        model, "advance", lambda tokens, state=None: shapes.append(tokens.shape) or advance(tokens, state)
    )
    logits, state = read_prompts(model, prompts)
    assert shapes[0] == (1, 20)
    assert sum(rows * length for rows, length in shapes) == 20 + 1 + 2 + 3
    for row, prompt in enumerate(prompts):
        alone = advance(prompt[None])
        torch.testing.assert_close(logits[row], alone.logits[0, 0], rtol=1e-9, atol=1e-10)
        assert_close(state.rows(slice(row, row + 1)), alone.state)


def test_one_state_serves_all_rows_and_a_state_a_row_goes_to_its_row():
    model = tiny_model("mamba2")
    prompts, states = prompts_for(model), asymmetric_state(model, len(LENGTHS))
    for given in (states.rows(slice(1)), states):
        together = generate(model, prompts, given, 4)
        for row, prompt in enumerate(prompts):
            mine = given if given.batch_size == 1 else given.rows(slice(row, row + 1))
            alone = generate(model, prompt[None], mine, 4)
            assert torch.equal(together.tokens[row], alone.tokens[0])
            assert_close(together.state.rows(slice(row, row + 1)), alone.state)


def test_a_row_ends_with_its_stop_token_and_the_others_go_on():
    model = tiny_model("mamba2")
    free = generate(model, prompts_for(model), None, 12)
    stop = int(free.tokens[0][3])
    stopped = generate(model, prompts_for(model), None, 12, stop_tokens=[stop])
    assert any(stopped.stopped)
    for row, tokens in enumerate(free.tokens):
        found = (tokens == stop).nonzero()
        end = int(found[0]) + 1 if len(found) else 12
        assert torch.equal(stopped.tokens[row], tokens[:end])
        assert stopped.stopped[row] == bool(len(found))
        alone = generate(model, prompts_for(model)[row][None], None, end)
        assert_close(stopped.state.rows(slice(row, row + 1)), alone.state)


def test_draws_depend_on_the_seed_and_the_row_alone():
    model = tiny_model("gla")
    one = generate(model, prompts_for(model), None, 30, sampling=SAMPLED, seed=5)
    again = generate(model, prompts_for(model), None, 30, sampling=SAMPLED, seed=5)
    other = generate(model, prompts_for(model), None, 30, sampling=SAMPLED, seed=6)
    alone = generate(model, prompts_for(model)[:1], None, 30, sampling=SAMPLED, seed=5)
    assert all(map(torch.equal, one.tokens, again.tokens))
    assert torch.equal(alone.tokens[0], one.tokens[0])
    assert not all(map(torch.equal, one.tokens, other.tokens))


def test_draws_follow_the_distribution_within_top_k_and_top_p():
    logits = torch.tensor([[0.0, 2.0, 1.0, -1.0]], dtype=torch.float64)
    uniforms = (torch.arange(10_000, dtype=torch.float64) + 0.5) / 10_000
    rows = logits.expand(10_000, -1)

    def shares(**settings):
        chosen = choose(rows, SamplingConfig(temperature=2.0, **settings), uniforms)
        return torch.bincount(chosen, minlength=4) / 10_000

    whole = (logits[0] / 2).softmax(0)
    torch.testing.assert_close(shares().double(), whole, rtol=0, atol=2e-4)
    best = whole[[1, 2]] / whole[[1, 2]].sum()
    torch.testing.assert_close(shares(top_k=2).double()[[1, 2]], best, rtol=0, atol=2e-4)
    torch.testing.assert_close(shares(top_p=float(whole[1]) + 0.01).double()[[1, 2]], best, rtol=0, atol=2e-4)
    assert shares(top_p=1e-9)[1] == 1
    assert torch.equal(choose(logits, SamplingConfig(), uniforms[:0]), torch.tensor([1]))


def test_every_token_costs_one_token_read_and_the_state_keeps_its_size():
    model = tiny_model("rwkv6")
    shapes, advance = [], model.advance
    model.advance = lambda tokens, state=None: shapes.append(tuple(tokens.shape)) or advance(tokens, state)
    generated = generate(model, tokens_for(model, 2, 40), None, 25)
    assert shapes[-25:] == [(2, 1)] * 25
    assert [leaf.shape for leaf in generated.state.leaves] == [leaf.shape for leaf in model.zero_state(2).leaves]


def test_padding_of_the_vocabulary_is_never_written():
    model = tiny_model("mamba2")  # 11 ids in an embedding of 12 rows
    with torch.no_grad():
        model.lm_head.weight[11] = 100 * model.lm_head.weight[:11].abs().max()
        model.lm_head.weight[11] *= torch.sign(torch.randn(8, dtype=torch.float64))
    for seed in range(3):
        generated = generate(model, prompts_for(model), None, 20, sampling=SamplingConfig(temperature=5.0), seed=seed)
        assert max(int(row.max()) for row in generated.tokens) < 11


def test_only_ids_that_are_known_are_written_and_no_other_can_stop():
    model, prompts = tiny_model("mamba2"), prompts_for(tiny_model("mamba2"))
    sampling = SamplingConfig(temperature=5.0)
    writer = Writer(model, *read_prompts(model, prompts), sampling=sampling, known=3)
    assert {token for _ in range(20) for _, token in writer.step()} == {0, 1, 2}
    with pytest.raises(EverlongError, match=r"^stop token 3 is never written; the ids are 0 to 2$"):
        Writer(model, *read_prompts(model, prompts), stop_tokens=[3], known=3)
    with pytest.raises(EverlongError, match="stop token 11 is never written; the ids are 0 to 10"):
        generate(model, prompts, None, 1, stop_tokens=[0, 11])


def test_a_row_draws_by_its_number_wherever_it_stands():
    model = tiny_model("gla")
    prompt = prompts_for(model)[0]

    def drawn(numbers):
        logits, state = read_prompts(model, [prompt] * len(numbers))
        writer = Writer(model, logits, state, sampling=SAMPLED, numbers=numbers)
        steps = [dict(writer.step()) for _ in range(12)]
        return [[step[row] for step in steps] for row in range(len(numbers))]

    four, nine = drawn([4, 9])
    assert four != nine
    assert drawn([9, 4]) == [nine, four]
    assert drawn([9]) == [nine]


@pytest.mark.parametrize(("prompts", "rows"), [(2, 3), (1, 3), (3, 2)])
def test_a_state_of_other_rows_is_refused(prompts, rows):
    model = tiny_model("mamba2")
    with pytest.raises(EverlongError, match=f"the state has {rows} rows, the prompts are {prompts}"):
        generate(model, tokens_for(model, prompts, 4), asymmetric_state(model, rows))


@pytest.mark.parametrize("token", [-1, 11, 12])  # 11 stands in the embedding, as padding
def test_a_token_that_the_model_does_not_know_is_refused(token):
    with pytest.raises(EverlongError, match=f"token {token} is out of range; the model knows 0 to 10"):
        tiny_model("mamba2").generate(torch.tensor([[1, token, 3]]))


@pytest.mark.parametrize("sampling", [None, SAMPLED])
def test_logits_that_are_not_finite_are_an_error_and_no_token(sampling):
    model = tiny_model("mamba2")
    with torch.no_grad():
        model.lm_head.weight[4] = float("nan")
    with pytest.raises(EverlongError, match="logits are not finite, so no token can be chosen"):
        generate(model, prompts_for(model), None, 3, sampling=sampling)


@pytest.mark.parametrize("prompts", [[], [torch.tensor([1]), torch.tensor([], dtype=torch.int64)]])
def test_an_empty_prompt_is_refused(prompts):
    with pytest.raises(EverlongError, match="at least one token"):
        generate(tiny_model("mamba2"), prompts)
