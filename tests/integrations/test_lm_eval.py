"""The harness's requests, answered with the state carried: nothing is cut, and what is summed is one full forward."""

# pyright: reportMissingImports=false
# (lm-eval is an extra, which the set-up for development leaves out)

import json
import logging
from typing import Any

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


def saved(path, vocab_size):
    torch.manual_seed(0)
    model = create("mamba2", vocab_size=vocab_size, d_model=16, n_layer=2, d_state=8, headdim=8)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    save(model, path, context=CONTEXT, tokenizer="bytes")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("harness") / "tiny", 256)


@pytest.fixture(scope="module")
def harness(folder):
    return opened(folder)


def opened(folder, **arguments) -> Any:
    from everlong.integrations.lm_eval import EverlongLM

    return EverlongLM.create_from_arg_obj(
        {"pretrained": str(folder), "dtype": "float64", "backend": "chunked", "device": "cpu"} | arguments
    )


def rows_read(harness, monkeypatch):
    """The rows of every read from here on, prompts' and answers'."""
    rows, forward, advance = [], harness.model.forward, harness.model.advance
    monkeypatch.setattr(
        harness.model,
        "forward",
        lambda tokens, *rest, **more: rows.append(len(tokens)) or forward(tokens, *rest, **more),
    )
    monkeypatch.setattr(
        harness.model, "advance", lambda tokens, *rest: rows.append(len(tokens)) or advance(tokens, *rest)
    )
    return rows


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


def test_with_a_padded_vocabulary_both_likelihoods_are_those_of_one_full_forward(tmp_path):
    padded = opened(saved(tmp_path / "padded", 250))  # of 256 rows
    rolling = padded.loglikelihood_rolling([request("loglikelihood_rolling", TEXT)])[0]
    asked = padded.loglikelihood([request("loglikelihood", text, TEXT[len(text) :]) for text in ("", TEXT[:29])])
    ids = [NEWLINE, *TEXT.encode()]
    known = logits_of(tmp_path / "padded", ids[:-1])[:, :250]
    without_padding = -float(functional.cross_entropy(known, torch.tensor(ids[1:]), reduction="sum"))
    assert rolling == pytest.approx(-nats_of(tmp_path / "padded", ids, 1), rel=1e-5)
    assert asked[0][0] == pytest.approx(rolling, rel=1e-5)
    assert abs(rolling - without_padding) > 1  # the padding has a share that shows
    assert asked[1][0] == pytest.approx(-nats_of(tmp_path / "padded", [*TEXT.encode()], 29), rel=1e-5)


def test_contexts_of_any_lengths_are_read_side_by_side_as_many_as_the_batch_size_says(folder, monkeypatch):
    contexts = [TEXT[start : start + length] for start, length in enumerate((60, 7, 33, 60, 150, 1, 8, 9))]
    asked = [request("loglikelihood", text.strip(), choice) for text in contexts for choice in (" hill", " a")]
    whole = [request("loglikelihood_rolling", text) for text in contexts]
    found, most, reads = [], [], []
    for size in (1, 3, "auto", "auto:2"):
        harness = opened(folder, batch_size=size)
        rows = rows_read(harness, monkeypatch)
        found.append([value for value, _ in harness.loglikelihood(asked)])
        most.append(max(rows))
        reads.append(len(rows))
        rows.clear()
        found[-1] += harness.loglikelihood_rolling(whole)
        most.append(max(rows))
    assert most == [1, 1, 3, 3, 16, 8, 16, 8]  # answers: two a context
    assert reads[0] > reads[1] > reads[2] == reads[3]
    for values in found[1:]:
        assert values == pytest.approx(found[0], rel=1e-5)
    assert max(opened(folder, batch_size="auto", max_batch_size=5)._batches([9] * 12), key=len) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("size", ["many", 0, "-1", "auto:", None])
def test_a_batch_size_is_a_number_or_auto(folder, size):
    if size in ("auto:", None):
        assert opened(folder, batch_size=size)
        return
    with pytest.raises(EverlongError, match=f"batch size is '{size}'; it must be auto, auto:N or a whole number"):
        opened(folder, batch_size=size)


def test_a_context_of_spaces_alone_is_scored_after_the_prefix(harness, folder):
    found = harness.loglikelihood([request("loglikelihood", context, "It") for context in (" ", "\n", "  \n")])
    for context, (value, _) in zip((" ", "\n", "  \n"), found, strict=True):
        assert value == pytest.approx(-nats_of(folder, [NEWLINE, *context.encode(), *b"It"], 1), rel=1e-5)


def test_repeats_of_a_sampled_request_differ_and_the_batch_size_changes_nothing(folder):
    settings = {"until": [], "do_sample": True, "temperature": 1.0, "max_gen_toks": 8}
    asked = [request("generate_until", text, settings) for text in [TEXT] * 12 + ["A"] * 4]
    one, four, all_ = (opened(folder, batch_size=size).generate_until(asked) for size in (1, 4, "auto"))
    assert len(set(one)) == 16
    assert one == four == all_
    assert one == opened(folder).generate_until(asked)
    assert not set(one) & set(opened(folder, seed=1).generate_until(asked))


def test_settings_have_their_usual_meaning_and_others_are_refused(harness):
    def said(**settings):
        return harness.generate_until([request("generate_until", "A", {"until": [], **settings})])[0]

    drawn = {"do_sample": True, "temperature": 2.0, "max_gen_toks": 30}
    assert said(max_new_tokens=5) == said(max_gen_toks=5) == said(max_gen_toks=5, max_new_tokens=5, num_beams=1)
    assert said(max_gen_toks=6) != said(max_gen_toks=5)
    assert said(**drawn, top_k=0) == said(**drawn) == said(**drawn, top_k=256)
    assert said(**drawn, top_k=1) == said(max_gen_toks=30) != said(**drawn)
    assert said(do_sample=True, temperature=0.0, max_gen_toks=30) == said(max_gen_toks=30)
    for settings, words in (
        ({"beams": 4}, "beams is unknown"),
        ({"num_beams": 4}, "num_beams is 4; it must be 1"),
        ({"max_new_tokens": 4, "max_gen_toks": 5}, "max_gen_toks 5 and max_new_tokens 4 say the same thing"),
    ):
        with pytest.raises(EverlongError, match=words):
            said(**settings)


def test_a_model_of_more_ids_than_its_tokenizer_writes_and_takes_for_likeliest_what_the_tokenizer_knows(tmp_path):
    wide = opened(saved(tmp_path / "wide", 2000))
    settings = {"until": [], "temperature": 5.0, "max_gen_toks": 12}
    (text,) = wide.generate_until([request("generate_until", "A", settings)])
    assert len(text) >= 3
    ids = logits_of(tmp_path / "wide", [65])[-1]
    assert ids.argmax() > 255
    ((_, greedy),) = wide._loglikelihood_tokens([(("", ""), [65], [int(ids[:256].argmax())])])
    assert greedy


def test_text_that_the_model_has_no_ids_for_is_refused(tmp_path):
    narrow = opened(saved(tmp_path / "narrow", 200))
    with pytest.raises(EverlongError, match="token id 240 of a text is unknown to the model, which knows 0 to 199"):
        narrow.loglikelihood_rolling([request("loglikelihood_rolling", "🦙")])


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


@pytest.fixture
def tasks(tmp_path, monkeypatch):
    """A folder with the files of two tasks on local documents."""
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
    return tmp_path


@pytest.mark.filterwarnings("ignore")
def test_the_harness_itself_runs_local_task_files_with_the_registered_model(folder, tasks):
    from lm_eval.tasks import TaskManager

    import everlong.integrations.lm_eval  # registers

    assert everlong.integrations.lm_eval.EverlongLM
    found = lm_eval.simple_evaluate(
        model="everlong",
        model_args={"pretrained": str(folder), "backend": "chunked"},
        tasks=["local_rolling", "local_choice"],
        task_manager=TaskManager(include_path=str(tasks), include_defaults=False),
        bootstrap_iters=0,
    )
    nats = sum(nats_of(folder, [NEWLINE, *TEXT[:n].encode()], 1) for n in (80, 200))
    assert found["results"]["local_rolling"]["byte_perplexity,none"] == pytest.approx(np.exp(nats / 280), rel=1e-4)
    assert 0 <= found["results"]["local_choice"]["acc,none"] <= 1


def command_line(monkeypatch, tasks, *arguments):
    from everlong.integrations.lm_eval import main

    monkeypatch.setattr("lm_eval.utils._LOGGING_CONFIGURED", False)
    monkeypatch.setattr(logging.getLogger("lm_eval"), "handlers", [])  # they hold the standard error of an earlier test
    every = ["--model", "everlong", "--tasks", "local_choice,local_rolling", "--include_path", str(tasks), *arguments]
    monkeypatch.setattr("sys.argv", ["lm_eval", *every])
    return main()


@pytest.mark.filterwarnings("ignore")
def test_the_documented_command_runs_where_there_is_no_gpu_and_says_so(tasks, monkeypatch, capfd):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    arguments = ["--model_args", "pretrained=bundled", "--batch_size", "auto:2", "--limit", "1"]
    assert command_line(monkeypatch, tasks, *arguments) == 0
    shown = capfd.readouterr()
    assert "local_rolling" in shown.out
    assert "byte_perplexity" in shown.out
    assert "there is no GPU" in shown.err


def test_a_mistake_on_the_harness_s_command_line_is_one_line_and_an_exit_code(tasks, folder, monkeypatch, capfd):
    for arguments, words in (
        (["--model_args", f"pretrained={tasks}/missing"], "missing"),
        (["--model_args", f"pretrained={folder}", "--batch_size", "few"], "a batch size is 'few'"),
        (["--model_args", f"pretrained={folder}", "--device", "cuda:99"], "device 'cuda:99' cannot be used here"),
    ):
        assert command_line(monkeypatch, tasks, *arguments) == 2
        error = capfd.readouterr().err
        assert "Traceback" not in error
        last = error.splitlines()[-1]
        assert last.startswith("everlong: ")
        assert words in last
