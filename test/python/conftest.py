"""What every test starts from."""

import pytest
import torch


@pytest.fixture(autouse=True)
def fresh_dynamo():
    """No test sees what another has compiled."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
