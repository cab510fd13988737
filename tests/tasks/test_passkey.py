import numpy as np
import pytest

from everlong.data.tokenizers import ByteTokenizer
from everlong.errors import EverlongError
from everlong.tasks.config import PasskeyConfig
from everlong.tasks.passkey import Passkey


def text_of(length, depth, **settings):
    example = Passkey(PasskeyConfig(**settings), ByteTokenizer()).example(
        {"length": length, "depth": depth}, seed=0, index=0
    )
    return ByteTokenizer().decode(example.prompt), example


def test_the_compact_wording_fits_into_64_bytes():
    task = Passkey(PasskeyConfig(wording="compact"), ByteTokenizer())
    assert task.shortest_length({"depth": 0.5}) < 64
    prompt, example = text_of(64, 0.5, wording="compact")
    assert prompt.count(example.target) == 1


@pytest.mark.parametrize("depth", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_depth_is_the_share_of_filler_before_the_key(depth):
    prompt, example = text_of(4000, depth)
    opening, statement = (
        "about it.",
        f" The pass key is {example.target}. Remember it: {example.target} is the pass key.",
    )
    before = prompt[prompt.index(opening) + len(opening) : prompt.index(statement)]
    after = prompt[prompt.index(statement) + len(statement) : prompt.index(" What is the pass key?")]
    assert len(before) / (len(before) + len(after)) == pytest.approx(depth, abs=1e-3)
    assert not after or after.endswith(".")


def test_keys_have_their_digits_zeros_in_front_included_and_differ():
    task = Passkey(PasskeyConfig(digits=2), ByteTokenizer())
    keys = [task.example({"length": 300, "depth": 0.5}, seed=0, index=index).target for index in range(60)]
    assert {len(key) for key in keys} == {2}
    assert any(key.startswith("0") for key in keys)
    assert len(set(keys)) > 30


@pytest.mark.parametrize(
    ("said", "right"),
    [
        (" KEY.", 1),
        ("KEY, ", 1),
        ("\nKEY\n", 1),
        (" KEY7", 0),
        (" the KE", 0),
        (" 1.", 0),
        ("", 0),
        ("  KEY", 0),  # of "  KEY678" no more is written
    ],
)
def test_the_first_thing_written_must_be_the_key_and_end_within_what_is_written(said, right):
    task = Passkey(PasskeyConfig(), ByteTokenizer())
    example = task.example({"length": 300, "depth": 0.5}, seed=0, index=0)
    written = ByteTokenizer().encode(said.replace("KEY", example.target).replace("KE", example.target[:2]))
    assert len(written) <= task.tokens_to_write(example)
    assert task.score(example, np.zeros(len(example.answer)), written)["accuracy"] == right


@pytest.mark.parametrize("settings", [{"depths": (1.2,)}, {"digits": 0}])
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(EverlongError, match="out of range"):
        PasskeyConfig(**settings)
