"""Every backend of the short convolution is a loop over tokens in float64: outputs, final window and all gradients."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from everlong.errors import EverlongError
from everlong.ops.backends import SHORT_CONVOLUTION

from .contract import BOUNDS, Inputs, check, gradients_of, results, servers, strided

BACKENDS = [
    pytest.param(name, dtype, id=f"{name}-{str(dtype).removeprefix('torch.')}")
    for dtype in BOUNDS
    for name in servers(SHORT_CONVOLUTION, dtype)
]
FLOAT32 = servers(SHORT_CONVOLUTION)


def by_token(
    x: Tensor, weight: Tensor, initial_state: Tensor, bias: Tensor | None = None, resets: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Equations (1) and (2), one token and row after the other."""
    rows, finals = [], []
    for b in range(len(x)):
        window, outputs = list(initial_state[b]), []
        for t in range(x.shape[1]):
            if resets is not None and resets[b, t]:
                window = [past * 0 for past in window]
            window = [*window, x[b, t]]
            a = (torch.stack(window) * weight[:, 0].t()).sum(0)
            outputs.append(F.silu(a if bias is None else a + bias))
            window = window[1:]
        rows.append(torch.stack(outputs))
        finals.append(torch.stack(window) if window else initial_state[b])
    return torch.stack(rows), torch.stack(finals)


def make(batch: int, length: int, channels: int, taps: int, *, bias: bool = True, resets: bool = True) -> Inputs:
    random = torch.Generator().manual_seed(length)
    shapes = {
        "x": (batch, length, channels),
        "weight": (channels, 1, taps),
        "initial_state": (batch, taps - 1, channels),
    }
    inputs = {name: torch.randn(*shape, generator=random).double() for name, shape in shapes.items()}
    if bias:
        inputs["bias"] = torch.randn(channels, generator=random).double()
    if resets:
        inputs["resets"] = torch.rand(batch, length, generator=random) < 0.2
        inputs["resets"][0, 0] = True
        inputs["resets"][-1, -2:] = True  # the final window is cut
    return inputs


def run(backend: str):
    def operation(**inputs: Tensor) -> tuple[Tensor, Tensor]:
        return SHORT_CONVOLUTION[backend](**{"bias": None, **inputs})

    return operation


@pytest.mark.parametrize("form", ["bias and resets", "bias", "plain"])
@pytest.mark.parametrize(
    ("batch", "length", "channels", "taps"),
    [(1, 1, 5, 4), (2, 2, 3, 4), (3, 16, 17, 2), (1, 17, 300, 4), (2, 49, 64, 5), (1, 3, 600, 6)],
    ids=str,
)
@pytest.mark.parametrize(("backend", "dtype"), BACKENDS)
def test_outputs_final_window_and_all_gradients_are_those_token_by_token(
    backend, dtype, batch, length, channels, taps, form
):
    inputs = make(batch, length, channels, taps, bias="bias" in form, resets="resets" in form)
    check(results(run(backend), inputs, dtype), results(by_token, inputs), BOUNDS[dtype])


@pytest.mark.parametrize("backend", FLOAT32)
def test_a_slice_of_a_wider_tensor_and_turned_tensors_serve(backend):
    inputs = make(2, 20, 24, 4, bias=False)  # a single axis has one stride only
    check(results(strided(run(backend)), inputs, torch.float32), results(by_token, inputs), 1e-5)

    def sliced(x: Tensor, **others: Tensor) -> tuple[Tensor, Tensor]:
        wide = torch.cat([x, x, x], dim=-1)
        return run(backend)(x=wide[:, :, 24:48], **others)

    check(results(sliced, inputs, torch.float32), results(by_token, inputs), 1e-5)


@pytest.mark.parametrize("part", [0, 1], ids=["outputs", "final window"])
@pytest.mark.parametrize("backend", FLOAT32)
def test_a_loss_on_only_one_of_the_two_results_has_its_own_gradients(backend, part):
    inputs = make(2, 9, 7, 4, resets=False)
    exact = gradients_of(by_token, part, inputs, torch.float64)
    check(gradients_of(run(backend), part, inputs, torch.float32), exact, 1e-5)


@pytest.mark.parametrize("backend", FLOAT32)
def test_large_and_not_finite_inputs_are_not_hidden(backend):
    x = torch.tensor([-200.0, -30.0, 0.0, 30.0, 200.0, float("nan")]).view(1, -1, 1)
    y, _ = run(backend)(x=x, weight=torch.ones(1, 1, 1), initial_state=torch.zeros(1, 0, 1))
    torch.testing.assert_close(y, F.silu(x), equal_nan=True, atol=1e-30, rtol=1e-6)


@pytest.mark.parametrize("backend", FLOAT32)
def test_bfloat16_keeps_its_dtypes(backend):
    inputs = {n: m if m.dtype == torch.bool else m.bfloat16() for n, m in make(2, 9, 7, 4).items()}
    y, final = run(backend)(**inputs)
    assert (y.dtype, final.dtype) == (torch.bfloat16, torch.bfloat16)
    exact, _ = by_token(**{n: m if m.dtype == torch.bool else m.double() for n, m in inputs.items()})
    torch.testing.assert_close(y.double(), exact, rtol=2**-5, atol=2**-5)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 19])
@pytest.mark.parametrize("starts", [None, [0, 5], [1], [18], [3, 4, 5]], ids=str)
@pytest.mark.parametrize("backend", FLOAT32)
def test_every_split_gives_the_whole(backend, starts, length):
    inputs = make(2, length, 3, 4, resets=False)
    if starts is not None:
        inputs["resets"] = torch.zeros(2, length, dtype=torch.bool)
        inputs["resets"][0, [t for t in starts if t < length]] = True

    def in_two(split: int):
        def operation(initial_state: Tensor, **others: Tensor) -> tuple[Tensor, Tensor]:
            parts = []
            for piece in (slice(0, split), slice(split, length)):
                cut = {n: m[:, piece] if n in ("x", "resets") else m for n, m in others.items()}
                part, initial_state = run(backend)(initial_state=initial_state, **cut)
                parts.append(part)
            return torch.cat(parts, dim=1), initial_state

        return operation

    whole = results(by_token, inputs)
    for split in range(1, length):
        check(results(in_two(split), inputs, torch.float32), whole, 1e-5)


@pytest.mark.parametrize("backend", FLOAT32)
def test_a_reset_hides_the_inputs_before_it_whatever_they_hold(backend):
    inputs = {n: m.float() for n, m in make(1, 8, 3, 4, resets=False).items()}
    inputs["x"][:, :5] = torch.nan
    inputs["initial_state"][:] = torch.inf
    resets = torch.zeros(1, 8, dtype=torch.bool)
    resets[0, [0, 5]] = True
    y, final = run(backend)(**inputs, resets=resets)
    alone = {**inputs, "x": inputs["x"][:, 5:], "initial_state": torch.zeros(1, 3, 3)}
    wanted, window = run(backend)(**alone)
    assert torch.equal(y[:, 5:], wanted)
    assert torch.equal(final, window)
    assert final.untyped_storage().nbytes() == final.nbytes, "it keeps the inputs alive"


@pytest.mark.parametrize("backend", FLOAT32)
def test_no_tokens_are_an_error(backend):
    with pytest.raises(EverlongError, match="at least one token"):
        run(backend)(x=torch.zeros(2, 0, 3), weight=torch.zeros(3, 1, 4), initial_state=torch.zeros(2, 3, 3))


@pytest.mark.skipif("cpu" not in FLOAT32, reason="Numba is not installed")
def test_the_cpu_kernel_gives_the_same_bits_with_any_number_of_threads_and_from_run_to_run():
    inputs = make(3, 150, 600, 4)
    before = torch.get_num_threads()
    try:
        runs = []
        for threads in (1, 2, 2, 3):
            torch.set_num_threads(threads)
            runs.append(results(run("cpu"), inputs, torch.float32))
    finally:
        torch.set_num_threads(before)
    for other in runs[1:]:
        for name, x in other.items():
            assert torch.equal(x, runs[0][name]), name
