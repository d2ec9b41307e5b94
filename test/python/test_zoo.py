"""A dozen architectures of the zoo; `make zoo` tries all of them."""

import pytest
import zoo

NAMES = [
    "llama",
    "gpt2",
    "gemma2",
    "mixtral",
    "gpt_oss",
    "falcon",
    "opt",
    "phi3",
    "bart",
    "olmoe",
    "qwen3_moe",
    "mpt",
]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_parity(name):
    result = zoo.try_model(name)
    assert (result.status, result.detail) == ("parity", "")
