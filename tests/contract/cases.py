# SPDX-License-Identifier: Apache-2.0
"""What the cases share: plain requests with their headers, lines, and judging of refusals and
results."""
import contextlib, http.client, json, re, sqlite3

import openai
import pytest

import support

CHAT = "/v1/chat/completions"


def plain(server, method, path, body=None, headers=None):
    """Status, headers in lower case, and bytes."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value
                               for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def post(server, path, value, headers=None):
    """Status and parsed answer of a JSON body."""
    status, _, data = plain(server, "POST", path, json.dumps(value),
                            {"Content-Type": "application/json", **(headers or {})})
    return status, json.loads(data)


def form(*parts):
    """A multipart body of (name, bytes[, filename]) and its headers."""
    body = b""
    for name, content, *filename in parts:
        body += b'--BOUND\r\nContent-Disposition: form-data; name="%s"' % name.encode()
        body += b'; filename="%s"' % filename[0].encode() if filename else b""
        body += b"\r\n\r\n" + content + b"\r\n"
    return body + b"--BOUND--\r\n", {"Content-Type": "multipart/form-data; boundary=BOUND"}


def refused(status, call, *arguments, **named):
    """The error of a call that must be refused with that status and the whole envelope."""
    with pytest.raises(openai.APIStatusError) as caught:
        call(*arguments, **named)
    error = caught.value
    assert error.status_code == status, error
    body = error.response.json()["error"]
    assert set(body) == {"message", "type", "param", "code"}, body
    assert re.fullmatch(r"req_[0-9a-f]{32}", error.request_id)
    return error


def line(custom_id, text="hello", url=CHAT, model="smollm2", **body):
    return {"custom_id": str(custom_id), "method": "POST", "url": url,
            "body": {"model": model, "messages": [{"role": "user", "content": text}], **body}}


def lines(count, **body):
    return support.jsonl([line(f"id-{i}", f"text {i}", **body) for i in range(count)])


def upload(client, content, purpose="batch"):
    return client.files.create(file=("in.jsonl", content), purpose=purpose)


def create(client, content, **named):
    named = {"endpoint": CHAT, "completion_window": "24h", **named}
    return client.batches.create(input_file_id=upload(client, content).id, **named)


def wait(client, batch_id, seconds=300):
    for waited in support.polls(0.2):
        batch = client.batches.retrieve(batch_id)
        if batch.status in support.TERMINAL:
            return batch
        assert waited < seconds, batch


def run(client, content, **named):
    return wait(client, create(client, content, **named).id)


def results(client, file_id):
    """The parsed lines of a result file; none when there is no file."""
    return [json.loads(text)
            for text in client.files.content(file_id).text.splitlines()] if file_id else []


def identities(client, batch, ids):
    """The counts and the two files agree with each other and with the input (contract: counts,
    usage, invariants)."""
    output, errors = results(client, batch.output_file_id), results(client, batch.error_file_id)
    counts = batch.request_counts
    assert len(output) == counts.completed and counts.failed <= len(errors)
    assert len(output) + len(errors) == counts.total == len(ids)
    assert sorted(entry["custom_id"] for entry in output + errors) == sorted(ids)
    return output, errors


def failed(client, content, count=1, **named):
    """The errors of a batch whose file is refused: nothing runs, and nothing comes of it."""
    batch = run(client, content, **named)
    assert batch.status == "failed" and batch.failed_at and batch.in_progress_at is None
    assert batch.output_file_id is None and batch.error_file_id is None
    assert tuple(batch.request_counts.model_dump().values()) == (0, 0, 0)
    assert batch.errors.object == "list" and len(batch.errors.data) == count, batch.errors
    return batch.errors.data


def poll(question, seconds=180):
    for waited in support.polls(0.05):
        if answer := question():
            return answer
        assert waited < seconds, "it did not happen"


def metric(server, name):
    for text in plain(server, "GET", "/metrics")[2].decode().splitlines():
        if text.startswith(name + " "):
            return float(text.split()[1])
    raise AssertionError(f"no metric {name}")


def rewrite(server, sql, *values):
    """Changes rows while the server is down: the time that passes meanwhile."""
    with contextlib.closing(sqlite3.connect(server.state / "meta.db")) as database:
        with database:
            assert database.execute(sql, values).rowcount == 1


@contextlib.contextmanager
def serving(folder, *arguments, clock=None):
    """A server of one's own and its client; the directory is checked afterwards."""
    server = support.Server(folder / "state",
                            *(arguments or ("--model", "smollm2=echo")),
                            environment=clock and clock.environment)
    headers = {"Connection": "close"} if clock else {
    }  # a connection that is kept would end when the clock moves
    yield server, lambda: openai.OpenAI(base_url=server.start().url,
                                        api_key="none",
                                        max_retries=0,
                                        timeout=120,
                                        default_headers=headers)
    assert server.stop() == 0, server.log_text()[-2000:]
    support.fsck(folder / "state")
