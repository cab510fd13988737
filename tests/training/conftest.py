import pytest
import torch


@pytest.fixture(scope="package", autouse=True)
def _one_thread():
    """These models are far too small for more, and threads that wait for each other take most of the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
