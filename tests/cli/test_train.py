"""Training from scratch from the command line, for every architecture."""

import pytest

from everlong.cli.main import main
from everlong.loading import open_model
from everlong.models.architectures import ARCHITECTURES
from everlong.records import load_record
from tests.models.tiny import TINY


def flags(settings: dict) -> list[str]:
    """A configuration's fields as flags."""
    given = []
    for name, value in ({"vocab_size": 256} | settings | {"vocab_size": 256, "pad_vocab_size_multiple": 1}).items():
        values = value if isinstance(value, tuple) else (value,)
        given += ["--" + name.replace("_", "-"), *map(str, values)]
    return given


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_is_trained_saved_and_resumed(architecture, text, tmp_path, capsys):
    run = tmp_path / "run"
    common = ["--context", "16", "--steps", "3", "--batch-size", "2", "--data", str(text), "--backend", "chunked"]
    arguments = ["train", *common, "--output", str(run), architecture, *flags(TINY[architecture])]
    assert main(arguments) == 0
    assert capsys.readouterr().out.strip().splitlines()[-1] == str(run / "report.html")
    opened = open_model(run / "models" / "scratch")
    assert opened.model.config.architecture == architecture
    assert (opened.context, opened.tokenizer) == (16, "bytes")
    assert load_record(run / "records" / "training-scratch.json").steps == 3
    assert main(["train", "--resume", str(run)]) == 0
