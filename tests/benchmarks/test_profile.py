"""Each op is put where it belongs, what the optimizer calls is the optimizer's, and shares add up."""

from types import SimpleNamespace

import pytest
import torch

from benchmarks.profile import group, kernels_timed, label, runs_kernel, shares


@pytest.mark.parametrize(
    ("op", "wanted"),
    [
        ("aten::mm", "matrix products"),
        ("aten::mul", "elementwise and sums"),
        ("optimizer: aten::mul", "optimizer"),
        ("mkldnn::_linear_pointwise", "matrix products"),
        ("kernel: norm", "kernel: norm"),
        ("_ProductBackward", "calls"),
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


def test_kernels_are_timed_by_op_and_their_functions_are_left_out():
    cpu = pytest.importorskip("everlong.ops.norm.cpu", reason="Numba is not installed")
    run = cpu.run_in_threads
    options = {"epsilon": 1e-5, "groups": 1, "centred": False, "gate_comes": "last"}
    with kernels_timed() as calls:
        cpu.norm(torch.ones(1, 2, 4), torch.ones(4), None, None, **options)
    assert [op for op, _ in calls] == ["kernel: norm"]
    assert cpu.run_in_threads is run
    names = ("_Norm", "autograd::engine::evaluate_function: _NormBackward", "_ProductBackward", "aten::mul")
    assert [runs_kernel(name) for name in names] == [True, True, False, False]


def test_the_largest_come_first_and_the_rest_is_said():
    lines = shares({"a": 0.001, "b": 0.006, "c": 0.003}, 2).splitlines()
    assert lines[2:] == ["| b | 6.00 | 60.0 % |", "| c | 3.00 | 30.0 % |", "| the rest | 1.00 | 10.0 % |"]
