"""Every method starts the rows of every registered architecture, and takes note of where they end."""

import pytest
import torch

from everlong.interventions.methods import INTERVENTIONS, create
from everlong.models.architectures import create as create_model
from tests.models.tiny import TINY


@pytest.mark.parametrize("architecture", TINY)
@pytest.mark.parametrize("method", INTERVENTIONS)
def test_rows_start_from_states_that_the_model_takes(method, architecture):
    torch.manual_seed(0)
    model = create_model(architecture, **TINY[architecture])
    intervention = create(method, seed=0)
    rows = torch.arange(3)
    for step in range(3):
        initial = intervention.initial_state(rows < 0, model.state_spec, step, rows)
        initial.check(model.state_spec, 3)
        output = model(torch.randint(0, 11, (3, 5), generator=torch.Generator().manual_seed(step)), initial)
        assert output.logits.isfinite().all()
        for leaf, tensor in initial.items():
            noisy = method == "random_noise" or (method.endswith("_noise") and step > 0)
            carried = method in ("state_passing", "tbtt") and step > 0
            assert bool(tensor.any()) == (carried or (noisy and leaf.role == "recurrent"))
        intervention.observe(output.state, intervention.ages(rows) + 5)
