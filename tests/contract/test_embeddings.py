# SPDX-License-Identifier: Apache-2.0
"""Cases 141 to 147: embeddings, of a real model."""
import base64, json, math, struct

from cases import post, refused

MODEL = "all-minilm"


def vectors(client, given, **options):
    return [
        entry.embedding
        for entry in client.embeddings.create(model=MODEL, input=given, **options).data]


def test_case_141_base64_as_the_client_asks(embedder, embedding_server):
    """The SDK's default call asks for base64; decoded it equals the float call, which is what a
    body without the field gets."""
    sent = json.loads(
        embedder.embeddings.with_raw_response.create(model=MODEL,
                                                     input="hello").http_response.request.content)
    assert sent["encoding_format"] == "base64"
    default, floats = vectors(embedder, "hello")[0], vectors(embedder,
                                                             "hello",
                                                             encoding_format="float")[0]
    assert len(default) == 384 and max(abs(a - b) for a, b in zip(default, floats)) < 1e-6
    status, plain = post(embedding_server, "/v1/embeddings", {"model": MODEL, "input": "hello"})
    assert status == 200 and plain["data"][0]["embedding"] == floats


def test_case_142_base64_is_little_endian_floats(embedder):
    """[1.0, 2.0] is AACAPwAAAEA=: the text of a vector is that of its little-endian floats."""
    assert base64.b64encode(struct.pack("<2f", 1, 2)) == b"AACAPwAAAEA="
    text, floats = (vectors(embedder, "hello", encoding_format=form)[0]
                    for form in ("base64", "float"))
    assert isinstance(text, str) and text == base64.b64encode(struct.pack("<384f", *
                                                                          floats)).decode()


def test_case_143_inputs_of_any_form(embedder):
    """A text, texts, tokens and lists of tokens of the same text: the same vector."""
    ids = [101, 7592, 2088, 102]  # [CLS] hello world [SEP]
    wanted = vectors(embedder, "hello world", encoding_format="float")
    for given in (["hello world"], ids, [ids]):
        assert vectors(embedder, given, encoding_format="float") == wanted


def test_case_144_empty_or_too_many_inputs(embedder):
    """[], an empty text and 2049 texts: 400."""
    for given in ([], "", ["x", ""], [[]], ["x"] * 2049):
        assert refused(400, embedder.embeddings.create, model=MODEL,
                       input=given).param.startswith("input")


def test_case_145_dimensions(embedder):
    """dimensions on a model that has no choice: 400; its own width is fine, with norm 1."""
    for count in (8, 383, 385, 0):
        assert refused(400,
                       embedder.embeddings.create,
                       model=MODEL,
                       input="hello",
                       dimensions=count).param == "dimensions"
    vector = vectors(embedder, "hello", dimensions=384)[0]
    assert len(vector) == 384 and abs(math.hypot(*vector) - 1) < 1e-3


def test_case_146_tokens_outside_the_vocabulary(embedder):
    """A token id over the vocabulary: 400."""
    for given in ([10 ** 9], [[1], [30522]], [-1]):
        assert "token id" in str(refused(400, embedder.embeddings.create, model=MODEL, input=given))


def test_case_147_the_order_of_data(embedder):
    """data comes in input order."""
    texts = [f"text {i}" * (i % 5 + 1) for i in range(40)]
    answer = embedder.embeddings.create(model=MODEL, input=texts, encoding_format="float")
    assert [entry.index for entry in answer.data] == list(range(40))
    for i in (0, 7, 39):
        assert answer.data[i].embedding == vectors(embedder, texts[i], encoding_format="float")[0]
