"""The harness's requests, answered with the state carried: nothing is cut, and what is summed is one full forward."""

# pyright: reportMissingImports=false
# (lm-eval is an extra, which the set-up for development leaves out)

import json

import numpy as np
import pytest
import torch
from torch.nn import functional

from everlong.errors import EverlongError
from everlong.loading import load, save
from everlong.models.architectures import create

lm_eval = pytest.importorskip("lm_eval", reason="the extra everlong[lm-eval] is not installed")

CONTEXT = 64
TEXT = "It rained on the hill, and the river rose. " * 5  # more than three contexts of bytes
NEWLINE = 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("harness") / "tiny"
    model = create("mamba2", vocab_size=256, d_model=16, n_layer=2, d_state=8, headdim=8)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    save(model, path, context=CONTEXT, tokenizer="bytes")
    return path


@pytest.fixture(scope="module")
def harness(folder):
    from everlong.integrations.lm_eval import EverlongLM

    return EverlongLM.create_from_arg_obj({"pretrained": str(folder), "dtype": "float64", "backend": "chunked"})


def request(kind, *arguments):
    from lm_eval.api.instance import Instance

    return Instance(request_type=kind, doc={}, arguments=arguments, idx=0)


def logits_of(folder, ids):
    with torch.no_grad():
        return load(folder, dtype="float64", backend="chunked")(torch.tensor([ids])).logits[0]


def nats_of(folder, ids, first):
    logits = logits_of(folder, ids[:-1])
    return float(functional.cross_entropy(logits[first - 1 :], torch.tensor(ids[first:]), reduction="sum"))


def test_the_sum_over_a_document_of_three_contexts_is_that_of_one_full_forward(harness, folder):
    assert len(TEXT) > 3 * CONTEXT
    found = harness.loglikelihood_rolling([request("loglikelihood_rolling", text) for text in (TEXT, "", TEXT[:70])])
    assert found[0] == pytest.approx(-nats_of(folder, [NEWLINE, *TEXT.encode()], 1), rel=1e-5)
    assert found[1] == 0.0
    assert found[2] == pytest.approx(-nats_of(folder, [NEWLINE, *TEXT[:70].encode()], 1), rel=1e-5)


def test_continuations_are_scored_after_their_whole_context_which_is_read_once(harness, folder, monkeypatch):
    likeliest = chr(int(logits_of(folder, list(TEXT.encode()))[-1, :128].argmax()))
    choices = [" hill", " a", likeliest]
    read, advance = [], harness.model.advance
    monkeypatch.setattr(
        harness.model, "advance", lambda tokens, state=None: read.append(tokens) or advance(tokens, state)
    )
    found = harness.loglikelihood(
        [request("loglikelihood", TEXT.strip(), choice) for choice in choices] + [request("loglikelihood", "", "It")]
    )
    assert sum(tokens.numel() for tokens in read) == len(TEXT.strip()) + 1
    for choice, (value, _) in zip(choices, found[:3], strict=True):
        ids = [*TEXT.strip().encode(), *choice.encode()]
        assert value == pytest.approx(-nats_of(folder, ids, len(TEXT.strip())), rel=1e-5)
    assert found[3][0] == pytest.approx(-nats_of(folder, [NEWLINE, *b"It"], 1), rel=1e-5)


def test_greedy_says_whether_the_continuation_is_the_likeliest(harness, folder):
    logits = logits_of(folder, list(b"It rained"))[-1]
    best, worst = (bytes([int(place)]) for place in (logits[:128].argmax(), logits.argmin()))
    (_, greedy), (_, other) = harness._loglikelihood_tokens(
        [(("", ""), list(b"It rained"), [int(logits.argmax())]), (("", ""), list(b"It rained"), list(worst))]
    )
    assert (greedy, other) == (True, False)
    assert best


def test_text_is_written_up_to_the_stop_sequence_as_greedy_generation_would(harness, folder):
    model = load(folder, dtype="float64", backend="chunked")
    contexts = [TEXT, "A", TEXT[:100]]
    found = harness.generate_until(
        [request("generate_until", text, {"until": ["zz"], "max_gen_toks": 12}) for text in contexts]
    )
    for text, said in zip(contexts, found, strict=True):
        tokens = model.generate(torch.tensor([list(text.encode())]), max_new_tokens=12).tokens[0]
        assert said == bytes(tokens.tolist()).decode(errors="replace").split("zz")[0]
    stop = found[0][2]
    (cut,) = harness.generate_until([request("generate_until", TEXT, {"until": [stop], "max_gen_toks": 12})])
    assert cut == found[0].split(stop)[0]


def test_samples_follow_the_seed_and_unknown_settings_are_refused(harness):
    settings = {"until": [], "do_sample": True, "temperature": 1.0, "max_gen_toks": 8}
    one, two = (harness.generate_until([request("generate_until", "A", settings)]) for _ in range(2))
    assert one == two
    with pytest.raises(EverlongError, match="beams is unknown"):
        harness.generate_until([request("generate_until", "A", {"beams": 4})])


def test_an_input_beyond_max_length_is_an_error_and_never_cut(folder):
    from everlong.integrations.lm_eval import EverlongLM

    harness = EverlongLM.create_from_arg_string(f"pretrained={folder},max_length=100,backend=chunked")
    for call in (
        lambda: harness.loglikelihood_rolling([request("loglikelihood_rolling", TEXT)]),
        lambda: harness.loglikelihood([request("loglikelihood", TEXT, " a")]),
        lambda: harness.generate_until([request("generate_until", TEXT[:95], {"max_gen_toks": 12})]),
    ):
        with pytest.raises(EverlongError, match="max_length=100"):
            call()


@pytest.mark.filterwarnings("ignore")
def test_the_harness_itself_runs_local_task_files_with_the_registered_model(folder, tmp_path, monkeypatch):
    from lm_eval.tasks import TaskManager

    import everlong.integrations.lm_eval  # registers

    assert everlong.integrations.lm_eval.EverlongLM
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "documents.jsonl").write_text(
        "".join(json.dumps({"text": TEXT[:n], "choices": ["a", "b"], "gold": 0}) + "\n" for n in (80, 200))
    )
    common = (
        f"dataset_path: json\ndataset_kwargs:\n  data_files:\n    test: {tmp_path}/documents.jsonl\ntest_split: test\n"
    )
    (tmp_path / "rolling.yaml").write_text(
        f"task: local_rolling\n{common}output_type: loglikelihood_rolling\ndoc_to_text: ''\n"
        "doc_to_target: '{{text}}'\nmetric_list:\n  - metric: byte_perplexity\n"
    )
    (tmp_path / "choice.yaml").write_text(
        f"task: local_choice\n{common}output_type: multiple_choice\ndoc_to_text: '{{{{text}}}}'\n"
        "doc_to_choice: choices\ndoc_to_target: gold\nmetric_list:\n  - metric: acc\n"
    )
    found = lm_eval.simple_evaluate(
        model="everlong",
        model_args={"pretrained": str(folder), "backend": "chunked"},
        tasks=["local_rolling", "local_choice"],
        task_manager=TaskManager(include_path=str(tmp_path), include_defaults=False),
        bootstrap_iters=0,
    )
    nats = sum(nats_of(folder, [NEWLINE, *TEXT[:n].encode()], 1) for n in (80, 200))
    assert found["results"]["local_rolling"]["byte_perplexity,none"] == pytest.approx(np.exp(nats / 280), rel=1e-4)
    assert 0 <= found["results"]["local_choice"]["acc,none"] <= 1
