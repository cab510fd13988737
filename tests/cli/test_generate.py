import io
import os
import subprocess
import sys

import pytest
import torch

from everlong.cli import generate as verb
from everlong.cli.main import main
from everlong.loading import load, save
from everlong.models.architectures import create

SHORT = ["--max-new-tokens", "12", "--backend", "chunked"]


def written(capsys, *arguments: str) -> str:
    assert main(["generate", *arguments]) == 0
    return capsys.readouterr().out


def test_greedy_text_is_the_prompt_and_what_the_model_holds_likeliest(model, capsys):
    text = written(capsys, str(model), "--prompt", "the state", "--temperature", "0", *SHORT)
    generated = load(model, backend="chunked").generate(torch.tensor([list(b"the state")]), max_new_tokens=12)
    ids = b"the state" + bytes(generated.tokens[0].tolist())
    assert text == ids.decode("utf-8", errors="replace") + "\n"


def test_equal_seeds_write_equal_text_and_others_do_not(model, capsys):
    one, two, other = (written(capsys, str(model), "--prompt", "a", "--seed", seed, *SHORT) for seed in "001")
    assert one == two != other


def test_a_stop_token_is_not_written(model, capsys):
    greedy = ["--prompt", "the state", "--temperature", "0", *SHORT]
    first = load(model, backend="chunked").generate(torch.tensor([list(b"the state")])).tokens[0].item()
    assert written(capsys, str(model), *greedy, "--stop-tokens", str(first)) == "the state\n"


def test_a_model_with_a_bpe_tokenizer_writes_text(shared, tmp_path, capsys):
    torch.manual_seed(0)
    tokenizer = str(shared / "tokenizers" / "bpe4096_books.json")
    save(create("gla", vocab_size=4096, d_model=16, n_layer=1, num_heads=2), tmp_path / "bpe")
    text = written(capsys, str(tmp_path / "bpe"), "--prompt", "It was", "--tokenizer", tokenizer, *SHORT)
    assert text.startswith("It was")
    assert len(text) > len("It was\n") + 6


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--prompt", ""], "--prompt is empty"),
        (["--prompt", "a\udcff"], "not UTF-8 at character 1"),
        (["--prompt", "a", "--max-new-tokens", "0"], "--max-new-tokens 0"),
        (["--prompt", "a", "--temperature", "-1"], "temperature is -1"),
        (["--prompt", "a", "--stop-tokens", "10", "9999"], "stop token 9999 is never written; the ids are 0 to 255"),
    ],
)
def test_bad_input_is_one_line(model, capsys, arguments, words):
    assert main(["generate", str(model), *arguments, "--backend", "chunked"]) == 2
    shown = capsys.readouterr()
    assert words in shown.err
    assert len(shown.err.splitlines()) == 1
    assert not shown.out


def test_a_model_of_more_ids_than_its_tokenizer_writes_those_that_the_tokenizer_knows(tmp_path, capsys):
    torch.manual_seed(0)
    wide = create("mamba2", vocab_size=2000, d_model=16, n_layer=1, d_state=8, headdim=8)
    save(wide, tmp_path / "wide", context=16, tokenizer="bytes")
    tokens = load(tmp_path / "wide", backend="chunked").generate(torch.tensor([[97]]), max_new_tokens=12).tokens[0]
    assert tokens.max() > 255
    hot = ["--prompt", "a", "--temperature", "5", *SHORT]
    for arguments in (hot, ["--prompt", "a", "--temperature", "0", *SHORT]):
        assert len(written(capsys, str(tmp_path / "wide"), *arguments)) > len("a\n") + 3


def test_what_a_stream_cannot_show_is_a_question_mark():
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    verb._write(narrow, "é\x1b[2J")
    assert narrow.buffer.getvalue() == b"?\x1b[2J"  # type: ignore[attr-defined]

    class Terminal(io.StringIO):
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    verb._write(terminal, "é\x1b[2J\n")
    assert terminal.getvalue() == "é?[2J\n"


def test_the_bundled_model_writes_when_no_model_is_named():
    done = subprocess.run(
        [sys.executable, "-m", "everlong", "generate", "--prompt", "import ", "--max-new-tokens", "20"],
        capture_output=True,
        check=True,
        env=os.environ,
    )
    assert done.stdout.startswith(b"import ")
    assert len(done.stdout) >= len("import ") + 20
