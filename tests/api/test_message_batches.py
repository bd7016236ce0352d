# SPDX-License-Identifier: Apache-2.0
"""Anthropic's Message Batches over HTTP: requests that come with the call become a batch as any
other, whose results have Anthropic's form; a call that is refused leaves nothing."""
import http.server, json, threading

import pytest

import support

ROUTE = "/v1/messages/batches"
USER = [{"role": "user", "content": "Grüße"}]


def params(text="Grüße", **more):
    return {
        "model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": text}], **more}


def asked(name, text="Grüße", **more):
    return {"custom_id": name, "params": params(text, **more)}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    yield from support.server_of_session(tmp_path_factory, "messages", "--model", "m=echo")


class Gate:
    """An upstream that answers once it is opened."""

    def __init__(self):
        gate = self
        gate.opened, gate.asked = threading.Event(), threading.Semaphore(0)

        class Handler(http.server.BaseHTTPRequestHandler):

            def answer(self, body):
                data = json.dumps(body).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self):
                self.answer({"object": "list", "data": [{"id": "m", "object": "model"}]})

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                gate.asked.release()
                gate.opened.wait(300)
                self.answer({
                    "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
                    "choices": [{
                        "index": 0, "finish_reason": "stop",
                        "message": {"role": "assistant", "content": "late"}}],
                    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}})

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"m=http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.opened.set()
    gate.server.shutdown()


def create(server, requests, status=200):
    return server.json("POST", ROUTE, {"requests": requests}, status)


def ended(server, batch_id):
    found = {}

    def has_ended():
        found.update(server.json("GET", f"{ROUTE}/{batch_id}"))
        return found["processing_status"] == "ended"

    support.until(has_ended)
    return found


def results(server, batch):
    assert batch["results_url"] == f"{server.site}{ROUTE}/{batch['id']}/results"
    status, data = server.call("GET", f"{ROUTE}/{batch['id']}/results")
    assert status == 200 and (data.endswith(b"\n") or not data), data
    lines = [json.loads(line) for line in data.splitlines()]
    found = {line["custom_id"]: line["result"] for line in lines}
    assert len(found) == len(lines)
    return found


def test_requests_become_a_batch_with_results_in_order_of_their_names(server):
    batch = create(server, [asked("a"), asked("b", "two", system="s"), asked("c_-9Z", "three")])
    assert set(batch) == {
        "id", "type", "processing_status", "request_counts", "created_at", "expires_at",
        "ended_at", "archived_at", "cancel_initiated_at", "results_url"}
    assert batch["type"] == "message_batch" and batch["id"].startswith("msgbatch_")
    assert sum(batch["request_counts"].values()) == 3
    after = ended(server, batch["id"])
    assert after["request_counts"] == {
        "processing": 0, "succeeded": 3, "errored": 0, "canceled": 0, "expired": 0}
    found = results(server, after)
    for name, text in (("a", "Grüße"), ("b", "two"), ("c_-9Z", "three")):
        assert found[name]["type"] == "succeeded"
        message = found[name]["message"]
        assert message["type"] == "message" and message["id"].startswith("msg_")
        assert message["content"] == [{"type": "text", "text": text}]


def test_long_results_come_whole_beside_short_ones(server):
    """They are read in pieces of 64 KiB."""
    texts = {str(at): "äb" * length for at, length in enumerate((9, 70000, 1, 300000, 22000, 2))}
    batch = ended(
        server,
        create(server, [asked(name, text, max_tokens=1000000) for name, text in texts.items()])["id"])
    found = results(server, batch)
    assert {name: result["message"]["content"][0]["text"] for name, result in found.items()} == texts


def test_it_is_a_batch_as_any_other_under_its_own_name(server):
    batch = ended(server, create(server, [asked("a"), asked("b")])["id"])
    inner = server.batch(batch["id"].replace("msgbatch_", "batch_"))
    assert inner["endpoint"] == "/v1/messages" and inner["status"] == "completed"
    assert inner["request_counts"] == {"total": 2, "completed": 2, "failed": 0}
    status, data = server.call("GET", f"/v1/files/{inner['input_file_id']}/content")
    assert status == 200 and [json.loads(line) for line in data.splitlines()] == [{
        "custom_id": name, "method": "POST", "url": "/v1/messages", "body": params()}
                                                                                  for name in "ab"]
    # One that was made from a file has the other name as well.
    content = support.jsonl([{
        "custom_id": "x", "method": "POST", "url": "/v1/messages", "body": params()}])
    other = server.wait(server.create(content, endpoint="/v1/messages")["id"])
    shown = server.json("GET", f"{ROUTE}/{other['id'].replace('batch_', 'msgbatch_')}")
    assert shown["request_counts"]["succeeded"] == 1
    chat = server.wait(server.create(support.jsonl([support.request("x", "t", "m")]))["id"])
    assert server.call("GET", f"{ROUTE}/{chat['id'].replace('batch_', 'msgbatch_')}")[0] == 404


def test_what_is_wrong_in_params_is_that_requests_own_error(server):
    bad = {
        "stream": params(stream=True), "image": params([{"type": "image", "source": {}}]),
        "no model": {"max_tokens": 5, "messages": USER},
        "model of null": {"model": None, "max_tokens": 5, "messages": USER},
        "model of another kind": {"model": 5, "max_tokens": 5, "messages": USER},
        "unknown model": params(model="claude-x"), "empty model": params(model=""),
        "no messages": {"model": "m", "max_tokens": 5},
        "messages of another kind": {"model": "m", "max_tokens": 5, "messages": "hi"},
        "no tokens": {"model": "m", "messages": USER}, "empty": {},
        "a constraint of another API": params(response_format={"type": "json_object"})}
    names = {f"r{number}": name for number, name in enumerate(bad)}
    requests = [{"custom_id": name, "params": bad[told]} for name, told in names.items()]
    batch = ended(server, create(server, [*requests, asked("good")])["id"])
    assert batch["request_counts"] == {
        "processing": 0, "succeeded": 1, "errored": len(bad), "canceled": 0, "expired": 0}
    found = results(server, batch)
    assert found["good"]["type"] == "succeeded"
    for name, told in names.items():
        error = found[name]["error"]
        assert found[name]["type"] == "errored" and error["type"] == "error", (told, found[name])
        assert error["request_id"], told
        kind = "not_found_error" if told == "unknown model" else "invalid_request_error"
        assert error["error"]["type"] == kind, (told, error)
        assert error["error"]["message"], told


def test_a_key_that_is_given_twice_in_params_is_that_requests_own_error(server):
    body = ('{"requests":[{"custom_id":"a","params":{"model":"m","model":"n","max_tokens":5,'
            '"messages":[{"role":"user","content":"x"}]}}]}')
    batch = ended(server, server.json("POST", ROUTE, body)["id"])
    assert "twice" in results(server, batch)["a"]["error"]["error"]["message"]


def test_spaces_and_ends_of_lines_between_the_values_are_no_part_of_them(server):
    body = json.dumps({"note": [1, {"x": "]}\"\\"}], "requests": [asked("a", "one\ntwo")], "z": None},
                      indent=1).replace("\n", "\r\n")
    batch = ended(server, server.json("POST", ROUTE, f" {body}\n")["id"])
    assert results(server, batch)["a"]["message"]["content"][0]["text"] == "one\ntwo"


REFUSED = {
    "no list": ("{}", "requests: Field required"),
    "null": ('{"requests":null}', "requests: expected an array"),
    "an empty list": ('{"requests":[]}', "at least one request"),
    "a list": ("[]", "expected an object"),
    "a request that is none": ('{"requests":[5]}', "requests.0: expected an object, got a number"),
    "no custom_id": ('{"requests":[{"params":{}}]}', "requests.0.custom_id: Field required"),
    "a custom_id of another kind": ('{"requests":[{"custom_id":5,"params":{}}]}',
                                    "requests.0.custom_id: expected a string"),
    "no params": ('{"requests":[{"custom_id":"a"}]}', "requests.0.params: Field required"),
    "params of another kind": ('{"requests":[{"custom_id":"a","params":[]}]}',
                               "requests.0.params: expected an object, got an array"),
    "an empty custom_id": ('{"requests":[{"custom_id":"","params":{}}]}', "pattern"),
    "a custom_id with a blank": ('{"requests":[{"custom_id":"a b","params":{}}]}', "pattern"),
    "a long custom_id": ('{"requests":[{"custom_id":"%s","params":{}}]}' % ("a" * 65), "pattern"),
    "equal custom_ids": ('{"requests":[%s]}' % ",".join(
        '{"custom_id":"%s","params":{}}' % name for name in ("a", "b", "\\u0061")),
                         "requests.2.custom_id: 'a' is the custom_id of requests.0 already"),
    "custom_id twice": ('{"requests":[{"custom_id":"a","custom_id":"b","params":{}}]}', "twice"),
    "requests twice": ('{"requests":[{"custom_id":"a","params":{}}],"requests":[]}', "twice"),
    "a fault in the middle": (
        '{"requests":[{"custom_id":"a","params":{}},{"custom_id":"b","params":{"x":tru}}]}',
        "requests.1: not valid JSON"),
    "no comma": ('{"requests":[{"custom_id":"a","params":{}} {"custom_id":"b","params":{}}]}',
                 "requests.0: the body is not valid JSON at byte 44: expected ',' or ']', got '{'"),
    "a comma too many": ('{"requests":[{"custom_id":"a","params":{}},]}', "requests.1"),
    "no end": ('{"requests":[{"custom_id":"a","params":{}}', "ends too early, after 42 bytes"),
    "something behind it": ('{"requests":[{"custom_id":"a","params":{}}]} x', "nothing behind"),
    "no UTF-8": (b'{"requests":[{"custom_id":"a","params":{"x":"\xff"}}]}', "requests.0: not valid"),
    "nothing": (" ", "empty"),
    "too deep": ('{"requests":[{"custom_id":"a","params":%s}]}' % ('{"a":' * 3000 + "1" + "}" * 3000),
                 "requests.0: not valid JSON")}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_call_that_is_refused_says_where_and_leaves_nothing(server, name):
    body, sentence = REFUSED[name]
    before = server.json("GET", "/v1/files?limit=10000")["data"], server.json("GET", ROUTE)
    status, data = server.call("POST", ROUTE, body)
    told = json.loads(data)
    assert (status, told["type"], told["error"]["type"]) == (400, "error", "invalid_request_error")
    assert sentence in told["error"]["message"], told
    assert before == (server.json("GET", "/v1/files?limit=10000")["data"],
                      server.json("GET", ROUTE))
    assert list((server.state / "tmp").iterdir()) == []


def test_too_many_requests_and_too_large_ones_are_refused(server):
    many = ",".join('{"custom_id":"r%d","params":{}}' % number for number in range(100_001))
    status, data = server.call("POST", ROUTE, '{"requests":[%s]}' % many)
    assert status == 400 and b"at most 100000 requests" in data, data
    large = '{"requests":[{"custom_id":"a","params":{"x":"%s"}}]}' % ("y" * (17 << 20))
    status, data = server.call("POST", ROUTE, large)
    assert status == 400 and b"requests.0: " in data, data
    status, data = server.call("POST", ROUTE, b"", headers={"Content-Length": str((256 << 20) + 1)})
    told = json.loads(data)
    assert status == 413 and told["error"]["type"] == "request_too_large", told
    status, data = server.call("POST", ROUTE, '{"requests":[]}', kind="text/plain")
    assert status == 415, data


def test_pages_go_in_both_directions(tmp_path):
    with support.serving(tmp_path / "state", "--model", "m=echo") as server:
        assert server.json("GET", ROUTE) == {
            "data": [], "has_more": False, "first_id": None, "last_id": None}
        made = [create(server, [asked("a")])["id"] for _ in range(5)][::-1]
        server.create(support.jsonl([support.request("x", "t", "m")]))

        def page(query):
            told = server.json("GET", f"{ROUTE}?{query}")
            names = [batch["id"] for batch in told["data"]]
            assert (told["first_id"], told["last_id"]) == ((names[0], names[-1]) if names else
                                                           (None, None))
            return names, told["has_more"]

        assert page("") == (made, False)
        assert page("limit=2") == (made[:2], True)
        assert page(f"limit=2&after_id={made[1]}") == (made[2:4], True)
        assert page(f"limit=2&after_id={made[3]}") == (made[4:], False)
        assert page(f"limit=2&before_id={made[4]}") == (made[2:4], True)
        assert page(f"limit=2&before_id={made[2]}") == (made[:2], False)
        assert page(f"before_id={made[0]}") == ([], False)
        for query in ("limit=0", "limit=1001", "limit=x", "after_id=msgbatch_0", "before_id=x",
                      f"before_id={made[0]}&after_id={made[1]}"):
            status, data = server.call("GET", f"{ROUTE}?{query}")
            assert status == 400 and json.loads(data)["type"] == "error", (query, data)


def test_a_batch_is_cancelled_and_deleted(tmp_path, gate):
    with support.serving(tmp_path / "state", "--upstream", gate.url) as server:
        made = create(server, [asked(f"r{number}") for number in range(5000)])
        gate.asked.acquire(timeout=60)
        name = f"{ROUTE}/{made['id']}"
        told = json.loads(server.call("GET", f"{name}/results")[1])
        assert told["error"]["type"] == "not_found_error"
        assert server.call("DELETE", name)[0] == 400
        going = server.json("POST", f"{name}/cancel")
        assert going["processing_status"] in ("canceling", "ended") and going["cancel_initiated_at"]
        assert server.json("POST", f"{name}/cancel")["cancel_initiated_at"] == going[
            "cancel_initiated_at"]
        gate.opened.set()
        batch = ended(server, made["id"])
        counts = batch["request_counts"]
        assert counts["canceled"] > 0 and counts["canceled"] + counts["succeeded"] == 5000
        kinds = [result["type"] for result in results(server, batch).values()]
        assert len(kinds) == 5000 and kinds.count("canceled") == counts["canceled"]
        assert server.json("POST", f"{name}/cancel") == batch
        assert server.json("DELETE", name) == {
            "id": made["id"], "type": "message_batch_deleted"}
        for method, path in (("GET", name), ("DELETE", name), ("GET", f"{name}/results"),
                             ("POST", f"{name}/cancel")):
            status, data = server.call(method, path)
            assert status == 404 and json.loads(data)["error"]["type"] == "not_found_error"
        assert server.json("GET", ROUTE)["data"] == []


def test_a_batch_that_is_cancelled_while_it_is_read_has_a_result_for_each_request(server):
    made = create(server, [asked(f"r{number}") for number in range(50_000)])
    assert made["request_counts"]["processing"] == 50_000
    server.json("POST", f"{ROUTE}/{made['id']}/cancel")
    batch = ended(server, made["id"])
    counts = batch["request_counts"]
    assert counts["canceled"] > 0 and counts["canceled"] + counts["succeeded"] == 50_000
    kinds = [result["type"] for result in results(server, batch).values()]
    assert len(kinds) == 50_000 and kinds.count("canceled") == counts["canceled"]


def test_requests_that_did_not_run_within_a_day_are_expired(tmp_path, gate):
    clock = support.Clock(tmp_path)
    with support.serving(tmp_path / "state", "--upstream", gate.url,
                         environment=clock.environment) as server:
        made = create(server, [asked(f"r{number}") for number in range(5000)])
        gate.asked.acquire(timeout=60)
        clock.move(24 * 3600 + 60)
        gate.opened.set()
        batch = ended(server, made["id"])
        counts = batch["request_counts"]
        assert counts["expired"] > 0 and counts["expired"] + counts["succeeded"] == 5000
        kinds = [result["type"] for result in results(server, batch).values()]
        assert kinds.count("expired") == counts["expired"]


def test_an_idempotency_key_stands_for_one_batch(server):
    headers = {"Idempotency-Key": "one"}
    body = {"requests": [asked("a")]}
    first = server.call("POST", ROUTE, body, headers=headers)
    again = server.call("POST", ROUTE, body, headers=headers)
    assert json.loads(first[1])["id"] == json.loads(again[1])["id"]
    status, data = server.call("POST", ROUTE, {"requests": [asked("b")]}, headers=headers)
    assert status == 409 and b"conflict" in data


def test_keys_see_their_own_batches_within_their_limits(tmp_path):
    state = tmp_path / "state"
    alice, bob, guest = (
        support.make_key(state, "--owner", name, *more)
        for name, more in (("alice", ()), ("bob", ("--stored-bytes-max", "2048")),
                           ("guest", ("--scopes", "infer"))))
    with support.serving(state, "--model", "m=echo") as server:

        def call(key, method, path, body=None):
            return server.call(method, path, body, headers={"x-api-key": key})

        status, data = call(alice, "POST", ROUTE, {"requests": [asked("a")]})
        assert status == 200, data
        name = f"{ROUTE}/{json.loads(data)['id']}"
        for method, path in (("GET", name), ("DELETE", name), ("GET", f"{name}/results"),
                             ("POST", f"{name}/cancel")):
            assert call(bob, method, path)[0] == 404, path
            assert call(guest, method, path)[0] == 403, path
            assert server.call(method, path)[0] == 401, path
        assert json.loads(call(bob, "GET", ROUTE)[1])["data"] == []
        assert len(json.loads(call(alice, "GET", ROUTE)[1])["data"]) == 1
        assert call(guest, "POST", ROUTE, {"requests": [asked("a")]})[0] == 403
        status, data = call(bob, "POST", ROUTE, {"requests": [asked("a", "x" * 4000)]})
        assert status == 413 and b"quota" in data, data
        assert json.loads(call(bob, "GET", ROUTE)[1])["data"] == []
