# SPDX-License-Identifier: Apache-2.0
"""A server that knows a Label Studio (tests/support/label_studio_server.py): batches are sent there and
annotations fetched by a route, each once, also after kills of the server; owners, wrong tokens,
hostile answers, and addresses that no setting names."""
import contextlib, fcntl, http.client, json, os, random

import pytest

import support
from label_studio_server import LEGACY, PERSONAL, LabelStudio
from small_server import SmallServer
from support import make_key

KILLS = max(4, round(12 * float(os.environ.get("QUERN_KILLS", "1"))))


def settings(tmp_path, studio, token=None):
    path = tmp_path / "token"
    path.write_text((token or studio.token) + "\n")
    path.chmod(0o600)
    return [
        "--model", "m=echo", "--label-studio-url", studio.url + "/", "--label-studio-token-file",
        str(path)]


@contextlib.contextmanager
def both(tmp_path, token=LEGACY, **more):
    """A server and the Label Studio that it knows."""
    with LabelStudio(token) as studio, support.serving(tmp_path / "state",
                                                       *settings(tmp_path, studio),
                                                       **more) as server:
        yield server, studio


def lines(count, answer="hello"):
    return support.jsonl([support.request(f"c{i}", f"{answer} {i}", "m") for i in range(count)])


def batch_of(server, count):
    batch = server.create(lines(count))["id"]
    server.wait(batch)
    return batch


def path_of(batch):
    return f"/v1/batches/{batch}/label_studio"


def state_of(server, batch):
    return server.json("GET", path_of(batch))


def ended(server, batch, status="done"):
    support.until(lambda: state_of(server, batch)["status"] != "running")
    state = state_of(server, batch)
    assert state["status"] == status, state
    return state


def work(server, batch, action="sync", status="done"):
    assert server.json("POST", path_of(batch), {"action": action})["status"] == "running"
    return ended(server, batch, status)


def text(value, **more):
    return {
        "from_name": "quern_field_1", "to_name": "quern_text", "type": "textarea", "value": {
            "text": [value]}, **more}


def trail(server, batch):
    return [(row["custom_id"], row["curator"], row["version"], row["verdict"], row["fields"])
            for row in server.json("GET", f"/v1/batches/{batch}/judgements?limit=1000")["data"]]


@pytest.mark.parametrize("token", [LEGACY, PERSONAL])
def test_a_batch_goes_to_label_studio_and_its_annotations_come_back(tmp_path, token):
    with both(tmp_path, token) as (server, studio):
        batch = batch_of(server, 7)
        state = state_of(server, batch)
        assert (state["url"], state["status"], state["project_url"]) == (studio.url, "none", None)
        state = work(server, batch, "push")
        assert (state["project"], state["tasks"], state["judgements"],
                state["project_url"]) == (1, 7, 0, f"{studio.url}/projects/1/data")
        assert studio.custom_ids() == [f"c{i}" for i in range(7)]
        server.json(
            "POST", f"/v1/batches/{batch}/judgements", {
                "custom_id": "c2", "id": "made-here-1", "version": 0, "curator": "Bo",
                "verdict": "accepted"})
        studio.annotate(2, [text("other")])
        studio.annotate(3, [text("a third")])
        studio.annotate(4, [], user=2, cancelled=True)
        state = work(server, batch)
        assert (state["tasks"], state["judgements"], state["conflicts"]) == (7, 3, 1)
        assert state["conflict_texts"] == [
            'c2: Bo on quern: as answered; ana@example.test in Label Studio: {".text":"a third"}']
        assert trail(server,
                     batch) == [("c2", "Bo", 1, "accepted", None),
                                ("c1", "ana@example.test", 1, "corrected", {".text": "other"}),
                                ("c2", "ana@example.test", 1, "corrected", {".text": "a third"}),
                                ("c3", "label-studio:2", 1, "skipped", None)]
        assert work(server, batch)["judgements"] == 0 and len(studio.tasks) == 7 and len(
            trail(server, batch)) == 4
        studio.annotate(2, [text("again")])
        assert work(server, batch, "pull")["judgements"] == 1
        assert trail(server, batch)[-1] == ("c1", "ana@example.test", 2, "corrected", {
            ".text": "again"})


def annotations(studio, custom_id):
    (task,) = [task for task in studio.tasks.values() if task["meta"]["custom_id"] == custom_id]
    return [({r["from_name"]: next(iter(r["value"].values()))
              for r in a["result"]}, a["was_cancelled"])
            for a in task["annotations"]]


def judge(server, batch, custom_id, number, version=0, curator="Bo", **more):
    server.json(
        "POST", f"/v1/batches/{batch}/judgements", {
            "custom_id": custom_id, "id": f"made-here-{number}", "version": version,
            "curator": curator, **{"verdict": "accepted", **more}})


def test_judgements_of_quern_become_annotations_once_and_do_not_come_back(tmp_path):
    with both(tmp_path) as (server, studio):
        batch = batch_of(server, 4)
        judge(server, batch, "c0", 1, comment="good", rating=4)
        judge(server,
              batch,
              "c1",
              2,
              verdict="corrected",
              fields={".text": "as it should be"},
              flagged=True)
        judge(server, batch, "c2", 3, verdict="skipped")
        judge(server, batch, "c2", 4, curator="Cy")
        assert work(server, batch, "push")["sent"] == 0
        studio.lose = ["/annotations/"] * 3
        assert work(server, batch)["sent"] == 4
        answers = {
            custom_id: studio.tasks[number + 1]["meta"]["answer"][".text"]
            for number, custom_id in enumerate(["c0", "c1", "c2", "c3"])}
        assert annotations(studio, "c0") == [({
            "quern_field_1": [answers["c0"]], "quern_rating": 4, "quern_comment": [
                "Bo on quern: good"]}, False)]
        assert annotations(studio, "c1") == [({
            "quern_field_1": ["as it should be"],
            "quern_comment": ["Bo on quern, flagged"]}, False)]
        assert annotations(studio, "c2") == [
            ({"quern_comment": ["Bo on quern"]}, True),
            ({"quern_field_1": [answers["c2"]], "quern_comment": ["Cy on quern"]}, False)]
        first = trail(server, batch)
        assert len(first) == 4 and work(server, batch)["sent"] == 0 and trail(server,
                                                                              batch) == first
        for path in (tmp_path / "state/label_studio").iterdir():
            path.unlink()
        work(server, batch)  # a lost link costs calls and no annotation
        assert sum(len(task["annotations"])
                   for task in studio.tasks.values()) == 4 and trail(server, batch) == first
        changed = studio.tasks[2]["annotations"][0]  # an annotator of Label Studio thinks otherwise
        changed["result"][0]["value"] = {"text": ["otherwise"]}
        changed["updated_at"] = "2026-11-23T08:00:00.000001Z"
        state = work(server, batch)
        assert (state["judgements"], state["sent"], state["conflicts"]) == (1, 0, 1)
        assert trail(server, batch)[4:] == [("c1", "ana@example.test", 1, "corrected", {
            ".text": "otherwise"})]
        judge(server, batch, "c1", 5, 1, verdict="accepted")
        assert work(server, batch)["sent"] == 1 and len(annotations(studio, "c1")) == 2


def test_a_restart_keeps_the_project_and_a_lost_link_costs_no_task(tmp_path):
    with both(tmp_path) as (server, studio):
        batch = batch_of(server, 3)
        work(server, batch)
        studio.annotate(1, [text("other")])
        work(server, batch)
        server.stop()
        server.start()
        state = state_of(server, batch)
        assert (state["status"], state["project"], state["tasks"]) == ("done", 1, 3)
        for path in (tmp_path / "state/label_studio").iterdir():
            path.unlink()
        assert state_of(server, batch)["status"] == "none"
        state = work(server, batch)
        assert (state["project"], state["judgements"]) == (1, 0) and len(
            studio.projects) == 1 and len(studio.tasks) == 3 and len(trail(server, batch)) == 1
        (link,) = (tmp_path / "state/label_studio").glob("*.jsonl")
        link.write_text(link.read_text().replace("project", "pro\nject", 1))
        assert "damaged" in work(server, batch, status="failed")["error"]
        work(server, batch)
        studio.projects.clear()
        studio.tasks.clear()
        assert (work(server, batch)["project"], sorted(studio.custom_ids())) == (1, [
            "c0", "c1", "c2"])


def test_a_link_that_is_whole_stays_when_it_cannot_be_used(tmp_path):
    with both(tmp_path) as (server, studio):
        batch = batch_of(server, 2)
        work(server, batch)
        (link,) = (tmp_path / "state/label_studio").glob("*.jsonl")
        with open(link) as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            assert "try again later" in work(server, batch, status="failed")["error"]
        kept = link.rename(link.with_suffix(".kept"))
        link.symlink_to(link.name)  # an error of the system, as that of a full disk
        error = work(server, batch, status="failed")["error"]
        assert link.is_symlink() and "damaged" not in error and str(tmp_path) not in error and str(
            link) in server.log_text()
        link.unlink()
        kept.rename(link)
        assert work(server, batch)["tasks"] == 2 and len(studio.tasks) == 2


def test_a_killed_server_goes_on_with_each_task_and_judgement_once(tmp_path):
    draw = random.Random(int(os.environ.get("QUERN_SEED", "11")))
    with both(tmp_path) as (server, studio):
        batch = batch_of(server, 1100)
        killed_often(server, studio, batch, draw)
        assert sorted(studio.custom_ids()) == sorted(f"c{i}" for i in range(1100)) and len(
            studio.projects) == 1
        for number in draw.sample(sorted(studio.tasks), 80):
            studio.annotate(number, [text(str(draw.randrange(100)))], draw.choice([1, 2]))
        for number in range(20):
            judge(server, batch, f"c{number}", number)
        killed_often(server, studio, batch, draw)
        assert len(studio.tasks) == 1100
        wanted = sorted((task["meta"]["custom_id"], annotation["result"][0]["value"]["text"][0])
                        for task in studio.tasks.values()
                        for annotation in task["annotations"]
                        if not is_own(annotation))
        assert len(wanted) == 80
        assert sorted(
            (row[0], row[4][".text"]) for row in trail(server, batch) if row[1] != "Bo") == wanted
        sent = sorted(task["meta"]["custom_id"]
                      for task in studio.tasks.values()
                      for annotation in task["annotations"]
                      if is_own(annotation))
        assert sent == sorted(f"c{number}" for number in range(20)) == sorted(
            row[0] for row in trail(server, batch) if row[1] == "Bo")


def is_own(annotation):
    return annotation["result"][-1]["from_name"] == "quern_comment"


def killed_often(server, studio, batch, draw):
    """Kills the server at calls of Label Studio, before or after their effect, starts it again and
    presses again, half of KILLS times; then a job ends."""
    count = 0
    while count < KILLS // 2:
        studio.victim, studio.kills = server.process, [
            (studio.calls + draw.randrange(1, 16), draw.choice(["before", "after"]))]
        assert server.json("POST", path_of(batch), {})["status"] == "running"
        support.until(lambda: studio.victim is None or state_of_living(server, batch) != "running")
        if studio.victim is None:
            count += 1
            server.start()
            assert state_of(server, batch)["status"] == "interrupted"
        studio.victim = None
    work_through(server, batch)


def state_of_living(server, batch):
    """The status, as long as the server lives."""
    try:
        return state_of(server, batch)["status"]
    except (OSError, http.client.HTTPException):
        return "running"


def work_through(server, batch):
    """Runs a job to its end, which takes half a minute if a kill has lost the answer to a chunk."""
    while work_of(server, batch)["status"] != "done":
        pass


def work_of(server, batch):
    server.json("POST", path_of(batch), {})
    support.until(lambda: state_of(server, batch)["status"] != "running")
    state = state_of(server, batch)
    assert state["status"] == "done" or "try again" in state["error"], state
    return state


def test_owners_rights_and_a_second_press(tmp_path):
    with LabelStudio() as studio:
        state = tmp_path / "state"
        keys = {
            name: {
                "Authorization": f"Bearer {make_key(state, '--owner', name, '--scopes', scopes)}"}
            for name, scopes in (("a", "files,batches"), ("b", "files,batches"), ("c", "infer"))}
        with support.serving(state, *settings(tmp_path, studio)) as server:
            def call(method, path, name, body=None):
                status, data = server.call(method, path, body, headers=keys[name])
                return status, json.loads(data)
            boundary = "B"
            form = (
                f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--{boundary}\r\nContent-Disposition: form-data; name="file"; '
                f'filename="x.jsonl"\r\n\r\n'
            ).encode() + lines(2) + f"\r\n--{boundary}--\r\n".encode()
            status, data = server.call("POST",
                                       "/v1/files",
                                       form,
                                       f"multipart/form-data; boundary={boundary}",
                                       headers=keys["a"])
            batch = call(
                "POST", "/v1/batches", "a", {
                    "input_file_id": json.loads(data)["id"], "endpoint": "/v1/chat/completions",
                    "completion_window": "24h"})[1]["id"]
            support.until(
                lambda: call("GET", f"/v1/batches/{batch}", "a")[1]["status"] == "completed")
            for method in ("GET", "POST"):
                assert call(method, path_of(batch), "b", {} if method == "POST" else None)[0] == 404
                assert call(method, path_of(batch), "c", {} if method == "POST" else None)[0] == 403
            with studio.lock:  # Label Studio does not answer now
                assert call("POST", path_of(batch), "a", {})[0] == 200
                status, answer = call("POST", path_of(batch), "a", {})
                assert status == 409 and answer["error"]["code"] == "label_studio_running"
            support.until(lambda: call("GET", path_of(batch), "a")[1]["status"] != "running")
            assert call("GET", path_of(batch), "a")[1]["status"] == "done"
            studio.annotate(1, [text("other")])
            call("POST", path_of(batch), "a", {"action": "pull"})
            support.until(lambda: call("GET", path_of(batch), "a")[1]["status"] != "running")
            (row,) = call("GET", f"/v1/batches/{batch}/judgements", "a")[1]["data"]
            assert row["key_id"] and row["key_id"] in keys["a"]["Authorization"]
            status, answer = call("POST", path_of(batch), "a", {"action": "steal"})
            assert status == 400 and answer["error"]["param"] == "action"


def test_without_the_setting_and_with_half_of_it(tmp_path):
    with support.serving(tmp_path / "state", "--model", "m=echo") as server:
        batch = batch_of(server, 1)
        assert (state_of(server, batch)["url"], state_of(server, batch)["status"]) == (None, "none")
        assert server.json("POST", path_of(batch), {}, 400)["error"]["code"] == "label_studio_unset"
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("LABEL_STUDIO")}
    for arguments, said in ((["--label-studio-url", "http://127.0.0.1:1"], "needs a token"), ([
            "--label-studio-token-file", "/dev/null"], "needs --label-studio-url"), ([
                "--label-studio-url", "ftp://x"], "--label-studio-url")):
        done = support.quern("serve",
                             "--port",
                             "0",
                             "--state-dir",
                             tmp_path / "other",
                             "--model",
                             "m=echo",
                             *arguments,
                             env=environment)
        assert done.returncode == 2 or done.returncode == 3
        assert said in done.stderr, done


def test_a_wrong_token_and_a_label_studio_that_is_away(tmp_path):
    with LabelStudio() as studio, support.serving(tmp_path / "state",
                                                  *settings(tmp_path, studio, "0" * 40)) as server:
        batch = batch_of(server, 1)
        assert "Invalid token" in work(server, batch, status="failed")["error"]
        assert "0" * 40 not in server.log_text() + json.dumps(state_of(server, batch))
        assert not any("0" * 40 in path.read_text()
                       for path in (tmp_path / "state/label_studio").iterdir())


def test_a_stop_of_the_server_ends_a_job_at_once(tmp_path):
    with both(tmp_path) as (server, studio):
        batch = batch_of(server, 2)
        with studio.lock:
            server.json("POST", path_of(batch), {})
            assert server.stop() == 0
        server.start()
        assert state_of(server, batch)["status"] == "interrupted"
        assert work(server, batch)["tasks"] == 2 and len(studio.tasks) == 2


class Elsewhere(SmallServer):
    """A server that no setting names: it records every call."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def take(self, handler, body):
        self.calls.append((handler.command, handler.path, handler.headers["authorization"]))
        handler.answer(200, {})


def test_no_answer_of_label_studio_leads_elsewhere(tmp_path):
    """Redirects, links of pages and URLs in every member that it may send."""
    with Elsewhere() as elsewhere, both(tmp_path) as (server, studio):
        batch = batch_of(server, 3)
        studio.redirect = elsewhere.site + "/api/projects/"
        assert "redirect" in work(server, batch, status="failed")["error"].lower()
        studio.redirect = None
        real = studio.call

        def hostile(method, path, query, body):
            status, value = real(method, path, query, body)
            if isinstance(value, dict):
                value |= {
                    "next": elsewhere.site + "/next", "previous": elsewhere.site,
                    "url": elsewhere.site, "file_upload": elsewhere.site}
                if path == "/api/projects/" and "results" in value and not value["results"]:
                    value["next"] = None  # a list whose pages never end is another matter
            return status, value
        studio.call = hostile
        assert work(server, batch)["tasks"] == 3
        assert elsewhere.calls == []


def test_hostile_annotations_are_refused_or_text(tmp_path):
    with both(tmp_path) as (server, studio):
        batch = batch_of(server, 4)
        work(server, batch)
        studio.annotate(1, [text("<script>alert(1)</script>\u202e" * 10, meta={"x": ["y"] * 100})])
        studio.annotate(2, [text("x" * 100_000)])
        studio.tasks[3]["meta"]["custom_id"] = "no such line"
        studio.annotate(3, [text("stranger")])
        studio.annotate(4, [text("good")])
        studio.annotate(4, [text("y" * 2_000_000)], user=2)
        state = work(server, batch)
        assert (state["judgements"], state["refused"]) == (2, 3), state
        assert {row[0] for row in trail(server, batch)} == {"c0", "c3"}
        assert work(server, batch)["judgements"] == 0
