# SPDX-License-Identifier: Apache-2.0
"""One person's lines of a server's batch are erased: nothing in the state directory has them, all
other lines are what they were, and a client that may not erase is refused with a sentence."""
import contextlib, json, pathlib, sqlite3, subprocess, sys

import pytest

import support
from support import make_key
from test_label_studio_jobs import both, ended, work
from test_proof import Home, fetched, verified

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "crash"))
import life

PERSON = "Erika Mustermann"
IDS = ["erika-1", "erika-2"]
LINES = 12
EMPTY = {"object": "batch.line", "custom_id": None, "request": None, "result": None}


def lines_of_batch(person=PERSON):
    """Lines 3 and 7 are the person's; lines 7 and 11 fail."""
    lines = []
    for i in range(LINES):
        mine = i in (3, 7)
        id_ = IDS[i // 4] if mine else f"c-{i}"
        text = json.dumps({"about": person if mine else "nobody", "score": i})
        more = {"echo": {"status": 400}} if i in (7, 11) else {}
        lines.append(support.request(id_, text, **more))
    return lines


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    yield from support.server_of_session(tmp_path_factory, "erase", "--model", "smollm2=echo",
                                         "--result-cache-bytes", "64MiB")


def made(server, lines=None, **extra):
    return server.wait(server.create(support.jsonl(lines or lines_of_batch()), **extra)["id"])


def erase(server, batch, status=200, headers=None, **body):
    got, data = server.call("POST", f"/v1/batches/{batch}/erase", body, headers=headers)
    assert got == status, data
    return json.loads(data) if status == 200 else json.loads(data)["error"]


def files_with(state, *texts):
    """The files below a state directory that have one of the texts."""
    found = []
    for path in pathlib.Path(state).rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            found += [path.name for text in texts if text.encode() in content]
    return found


def content(server, id_):
    status, data = server.call("GET", f"/v1/files/{id_}/content")
    assert status == 200, data
    return data


def judge(server, batch, custom_id, name, curator="Ana"):
    return server.call("POST", f"/v1/batches/{batch}/judgements", {
        "custom_id": custom_id, "id": name, "version": 0, "curator": curator,
        "verdict": "accepted", "comment": f"about {custom_id}"})


def results(server, batch):
    """The lines of the results in the order in which they came, each with its number."""
    after, found = 0, []
    while True:
        status, data = server.call("GET", f"/v1/batches/{batch}/results?limit=1&after={after}")
        assert status == 200, data
        if not data:
            return found
        page = json.loads(data)
        # The next page begins behind this line, whatever number it has.
        for number in range(after + 1, after + LINES + 1):
            again = server.call("GET", f"/v1/batches/{batch}/results?limit=1&after={number}")[1]
            if again != data:
                break
        found.append((number, page["custom_id"], data))
        after = number


def test_nothing_of_the_person_is_left_and_all_else_is_what_it_was(server):
    batch = made(server)
    id_ = batch["id"]
    old = [batch[f"{name}_file_id"] for name in ("input", "output", "error")]
    before, numbers = [content(server, file) for file in old], results(server, id_)
    for i, custom_id in enumerate([*IDS, "c-0"]):
        assert judge(server, id_, custom_id, f"judgement-{i}")[0] == 200
    rows = server.json("GET", f"/v1/batches/{id_}/answers?limit=100")
    assert PERSON in json.dumps(rows) and len(files_with(server.state, PERSON, *IDS)) > 3
    erased = erase(server, id_, custom_ids=IDS, reason="request of 2 May")
    assert not files_with(server.state, PERSON, *IDS), "the database and its log, the cache, files"
    now = server.batch(id_)
    new = [now[f"{name}_file_id"] for name in ("input", "output", "error")]
    assert not set(old) & set(new)
    assert erased == {
        "object": "batch.erasure", "requests": 2, "lines": 4, "judgements": 2,
        "label_studio_tasks": 0, "batches": [{
            "id": id_, "lines": 4, "judgements": 2, "input_file_id": new[0],
            "output_file_id": new[1], "error_file_id": new[2]}]}
    for file in old:
        assert server.call("GET", f"/v1/files/{file}")[0] == 404
    for was, is_ in zip(before, (content(server, file) for file in new)):
        assert [b"" if any(i.encode() in line for i in IDS) else line
                for line in was.split(b"\n")] == is_.split(b"\n")
    assert results(server, id_) == [row for row in numbers if row[1] not in IDS]
    for name in ("status", "request_counts", "completed_at", "usage", "quern"):
        assert now[name] == batch[name]
    # Readers: the table, a search, one line, the requests of others, judgements and their export.
    again = server.json("GET", f"/v1/batches/{id_}/answers?limit=100")
    assert [row["line"] for row in again["data"]] == [
        row["line"] for row in rows["data"] if row["custom_id"] not in IDS]
    assert server.json("GET", f"/v1/batches/{id_}/answers?q=Mustermann")["data"] == []
    assert server.json("GET", f"/v1/batches/{id_}/lines/4") == EMPTY | {"line": 4}
    for line in (1, 5, 12):
        shown = server.json("GET", f"/v1/batches/{id_}/lines/{line}")
        assert shown["line"] == line and shown["request"]["custom_id"] == f"c-{line - 1}"
        assert shown["result"]["custom_id"] == f"c-{line - 1}"
    assert [row["custom_id"] for row in server.judgements(id_)] == ["c-0"]
    assert judge(server, id_, IDS[0], "judgement-9")[0] == 404
    assert server.json("GET", f"/v1/batches/{id_}/judgements/summary")["judged"] == 1
    [record] = server.json("GET", f"/v1/batches/{id_}/erasures")["data"]
    assert record == {"object": "batch.erasure", "erased_at": record["erased_at"],
                      "reason": "request of 2 May", "requests": 2, "lines": 4, "judgements": 2}
    # A retry has the failed lines that are left, and a later erasure goes on with the new files.
    retried = server.json("POST", f"/v1/batches/{id_}/retry", {})
    assert server.wait(retried["id"])["request_counts"]["total"] == 1
    assert erase(server, id_, custom_ids=["c-11", "c-0"])["judgements"] == 1
    assert len(server.json("GET", f"/v1/batches/{id_}/erasures")["data"]) == 2
    assert server.json("GET", f"/v1/batches/{id_}/lines/6")["request"]["custom_id"] == "c-5"


def test_the_manifest_stays_and_proves_all_other_lines(tmp_path):
    home, state = Home(tmp_path / "home"), tmp_path / "state"
    with support.serving(state, "--model", "smollm2=echo") as server:
        batch = made(server)
        path = f"/v1/batches/{batch['id']}/manifest"
        support.until(lambda: server.call("GET", path)[0] == 200)
        before = server.call("GET", path)
        fetched(server, batch, tmp_path / "before")
        erase(server, batch["id"], custom_ids=IDS[:1], reason="request of 2 May")
        erase(server, batch["id"], custom_ids=IDS[1:])
        assert server.call("GET", path) == before, "the same bytes, and the same signature"
        fetched(server, server.batch(batch["id"]), tmp_path / "after")
        assert server.stop() == 0
    support.fsck(state)
    public = home.quern("key", "public", "--state-dir", state).stdout.strip()
    said, _ = verified(home, tmp_path / "after", public)
    assert [(e["requests"], e["reason"]) for e in said["erasures"]] == [
        (1, "request of 2 May"), (1, "")]
    assert verified(home, tmp_path / "before", public)[0]["is_good"], "what was fetched before"
    salts = (tmp_path / "after/b.manifest.salts.json").read_text()
    assert not any(text in salts for text in (PERSON, *IDS))
    # The old files with the new salts have lines that were to be empty, and any other change shows.
    for name in ("in.jsonl", f"{batch['id']}_output.jsonl"):
        kept = (tmp_path / "after" / name).read_bytes()
        for wrong in ((tmp_path / "before" / name).read_bytes(), kept.replace(b"nobody", b"nobodi"),
                      kept.replace(b"\n\n", b"\n")):
            (tmp_path / "after" / name).write_bytes(wrong)
            assert not (verified(home, tmp_path / "after", public)[0] or {}).get("is_good"), name
        (tmp_path / "after" / name).write_bytes(kept)


def test_lines_keep_their_bytes_whatever_stands_around_them(server):
    """A byte-order mark, CRLF, blank lines, escapes in an id, and no line end at the end."""
    lines = [json.dumps(support.request(f"g{i}", f"good {i}")) for i in range(3)]
    lines[1:1] = ["", "  "]
    lines.append('{"custom_id" : "raw \\u00e9\\ud83d\\ude00", "method":"POST",'
                 '"url":"/v1/chat/completions", "body":{"model":"smollm2","messages":'
                 '[{"role":"user","content":"ü"}]}}')
    text = ("\ufeff" + "\r\n".join(lines)).encode()
    for gone in ((0,), (3,), (4,), (5,), (0, 5), (0, 3, 4, 5)):
        batch = server.wait(server.create(text)["id"])
        ids = [json.loads(lines[i])["custom_id"] for i in gone]
        erase(server, batch["id"], custom_ids=ids)
        kept = text.split(b"\n")
        kept = [b"" if i in gone else line for i, line in enumerate(kept)]
        is_ = content(server, server.batch(batch["id"])["input_file_id"])
        assert is_ == b"\n".join(kept) + (b"\n" if 5 in gone else b""), gone
        for line, i in enumerate((0, 3, 4, 5)):
            shown = server.json("GET", f"/v1/batches/{batch['id']}/lines/{line + 1}")
            if i in gone:
                assert shown == EMPTY | {"line": line + 1}
            else:
                assert shown["request"] == json.loads(lines[i]) and shown["result"], (gone, i)


def test_ids_that_have_no_line_are_named_by_their_place(server):
    id_ = made(server)["id"]
    error = erase(server, id_, 404, custom_ids=["c-1", "Anna Unknown", "c-2"])
    assert error["code"] == "custom_id_not_found" and error["param"] == "custom_ids"
    assert "custom_ids[1]" in error["message"] and "Anna" not in server.log_text()
    assert server.json("GET", f"/v1/batches/{id_}/lines/2")["request"]["custom_id"] == "c-1"
    assert server.json("GET", f"/v1/batches/{id_}/erasures")["data"] == []
    erase(server, id_, custom_ids=["c-1"])
    assert erase(server, id_, 404, custom_ids=["c-1"])["code"] == "custom_id_not_found"
    trail = server.json("GET", f"/v1/audit?action=batch.erase&subject={id_}")["data"]
    assert len(trail) == 5 and "c-1" not in json.dumps(trail)  # three calls, two of them failed


@pytest.mark.parametrize("body, param", [
    ({}, "custom_ids"), ({"custom_ids": []}, "custom_ids"), ({"custom_ids": "a"}, "custom_ids"),
    ({"custom_ids": [1]}, "custom_ids"), ({"custom_ids": [""]}, "custom_ids"),
    ({"custom_ids": ["x" * 4097]}, "custom_ids"),
    ({"custom_ids": [f"c{i}" for i in range(501)]}, "custom_ids"),
    ({"custom_ids": ["a"], "reason": "x" * 2001}, "reason"),
    ({"custom_ids": ["a"], "reason": 1}, "reason"),
    ({"custom_ids": ["a"], "batch_ids": ["b"] * 16}, "batch_ids"),
    ({"custom_ids": ["a"], "custom_id": "a"}, None)])
def test_a_wrong_call_is_refused(server, body, param):
    if not hasattr(test_a_wrong_call_is_refused, "batch"):
        test_a_wrong_call_is_refused.batch = made(server)["id"]
    error = erase(server, test_a_wrong_call_is_refused.batch, 400, **body)
    assert (error["param"] or "").split("[")[0] == (param or "")


def test_batches_with_one_input_are_erased_together(server):
    batch = made(server, lines_of_batch("Otto Normal"))
    second = server.wait(server.json("POST", "/v1/batches", {
        "input_file_id": batch["input_file_id"], "endpoint": "/v1/chat/completions",
        "completion_window": "24h"})["id"])
    error = server.call("POST", f"/v1/batches/{batch['id']}/erase", {"custom_ids": IDS})
    assert error[0] == 409 and second["id"].encode() in error[1]
    other = made(server)
    files = len(files_with(server.state, "Otto Normal"))
    error = erase(server, batch["id"], 400, custom_ids=IDS, batch_ids=[other["id"]])
    assert "different inputs" in error["message"]
    assert erase(server, batch["id"], 404, custom_ids=IDS,
                 batch_ids=["batch_" + 32 * "0"])["param"] == "batch_ids"
    erased = erase(server, batch["id"], custom_ids=IDS,
                   batch_ids=[second["id"], batch["id"], second["id"]])
    assert erased["lines"] == 8 and len(erased["batches"]) == 2
    assert erased["batches"][0]["input_file_id"] == erased["batches"][1]["input_file_id"]
    assert files >= 3 and not files_with(server.state, "Otto Normal")
    # The input that both have goes with the last of them.
    for one in (batch, second):
        assert server.call("DELETE", f"/v1/batches/{one['id']}")[0] == 200
    assert server.call("GET", f"/v1/files/{erased['batches'][0]['input_file_id']}")[0] == 404


def test_only_the_owner_erases_and_only_after_the_end(tmp_path):
    state, clock = tmp_path / "state", support.Clock(tmp_path)
    keys = {owner: {"Authorization": f"Bearer {make_key(state, '--owner', owner)}"}
            for owner in "ab"}
    keys["files"] = {"Authorization":
                     f"Bearer {make_key(state, '--owner', 'a', '--scopes', 'files')}"}
    with support.serving(state, "--model", "smollm2=echo",
                         environment=clock.environment) as server:
        form = (b'--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--x\r\n'
                b'Content-Disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n' +
                support.jsonl(life.held_lines(3, 1)) + b"\r\n--x--\r\n")
        file = json.loads(server.call("POST", "/v1/files", form, "multipart/form-data; boundary=x",
                                      headers=keys["a"])[1])
        batch = json.loads(server.call("POST", "/v1/batches", {
            "input_file_id": file["id"], "endpoint": "/v1/chat/completions",
            "completion_window": "24h"}, headers=keys["a"])[1])
        custom_id = life.held_lines(3, 1)[0]["custom_id"]

        def call(who, status):
            return erase(server, batch["id"], status, keys[who], custom_ids=[custom_id])

        def shown():
            return json.loads(server.call("GET", f"/v1/batches/{batch['id']}",
                                          headers=keys["a"])[1])

        # One that is cancelled before it is validated has no results, and no sums.
        support.until(lambda: shown()["request_counts"]["completed"] == 1)
        assert "Cannot erase lines of a batch" in call("a", 409)["message"]
        server.call("POST", f"/v1/batches/{batch['id']}/cancel", {}, headers=keys["a"])
        support.until(lambda: shown()["status"] == "cancelled")
        call("b", 404)
        call("files", 403)
        assert server.call("POST", f"/v1/batches/{batch['id']}/erase", {})[0] == 401
        assert server.call("GET", f"/v1/batches/{batch['id']}/erasures", headers=keys["b"])[0] == 404
        assert call("a", 200)["requests"] == 1
        assert server.stop() == 0
    support.fsck(state)


def test_an_erased_batch_lives_on_after_a_restart_a_backup_and_a_copy(tmp_path):
    state, copy = tmp_path / "state", tmp_path / "copy"
    arguments = ("--model", "smollm2=echo")
    with support.serving(state, *arguments, "--copy-to", copy) as server:
        batch = made(server)
        erase(server, batch["id"], custom_ids=IDS)
        now, shown = server.batch(batch["id"]), results(server, batch["id"])
        done = support.quern("backup", tmp_path / "kept", "--state-dir", state)
        assert done.returncode == 0, done.stderr
        server.kill()
    assert not files_with(tmp_path / "kept", PERSON, *IDS)
    for place, source in (("restored", tmp_path / "kept"), ("standby", copy)):
        done = support.quern("restore", source, "--state-dir", tmp_path / place)
        assert done.returncode == 0, done.stderr
    for place in ("state", "restored", "standby"):
        with support.serving(tmp_path / place, *arguments) as server:
            assert server.batch(batch["id"]) == now, place
            assert results(server, batch["id"]) == shown, place
            assert server.json("GET", f"/v1/batches/{batch['id']}/lines/6")["result"]
            assert not files_with(tmp_path / place, PERSON, *IDS), place
            assert server.stop() == 0
        support.fsck(tmp_path / place)


def test_what_a_reader_of_the_database_keeps_goes_after_it(tmp_path):
    """Another process, such as a backup, reads the database: its log cannot be cut meanwhile."""
    clock = support.Clock(tmp_path)
    with support.serving(tmp_path / "state", "--model", "smollm2=echo",
                         environment=clock.environment) as server:
        batch = made(server)["id"]
        assert judge(server, batch, IDS[0], "judgement-0")[0] == 200
        with contextlib.closing(sqlite3.connect(tmp_path / "state/meta.db",
                                                isolation_level=None)) as reader:
            reader.execute("BEGIN")
            assert reader.execute("SELECT count(*) FROM judgements").fetchone() == (1,)
            assert erase(server, batch, custom_ids=IDS)["judgements"] == 1
            assert "meta.db-wal" in files_with(server.state, *IDS)
        clock.until(lambda: not files_with(server.state, PERSON, *IDS), 30)


def test_erasures_at_one_time_come_one_after_the_other(server):
    batch = made(server)
    commands = [subprocess.Popen([support.BINARY, "erase", batch["id"], "--custom-id", f"c-{i}",
                                  "--base-url", server.url], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True) for i in (0, 1, 2, 4, 5)]
    for command in commands:
        said = command.communicate(timeout=120)[1]
        assert command.returncode == 0, said
    rows = results(server, batch["id"])
    assert sorted(row[1] for row in rows) == sorted([*IDS, "c-10", "c-11", "c-6", "c-8", "c-9"])
    assert len(server.json("GET", f"/v1/batches/{batch['id']}/erasures")["data"]) == 5


def test_tasks_of_label_studio_are_counted(tmp_path):
    with both(tmp_path) as (server, _):
        batch = server.wait(server.create(support.jsonl(
            [support.request(f"c{i}", f"hello {i}", "m") for i in range(5)]))["id"])
        work(server, batch["id"], "push")
        assert files_with(server.state / "label_studio", '"c1"')
        assert erase(server, batch["id"], custom_ids=["c1", "c2"])["label_studio_tasks"] == 2
        assert not files_with(server.state, '"c1"')
        work(server, batch["id"], "push")  # a new link finds the tasks of the others
        ended(server, batch["id"])


def test_the_command_erases_and_tells_what(server, tmp_path):
    batch = made(server)
    place = ("--base-url", server.url)
    done = support.quern("erase", batch["id"], "--custom-id", "c-1", "--custom-id", "nobody",
                         *place)
    assert done.returncode == 4 and "'nobody'" in done.stderr, done.stderr
    (tmp_path / "ids.txt").write_text("\n".join(IDS) + "\n")
    done = support.quern("erase", batch["id"], "--ids", tmp_path / "ids.txt", "--reason", "asked",
                         *place)
    assert done.returncode == 0, done.stderr
    now = server.batch(batch["id"])
    assert done.stdout == (f"2 requests were erased, 4 lines and 0 judgements; the files now:\n"
                           f"  {batch['id']}: {now['input_file_id']} {now['output_file_id']} "
                           f"{now['error_file_id']}\n")
    done = support.quern("erase", batch["id"], "--custom-id", "c-1", "--json", *place)
    assert done.returncode == 0 and json.loads(done.stdout)["lines"] == 2
    for wrong in (("--input", "x"), ("--judgements", "x"), ("--signing-key", "x"), ()):
        done = support.quern("erase", batch["id"], *wrong, *place)
        assert done.returncode in (2, 3), done.stderr
    done = support.quern("erase", batch["id"], "out.jsonl", "--custom-id", "c-1", *place)
    assert done.returncode == 2 and "one after the other" in done.stderr
