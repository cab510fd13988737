"""The contract of all ops, over their registries: carried states, resets anywhere, both ends of the decays.

Everything is compared with the float64 reference on outputs, final state and all gradients, from a non-zero state that
tells its axes apart; see ``test_gated_linear_attention.py`` for the bound of 1e-5.
"""

from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from everlong.errors import EverlongError
from everlong.ops.backends import Recurrence

from .contract import Inputs, Operation, check, in_pieces, results, slices
from .forms import FORMS, STRONGEST, WEAKEST, every_backend, every_form

BOUND = 1e-5
CHUNK = 64


def some_resets(inputs: Inputs, batch: int, length: int) -> Inputs:
    """Documents of 17 tokens, their starts two further on in every row: the state reaches most splits."""
    where = torch.arange(length)[None] + 2 * torch.arange(batch)[:, None]
    return inputs | {"resets": where % 17 == 16}


def test_every_op_has_a_form():
    assert {id(kind.op) for kind in Recurrence.__subclasses__()} == {id(form.op) for form in FORMS.values()}


@every_form
def test_the_log_decays_of_every_row_reach_from_60_to_a_millionth(form):
    for length in (2, 65, 300):
        logs = form.log_decays(form.inputs(2, length)).flatten(1)
        assert torch.allclose(logs.amin(1), torch.tensor(-STRONGEST).double())
        assert torch.allclose(logs.amax(1), torch.tensor(-WEAKEST).double())
    between = (logs < -0.01) & (logs > -1)  # and what forgets within a document is there too
    assert between.any(1).all()


@pytest.mark.parametrize("length", [1, 2, 3, 63, 64, 65, 300])
@every_backend
def test_every_split_gives_the_whole(form, backend, length):
    """At every token. Only of the loop itself, which has no chunks, 300 tokens are split at their ends and middle."""
    inputs = some_resets(form.inputs(2, length), 2, length)
    exact = results(form.reference, inputs)
    check(results(form.op[backend], inputs, torch.float32), exact, BOUND)
    slow = backend == "reference" and length > CHUNK + 1
    for split in (1, 64, 149, 299) if slow else range(1, length):
        check(results(in_pieces(form.op[backend], [split, length - split]), inputs, torch.float32), exact, BOUND)


@every_backend
def test_single_steps_equal_one_call(form, backend):
    inputs = some_resets(form.inputs(2, 130), 2, 130)
    operation = in_pieces(form.op[backend], [1] * 130)
    check(results(operation, inputs, torch.float32), results(form.reference, inputs), BOUND)


@every_backend
def test_many_chunks_of_any_length_equal_one_call(form, backend):
    sizes = [3, 64, 1, 65, 63, 2, 102]
    inputs = some_resets(form.inputs(2, sum(sizes)), 2, sum(sizes))
    operation = in_pieces(form.op[backend], sizes)
    check(results(operation, inputs, torch.float32), results(form.reference, inputs), BOUND)


@every_backend
def test_no_tokens_are_an_error_and_not_a_silent_nothing(form, backend):
    inputs = {name: x.float() for name, x in slices(form.inputs(2, 3), 0, 0).items()}
    with pytest.raises(EverlongError, match=r"the input is \[2, 0\], at least one token a row is needed"):
        form.op[backend](**inputs)


def documents_alone(operation: Operation) -> Operation:
    """Each document of each row in a call of its own, from zero unless it goes on with the row's carried state."""

    def run(*, resets: Tensor, **inputs: Tensor) -> tuple[Tensor, Tensor]:
        rows, finals = [], []
        for row, cuts in enumerate(resets):
            starts = [0, *(int(t) for t in cuts.nonzero() if t > 0), len(cuts)]
            own = {n: x if n in ("A", "bonus") else x[row : row + 1] for n, x in inputs.items()}
            parts = []
            for first, stop in pairwise(starts):
                document = slices(own, first, stop)
                if cuts[first]:
                    document["initial_state"] = torch.zeros_like(own["initial_state"])
                part, final = operation(**document)
                parts.append(part)
            rows.append(torch.cat(parts, dim=1))
            finals.append(final)
        return torch.cat(rows), torch.cat(finals)

    return run


PACKINGS: dict[str, Sequence[Sequence[int]]] = {
    "first token": [[0], [], [0]],
    "last token": [[66], [66], []],
    "adjacent": [[5, 6, 7], [15, 16, 17], [63, 64, 65]],
    "every token": [range(67), [], range(67)],
    "all at once": [[0, 1, 33, 65, 66], [64], [0, 66]],
}
"""Row by row, the first tokens of documents, among 67 tokens."""


@pytest.mark.parametrize("starts", PACKINGS.values(), ids=PACKINGS)
@every_backend
def test_packed_documents_give_what_each_gives_alone(form, backend, starts):
    inputs = form.inputs(3, 67)
    resets = torch.zeros(3, 67, dtype=torch.bool)
    for row, tokens in enumerate(starts):
        resets[row, list(tokens)] = True
    inputs["resets"] = resets
    alone = results(documents_alone(form.reference), inputs)
    check(results(form.op[backend], inputs, torch.float32), alone, BOUND)
    for split in (5, 16, 64, 66):
        check(results(in_pieces(form.op[backend], [split, 67 - split]), inputs, torch.float32), alone, BOUND)


@every_backend
def test_a_carried_state_that_has_diverged_ends_with_its_document(form, backend):
    """A row whose first token starts a document meets nothing of what was carried, a NaN included; nor do gradients."""
    inputs = {name: x.float() for name, x in form.inputs(2, 67).items()}
    inputs["initial_state"] = inputs["initial_state"].clone()
    inputs["initial_state"][1] = torch.nan
    resets = torch.zeros(2, 67, dtype=torch.bool)
    resets[1, 0] = True
    inputs["resets"] = resets
    zeroed = inputs | {"initial_state": inputs["initial_state"].nan_to_num(0.0)}
    found = results(form.op[backend], inputs, torch.float32)
    check(found, {n: x.double() for n, x in results(form.op[backend], zeroed, torch.float32).items()}, 1e-6)


@every_backend
def test_bfloat16_inputs_are_within_their_own_rounding_and_states_stay_float32(form, backend):
    """Outputs and gradients are rounded once, by half of 2^-7 of their size; the state is that of float32."""
    wide = ("initial_state", "dt", "A", "log_decay")
    inputs = {n: x.float() if n in wide else x.bfloat16() for n, x in form.inputs(2, 130).items()}
    resets = some_resets({}, 2, 130)["resets"]
    random = torch.Generator().manual_seed(1)
    weights: list[Tensor] = []

    def run(operation: Operation, dtype: torch.dtype | None) -> dict[str, Tensor]:
        leaves = {n: x.to(dtype or x.dtype, copy=True).requires_grad_() for n, x in inputs.items()}
        outputs, state = operation(**leaves, resets=resets)
        if not weights:
            weights.extend(torch.randn(x.shape, generator=random).bfloat16() for x in (outputs, state))
        pairs = zip((outputs, state), weights, strict=True)
        loss = torch.stack([(x.double() * weight.double()).sum() for x, weight in pairs]).sum()
        gradients = torch.autograd.grad(loss, list(leaves.values()))
        return {"outputs": outputs, "state": state, **dict(zip(leaves, gradients, strict=True))}

    found, exact = run(form.op[backend], None), run(form.reference, torch.float64)
    assert (found["outputs"].dtype, found["state"].dtype) == (torch.bfloat16, torch.float32)
    for name, x in found.items():
        assert x.dtype == (inputs[name].dtype if name in inputs else x.dtype)
        scale = 1 + exact[name].abs().max()
        once = 2**-8 * exact[name].abs() if x.dtype == torch.bfloat16 else 0.0
        assert ((x.double() - exact[name]).abs() <= once + BOUND * scale).all(), name
