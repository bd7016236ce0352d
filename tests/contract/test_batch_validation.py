# SPDX-License-Identifier: Apache-2.0
"""Cases 61 to 80: one bad line, and nothing of the file runs."""
import json

import pytest

import support
from cases import CHAT, create, failed, identities, line, lines, refused, results, run, upload, wait

EMBEDDINGS = "/v1/embeddings"


def raw(*texts):
    return b"".join(
        text if isinstance(text, bytes) else json.dumps(text).encode() + b"\n" for text in texts)


def without(name, custom_id="x"):
    made = line(custom_id)
    del made[name]
    return made


def embeddings(custom_id, **body):
    return {
        "custom_id": custom_id, "method": "POST", "url": EMBEDDINGS, "body": {
            "model": "smollm2", "input": "hello", **body}}


@pytest.fixture(scope="module")
def strictly(strict):
    import openai
    return openai.OpenAI(base_url=strict.url, api_key="none", max_retries=0)


def test_case_061_required_members_of_a_line(client):
    """Four lines that lack one member each: four errors, lines 1 to 4, missing_required_parameter
    with that param."""
    names = ("custom_id", "method", "url", "body")
    errors = failed(client, raw(*(without(name, name) for name in names)), 4)
    assert [(e.line, e.code, e.param) for e in errors] == [
        (i + 1, "missing_required_parameter", name) for i, name in enumerate(names)]
    assert errors[0].message == "Missing required parameter: 'custom_id'."


def test_case_062_a_line_that_is_not_json(client):
    """Line 2 cannot be parsed: invalid_json_line, line 2."""
    errors = failed(client, raw(line(1), b"{invalid json here\n", line(3)))
    assert (errors[0].code, errors[0].line, errors[0].param) == ("invalid_json_line", 2, None)
    good = json.dumps(line(2)).encode()
    for bad, why in ((b"\xef\xbb\xbf" + good, "a byte-order mark, at byte 1"),
                     (good[:-1] + b",}", f"at byte {len(good) + 1}"),
                     (good + good, f"near '{{', at byte {len(good) + 1}"), (b'{"a":"cut \\ud83d"}',
                                                                            "at byte 17")):
        message = failed(client, raw(line(1), bad + b"\n"))[0].message
        assert message.startswith(
            "This line is not parseable as valid JSON: ") and message.endswith(f"{why}."), message


def test_case_063_lines_that_are_no_objects(client):
    """[1,2], "x", null, 7: invalid_request, and nothing crashes."""
    errors = failed(client, raw(line(1), [1, 2], "x", None, 7, True), 5)
    assert [(e.code, e.line) for e in errors] == [("invalid_request", i) for i in range(2, 7)]


def test_case_064_equal_custom_ids(client):
    """The same custom_id on lines 1 and 3: duplicate_custom_id on line 3, naming the first; escapes
    do not hide it."""
    errors = failed(client, raw(line("a"), line("b"), line("a")))
    assert (errors[0].code, errors[0].line,
            errors[0].param) == ("duplicate_custom_id", 3,
                                 "custom_id") and "line 1" in errors[0].message
    errors = failed(client,
                    raw(line("é"),
                        json.dumps(line("é"), ensure_ascii=False).encode() + b"\n"))
    assert (errors[0].code, errors[0].line) == ("duplicate_custom_id", 2)


def test_case_065_custom_ids_that_are_none(client):
    """custom_id 7 or empty: invalid_request, param custom_id."""
    errors = failed(
        client,
        raw({**line("x"), "custom_id": 7}, {**line("x"), "custom_id": ""},
            {**line("x"), "custom_id": ["a"]}), 3)
    assert [(e.code, e.param) for e in errors] == [("invalid_request", "custom_id")] * 3


def test_case_066_the_url_of_another_endpoint(client, strictly):
    """url /v1/embeddings over a chat body in a chat batch: one invalid_url, in both profiles."""
    for who in (client, strictly):
        errors = failed(who, raw(line(1), line(2, url=EMBEDDINGS)))
        assert (errors[0].code, errors[0].param, errors[0].line) == ("invalid_url", "url", 2)


def test_case_067_the_url_of_another_endpoint_with_its_body(client, strictly):
    """The same url with an `input` body: runs as embeddings; under the strict profile
    invalid_url."""
    batch = run(client, raw(embeddings("e")))
    assert results(client,
                   batch.output_file_id)[0]["response"]["body"]["data"][0]["object"] == "embedding"
    assert failed(strictly, raw(embeddings("e")))[0].code == "invalid_url"


def test_case_068_an_unknown_url(client, strictly):
    """url /v1/foo: invalid_url in both profiles; one without /v1 is taken, as Azure writes it."""
    for who in (client, strictly):
        error = failed(who, raw(line(1, url="/v1/foo")))[0]
        assert error.code == "invalid_url" and error.message.startswith(
            "The URL '/v1/foo' is not supported. Supported are '/v1/chat/completions', ")
        assert run(who, raw(line(1, url="/chat/completions"))).status == "completed"


def test_case_069_streams(client):
    """stream true on line 2 of 2: one streaming_unsupported, param body.stream; false is
    accepted."""
    errors = failed(client, raw(line(1, stream=False), line(2, stream=True)))
    assert (errors[0].code, errors[0].line, errors[0].param) == ("streaming_unsupported", 2,
                                                                 "body.stream")
    assert run(client, raw(line(1, stream=False), line(2,
                                                       stream=None))).request_counts.completed == 2


def test_case_070_an_unknown_model(client):
    """A model that is not served: model_not_found, param body.model."""
    errors = failed(client, raw(line(1), line(2, model="nope")))
    assert (errors[0].code, errors[0].param,
            errors[0].line) == ("model_not_found", "body.model",
                                2) and "'nope'" in errors[0].message


def test_case_071_no_model_and_no_messages(client, strictly):
    """No model and no messages on lines 1 and 2: two errors, params body.model and
    body.messages."""
    first, second = line(1), line(2)
    del first["body"]["model"], second["body"]["messages"]
    for who in (client, strictly):
        errors = failed(who, raw(first, second), 2)
        assert [(e.code, e.param) for e in errors] == [("invalid_request", "body.model"),
                                                       ("invalid_request", "body.messages")]
    assert failed(client, raw(line(1, model=7)))[0].param == "body.model"


def test_case_072_only_blank_lines(client):
    """A file of blank lines: refused at the upload, or empty_file."""
    try:
        errors = failed(client, b"\n\r\n   \n")
    except Exception as error:
        assert "Invalid file format" in str(error)
    else:
        assert errors[0].code == "empty_file"


def test_case_073_too_many_requests(strictly, strict):
    """One request over the limit (50,000 under the strict profile): too_many_tasks, in little
    memory."""
    import pathlib, re
    errors = failed(strictly, lines(50001))
    assert (errors[0].code, errors[0].line) == ("too_many_tasks",
                                                None) and "50000" in errors[0].message
    peak = int(
        re.search(r"VmHWM:\s+(\d+)",
                  pathlib.Path(f"/proc/{strict.process.pid}/status").read_text())[1])
    assert peak < 200 << 10


def test_case_074_blank_lines_count(client):
    """Blank lines between good ones are skipped, and counted in line numbers."""
    assert run(client,
               b"\n" + raw(line(1)) + b"\n  \n" + raw(line(2))).request_counts.completed == 2
    assert failed(client, raw(line(1)) + b"\n\n{bad\n" + raw(line(2)))[0].line == 4


def test_case_075_line_ends_and_marks(client):
    """CRLF, a byte order mark, no newline at the end: accepted."""
    content = b"\xef\xbb\xbf" + lines(3).replace(b"\n", b"\r\n")
    assert run(client, content[:-2]).request_counts.completed == 3


def test_case_076_separators_inside_strings(client):
    """A raw U+2028 inside a string does not end the line: one request."""
    text = "a\u2028b\u2029c\u0085d"
    batch = run(client, json.dumps(line(1, text), ensure_ascii=False).encode() + b"\n")
    assert results(
        client,
        batch.output_file_id)[0]["response"]["body"]["choices"][0]["message"]["content"] == text


def test_case_077_bytes_that_are_not_utf8(client):
    """Invalid UTF-8 in line 5: invalid_json_line, line 5."""
    errors = failed(client,
                    lines(4) + raw(line("bad")).replace(b"hello", b"hel\xfflo") + raw(line("last")))
    assert (errors[0].code, errors[0].line) == ("invalid_json_line", 5)


def test_case_078_thousands_of_bad_lines(client):
    """5,000 bad lines: the list is capped at 1,000 and the object stays small."""
    batch = wait(client, create(client, lines(1) + b"{bad\n" * 5000).id)
    assert batch.status == "failed" and len(
        batch.errors.data) == 1000 and batch.errors.data[-1].line == 1001
    assert len(batch.to_json()) < 400000


def test_case_079_methods(client):
    """method GET: invalid_method."""
    errors = failed(client, raw({**line(1), "method": "GET"}))
    assert (errors[0].code, errors[0].param) == ("invalid_method", "method")


def test_case_080_deep_and_long_lines(client, echo):
    """Nesting 100,000 deep and a line of 17 MiB are errors of their lines; the stack holds."""
    deep = b'{"custom_id":"d","method":"POST","url":"/v1/chat/completions","body":{"model":"smollm2","messages":' + b"[" * 100000 + b"]" * 100000 + b"}}\n"
    errors = failed(client, raw(line(1)) + deep + raw(line(3, "x" * (17 << 20))), 2)
    assert [(e.line, e.code) for e in errors] == [(2, "invalid_json_line"), (3, "invalid_request")]
    assert echo.process.poll() is None
