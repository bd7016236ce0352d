# SPDX-License-Identifier: Apache-2.0
"""Cases 48 to 60: creating batches."""
import concurrent.futures, json, re

import pytest

import support
from cases import CHAT, create, line, lines, plain, post, refused, results, run, serving, upload
from cases import wait

KEYS = {
    "id", "object", "endpoint", "model", "errors", "input_file_id", "completion_window", "status",
    "output_file_id", "error_file_id", "created_at", "in_progress_at", "expires_at",
    "finalizing_at", "completed_at", "failed_at", "expired_at", "cancelling_at", "cancelled_at",
    "request_counts", "usage", "metadata"}


def body(server, **change):
    file = server.upload(lines(1))["id"] if "input_file_id" not in change else None
    made = {"input_file_id": file, "endpoint": CHAT, "completion_window": "24h", **change}
    return {key: value for key, value in made.items() if value is not ...}


def wrong(server, **change):
    """The error of a create call that is answered with 400; no batch comes of it."""
    before = server.json("GET", "/v1/batches?limit=1")["first_id"]
    status, answer = post(server, "/v1/batches", body(server, **change))
    assert status == 400, answer
    assert server.json("GET", "/v1/batches?limit=1")["first_id"] == before
    return answer["error"]


def test_case_048_a_valid_create(echo):
    """200, validating or later, every key of the object, expires_at a day after created_at, counts
    there."""
    status, batch = post(echo, "/v1/batches", body(echo))
    assert status == 200 and KEYS <= set(batch) and re.fullmatch(r"batch_[0-9a-f]{32}", batch["id"])
    assert batch["status"] in ("validating", "in_progress", "finalizing",
                               "completed") and batch["object"] == "batch"
    assert batch["expires_at"] == batch["created_at"] + 86400 and set(batch["request_counts"]) == {
        "total", "completed", "failed"}
    done = echo.wait(batch["id"])
    assert KEYS <= set(done) and set(done["usage"]) == {
        "input_tokens", "input_tokens_details", "output_tokens", "output_tokens_details",
        "total_tokens"}


def test_case_049_no_metadata(echo):
    """metadata null or absent: metadata null."""
    for change in ({"metadata": None}, {}):
        assert post(echo, "/v1/batches", body(echo, **change))[1]["metadata"] is None


def test_case_050_metadata_is_echoed(echo, client):
    """16 pairs, keys of 64 and values of 512 characters of several bytes come back exactly, in
    their order."""
    metadata = {("é" if i % 2 else "k") * 62 + f"{i:02d}": "😀" * 512 if i else ""
                for i in range(16)}
    made = create(client, lines(1), metadata=metadata)
    assert made.metadata == metadata and list(made.metadata) == list(metadata)
    assert client.batches.retrieve(made.id).metadata == metadata


def test_case_051_too_much_metadata(echo):
    """17 pairs, a key of 65 or a value of 513 characters: 400 that names metadata."""
    for metadata in ({str(i): "x" for i in range(17)}, {"k" * 65: "x"}, {"k": "é" * 513}):
        assert "metadata" in wrong(echo, metadata=metadata)["message"]


def test_case_052_metadata_values_are_strings(echo):
    """metadata.tags as an array: 400 invalid_type, param metadata.tags; as are numbers, and
    metadata that is no object."""
    for value in (["a"], 7, {"a": 1}, True):
        error = wrong(echo, metadata={"tags": value})
        assert (error["code"],
                error["param"]) == ("invalid_type",
                                    "metadata.tags") and "metadata.tags" in error["message"]
    assert wrong(echo, metadata="x")["param"] == "metadata"


def test_an_endpoint_without_v1_is_taken_as_azure_writes_it(echo):
    """endpoint /chat/completions, as in the url of a line: the batch has /v1/chat/completions."""
    status, made = post(echo, "/v1/batches", body(echo, endpoint="/chat/completions"))
    assert status == 200 and made["endpoint"] == CHAT


def test_case_053_an_unknown_endpoint(echo):
    """endpoint /v1/invalid/endpoint: 400 invalid_value; the message has the value and the supported
    ones."""
    error = wrong(echo, endpoint="/v1/invalid/endpoint")
    assert (error["code"], error["param"]) == ("invalid_value", "endpoint")
    assert "/v1/invalid/endpoint" in error["message"] and "Supported values" in error[
        "message"] and CHAT in error["message"]


def test_case_054_completion_windows(echo, strict, small):
    """1h, 48h, invalid and the empty one: 400 that names completion_window; extended windows are
    the operator's to allow."""
    for server in (echo, strict):
        for window in ("1h", "48h", "invalid", "", "24H", "24h "):
            error = wrong(server, completion_window=window)
            assert error["code"] == "invalid_value" and "completion_window" in error[
                "message"] and error["param"] == "completion_window"
    for window, seconds in (("1m", 60), ("24h", 86400), ("30d", 2592000), ("90m", 5400)):
        made = post(small, "/v1/batches", body(small, completion_window=window))[1]
        assert (made["completion_window"], made["expires_at"] - made["created_at"]) == (window,
                                                                                        seconds)
    for window in ("31d", "0h", "59s", "01h", "1w", "h", "99999999999d"):
        assert "completion_window" in wrong(small, completion_window=window)["message"]


def test_case_055_required_parameters(echo):
    """No input_file_id: 400 missing_required_parameter; so for endpoint and completion_window, and
    null is absent."""
    for name in ("input_file_id", "endpoint", "completion_window"):
        for value in (..., None):
            error = wrong(echo, **{"input_file_id": "file-x", name: value})
            assert (error["code"], error["param"]) == ("missing_required_parameter", name)


def test_case_056_an_unknown_input_file(client):
    """An unknown file: 200, then failed with one error: invalid_request, line null, Cannot find
    file."""
    for file_id in ("file-nope", "../../etc/passwd", "é"):
        batch = client.batches.create(input_file_id=file_id, endpoint=CHAT, completion_window="24h")
        assert batch.status == "validating"
        batch = wait(client, batch.id)
        assert batch.status == "failed" and len(batch.errors.data) == 1
        error = batch.errors.data[0]
        assert (error.code, error.line,
                error.param) == ("invalid_request", None,
                                 "file_id") and "Cannot find file" in error.message


def test_case_057_an_input_of_another_purpose(client):
    """A file of purpose user_data: failed with one error."""
    file = upload(client, lines(1), "user_data")
    batch = wait(
        client,
        client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h").id)
    assert batch.status == "failed" and len(
        batch.errors.data) == 1 and "user_data" in batch.errors.data[0].message


def test_case_058_results_that_expire(client):
    """output_expires_after of 3600 seconds: both result files expire an hour after their own
    creation."""
    batch = run(client, support.jsonl([line("good"), line("bad", echo={"status": 400})]),
                output_expires_after={"anchor": "created_at", "seconds": 3600})
    for file_id in (batch.output_file_id, batch.error_file_id):
        file = client.files.retrieve(file_id)
        assert file.expires_at == file.created_at + 3600
    batch = run(client, lines(1))
    assert client.files.retrieve(batch.output_file_id).expires_at is None


def test_case_059_idempotency_keys(tmp_path):
    """The same key and body: the same batch and one run, also side by side and after a kill;
    another body: 409 once."""
    with serving(tmp_path) as (server, start):
        client = start()
        made = body(server)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(
                pool.map(lambda _: post(server, "/v1/batches", made, {"Idempotency-Key": "one"}),
                         range(16)))
        assert {status
                for status, _ in answers} == {200} and len({batch["id"]
                                                            for _, batch in answers}) == 1
        first = answers[0][1]["id"]
        assert post(server, "/v1/batches", {**made, "idempotency_key": "one"})[1]["id"] == first
        for _ in range(3):  # whatever was answered before the kill holds after it
            second = post(server, "/v1/batches", made, {"Idempotency-Key": f"more {_}"})[1]["id"]
            server.kill()
            client = start()
            assert post(server, "/v1/batches", made,
                        {"Idempotency-Key": f"more {_}"})[1]["id"] == second
            assert post(server, "/v1/batches", made, {"Idempotency-Key": "one"})[1]["id"] == first
        conflict = plain(server, "POST", "/v1/batches", json.dumps({**made, "metadata": {
            "a": "b"}}), {"Content-Type": "application/json", "Idempotency-Key": "one"})
        assert conflict[0] == 409 and conflict[1][
            "x-should-retry"] == "false" and b"conflict" in conflict[2]
        assert len(list(client.batches.list())) == 4
        error = refused(409,
                        client.with_options(max_retries=2).batches.create,
                        input_file_id=made["input_file_id"],
                        endpoint=CHAT,
                        completion_window="24h",
                        metadata={"x": "y"},
                        extra_headers={"Idempotency-Key": "one"})
        assert "conflict" in str(
            error) and error.response.request.headers["x-stainless-retry-count"] == "0"
        assert wait(client, first).request_counts.completed == 1
        for key in ("", "x" * 300):
            assert post(server, "/v1/batches", {**made, "idempotency_key": key})[0] == 400


def test_case_060_an_expiry_out_of_range(echo):
    """output_expires_after.seconds of 10: 400 that names it."""
    for expiry, param in (({
            "anchor": "created_at", "seconds": 10}, "output_expires_after.seconds"), ({
                "anchor": "created_at", "seconds": 2592001}, "output_expires_after.seconds"), ({
                    "anchor": "now", "seconds": 3600}, "output_expires_after.anchor"), ({
                        "seconds": 3600}, "output_expires_after.anchor"), ("x",
                                                                           "output_expires_after")):
        error = wrong(echo, output_expires_after=expiry)
        assert error["param"] == param and param in error["message"]
