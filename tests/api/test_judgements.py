# SPDX-License-Identifier: Apache-2.0
"""Judgements of curators: kept once, versioned per line and curator, refused with a sentence,
counted, and there after a restart, a backup and the deletion of the batch's files."""
import json

import pytest

import support

LINES = 12


def line_of(i, answer=None, **body):
    return support.request(
        f"c-{i}", answer if answer is not None else json.dumps({
            "recommendation": "HIRE" if i % 2 else "NO", "score": i}), **body)


def make(server, lines):
    """The id of an ended batch with these lines."""
    return server.wait(server.create(support.jsonl(lines))["id"])["id"]


def fresh(server):
    """A batch of its own."""
    return make(server, [line_of(i) for i in range(LINES)])


@pytest.fixture(scope="module")
def batch(echo_server):
    return fresh(echo_server)


def record(custom_id, id, version=0, curator="Ana", verdict="accepted", **more):
    return {
        "custom_id": custom_id, "id": id, "version": version, "curator": curator,
        "verdict": verdict, **more}


def judge(server, batch, body, status=200):
    got, data = server.call("POST", f"/v1/batches/{batch}/judgements", body)
    assert got == status, data
    return json.loads(data)


def trail(server, batch, query=""):
    return server.json("GET", f"/v1/batches/{batch}/judgements{query}")


def test_a_judgement_has_who_what_and_when(echo_server):
    batch = fresh(echo_server)
    made = judge(
        echo_server, batch,
        record("c-3",
               "first-judgement",
               verdict="corrected",
               fields={"score": 9, "recommendation": "NO é\u2028"},
               flagged=True,
               rating=4,
               comment="two\nlines\tand a tab"))
    assert made == {
        "object": "batch.judgement", "id": "first-judgement", "seq": made["seq"], "batch_id": batch,
        "custom_id": "c-3", "line": 4, "curator": "Ana", "key_id": None,
        "created_at": made["created_at"], "version": 1, "verdict": "corrected", "flagged": True,
        "fields": {"score": 9,
                   "recommendation": "NO é\u2028"}, "rating": 4, "comment": "two\nlines\tand a tab"}
    without = judge(
        echo_server, batch, {
            "custom_id": "c-0", "id": "no-name-at-all", "version": 0, "verdict": "skipped",
            "rating": None, "comment": None, "fields": None})
    assert (without["curator"], without["rating"], without["comment"], without["fields"],
            without["flagged"]) == ("owner", None, None, None, False)
    assert without["seq"] > made["seq"]
    assert trail(echo_server, batch)["data"] == [made, without]


def test_the_same_call_again_is_the_same_judgement(echo_server):
    batch = fresh(echo_server)
    first = judge(echo_server, batch, record("c-1", "one-and-only", fields=None))
    assert judge(echo_server, batch, record("c-1", "second-of-ana", version=1,
                                            verdict="skipped"))["version"] == 2
    assert judge(echo_server, batch, record("c-1", "one-and-only")) == first
    for other in (record("c-1", "one-and-only", flagged=True), record(
            "c-2", "one-and-only"), record("c-1", "one-and-only", curator="Ben")):
        error = judge(echo_server, batch, other, 409)["error"]
        assert (error["code"], error["param"]) == ("id_conflict",
                                                   "id") and "one-and-only" in error["message"]
    assert len(trail(echo_server, batch)["data"]) == 2
    assert judge(echo_server, fresh(echo_server), record("c-1", "one-and-only"))["version"] == 1


def test_a_version_that_is_not_the_next_one_is_a_conflict(echo_server):
    batch = fresh(echo_server)
    error = judge(echo_server, batch, record("c-1", "too-early", version=1), 409)["error"]
    assert (error["code"], error["param"]) == ("version_conflict", "version")
    assert "version 1 of 'Ana'" in error["message"] and "newest version is 0" in error["message"]
    judge(echo_server, batch, record("c-1", "first-of-ana"))
    judge(echo_server, batch, record("c-1", "first-of-ben", curator="Ben"))
    error = judge(echo_server, batch, record("c-1", "late-one"), 409)["error"]
    assert "version 0 of 'Ana'" in error["message"] and "newest version is 1" in error["message"]


REFUSED = [({"custom_id": None}, "custom_id"), ({"custom_id": 7}, "custom_id"),
           ({"id": "short"}, "id"), ({"id": "x" * 65}, "id"), ({"id": "with space"}, "id"),
           ({"id": None}, "id"), ({"version": -1}, "version"), ({"version": "0"}, "version"),
           ({"version": None}, "version"), ({"verdict": "perhaps"}, "verdict"),
           ({"verdict": None}, "verdict"), ({"curator": ""}, "curator"),
           ({"curator": "x" * 65}, "curator"), ({"curator": "a\nb"}, "curator"),
           ({"curator": "a\u0085b"}, "curator"), ({"curator": 1}, "curator"),
           ({"flagged": "yes"}, "flagged"), ({"rating": 0}, "rating"), ({"rating": 6}, "rating"),
           ({"rating": 2.5}, "rating"), ({"comment": "x" * 16385}, "comment"),
           ({"comment": "bell \u0007"}, "comment"), ({"comment": ["x"]}, "comment"),
           ({"fields": {"a": 1}}, "fields"), ({"verdict": "corrected"}, "fields"),
           ({"verdict": "corrected", "fields": {}}, "fields"),
           ({"verdict": "corrected", "fields": [1]}, "fields"),
           ({"verdict": "corrected", "fields": {"": 1}}, "fields"),
           ({"verdict": "corrected", "fields": {"x" * 257: 1}}, "fields"),
           ({"verdict": "corrected", "fields": {"a": "x" * 65536}}, "fields"),
           ({"verdict": "corrected", "fields": {".text": 1}}, "fields"),
           ({"verdict": "corrected", "fields": {".text": "a", "b": 1}}, "fields"),
           ({"verdikt": "accepted"}, None), ]


@pytest.mark.parametrize("change, param",
                         REFUSED,
                         ids=[json.dumps(change)[:50] for change, _ in REFUSED])
def test_a_member_that_is_wrong_is_named(echo_server, batch, change, param):
    error = judge(echo_server, batch, {**record("c-0", "never-kept"), **change}, 400)["error"]
    assert error["param"] == param
    assert (param or "verdikt") in error["message"]
    assert trail(echo_server, batch)["data"] == []


def test_what_does_not_exist_cannot_be_judged(echo_server, batch):
    error = judge(echo_server, batch, record("c-99", "never-kept"), 404)["error"]
    assert (error["code"], error["param"]) == ("line_not_found",
                                               "custom_id") and "c-99" in error["message"]
    assert judge(echo_server, "batch_none", record("c-0", "never-kept"),
                 404)["error"]["message"] == "No batch found with id 'batch_none'."
    for body in (b"", b"[]", b"{", b'{"custom_id":"c-0","custom_id":"c-1"}'):
        assert echo_server.call("POST", f"/v1/batches/{batch}/judgements", body)[0] == 400
    assert echo_server.call("GET", f"/v1/batches/{batch}/judgements?after=x")[0] == 400
    assert echo_server.call("GET", f"/v1/batches/{batch}/judgements?limit=0")[0] == 400


def test_the_longest_texts_are_kept(echo_server):
    batch, name = fresh(echo_server), "\U0001f600" * 64
    made = judge(
        echo_server, batch,
        record("c-0",
               "x" * 64,
               curator=name,
               verdict="corrected",
               comment="é" * 8192,
               fields={"a": "y" * 65000}))
    assert (made["curator"], made["comment"], made["fields"]) == (name, "é" * 8192, {
        "a": "y" * 65000})
    assert trail(echo_server, batch)["data"] == [made]


def test_lines_of_a_running_batch_can_be_judged_once_they_are_done(echo_server):
    requests = [line_of(0), line_of(1), support.request("c-2", "late", echo={"delay_ms": 600000})]
    batch = echo_server.create(support.jsonl(requests))["id"]
    support.until(lambda: echo_server.batch(batch)["request_counts"]["completed"] == 2)
    assert judge(echo_server, batch, record("c-1", "while-it-runs"))["line"] == 2
    error = judge(echo_server, batch, record("c-2", "not-yet-done"), 409)["error"]
    assert (error["code"], error["param"]) == ("line_not_done", "custom_id")
    assert echo_server.call("POST", f"/v1/batches/{batch}/cancel")[0] == 200
    assert echo_server.wait(batch)["status"] == "cancelled"
    assert judge(echo_server, batch,
                 record("c-2", "it-never-ran", verdict="skipped", comment="cancelled"))["line"] == 3
    assert judge(echo_server, batch, record("c-0", "after-the-end"))["line"] == 1


def test_the_trail_comes_in_pages_in_order(echo_server):
    batch = fresh(echo_server)
    for i in range(40):
        judge(
            echo_server, batch,
            record(f"c-{i % 8}",
                   f"judgement-{i}",
                   version=i // 16,
                   curator=("Ana", "Ben")[i // 8 % 2]))
    seen, after, pages = [], 0, 0
    while True:
        page = trail(echo_server, batch, f"?limit=17&after={after}")
        seen, after, pages = seen + page["data"], page["after"], pages + 1
        if not page["has_more"]:
            break
    assert pages == 3 and [one["id"] for one in seen] == [f"judgement-{i}" for i in range(40)]
    assert [one["seq"] for one in seen] == sorted({one["seq"] for one in seen})
    assert [
        one["version"]
        for one in trail(echo_server, batch, "?custom_id=c-3&curator=Ana")["data"]] == [1, 2, 3]
    assert {one["curator"] for one in trail(echo_server, batch, "?curator=Ben")["data"]} == {"Ben"}


def test_the_summary_counts_the_newest_and_how_far_curators_agree(echo_server):
    batch, path = fresh(echo_server), "judgements/summary"
    empty = echo_server.json("GET", f"/v1/batches/{batch}/{path}")
    assert (empty["judged"], empty["by_curator"], empty["compared"],
            empty["agreement"]) == (0, [], 0, None)
    said = [("c-0", "Ana", "accepted", None), ("c-0", "Ben", "accepted", None),
            ("c-1", "Ana", "corrected", {"score": 1.0}), ("c-1", "Ben", "corrected", {"score": 1}),
            ("c-2", "Ana", "corrected", {"score": 1}), ("c-2", "Ben", "corrected", {"score": 2}),
            ("c-3", "Ana", "accepted", None), ("c-3", "Ben", "skipped", None),
            ("c-4", "Ana", "accepted", None)]
    for i, (line, curator, verdict, fields) in enumerate(said):
        judge(echo_server, batch,
              record(line, f"judgement-{i}", curator=curator, verdict=verdict, fields=fields))
    judge(echo_server, batch,
          record("c-4", "ana-thinks-again", version=1, verdict="skipped", flagged=True))
    summary = echo_server.json("GET", f"/v1/batches/{batch}/{path}")
    ana = {"curator": "Ana", "judged": 5, "accepted": 2, "corrected": 2, "skipped": 1, "flagged": 1}
    ben = {"curator": "Ben", "judged": 4, "accepted": 1, "corrected": 2, "skipped": 1, "flagged": 0}
    assert summary == {
        "object": "batch.judgements", "judged": 5, "accepted": 3, "corrected": 4, "skipped": 2,
        "flagged": 1, "by_curator": [ana, ben], "compared": 3, "agreement": pytest.approx(2 / 3,
                                                                                          abs=1e-6)}


def test_judgements_outlive_the_files_a_restart_and_a_backup(tmp_path):
    arguments = ("--model", "smollm2=echo")
    with support.serving(tmp_path / "state", *arguments) as server:
        batch = fresh(server)
        made = [judge(server, batch, record(f"c-{i}", f"judgement-{i}")) for i in range(4)]
        done = support.quern("backup", tmp_path / "copies", "--state-dir", tmp_path / "state")
        assert done.returncode == 0, done.stderr
        made.append(judge(server, batch, record("c-0", "after-the-backup", version=1)))
        row = server.batch(batch)
        for file in (row["output_file_id"], row["input_file_id"]):
            assert server.call("DELETE", f"/v1/files/{file}")[0] == 200
        assert server.stop() == 0
    with support.serving(tmp_path / "state", *arguments) as server:
        assert trail(server, batch)["data"] == made
        assert judge(server, batch, record("c-1", "there-is-no-line", version=1),
                     404)["error"]["message"].startswith("The ")
        assert server.json("GET", f"/v1/batches/{batch}/judgements/summary")["judged"] == 4
        assert server.stop() == 0
    checked = support.quern("fsck", "--state-dir", tmp_path / "state")
    assert checked.returncode == 0 and "5 judgements of curators checked" in checked.stdout, checked
    done = support.quern("restore", tmp_path / "copies", "--state-dir", tmp_path / "restored")
    assert done.returncode == 0, done.stderr
    with support.serving(tmp_path / "restored", *arguments) as server:
        assert trail(server, batch)["data"] == made[:4]
        assert judge(server, batch, record("c-0", "after-the-restore",
                                           version=1))["seq"] > made[3]["seq"]
        assert server.stop() == 0
    support.fsck(tmp_path / "restored")
