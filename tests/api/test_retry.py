# SPDX-License-Identifier: Apache-2.0
"""POST /v1/batches/{id}/retry: a new batch of the failed lines only; and the retry policy inside a
batch."""
import json, threading

import httpx
import openai
import pytest

import support


@pytest.fixture
def client(echo_server):
    with httpx.Client(base_url=f"http://127.0.0.1:{echo_server.port}", timeout=60) as client:
        yield client


def mixed():
    """Good lines, and ones that fail with 400, 429 and 503; raw bytes that must come back as they
    were."""
    lines = [json.dumps(support.request(f"g{i}", f"good {i}")) for i in range(3)]
    lines += [
        json.dumps(support.request(f"b{s}-{i} é", "bad", echo={"status": s}))
        for s in (400, 429, 503)
        for i in range(2)]
    lines.insert(4, "")
    lines.append(
        '{"custom_id" : "raw \\u00e9", "method":"POST","url":"/v1/chat/completions", "body":{"model":"smollm2","messages":[{"role":"user","content":"ü"}],"echo":{"status":503}}}'
    )
    return ("\ufeff" + "\r\n".join(lines)).encode()


def ended(server, content=None, **extra):
    batch = server.create(content or mixed(), retry={"attempts": 1}, **extra)
    return server.wait(batch["id"])


def input_of(server, batch):
    return server.call("GET", f"/v1/files/{batch['input_file_id']}/content")[1]


def test_the_failed_lines_alone_become_a_new_batch_with_their_own_bytes(echo_server, client):
    batch = ended(echo_server, metadata={"owner": "an"})
    assert batch["request_counts"] == {"total": 10, "completed": 3, "failed": 7}
    assert batch["quern"]["retry_of"] is None and batch["quern"]["retry"] == {"attempts": 1}
    again = client.post(f"/v1/batches/{batch['id']}/retry").json()
    assert again["status"] == "validating" and again["id"] != batch["id"]
    assert again["quern"]["retry_of"] == batch["id"] and again["quern"]["retry"] == {"attempts": 1}
    assert again["metadata"] == {"owner": "an"} and again["endpoint"] == batch["endpoint"]
    wanted = [line for line in mixed().decode().lstrip("\ufeff").split("\r\n") if '"echo"' in line]
    assert input_of(echo_server, again).decode() == "".join(line + "\n" for line in wanted)
    file = echo_server.json("GET", f"/v1/files/{again['input_file_id']}")
    assert (file["purpose"], file["filename"]) == ("batch", f"{batch['id']}_retry.jsonl")
    again = echo_server.wait(again["id"])
    assert again["request_counts"] == {"total": 7, "completed": 0, "failed": 7}


def test_statuses_and_codes_choose_and_the_body_overrides(echo_server, client):
    batch = ended(echo_server, metadata={"a": "1"})
    def retry(**body):
        answer = client.post(f"/v1/batches/{batch['id']}/retry", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()
    def ids(batch):
        return [json.loads(line)["custom_id"] for line in input_of(echo_server, batch).splitlines()]
    assert ids(retry(statuses=[429])) == ["b429-0 é", "b429-1 é"]
    assert ids(retry(statuses=[400, 503])) == [
        "b400-0 é", "b400-1 é", "b503-0 é", "b503-1 é", "raw é"]
    other = retry(statuses=[429], metadata={"b": "2"}, retry={"attempts": 2, "statuses": [500]})
    assert other["metadata"] == {"b": "2"} and other["quern"]["retry"] == {
        "attempts": 2, "statuses": [500]}
    assert retry(statuses=[429], metadata=None)["metadata"] is None
    for body, word in ({"statuses": [200]}, "statuses"), ({"codes": [""]}, "codes"), ({"completion_window": "no"}, "completion_window"), \
            ({"metadata": {"x": 1}}, "metadata.x"), ({"retry": {"attempts": 0}}, "retry.attempts"), ({"statuses": "429"}, "statuses"):
        answer = client.post(f"/v1/batches/{batch['id']}/retry", json=body)
        assert answer.status_code == 400 and answer.json()["error"]["param"] == word, answer.text


def test_lines_that_never_ran_are_retried_and_can_be_chosen_by_code(echo_server, client):
    requests = [support.request("bad", "x", echo={"status": 400}), support.request("done", "y")]
    requests += [support.request(f"never{i}", "zzz", echo={"hang": True}) for i in range(3)]
    batch = echo_server.create(support.jsonl(requests))
    running = client.post(f"/v1/batches/{batch['id']}/retry")
    assert running.status_code == 409 and "Cannot retry a batch with status" in running.json(
    )["error"]["message"]
    support.until(lambda: echo_server.batch(batch["id"])["request_counts"] == {
        "total": 5, "completed": 1, "failed": 1})
    echo_server.json("POST", f"/v1/batches/{batch['id']}/cancel", {})
    echo_server.wait(batch["id"])
    by_code = client.post(f"/v1/batches/{batch['id']}/retry",
                          json={"codes": ["batch_cancelled"]}).json()
    assert [
        json.loads(line)["custom_id"] for line in input_of(echo_server, by_code).splitlines()] == [
            "never0", "never1", "never2"]
    echo_server.json("POST", f"/v1/batches/{by_code['id']}/cancel", {})
    echo_server.wait(by_code["id"])


def test_there_is_nothing_to_retry_when_nothing_failed_and_gone_files_are_named(
        echo_server, client):
    good = echo_server.wait(echo_server.create(support.jsonl([support.request("a", "b")]))["id"])
    answer = client.post(f"/v1/batches/{good['id']}/retry")
    assert (answer.status_code, answer.json()["error"]["message"]) == (
        400, "Nothing to retry: no request of this batch failed.")
    refused = echo_server.wait(echo_server.create(b"{}\n")["id"])
    assert "no request of this batch was run" in client.post(
        f"/v1/batches/{refused['id']}/retry").json()["error"]["message"]
    batch = ended(echo_server)
    answer = client.post(f"/v1/batches/{batch['id']}/retry", json={"statuses": [418]})
    assert answer.status_code == 400 and "Nothing to retry" in answer.json()["error"]["message"]
    assert client.delete(f"/v1/files/{batch['input_file_id']}").status_code == 200
    answer = client.post(f"/v1/batches/{batch['id']}/retry")
    assert answer.status_code == 404 and batch["input_file_id"] in answer.json()["error"]["message"]
    assert client.post("/v1/batches/batch_unknown/retry").status_code == 404
    assert client.post(f"/v1/batches/{batch['id']}/retry", json=[1]).status_code == 400


def test_an_idempotency_key_makes_one_batch_also_when_many_ask_at_once(echo_server, client):
    batch = ended(echo_server)
    ids = []
    def ask():
        answer = httpx.post(f"http://127.0.0.1:{echo_server.port}/v1/batches/{batch['id']}/retry",
                            headers={"Idempotency-Key": "retry-" + batch["id"]},
                            timeout=60)
        ids.append(answer.json()["id"])
    threads = [threading.Thread(target=ask) for _ in range(6)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(ids) == 6 and len(set(ids)) == 1
    names = [file["filename"] for file in echo_server.json("GET", "/v1/files?limit=1000")["data"]]
    assert names.count(f"{batch['id']}_retry.jsonl") == 1
    other = client.post(f"/v1/batches/{batch['id']}/retry",
                        json={"statuses": [429]},
                        headers={"Idempotency-Key": "retry-" + batch["id"]})
    assert other.status_code == 409 and "conflict" in other.json()["error"]["message"]


def test_the_openai_client_can_ask_for_it_and_reads_the_batch(echo_server):
    batch = ended(echo_server)
    client = openai.OpenAI(base_url=echo_server.url, api_key="x", max_retries=0)
    again = client.post(f"/batches/{batch['id']}/retry",
                        body={"statuses": [503]},
                        cast_to=openai.types.Batch)
    assert again.id.startswith("batch_") and again.quern["retry_of"] == batch["id"]
    assert client.batches.retrieve(again.id).quern["retry_of"] == batch["id"]


def test_the_policy_of_a_batch_says_what_is_tried_again_and_how_often(tmp_path):
    lines = [
        support.request("a", "x", echo={"status": 500}),
        support.request("b", "x", echo={"status": 429}),
        support.request("c", "x")]
    with support.serving(tmp_path / "state", "--model", "smollm2=echo") as server:
        def retried():
            return next(
                float(line.split()[1])
                for line in server.call("GET", "/metrics")[1].decode().splitlines()
                if line.startswith("quern_lines_retried_total "))
        server.wait(server.create(support.jsonl(lines))["id"])
        before = retried()
        batch = server.wait(
            server.create(support.jsonl(lines), retry={"attempts": 3, "statuses": [500]})["id"])
        assert batch["request_counts"] == {"total": 3, "completed": 1, "failed": 2}
        assert batch["quern"]["retry"] == {"attempts": 3, "statuses": [500]}
        assert retried() - before == 2
    support.fsck(tmp_path / "state")


@pytest.mark.parametrize("extra, param", [({"retry": 3}, "retry"),
                                          ({"retry": {"attempts": 21}}, "retry.attempts"),
                                          ({"retry": {"statuses": [400]}}, "retry.statuses"),
                                          ({"retry": {"tries": 2}}, "retry"),
                                          ({"on_quality": "stop"}, "on_quality"),
                                          ({"quality_limits": {"empty": 2}}, "quality_limits"),
                                          ({"quality_limits": {"min_lines": 0}}, "quality_limits")])
def test_a_wrong_policy_is_refused_with_its_name(client, extra, param):
    answer = client.post("/v1/batches",
                         json={
                             "input_file_id": "file-1", "endpoint": "/v1/chat/completions",
                             "completion_window": "24h", **extra})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param, answer.text
