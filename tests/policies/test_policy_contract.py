"""What every reading policy promises, over the registry."""

import pytest

from everlong.policies.registry import POLICIES
from everlong.policies.window import Window

SPANS = [(1, 1), (1, 64), (1, 300), (33, 64), (65, 128), (100, 117), (257, 1000)]


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("context", [2, 7, 64])
@pytest.mark.parametrize(("first", "last"), SPANS)
def test_every_target_of_a_span_is_scored_exactly_once(name, context, first, last):
    policy = POLICIES[name].for_context(context)
    scored = [t for read in policy.reads(first, last) for t in range(read.scored_from, read.stop + 1)]
    assert scored == list(range(first, last + 1))


@pytest.mark.parametrize("name", POLICIES)
def test_reads_stay_inside_the_document_and_before_their_targets(name):
    for read in POLICIES[name].for_context(16).reads(1, 200):
        assert 0 <= read.start < read.scored_from <= read.stop <= 200


@pytest.mark.parametrize("name", ["restart", "window"])
def test_a_forgetful_policy_never_reads_more_than_its_context_at_once(name):
    assert max(read.length for read in POLICIES[name].for_context(16).reads(1, 200)) == 16


def test_a_window_gives_each_target_nearly_its_whole_width_or_the_whole_prefix():
    for read in Window(64).reads(1, 500):
        assert read.start == 0 or read.scored_from - read.start >= 64 - 64 // 8 + 1


def test_within_the_training_length_a_window_reads_the_whole_prefix():
    assert all(read.start == 0 for read in Window(64).reads(33, 64))
