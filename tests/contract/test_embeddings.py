# SPDX-License-Identifier: Apache-2.0
"""Cases 141 to 147: embeddings. No engine makes them yet: each case asserts that its request is refused clearly."""
import pytest

from cases import refused

pytestmark = pytest.mark.not_there_yet("no engine makes embeddings: 400 unsupported_endpoint")


def clear(model, **options):
    """400 unsupported_endpoint, which names the endpoint; never a vector of nothing."""
    error = refused(400, model.embeddings.create, **{"model": "smollm2", "input": "hello", **options})
    assert error.code == "unsupported_endpoint" and "/v1/embeddings" in str(error)


def test_case_141_base64_as_the_client_asks(model):
    """The SDK's default call asks for base64; decoded it equals the float call."""
    clear(model)
    clear(model, encoding_format="float")


def test_case_142_base64_is_little_endian_floats(model):
    """[1.0, 2.0] is AACAPwAAAEA=."""
    clear(model, encoding_format="base64")


def test_case_143_inputs_of_any_form(model):
    """A text, texts, tokens and lists of tokens of the same text: the same vector."""
    for given in ("hello", ["hello"], [1, 2], [[1, 2]]):
        clear(model, input=given)


def test_case_144_empty_or_too_many_inputs(model):
    """[], an empty text and 2049 texts: 400."""
    for given in ([], "", ["x"] * 2049):
        clear(model, input=given)


def test_case_145_dimensions(model):
    """dimensions on a model that has no choice: 400."""
    clear(model, dimensions=8)


def test_case_146_tokens_outside_the_vocabulary(model):
    """A token id over the vocabulary: 400."""
    clear(model, input=[10 ** 9])


def test_case_147_the_order_of_data(model):
    """data comes in input order."""
    clear(model, input=["a", "b", "c"])
