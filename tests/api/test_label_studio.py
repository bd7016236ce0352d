# SPDX-License-Identifier: Apache-2.0
"""quern label-studio against a small server of its calls (label_studio_server.py): each task and
each judgement exactly once, whatever is lost and killed. tests/peers/test_label_studio.py does the
same with the real one."""
import json, os, random, subprocess

import pytest

import support
from label_studio_server import LEGACY, PERSONAL, LabelStudio

SCHEMA = {
    "type": "object", "$defs": {"word": {"enum": ["HIRE", 'NO & <b> "q"', "MAYBE"]}},
    "properties": {
        "recommendation": {"$ref": "#/$defs/word"}, "score": {
            "type": "integer", "minimum": 0, "maximum": 100}, "sure": {"type": "boolean"}, "fit": {
                "type": "object", "properties": {
                    "stars": {"type": "integer", "minimum": 1, "maximum": 5}, "why": {
                        "anyOf": [{"type": "string"}, {"type": "null"}]}}}, "tags": {
                            "type": "array", "items": {"type": "string"}}, "any of": {
                                "type": "array", "items": {"enum": [1, 2, 3]}}, "rows": {
                                    "type": "array", "items": {"type": "object"}}}}
ANSWER = {
    "recommendation": "HIRE", "score": 61, "sure": True, "fit": {
        "stars": 4, "why": "because\n\u202e<script>"}, "tags": ["a", "b"], "any of": [1, 3],
    "rows": [{"x": 1}]}
KILLS = max(4, round(10 * float(os.environ.get("QUERN_KILLS", "1"))))


def lines(count, answer=ANSWER, schema=SCHEMA):
    body = {
        "messages": [{"role": "system", "content": "Judge."}, {
            "role": "user", "content": "Ana's profile"}]}
    if schema:
        body["response_format"] = {
            "type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    text = answer if isinstance(answer, str) else json.dumps(answer)
    inputs = [{
        "custom_id": f"c{i}", "method": "POST", "url": "/v1/chat/completions", "body": {
            "model": "m", **body}} for i in range(count)]
    outputs = [{
        "id": "r", "custom_id": f"c{i}", "error": None, "response": {
            "status_code": 200, "body": {
                "model": "m-1", "choices": [{
                    "message": {"content": text}, "logprobs": {
                        "content": [{"token": "a", "logprob": 0.0}]}}]}}} for i in range(count)]
    return inputs, outputs


def files(folder, inputs, outputs):
    for name, items in (("in.jsonl", inputs), ("out.jsonl", outputs)):
        (folder / name).write_text("".join(json.dumps(item) + "\n" for item in items))
    return ["-i", "in.jsonl", "--results-file", "out.jsonl"]


def start(studio, folder, word, *arguments, token=None):
    environment = {
        **os.environ, "LABEL_STUDIO_URL": studio.url, "LABEL_STUDIO_API_KEY": token or studio.token}
    return subprocess.Popen(
        [support.BINARY, "label-studio", word, "run-1", *map(str, arguments), "--json"],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE)


def ended(process, status=0):
    out, err = process.communicate(timeout=300)
    assert process.returncode == status, err
    return json.loads(out) if status == 0 else err


def run(studio, folder, word, *arguments, status=0, token=None):
    return ended(start(studio, folder, word, *arguments, token=token), status)


def judgements(folder):
    return [json.loads(line) for line in (folder / "judged.jsonl").read_text().splitlines()]


def result(name, kind, **value):
    return {"from_name": name, "to_name": "quern_text", "type": kind, "value": value}


@pytest.mark.parametrize("token", [LEGACY, PERSONAL])
def test_answers_become_tasks_with_predictions_and_annotations_judgements(tmp_path, token):
    with LabelStudio(token) as studio:
        studio.calls_per_access = 2  # a personal token buys a new one again and again
        which = files(tmp_path, *lines(4))
        done = run(studio, tmp_path, "push", *which)
        assert (done["pushed"], done["project"]) == (4, 1)
        task = studio.tasks[1]
        assert "Ana's profile" in task["data"]["text"] and json.loads(
            task["data"]["answer"]) == ANSWER
        assert task["meta"]["custom_id"] == "c0" and task["meta"]["answer"]["fit"] == ANSWER["fit"]
        (prediction,) = task["predictions"]
        shown = {r["from_name"]: r["value"] for r in prediction["result"]}
        assert prediction["model_version"] == "m-1" and prediction["score"] == 1.0
        assert shown == {
            "recommendation": {"choices": ["HIRE"]}, "score": {"number": 61},
            "sure": {"choices": ["true"]}, "fit.stars": {"rating": 4}, "fit.why": {
                "text": [ANSWER["fit"]["why"]]}, "tags": {"text": ["a", "b"]}, "quern_field_7": {
                    "choices": ["1", "3"]}}
        assert run(studio, tmp_path, "push", *which)["pushed"] == 0 and len(studio.tasks) == 4

        same = [r for r in prediction["result"]]
        studio.annotate(1, same)
        studio.annotate(2, [
            result("fit.stars", "rating", rating=2),
            result("recommendation", "choices", choices=['NO & <b> "q"']),
            result("score", "number", number=61.0),
            result("quern_field_7", "choices", choices=["2"]),
            result("quern_rating", "rating", rating=3),
            result("quern_comment", "textarea", text=["late\u0007"])])
        studio.annotate(3, [], user=2, cancelled=True)
        pull = [*which, "-o", "judged.jsonl", "--overwrite"]
        assert run(studio, tmp_path, "pull", *pull)["pulled"] == 3
        by = {j["custom_id"]: j for j in judgements(tmp_path)}
        assert (by["c0"]["verdict"], by["c0"]["curator"]) == ("accepted", "ana@example.test")
        assert by["c1"]["fields"] == {
            "fit": {"stars": 2, "why": ANSWER["fit"]["why"]}, "recommendation": 'NO & <b> "q"',
            "any of": [2]}
        assert (by["c1"]["verdict"], by["c1"]["rating"], by["c1"]["comment"]) == ("corrected", 3,
                                                                                  "late ")
        assert (by["c2"]["verdict"], by["c2"]["curator"]) == ("skipped", "label-studio:2")
        assert run(studio, tmp_path, "pull", *pull)["pulled"] == 0 and len(
            judgements(tmp_path)) == 3
        studio.annotate(1, [result("sure", "choices", choices=["false"])])
        assert run(studio, tmp_path, "sync", *pull)["pulled"] == 1
        assert judgements(tmp_path)[-1]["fields"] == {"sure": False} and len({
            j["id"]
            for j in judgements(tmp_path)}) == 4


def test_texts_without_a_schema_and_objects_without_one(tmp_path):
    for name, answer, shown in (("text", "plain words", {
            "quern_field_1": {"text": ["plain words"]}}), ("object", {
                "a": 1, "b": "x", "c": False}, {
                    "a": {"number": 1}, "b": {"text": ["x"]}, "c": {"choices": ["false"]}})):
        folder = tmp_path / name
        folder.mkdir()
        with LabelStudio() as studio:
            which = files(folder, *lines(2, answer, None))
            assert run(studio, folder, "push", *which)["pushed"] == 2
            assert {
                r["from_name"]: r["value"]
                for r in studio.tasks[1]["predictions"][0]["result"]} == shown
            if name == "text":
                studio.annotate(2, [result("quern_field_1", "textarea", text=["other words"])])
                run(studio, folder, "pull", *which, "-o", "judged.jsonl")
                assert judgements(folder)[0]["fields"] == {".text": "other words"}


def test_failed_requests_have_no_task(tmp_path):
    inputs, outputs = lines(3)
    outputs[1]["response"]["status_code"] = 400
    with LabelStudio() as studio:
        done = run(studio, tmp_path, "push", *files(tmp_path, inputs, outputs[:2]))
        assert (done["pushed"], done["unanswered"], studio.custom_ids()) == (1, 2, ["c0"])
        done = run(studio, tmp_path, "push",
                   *files(tmp_path, inputs, outputs))  # a running batch has more results later
        assert (done["pushed"], done["known_tasks"], studio.custom_ids()) == (1, 1, ["c0", "c2"])


@pytest.mark.parametrize("enterprise", [False, True])
def test_lost_answers_and_busy_servers_make_no_second_task(tmp_path, enterprise):
    with LabelStudio(enterprise=enterprise) as studio:
        studio.lose = ["/api/projects/", "/import", "/api/tasks/"]
        studio.refuse = [("/api/projects/validate/", 503), ("/import", 429), ("/api/tasks/", 502),
                         ("/import", 502)]
        done = run(studio, tmp_path, "push", *files(tmp_path, *lines(1200)), "--settle-seconds",
                   "0")
        assert sorted(studio.custom_ids()) == sorted(f"c{i}" for i in range(1200)), done
        assert len(studio.projects) == 1


@pytest.mark.parametrize("late", [4, 5, 6])
def test_an_import_that_comes_late_leaves_one_task_each(tmp_path, late):
    with LabelStudio() as studio:
        studio.late = [
            late
        ]  # calls: a list, the second chunk with its list, then the first chunk again with its list
        done = run(studio, tmp_path, "push", *files(tmp_path, *lines(700)), "--settle-seconds", "0")
        assert done["removed"] == 500 and sorted(studio.custom_ids()) == sorted(f"c{i}"
                                                                                for i in range(700))


def test_killed_at_any_call_each_task_and_judgement_is_there_once(tmp_path):
    """A push to a new project, annotations, then a sync; each is killed at a call, before or after
    its effect, and begun again until it ends."""
    draw = random.Random(int(os.environ.get("QUERN_SEED", "7")))
    killed = 0
    while killed < KILLS:
        folder = tmp_path / str(killed)
        folder.mkdir(exist_ok=True)
        (folder / "label-studio-run-1.jsonl").unlink(missing_ok=True)
        with LabelStudio() as studio:
            which = [*files(folder, *lines(1100)), "--settle-seconds", "0"]
            killed += killed_often(studio, folder, "push", which, draw, 11)
            for _ in range(60):
                studio.annotate(draw.choice(list(studio.tasks)),
                                [result("score", "number", number=draw.randrange(100))],
                                draw.choice([1, 2]))
            killed += killed_often(studio, folder, "sync", which, draw, 6)
            check_once(studio, folder, which)


def killed_often(studio, folder, word, which, draw, calls):
    """Runs the command until it ends, and kills it at most five times. Returns the number of
    kills."""
    for kills in range(6):
        studio.kills = [(studio.calls + draw.randrange(1, calls),
                         draw.choice(["before", "after"]))] if kills < 5 else []
        process = studio.victim = start(studio, folder, word, *which)
        _, err = process.communicate(timeout=300)
        assert process.returncode in (0, -9), err
        if process.returncode == 0:
            return kills
    raise AssertionError("killed without a kill")


def check_once(studio, folder, which):
    studio.victim = None
    run(studio, folder, "pull", *which, "-o", "judged.jsonl", "--overwrite")
    assert sorted(studio.custom_ids()) == sorted(f"c{i}" for i in range(1100))
    taken = {(j["custom_id"], j["curator"]): j for j in judgements(folder)}
    assert len({j["id"] for j in judgements(folder)}) == len(judgements(folder))
    for task in studio.tasks.values():
        for annotation in task["annotations"]:
            judgement = taken[
                task["meta"]["custom_id"],
                {1: "ana@example.test", 2: "label-studio:2"}[annotation["completed_by"]]]
            number = annotation["result"][0]["value"]["number"]
            assert judgement.get("fields", {"score": 61}) == {"score": number}


def test_a_torn_state_goes_on_and_a_damaged_one_is_refused(tmp_path):
    with LabelStudio() as studio:
        which, state = files(tmp_path, *lines(3)), tmp_path / "label-studio-run-1.jsonl"
        run(studio, tmp_path, "push", *which)
        whole = state.read_text()
        for cut in (1, 5, len(whole) - len(whole.splitlines(True)[0]) - 3):
            state.write_text(whole[:-cut])
            run(studio, tmp_path, "push", *which, "--project", "1", "--settle-seconds", "0")
            assert sorted(studio.custom_ids()) == ["c0", "c1", "c2"]
        damaged = state.read_text().replace("project", "pro\nject", 1)
        state.write_text(damaged)
        assert "is damaged" in run(studio, tmp_path, "push", *which, status=3)
        assert state.read_text() == damaged
        state.unlink()
        done = run(studio, tmp_path, "push", *which, "--project", "1")  # a lost state costs no task
        assert (done["pushed"], done["found"], len(studio.tasks)) == (0, 3, 3)


def test_what_is_refused(tmp_path):
    with LabelStudio() as studio:
        which = files(tmp_path, *lines(2))
        assert "LABEL_STUDIO_API_KEY" in run(studio,
                                             tmp_path,
                                             "push",
                                             *which,
                                             status=5,
                                             token="wrong")
        assert "names no project" in run(studio, tmp_path, "pull", *which, status=7)
        assert "refuses" in run(studio, tmp_path, "push", *which, "--title", "x", status=3)
        assert "project 9" in run(studio, tmp_path, "push", *which, "--project", "9", status=4)
        run(studio, tmp_path, "push", *which)
        other = files(tmp_path, *lines(2))
        assert "name another --state" in run(studio,
                                             tmp_path,
                                             "push",
                                             *other,
                                             "--project",
                                             "9",
                                             status=7)
        done = support.quern("label-studio",
                             "push",
                             "other",
                             *other,
                             "--state",
                             "label-studio-run-1.jsonl",
                             "--label-studio-url",
                             studio.url,
                             cwd=tmp_path,
                             env={**os.environ, "LABEL_STUDIO_API_KEY": LEGACY})
        assert done.returncode == 7 and "is of the batch run-1" in done.stderr
        for arguments in (["push"], ["steal", "b"], ["push", "b"], [
                "push", "b", "--label-studio-url", "ftp://x"], [
                    "push", "b", "--label-studio-url", "http://x", "-i", "in.jsonl"]):
            done = support.quern("label-studio",
                                 *arguments,
                                 cwd=tmp_path,
                                 env={
                                     k: v
                                     for k, v in os.environ.items()
                                     if k != "LABEL_STUDIO_URL"})
            assert done.returncode == 2, done


def test_a_project_of_ones_own_shows_the_fields_that_it_has(tmp_path):
    with LabelStudio() as studio:
        studio.projects[1] = {
            "id": 1, "title": "mine", "description": "",
            "label_config": '<View><Text name="quern_text" value="$text"/><Number name="score" toName="quern_text"/></View>'
        }
        process = start(studio, tmp_path, "push", *files(tmp_path, *lines(1)), "--project", "1")
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0 and "no Choices named recommendation" in err
        assert [r["from_name"] for r in studio.tasks[1]["predictions"][0]["result"]] == ["score"]


# --- against quern ---

def ask(server, studio, folder, word, batch, *arguments):
    done = support.quern("label-studio",
                         word,
                         batch,
                         *arguments,
                         "--json",
                         cwd=folder,
                         timeout=300,
                         env={
                             **os.environ, "LABEL_STUDIO_URL": studio.url,
                             "LABEL_STUDIO_API_KEY": LEGACY, "OPENAI_BASE_URL": server.url,
                             "OPENAI_API_KEY": ""})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_a_batch_of_a_server_and_its_judgements(tmp_path):
    with support.serving(tmp_path / "state", "--model",
                         "m=echo") as server, LabelStudio() as studio:
        batch = server.create(
            support.jsonl([support.request(f"c{i}", f"hello {i}", "m") for i in range(6)]))["id"]
        server.wait(batch)
        done, said = ask(server, studio, tmp_path, "push", batch)
        assert done["pushed"] == 6 and f"{studio.url}/projects/1: 6 tasks pushed" in said
        assert studio.projects[1]["title"] == f"quern {batch}"[:49]
        tasks = {task["meta"]["custom_id"]: number for number, task in studio.tasks.items()}
        text = studio.tasks[tasks["c0"]]["meta"]["answer"][".text"]
        server.json(
            "POST", f"/v1/batches/{batch}/judgements", {
                "custom_id": "c1", "id": "made-here-1", "version": 0, "curator": "Bo",
                "verdict": "accepted"})
        studio.annotate(tasks["c0"], [result("quern_field_1", "textarea", text=[text])])
        for name in ("c1", "c2"):
            studio.annotate(tasks[name], [result("quern_field_1", "textarea", text=["other"])])
        done, said = ask(server, studio, tmp_path, "sync", batch)
        assert (done["pulled"], done["conflicts"], done["pushed"], done["sent"]) == (3, 1, 0, 1)
        assert f'conflict: c1: Bo on quern: as answered; ana@example.test in Label Studio: {{".text":"other"}}' in said

        def trail():
            rows = server.json("GET", f"/v1/batches/{batch}/judgements")["data"]
            return [
                (row["custom_id"], row["curator"], row["version"], row["verdict"], row["fields"])
                for row in rows]

        first = [("c1", "Bo", 1, "accepted", None), ("c0", "ana@example.test", 1, "accepted", None),
                 ("c1", "ana@example.test", 1, "corrected", {".text": "other"}),
                 ("c2", "ana@example.test", 1, "corrected", {".text": "other"})]
        assert trail() == first
        state = tmp_path / f"label-studio-{batch}.jsonl"
        state.write_text("".join(line for line in state.read_text().splitlines(True)
                                 if "annotation" not in line))  # as a kill leaves it
        assert ask(server, studio, tmp_path, "pull", batch)[0]["pulled"] == 3 and trail() == first
        studio.annotate(tasks["c2"], [], cancelled=True)
        studio.annotate(tasks["c1"], [result("quern_field_1", "textarea", text=["a third"])])
        done, said = ask(server, studio, tmp_path, "pull", batch, "--prefer", "quern")
        assert (done["pulled"], done["held"]) == (1, 1) and "(not taken)" in said
        assert trail() == [*first, ("c2", "ana@example.test", 2, "skipped", None)]
        assert ask(server, studio, tmp_path, "pull", batch, "--prefer", "quern")[0]["held"] == 0


def test_objects_of_an_array_are_corrected_added_and_removed(tmp_path):
    job = {
        "type": "object", "properties": {
            "company": {"type": "string"}, "years": {"type": "integer"}}}
    schema = {
        "type": "object", "properties": {"jobs": {"type": "array", "items": job}}}
    answer = {"jobs": [{"company": "Acme", "years": 2}, {"company": "Bolt", "years": 5}]}
    with LabelStudio() as studio:
        which = files(tmp_path, *lines(3, answer, schema))
        assert run(studio, tmp_path, "push", *which)["pushed"] == 3
        config = studio.projects[1]["label_config"]
        assert config.count("remove this entry") == 3  # two jobs, and room for one more
        (prediction,) = studio.tasks[1]["predictions"]
        assert {r["from_name"]: r["value"] for r in prediction["result"]} == {
            "jobs.0.company": {"text": ["Acme"]}, "jobs.0.years": {"number": 2},
            "jobs.1.company": {"text": ["Bolt"]}, "jobs.1.years": {"number": 5}}
        shown = prediction["result"]
        studio.annotate(1, shown)
        studio.annotate(2, [result("jobs.0", "choices", choices=["remove this entry"]),
                            result("jobs.1.years", "number", number=6)])
        studio.annotate(3, shown + [result("jobs.2.company", "textarea", text=["Cog"])])
        run(studio, tmp_path, "pull", *which, "-o", "judged.jsonl")
        by = {j["custom_id"]: j for j in judgements(tmp_path)}
        assert by["c0"]["verdict"] == "accepted"
        assert by["c1"]["fields"] == {"jobs": [{"company": "Bolt", "years": 6}]}
        assert by["c2"]["fields"] == {"jobs": [*answer["jobs"], {"company": "Cog"}]}


def imported(studio, folder, *arguments, status=0):
    done = support.quern("label-studio", "import", *arguments, "--json", cwd=folder,
                         env={**os.environ, "LABEL_STUDIO_URL": studio.url,
                              "LABEL_STUDIO_API_KEY": studio.token})
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout) if status == 0 else done.stderr


def test_the_annotations_of_any_project_become_judgements_that_evaluate_takes(tmp_path):
    with LabelStudio() as studio:
        studio.projects[7] = {"id": 7, "title": "old", "description": "", "label_config": (
            '<View><Text name="t" value="$text"/>'
            '<Choices name="fit" toName="t"><Choice value="yes"/></Choices>'
            '<Choices name="tags" toName="t" choice="multiple"><Choice value="a"/></Choices>'
            '<Number name="score" toName="t"/></View>')}
        studio.add_tasks(7, [{"data": {"text": f"t{i}", "row": i}} for i in range(4)])
        for task, score in zip(sorted(studio.tasks), (3, 4, 5)):
            studio.annotate(task, [
                result("fit", "choices", choices=["yes"]), result("tags", "choices", choices=["a"]),
                result("score", "number", number=score),
                result("box", "rectanglelabels", x=1, y=2)])
        studio.annotate(min(studio.tasks), [result("score", "number", number=9)], user=2)
        report = imported(studio, tmp_path, "7", "-o", "judged.jsonl", "--id-field", "row")
        assert report == {"tasks": 3, "annotations": 4, "skipped": 0, "left_out": 3,
                          "without_custom_id": 0}
        rows = judgements(tmp_path)
        assert [(row["custom_id"], row["curator"]) for row in rows] == [
            ("0", "ana@example.test"), ("0", "label-studio:2"), ("1", "ana@example.test"),
            ("2", "ana@example.test")]
        assert rows[2]["judgement"] == {"fit": "yes", "tags": ["a"], "score": 4}
        assert imported(studio, tmp_path, "7", "-o", "more.jsonl")["without_custom_id"] == 3
        assert "No Project" in imported(studio, tmp_path, "8", "-o", "none.jsonl", status=4)
        for arguments in (["x", "-o", "none.jsonl"], ["7"]):
            imported(studio, tmp_path, *arguments, status=2)
    requests = [support.request(str(i), json.dumps({"fit": "yes", "score": 4}), "m")
                for i in range(3)]
    (tmp_path / "in.jsonl").write_bytes(support.jsonl(requests))
    done = support.quern("evaluate", tmp_path / "in.jsonl", "--model", "a=echo", "--json",
                         "--compare-to", tmp_path / "judged.jsonl")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["judged"]["lines"], said["judged"]["disputed"]) == (2, 1)
    fields = {field["name"]: field["equal"] for field in said["agreement"][0]["fields"]}
    assert (fields["fit"], fields["score"]) == (2, 1)


@pytest.mark.parametrize("keeps_actions", [True, False])
def test_a_judgement_has_its_review_in_label_studio_and_a_review_there_is_one_here(
        tmp_path, keeps_actions):
    """Approve and reject, both ways; also of a Label Studio that does not keep what a client says."""
    kept = [{"id": f"made-{i}", "custom_id": f"c{i}", "curator": "Bo", "verdict": verdict, **more}
            for i, (verdict, more) in enumerate([
                ("accepted", {}), ("corrected", {"fields": {"score": 17}}),
                ("accepted", {"flagged": True}), ("skipped", {})])]
    (tmp_path / "kept.jsonl").write_text("".join(json.dumps(one) + "\n" for one in kept))
    with LabelStudio() as studio:
        studio.keeps_actions = keeps_actions
        which = files(tmp_path, *lines(8))
        sync = [*which, "--judgements-file", "kept.jsonl", "-o", "judged.jsonl", "--overwrite"]
        done = run(studio, tmp_path, "sync", *sync)
        assert (done["sent"], done["pulled"]) == (4, 0)
        made = {name: task["annotations"][0] for name, task in zip(
            studio.custom_ids(), studio.tasks.values()) if task["annotations"]}
        if keeps_actions:
            assert [made[f"c{i}"]["last_action"] for i in range(4)] == [
                "accepted", "fixed_and_accepted", "rejected", None]
        assert run(studio, tmp_path, "sync", *sync)["pulled"] == 0, "nothing of it comes back"

        same = studio.tasks[5]["predictions"][0]["result"]
        other = [result("recommendation", "choices", choices=["MAYBE"]),
                 result("quern_comment", "textarea", text=["hm"])]
        for task, values in ((5, same), (6, other), (7, other), (8, same)):
            studio.annotate(task, values, user=1)
        by_task = {task: studio.tasks[task]["annotations"][0]["id"] for task in range(1, 9)}
        studio.review(by_task[5], "accepted")
        studio.review(by_task[6], "rejected")
        studio.review(by_task[7], None, reviews=[
            {"accepted": False, "created_by": 1, "created_at": "2026-11-24T06:00:00Z"},
            {"accepted": True, "created_by": {"id": 9, "email": "cy@example.test"},
             "fixed_annotation_history": 3, "created_at": "2026-11-24T07:00:00Z"}])
        studio.review(by_task[1], "rejected")  # an annotation that was made of Bo's judgement
        assert run(studio, tmp_path, "sync", *sync)["pulled"] == 5
        by = {one["custom_id"]: one for one in judgements(tmp_path)}
        assert (by["c4"]["verdict"], by["c4"]["curator"]) == ("accepted", "label-studio:2")
        assert (by["c5"]["verdict"], by["c5"]["flagged"], by["c5"]["curator"],
                by["c5"]["comment"]) == ("skipped", True, "ana@example.test",
                                         "rejected in review: hm")
        assert (by["c6"]["verdict"], by["c6"]["curator"], by["c6"]["fields"]) == (
            "corrected", "cy@example.test", {"recommendation": "MAYBE"})
        assert (by["c7"]["verdict"], by["c7"]["flagged"]) == ("accepted", False)
        assert by["c0"]["flagged"] and by["c0"]["comment"].startswith("rejected in review: Bo on")
        assert run(studio, tmp_path, "sync", *sync)["pulled"] == 0
        studio.review(by_task[6], "accepted")  # the reviewer changes the mind
        assert run(studio, tmp_path, "sync", *sync)["pulled"] == 1
        newest = {one["custom_id"]: one for one in judgements(tmp_path)}["c5"]
        assert (newest["verdict"], newest["curator"]) == ("corrected", "label-studio:2")


def test_evaluate_reads_the_judgements_of_a_project_as_they_are_and_keeps_none(tmp_path):
    scores = [61, 20, 35]
    inputs = [support.request(f"c{i}", json.dumps({"score": score}))
              for i, score in enumerate(scores)]
    (tmp_path / "in.jsonl").write_bytes(support.jsonl(inputs))
    with LabelStudio() as studio:
        studio.projects[7] = {"id": 7, "label_config": (
            '<View><Text name="t" value="$t"/><Number name="score" toName="t"/></View>')}
        for row, number in enumerate((61, 20, 99)):
            studio.tasks[row + 1] = {"id": row + 1, "project": 7, "data": {"row": f"c{row}"},
                                     "annotations": []}
            studio.annotate(row + 1, [result("score", "number", number=number),
                                      result("quern_rating", "rating", rating=1)])

        def evaluate(*more, status=0):
            done = support.quern("evaluate", tmp_path / "in.jsonl", "--model", "a=echo", "--json",
                                 *more, env={**os.environ, "LABEL_STUDIO_URL": studio.url,
                                             "LABEL_STUDIO_API_KEY": studio.token})
            assert done.returncode == status, done.stderr
            return json.loads(done.stdout) if status == 0 else done.stderr

        live = ["--compare-to", "label-studio:7", "--id-field", "row"]
        said = evaluate(*live)
        assert said["reference"] == "label-studio:7" and said["judged"]["lines"] == 3
        [field] = said["agreement"][0]["fields"]
        assert (field["name"], field["rows"], field["equal"]) == ("score", 3, 2)
        [third] = studio.tasks[3]["annotations"]
        studio.annotate(3, [result("score", "number", number=35)])
        assert evaluate(*live)["agreement"][0]["fields"][0]["equal"] == 3
        studio.review(third["id"], "rejected")
        assert evaluate(*live)["judged"]["lines"] == 2
        sampled = evaluate(*live, "--sample", "2", "-o", tmp_path / "sample")
        assert sampled["agreement"][0]["fields"][0]["rows"] == 2  # those of three that are judged
        assert "label-studio:8" in evaluate("--compare-to", "label-studio:8", status=4)
    assert "--id-field" in evaluate("--id-field", "row", status=2)


def test_many_judgements_are_told_while_they_go_and_a_missing_token_says_where_it_belongs(tmp_path):
    with LabelStudio() as studio:
        which = files(tmp_path, *lines(60))
        (tmp_path / "kept.jsonl").write_text("".join(
            json.dumps({"id": f"made-here-{i}", "custom_id": f"c{i}", "curator": "Bo",
                        "verdict": "accepted"}) + "\n" for i in range(60)))
        process = start(studio, tmp_path, "sync", *which, "--judgements-file", "kept.jsonl")
        out, said = process.communicate(timeout=300)
        assert process.returncode == 0 and json.loads(out)["sent"] == 60, said
        assert "50 judgements sent\n" in said and "60 judgements of quern sent" in said
        without = {name: value for name, value in os.environ.items() if "LABEL_STUDIO" not in name}
        done = support.quern("label-studio", "push", "run-1", "--label-studio-url", studio.url,
                             cwd=tmp_path, env=without)
        assert done.returncode == 5 and "LABEL_STUDIO_API_KEY_FILE" in done.stderr
