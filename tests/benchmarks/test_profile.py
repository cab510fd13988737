"""Each op is put where it belongs, what the optimizer calls is the optimizer's, and shares add up."""

from types import SimpleNamespace

import pytest

from benchmarks.profile import group, label, shares


@pytest.mark.parametrize(
    ("op", "wanted"),
    [
        ("aten::mm", "matrix products"),
        ("aten::mul", "elementwise and sums"),
        ("optimizer: aten::mul", "optimizer"),
        ("_RecurrenceBackward", "kernels of ours (Numba)"),
        ("aten::_log_softmax", "loss"),
        ("aten::copy_", "copies and layout"),
        ("MulBackward0", "calls"),
    ],
)
def test_groups(op, wanted):
    assert group(op) == wanted


def test_an_op_within_the_optimizer_s_step_is_the_optimizer_s():
    optimizer = SimpleNamespace(name="Optimizer.step#AdamW.step", cpu_parent=None)
    inside = SimpleNamespace(name="aten::mul", cpu_parent=SimpleNamespace(name="aten::x", cpu_parent=optimizer))
    outside = SimpleNamespace(name="aten::mul", cpu_parent=None)
    assert (label(inside), label(outside)) == ("optimizer: aten::mul", "aten::mul")


def test_the_largest_come_first_and_the_rest_is_said():
    lines = shares({"a": 0.001, "b": 0.006, "c": 0.003}, 2).splitlines()
    assert lines[2:] == ["| b | 6.00 | 60.0 % |", "| c | 3.00 | 30.0 % |", "| the rest | 1.00 | 10.0 % |"]
