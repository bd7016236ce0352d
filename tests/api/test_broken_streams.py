# SPDX-License-Identifier: Apache-2.0
"""A stream whose upstream fails in the middle ends with the error event of the client's own API,
and never with a good end."""
import json

import pytest

import support, upstream


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    fake = upstream.Upstream()
    with support.serving(tmp_path_factory.mktemp("broken") / "state", "--upstream",
                         f"fake={fake.url}") as server:
        yield server
    fake.stop()


def stream(server, path, **more):
    body = {"model": "fake", "stream": True, **more}
    status, data = server.call("POST", path, body)
    assert status == 200, data
    return [
        json.loads(line.removeprefix("data: ")) for line in data.decode().splitlines()
        if line and not line.startswith(("event: ", ": "))]


@pytest.mark.parametrize("mode", ("event-error", "event-garbage"))
def test_a_failure_in_the_middle_is_an_event_of_the_clients_own_api(server, mode):
    asked = [{"role": "user", "content": f"mode={mode} one two three"}]
    events = stream(server, "/v1/messages", max_tokens=9, messages=asked)
    assert events[0]["type"] == "message_start" and events[-1]["type"] == "error"
    assert events[-1]["error"]["type"] and events[-1]["error"]["message"]
    assert "message_stop" not in [event["type"] for event in events]
    events = stream(server, "/v1/responses", input=asked)
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["status"] == "failed"
    assert events[-1]["response"]["error"]["message"]
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    events = stream(server, "/api/chat", messages=asked)
    assert events[0]["message"]["role"] == "assistant" and isinstance(events[-1]["error"], str)
    assert not any(event.get("done") for event in events)
