"""What every op asks of its inputs, whichever backend computes it."""

from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from everlong.errors import EverlongError


def check_length(x: Shaped[Tensor, "B T ..."]) -> None:
    """Raises where there is no token: neither an output nor a final state would mean anything.

    Raises:
        EverlongError: T is 0.
    """
    if x.shape[1] == 0:
        raise EverlongError(f"no tokens: the input is [{x.shape[0]}, 0], at least one token a row is needed")


def start_of(initial_state: Float[Tensor, "B ..."], resets: Bool[Tensor, "B T"] | None) -> Float[Tensor, "B ..."]:
    """The state that the first token meets: zero where it starts a document, whatever was carried, a NaN included.

    A backend that multiplies by zero instead would carry a row that has diverged on into the next document.
    """
    if resets is None:
        return initial_state
    return initial_state.masked_fill(resets[:, 0].view(-1, *[1] * (initial_state.ndim - 1)), 0)
