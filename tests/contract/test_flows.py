# SPDX-License-Identifier: Apache-2.0
"""The flows of llama-stack's integration suite for batches, as the contract tells them: end to end,
errors, idempotency."""
import json

import openai
import pytest

import support
from cases import CHAT, create, line, lines, refused, results, run, upload, wait


def test_a_batch_from_its_upload_to_its_results(client):
    file = upload(
        client, support.jsonl([line("success", max_tokens=20),
                               line("error", echo={"status": 400})]))
    batch = client.batches.create(input_file_id=file.id,
                                  endpoint=CHAT,
                                  completion_window="24h",
                                  metadata={"test": "e2e"})
    assert batch.endpoint == CHAT and batch.input_file_id == file.id and batch.metadata == {
        "test": "e2e"}
    assert client.batches.retrieve(batch.id).id == batch.id and batch.id in [
        entry.id for entry in client.batches.list(limit=100).data]
    batch = wait(client, batch.id)
    assert batch.status == "completed" and (batch.request_counts.completed,
                                            batch.request_counts.failed) == (1, 1)
    good, = results(client, batch.output_file_id)
    assert isinstance(good["response"]["body"], dict) and good["response"]["body"]["choices"]
    bad, = results(client, batch.error_file_id)
    assert bad["custom_id"] == "error" and bad["response"]["body"]["error"]["message"] and bad[
        "error"] is None


def test_result_files_can_be_deleted_and_the_input_before_the_batch_has_run(client):
    batch = run(client, support.jsonl([line("success"), line("error", echo={"status": 400})]))
    for file_id in (batch.output_file_id, batch.error_file_id):
        deleted = client.files.delete(file_id)
        assert deleted.deleted and deleted.id == file_id
    assert refused(409, client.batches.cancel,
                   batch.id).body["message"] == "Cannot cancel a batch with status 'completed'."
    made = []
    for i in range(2):
        file = upload(client, lines(1))
        made.append(
            client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h").id)
        client.files.delete(file.id)
    listed = client.batches.list()
    assert isinstance(listed.data, list) and set(made) <= {batch.id for batch in listed.data}
    assert all(wait(client, batch).status in ("completed", "failed") for batch in made)


def test_lines_without_model_and_without_messages_are_two_errors(client):
    bare = line("no-model")
    del bare["body"]["model"]
    mute = line("no-messages")
    del mute["body"]["messages"]
    batch = run(client, support.jsonl([bare, mute]))
    assert batch.status == "failed" and batch.failed_at
    assert [(error.line, error.param) for error in batch.errors.data] == [(1, "body.model"),
                                                                          (2, "body.messages")]
    assert "model" in batch.errors.data[0].message.lower(
    ) and "messages" in batch.errors.data[1].message.lower()


def test_a_batch_of_completions_and_one_of_embeddings(client):
    for url, body in (("/v1/completions", {"prompt": "hello"}), ("/v1/embeddings", {
            "input": "hello"})):
        content = support.jsonl([{
            "custom_id": f"r{i}", "method": "POST", "url": url, "body": {
                "model": "smollm2", **body}} for i in range(3)])
        batch = run(client, content, endpoint=url)
        assert batch.status == "completed" and len(results(client, batch.output_file_id)) == 3


def test_a_batch_cancelled_at_once_ends_cancelled(client):
    batch = create(client, lines(5, echo={"delay_ms": 300000}))
    assert client.batches.cancel(batch.id).status in ("cancelling", "cancelled")
    assert wait(client, batch.id).status == "cancelled"


@pytest.mark.parametrize("change,words",
                         [({"endpoint": "/v1/invalid/endpoint"},
                           ("invalid_value", "/v1/invalid/endpoint", "Supported values")),
                          ({"completion_window": "48h"}, ("completion_window", )),
                          ({"metadata": {"tags": ["a"]}}, ("invalid_type", "tags", "string"))])
def test_bad_parameters_are_refused_at_once(client, change, words):
    file = upload(client, lines(1))
    error = refused(
        400, client.batches.create, **{
            "input_file_id": file.id, "endpoint": CHAT, "completion_window": "24h", **change})
    assert all(word in json.dumps(error.body) for word in words), error.body


def test_bad_files_fail_the_batch_and_name_each_line(client):
    content = support.jsonl([line("ok")
                             ]) + b'{"custom_id": "broken", invalid json here\n' + support.jsonl([
                                 line("stream", stream=True)])
    batch = run(client, content)
    assert batch.status == "failed" and batch.request_counts.total == 0
    assert [(error.code, error.line) for error in batch.errors.data] == [
        ("invalid_json_line", 2), ("streaming_unsupported", 3)]


def test_an_idempotency_key_in_the_body(client):
    file = upload(client, lines(1))
    made = {
        "input_file_id": file.id, "endpoint": CHAT, "completion_window": "24h", "metadata": {
            "a": "b"}}
    first = client.batches.create(**made, extra_body={"idempotency_key": "flow-1"})
    assert client.batches.create(**made, extra_body={"idempotency_key": "flow-1"}).id == first.id
    bogus = {
        "input_file_id": "bogus-id", "endpoint": CHAT, "completion_window": "24h", "extra_body": {
            "idempotency_key": "flow-bogus"}}
    one = client.batches.create(**bogus, metadata={"a": "1", "b": "2"})
    two = client.batches.create(**bogus, metadata={"b": "2", "a": "1"})
    assert (one.id, one.created_at, one.metadata, one.input_file_id) == (two.id, two.created_at,
                                                                         two.metadata, "bogus-id")
    for change in ({"metadata": {"a": "c"}}, {"endpoint": "/v1/completions"}, {
            "input_file_id": upload(client, lines(2)).id}):
        error = refused(409,
                        client.batches.create,
                        **{**made, **change},
                        extra_body={"idempotency_key": "flow-1"})
        assert isinstance(error, openai.ConflictError) and "conflict" in str(error).lower()
    assert client.batches.create(**made, extra_body={"idempotency_key": "flow-2"}).id != first.id
    assert client.batches.create(**made).id != first.id
