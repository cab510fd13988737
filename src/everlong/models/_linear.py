"""The linear map of every architecture."""

from torch import Tensor, nn

from everlong.ops.products import linear


class Linear(nn.Linear):
    """torch's, with the product taken from ``everlong.ops.products``."""

    def forward(self, input: Tensor) -> Tensor:
        """Maps [*axes, K] to [*axes, N]."""
        return linear(input, self.weight, self.bias)
