# SPDX-License-Identifier: Apache-2.0
"""What a client can make grow has a bound: the memory, the work and the disk that one caller may
take, and the sentence at the bound."""
import json
import urllib.parse

import pytest

import support
from support import make_key
from test_keys import As
from test_judgements import judge, make, record, trail


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    yield from support.server_of_session(tmp_path_factory, "bounds", "--model", "smollm2=echo")


def memory_peak(server):
    """The largest resident memory that the server's process ever had, in bytes."""
    with open(f"/proc/{server.process.pid}/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM:"))


@pytest.mark.alone
def test_many_judgements_of_one_line_are_read_in_pieces(server):
    """Each name is the client's own. An export once held all rows of a line, each with its request
    and its result."""
    batch = make(server, [support.request("c-0", "x" * 300000), support.request("c-1", "short")])
    for i in range(400):
        judge(
            server, batch,
            record("c-0",
                   f"judgement-{i}",
                   curator=f"curator-{i}",
                   verdict="corrected",
                   comment="why " * 500,
                   fields={".text": "y" * 1000}))
    before = memory_peak(server)
    status, data = server.call("GET", f"/v1/batches/{batch}/judgements/export")
    assert status == 200 and data.count(b"\n") == 400 and len(data) > 230_000_000
    assert {json.loads(line)["judgement"]["curator"]
            for line in data.splitlines()} == {f"curator-{i}"
                                               for i in range(400)}
    assert memory_peak(server) - before < 48 << 20
    assert server.json("GET", f"/v1/batches/{batch}/judgements/summary")["judged"] == 1
    assert len(
        server.json("GET", f"/v1/batches/{batch}/cards?judged=any")["data"][0]["judgements"]) == 400
    assert len(trail(server, batch, "?limit=1000")["data"]) == 400
    assert memory_peak(server) - before < 64 << 20


def test_a_line_takes_a_thousand_judgements_and_four_mebibytes(server):
    batch = make(server, [support.request(f"c-{i}", "text") for i in range(3)])
    for i in range(1000):
        judge(server, batch, record("c-0", f"judgement-{i}", version=i))
    error = judge(server, batch, record("c-0", "judgement-1000", curator="Ben"), 400)["error"]
    assert (error["code"], error["param"]) == ("too_many_judgements", "custom_id")
    assert error["message"] == "Line 1 has 1000 judgements, which is the limit of a line."
    assert judge(server, batch, record("c-0", "judgement-999",
                                       version=999))["version"] == 1000  # the same call again
    for i in range(64):
        judge(
            server, batch,
            record("c-1",
                   f"long-judgement-{i}",
                   version=i,
                   verdict="corrected",
                   fields={".text": "y" * 65000}))
    error = judge(
        server, batch,
        record("c-1",
               "long-judgement-64",
               version=64,
               verdict="corrected",
               fields={".text": "y" * 65000}), 400)["error"]
    assert error["code"] == "too_many_judgements" and "the limit of a line is 4194304" in error[
        "message"]
    judge(server, batch, record("c-2", "another-line", version=0))
    assert len(trail(server, batch, "?limit=1000&custom_id=c-1")["data"]) >= 60


def test_a_search_of_texts_that_repeat_themselves_is_linear(server):
    """A search that begins again at each byte takes a minute for these, and holds its thread."""
    batch = make(server, [support.request(f"c-{i}", "a" * (1 << 20)) for i in range(28)])
    support.until(
        lambda: (got := server.json("GET", f"/v1/batches/{batch}/answers/fields"))["indexed"] == 28)
    needle = "a" * 1023 + "b"
    for query in ({"q": needle}, {"filter": f"t:has:{needle}"}, {"q": "A" * 1024}):
        found, after = 0, {}
        while True:
            page = server.json(
                "GET", f"/v1/batches/{batch}/answers?" + urllib.parse.urlencode({**query, **after}))
            found += len(page["data"])
            if not page["has_more"]:
                break
            after = {"after": page["after"]}
        assert found == (28 if query.get("q", "").startswith("A") else 0)


def test_what_is_looked_for_has_a_bound(server):
    batch = make(server, [support.request("c-0", "text")])
    for query in ({"q": "x" * 1025}, {"filter": "t:has:" + "x" * 1025}, {
            "filter": "x" * 1025 + ":has:x"}):
        status, data = server.call("GET",
                                   f"/v1/batches/{batch}/answers?" + urllib.parse.urlencode(query))
        assert status == 400 and json.loads(data)["error"]["param"] in query


def test_a_page_counts_the_names_of_fields(server):
    """A name stands once in an answer and again in each field of the page: "a.b.c" of three objects
    inside each other."""
    long = "n" * 90
    answer = json.dumps({long: {long: {long: {str(i): 1 for i in range(900)}}}})
    batch = make(server, [support.request(f"c-{i}", answer) for i in range(300)])
    support.until(lambda: (got := server.json("GET", f"/v1/batches/{batch}/answers/fields"))[
        "indexed"] == 300)
    status, data = server.call("GET", f"/v1/batches/{batch}/answers?limit=1000")
    assert status == 200 and len(json.loads(data)["data"]) == 300 and len(data) < 10 << 20


def test_a_quota_counts_parts_and_judgements(tmp_path):
    """Under a limit of 1 MB, 270 MB of parts and 34.7 MB of judgements were once stored."""
    state = tmp_path / "state"
    key = make_key(state, "--stored-bytes-max", "1000000")
    with support.serving(state, "--model", "smollm2=echo") as server:
        caller = As(server, key)
        upload = caller.json(
            "POST", "/v1/uploads",
            {"filename": "x", "purpose": "batch", "bytes": 400000, "mime_type": "text/plain"})["id"]
        form = b'--x\r\nContent-Disposition: form-data; name="data"; filename="f"\r\n\r\n' + b"y" * 300000 + b"\r\n--x--\r\n"
        sent = 0
        for i in range(4):
            status, data = caller.call("POST", f"/v1/uploads/{upload}/parts", form,
                                       "multipart/form-data; boundary=x")
            sent += status == 200
        assert sent == 3 and status == 413 and json.loads(
            data)["error"]["code"] == "storage_quota_exceeded"
        used = 900000
        assert f"{used} of 1000000 bytes are stored, and this takes 300000 more" in json.loads(
            data)["error"]["message"]
        caller.json("POST", f"/v1/uploads/{upload}/cancel", {})
        batch = caller.wait(
            caller.create(
                support.jsonl([support.request("c-0", "text"),
                               support.request("c-1", "text")]))["id"])["id"]
        kept = 0
        for i in range(40):
            body = record("c-0",
                          f"judgement-{i}",
                          version=kept,
                          verdict="corrected",
                          fields={".text": "y" * 60000})
            status, data = caller.call("POST", f"/v1/batches/{batch}/judgements", body)
            kept += status == 200
            if status != 200:
                break
        assert 10 <= kept <= 16 and status == 413 and json.loads(
            data)["error"]["code"] == "storage_quota_exceeded"
        assert caller.call("POST", f"/v1/batches/{batch}/judgements", {
            **body, "id": "judgement-0", "version": 0})[0] == 200  # the same call again
    support.fsck(state)
