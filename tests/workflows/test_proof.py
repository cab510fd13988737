"""What counts as a difference between two sets of tensors."""

import pytest
import torch

from everlong.workflows._proof import difference

A, B = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([[4.0]])


def test_the_same_numbers_are_no_difference_whatever_their_order_and_layout():
    square = torch.arange(6.0).view(2, 3)
    assert difference({"a": A, "s": square}, {"s": square.t().contiguous().t(), "a": A.clone()}) is None


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"a": A}, "b is missing"),
        ({"a": A, "b": B, "c": A}, "c is one too many"),
        ({"a": A, "b": B.view(1)}, "b is [1] float32, not [1, 1] float32"),
        ({"a": A.double(), "b": B}, "a is [3] float64, not [3] float32"),
        ({"a": A + torch.tensor([0, 0, 0.5]), "b": B}, "a differs in 1 of 3 numbers, by 0.5"),
    ],
)
def test_the_first_difference_is_named(found, words):
    assert difference(found, {"a": A, "b": B}) == words


def test_a_zero_of_the_other_sign_is_a_difference():
    zeros = torch.zeros(2)
    assert difference({"a": -zeros}, {"a": zeros}) is not None


def test_a_tied_weight_under_a_second_name_is_none_and_another_weight_there_is():
    assert difference({"a": A}, {"a": A, "head": A.clone()}, tied=A) is None
    assert difference({"a": A, "head": A.clone()}, {"a": A}, tied=A) is None
    assert difference({"a": A}, {"a": A, "head": 2 * A}, tied=A) == "head is missing"
