# SPDX-License-Identifier: Apache-2.0
"""Cases 81 to 99: running batches, and what comes out."""
import base64, concurrent.futures, json, re, struct, time

import pytest

import support
from cases import CHAT, create, failed, identities, line, lines, metric, poll, results, run, wait


def test_case_081_good_lines(client):
    """Three good lines: completed, the stamps in order, an output file and no error file (null,
    never empty)."""
    batch = run(client, lines(3))
    assert batch.status == "completed"
    assert batch.created_at <= batch.in_progress_at <= batch.finalizing_at <= batch.completed_at
    assert batch.output_file_id and batch.error_file_id is None and batch.model == "smollm2"
    assert batch.failed_at is batch.expired_at is batch.errors is None
    assert batch.cancelling_at is batch.cancelled_at is None


def test_case_082_the_shape_of_a_result(client):
    """Each output line has the four keys, an id batch_req_…, error null, status 200 and the body of
    the live endpoint."""
    batch = run(client, lines(3))
    live = json.loads(
        client.chat.completions.with_raw_response.create(model="smollm2",
                                                         messages=[{
                                                             "role": "user",
                                                             "content": "text 0"}]).text)
    output = results(client, batch.output_file_id)
    for entry in output:
        assert set(entry) == {"id", "custom_id", "response", "error"} and re.fullmatch(
            r"batch_req_[0-9a-zA-Z]{24,}", entry["id"])
        assert entry["error"] is None and set(entry["response"]) == {
            "status_code", "request_id", "body"}
        assert entry["response"]["status_code"] == 200 and set(
            entry["response"]["body"]) == set(live)
        assert set(entry["response"]["body"]["choices"][0]) == set(live["choices"][0])
    assert len({entry["id"]
                for entry in output}) == len({entry["response"]["request_id"]
                                              for entry in output}) == 3


def test_case_083_a_line_that_fails(model):
    """max_tokens -1 beside a good line: completed, counts 2/1/1; the bad one only in the error
    file, status 400, error null."""
    batch = run(model, support.jsonl([line("good", max_tokens=4), line("bad", max_tokens=-1)]))
    assert batch.status == "completed" and tuple(
        batch.request_counts.model_dump().values()) == (1, 1, 2)
    output, errors = identities(model, batch, ["good", "bad"])
    assert errors[0]["custom_id"] == "bad" and errors[0]["response"][
        "status_code"] == 400 and errors[0]["error"] is None
    assert errors[0]["response"]["body"]["error"]["param"] == "max_tokens"
    assert set(errors[0]["response"]["body"]["error"]) == {"message", "type", "param", "code"}


def test_case_084_all_lines_fail(client):
    """Every line fails at run time: completed, no output file, an error file, completed 0."""
    batch = run(client, lines(3, echo={"status": 400}))
    assert batch.status == "completed" and batch.output_file_id is None and batch.error_file_id
    assert (batch.request_counts.completed, batch.request_counts.failed) == (0, 3)
    identities(client, batch, [f"id-{i}" for i in range(3)])


def test_case_085_ten_thousand_lines(client):
    """10,000 lines: output and error ids together are the input's, none twice, and line counts are
    the counts."""
    content = support.jsonl([
        line(f"id-{i}", echo={"status": 400}) if i % 100 == 7 else line(f"id-{i}")
        for i in range(10000)])
    batch = run(client, content)
    output, errors = identities(client, batch, [f"id-{i}" for i in range(10000)])
    assert (len(output), len(errors)) == (9900, 100)
    assert client.files.content(batch.output_file_id).read().count(b"\n") == 9900


def test_case_086_custom_ids_of_any_kind(client):
    """Emoji, quotes, backslashes, 512 characters: equal after decoding."""
    ids = ["😀", 'a"b', "back\\slash", "x" * 512, " spaced ", "é", "\u2028", "\x01"]
    batch = run(client, support.jsonl([line(i) for i in ids]))
    identities(client, batch, ids)


def test_case_087_separators_in_answers(client):
    """Answers with U+2028, U+2029 and U+0085: splitlines() of the output gives one record a
    line."""
    batch = run(client, support.jsonl([line(i, "a\u2028b\u2029c\u0085d\x0be") for i in range(5)]))
    text = client.files.content(batch.output_file_id).text
    assert len(text.splitlines()) == 5 and text.endswith("\n")
    assert json.loads(text.splitlines(
    )[0])["response"]["body"]["choices"][0]["message"]["content"] == "a\u2028b\u2029c\u0085d\x0be"


def test_case_088_batch_and_live_agree(model):
    """Greedy lines: the text of the batch is that of the same request alone."""
    texts = [f"Write one sentence about {word}." for word in ("rivers", "clocks", "bread")]
    batch = run(
        model,
        support.jsonl([
            line(i, text, temperature=0, max_tokens=16) for i, text in enumerate(texts)]))
    for entry in results(model, batch.output_file_id):
        live = model.chat.completions.create(model="smollm2",
                                             messages=[{
                                                 "role": "user",
                                                 "content": texts[int(entry["custom_id"])]}],
                                             temperature=0,
                                             max_tokens=16)
        assert entry["response"]["body"]["choices"][0]["message"]["content"] == live.choices[
            0].message.content


def test_case_089_usage_is_a_sum(model):
    """Usage of the batch is the sum over its results; total is input plus output."""
    batch = run(
        model,
        support.jsonl([line(i, "Count. " * i, temperature=0, max_tokens=3 + i) for i in range(5)]))
    usage = [entry["response"]["body"]["usage"] for entry in results(model, batch.output_file_id)]
    assert batch.usage.input_tokens == sum(u["prompt_tokens"] for u in usage)
    assert batch.usage.output_tokens == sum(u["completion_tokens"] for u in usage)
    assert batch.usage.total_tokens == batch.usage.input_tokens + batch.usage.output_tokens
    assert batch.usage.input_tokens_details.cached_tokens == sum(
        u["prompt_tokens_details"]["cached_tokens"] for u in usage)


def test_case_090_polls_while_it_runs(client):
    """Counts never fall and never pass the total; file ids are null until the end."""
    batch, last = create(client, lines(3000)), (0, 0)
    while (batch := client.batches.retrieve(batch.id)).status not in support.TERMINAL:
        counts = batch.request_counts
        assert counts.completed + counts.failed <= max(
            counts.total, 0) and (counts.completed, counts.failed) >= last
        last = (counts.completed, counts.failed)
        assert batch.output_file_id is None and batch.error_file_id is None
        time.sleep(0.01)
    assert batch.status == "completed" and batch.request_counts.completed == 3000


def test_case_091_files_are_there_at_the_end(client):
    """At the first poll that says terminal both files can be fetched whole."""
    for _ in range(5):
        batch = create(client,
                       support.jsonl([line(i, echo={"status": 400 * (i % 2)}) for i in range(400)]))
        while (batch := client.batches.retrieve(batch.id)).status not in support.TERMINAL:
            pass
        assert [
            client.files.content(i).read().count(b"\n")
            for i in (batch.output_file_id, batch.error_file_id)] == [200, 200]


def test_case_092_result_files(client):
    """Result files have the purpose batch_output, their exact size and their names."""
    batch = run(client, support.jsonl([line("good"), line("bad", echo={"status": 400})]))
    for file_id, name in ((batch.output_file_id, "output"), (batch.error_file_id, "error")):
        file, data = client.files.retrieve(file_id), client.files.content(file_id).read()
        assert (file.purpose, file.bytes, file.filename) == ("batch_output", len(data),
                                                             f"{batch.id}_{name}.jsonl")


def test_case_093_two_models_in_a_file(client, strict):
    """Two models: both run and model is null; under the strict profile model_mismatch."""
    content = support.jsonl([line(1), line(2, model="gpt-4")])
    batch = run(client, content)
    assert batch.status == "completed" and batch.model is None
    assert {entry["response"]["body"]["model"]
            for entry in results(client, batch.output_file_id)} == {"smollm2", "gpt-4"}
    batch = strict.wait(strict.create(content)["id"])
    assert [error["code"] for error in batch["errors"]["data"]] == ["model_mismatch"]


def test_case_094_embeddings_lines(model, embedder):
    """Embeddings lines: floats without encoding_format, with base64 a text of 4·dim bytes; without
    an embeddings model a clear 400."""
    def embed(who, model_name):
        bodies = [{"model": model_name, "input": "hello", **more}
                  for more in ({}, {"encoding_format": "base64"})]
        lines = [{"custom_id": str(i), "method": "POST", "url": "/v1/embeddings", "body": body}
                 for i, body in enumerate(bodies)]
        return run(who, support.jsonl(lines), endpoint="/v1/embeddings")

    output = sorted(results(embedder,
                            embed(embedder, "all-minilm").output_file_id),
                    key=lambda entry: entry["custom_id"])
    floats, text = (entry["response"]["body"]["data"][0]["embedding"] for entry in output)
    assert len(floats) == 384 and all(isinstance(value, float) for value in floats)
    assert base64.b64decode(text) == struct.pack("<384f", *floats)
    batch = embed(model, "smollm2")
    assert batch.output_file_id is None and batch.request_counts.failed == 2
    entry = results(model, batch.error_file_id)[0]
    assert entry["response"]["status_code"] == 400 and entry["response"]["body"]["error"]["message"]


def test_case_095_completions_lines(model):
    """/v1/completions lines give text_completion bodies."""
    content = support.jsonl([{"custom_id": "c", "method": "POST", "url": "/v1/completions",
                              "body": {"model": "smollm2", "prompt": "Once", "max_tokens": 4}}])
    body = results(model,
                   run(model, content,
                       endpoint="/v1/completions").output_file_id)[0]["response"]["body"]
    assert body["object"] == "text_completion" and body["choices"][0]["text"]


def test_case_096_schema_lines(model):
    """A json_schema line: the content validates. A schema that cannot be held refuses the file,
    with line and place."""
    schema = {
        "type": "json_schema", "json_schema": {
            "name": "a", "schema": {
                "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
                "additionalProperties": False}}}
    batch = run(
        model, support.jsonl([line("s", "A number please.", response_format=schema,
                                   max_tokens=40)]))
    for entry in results(model, batch.output_file_id):
        assert isinstance(
            json.loads(entry["response"]["body"]["choices"][0]["message"]["content"])["n"], int)
    worse = {
        "type": "json_schema", "json_schema": {
            "name": "a", "schema": {"properties": {"n": {"not": {}}}}}}
    errors = failed(
        model,
        support.jsonl([
            line("s", response_format=schema),
            line("r", response_format=worse),
            line("t", guided_regex="(")]), 2)
    assert [(e.line, e.code, e.param) for e in errors] == [
        (2, "invalid_value", "body.response_format"), (3, "invalid_value", "body.guided_regex")]
    assert "$.properties.n: the keyword 'not'" in errors[0].message


def test_case_097_a_line_too_long_for_the_model(model):
    """A prompt over the context: 400 context_length_exceeded in the error file; the others
    succeed."""
    batch = run(
        model,
        support.jsonl([line("good", max_tokens=4),
                       line("long", "word " * 9000, max_tokens=4)]))
    output, errors = identities(model, batch, ["good", "long"])
    assert output[0]["custom_id"] == "good" and errors[0]["response"]["body"]["error"][
        "code"] == "context_length_exceeded"


def test_case_098_batches_side_by_side(client):
    """Eight batches at once: all finish, and no result is in another's file."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        made = list(
            pool.map(
                lambda n: create(
                    client, support.jsonl([line(f"{n}-{i}", f"text {n}-{i}") for i in range(300)])),
                range(8)))
    for n, batch in enumerate(made):
        output, _ = identities(client, wait(client, batch.id), [f"{n}-{i}" for i in range(300)])
        for entry in output:
            assert entry["response"]["body"]["choices"][0]["message"][
                "content"] == "text " + entry["custom_id"]


def test_case_099_a_client_beside_a_batch(model):
    """A chat during a long batch is answered long before the batch ends, and the batch goes on."""
    batch = create(
        model,
        support.jsonl([
            line(i, f"Tell a story about {i}.", max_tokens=4000 if i else 40, ignore_eos=True)
            for i in range(16)]))
    poll(lambda: model.batches.retrieve(batch.id).status == "in_progress")
    stream = model.chat.completions.create(model="smollm2",
                                           messages=[{"role": "user", "content": "Hi"}],
                                           max_tokens=4,
                                           stream=True)
    assert [chunk for chunk in stream][-1].choices[0].finish_reason
    after = model.batches.retrieve(batch.id)
    assert after.status == "in_progress" and after.request_counts.completed < 2
    poll(lambda: model.batches.retrieve(batch.id).request_counts.completed == 1)
    model.batches.cancel(batch.id)
    batch = wait(model, batch.id, 300)
    assert (batch.status, batch.request_counts.completed) == ("cancelled", 1)
