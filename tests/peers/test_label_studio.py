# SPDX-License-Identifier: Apache-2.0
"""quern label-studio against a real Label Studio (from PyPI, in a virtual environment that
QUERN_LABEL_STUDIO names): ten answers with each kind of token, judgements of quern as annotations,
then QUERN_TASKS (20,000) tasks pushed and their annotations pulled with a personal access token
while the command is killed at random. Bought tokens last 20 s here instead of 5 minutes, so that a
run needs many.

    python3 -m venv ~/.cache/quern-peers/label-studio && ~/.cache/quern-peers/label-studio/bin/pip
    install label-studio tools/test peers/test_label_studio
"""
import functools, json, os, pathlib, random, sqlite3, subprocess, threading, time, urllib.request

import pytest

import conftest
import support

VENV = pathlib.Path(os.environ.get("QUERN_LABEL_STUDIO", conftest.PEERS / "label-studio"))
TOKEN = "0123456789abcdef0123456789abcdef01234567"
TASKS = int(os.environ.get("QUERN_TASKS", "20000"))
KILLS = max(4, round(20 * float(os.environ.get("QUERN_KILLS", "1"))))
CORRECTED = 200
WORDS = ["HIRE", 'NO & <b> "q"', "MAYBE"]
SCHEMA = {
    "type": "object", "properties": {
        "recommendation": {"enum": WORDS}, "score": {
            "type": "integer", "minimum": 0, "maximum": 100}, "fit": {
                "type": "object", "properties": {
                    "stars": {"type": "integer", "minimum": 1, "maximum": 5}}}, "sure": {
                        "type": "boolean"}, "reason": {"type": "string"}, "tags": {
                            "type": "array", "items": {"type": "string"}}}}


SHORT_TOKENS = """
import datetime, importlib.util, sys

class Finder:  # changes a module once it is loaded: Label Studio has no setting for it
    def find_spec(self, name, path, target=None):
        if name != "rest_framework_simplejwt.tokens":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module
        def exec_module(module):
            load(module)
            module.AccessToken.lifetime = datetime.timedelta(seconds=20)
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder())
"""


class Studio:
    url = "http://127.0.0.1:18086"

    def __init__(self, folder):
        self.folder, self.log = folder, folder / "log"
        (folder / "sitecustomize.py").write_text(SHORT_TOKENS)
        environment = {
            **os.environ, "PYTHONPATH": str(folder), "LABEL_STUDIO_BASE_DATA_DIR": str(folder),
            "COLLECT_ANALYTICS": "false", "LATEST_VERSION_CHECK": "false"}
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([
                VENV / "bin/label-studio", "start", "--no-browser", "--port", "18086",
                "--internal-host", "127.0.0.1", "--username", "ana@example.test", "--password",
                "a-pass-word-1", "--user-token", TOKEN, "--enable-legacy-api-token"],
                                            stdout=log,
                                            stderr=log,
                                            env=environment)
        conftest.wait_for(self.url + "/api/version", self.process, self.log, 600)

    def call(self, path, body=None, method=None):
        request = urllib.request.Request(
            self.url + path,
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Token {TOKEN}", "Content-Type": "application/json"},
            method=method)
        return json.loads(urllib.request.urlopen(request, timeout=600).read())

    @functools.cached_property
    def personal(self):
        """The personal access token, of which a user has one."""
        return self.call("/api/token/", {})["token"]

    def bought_tokens(self):
        return self.log.read_text().count("POST /api/token/refresh/")

    def tasks(self, project):
        """All tasks, as the database has them: id, custom_id, predictions."""
        with sqlite3.connect(f"file:{self.folder}/label_studio.sqlite3?mode=ro", uri=True) as db:
            return [(number, json.loads(meta)["custom_id"]) for number, meta in db.execute(
                "select id, meta from task where project_id = ? order by id", (project, ))]

    def annotations(self, project):
        with sqlite3.connect(f"file:{self.folder}/label_studio.sqlite3?mode=ro", uri=True) as db:
            return [(
                json.loads(meta)["custom_id"], json.loads(result), cancelled
            ) for meta, result, cancelled in db.execute(
                "select t.meta, a.result, a.was_cancelled from task_completion a join task t on a.task_id = t.id where t.project_id = ?",
                (project, ))]

    def predictions(self, project):
        with sqlite3.connect(f"file:{self.folder}/label_studio.sqlite3?mode=ro", uri=True) as db:
            return db.execute(
                "select count(*), count(distinct task_id) from prediction where project_id = ?",
                (project, )).fetchone()


@pytest.fixture(scope="module")
def studio(tmp_path_factory):
    conftest.needed(VENV / "bin/label-studio")
    studio = Studio(tmp_path_factory.mktemp("label-studio"))
    yield studio
    studio.process.terminate()
    studio.process.wait(120)


def files(folder, count):
    draw, answers = random.Random(1), []
    with open(folder / "in.jsonl", "w") as inputs, open(folder / "out.jsonl", "w") as outputs:
        for i in range(count):
            answers.append({
                "recommendation": draw.choice(WORDS), "score": draw.randrange(101), "fit": {
                    "stars": draw.randrange(1, 6)}, "sure": draw.random() < 0.5,
                "reason": "because\n\u202e<script>", "tags": ["a", "b"]})
            inputs.write(
                json.dumps({
                    "custom_id": f"c{i}", "method": "POST", "url": "/v1/chat/completions", "body": {
                        "model": "m", "messages": [{
                            "role": "user", "content": f"candidate {i} " +
                            "of many words " * 40}], "response_format": {
                                "type": "json_schema", "json_schema": {
                                    "name": "x", "schema": SCHEMA}}}}) + "\n")
            outputs.write(
                json.dumps({
                    "id": "r", "custom_id": f"c{i}", "error": None, "response": {
                        "status_code": 200, "body": {
                            "model": "m-1", "choices": [{
                                "message": {"content": json.dumps(answers[-1])}}]}}}) + "\n")
    return answers, ["-i", "in.jsonl", "--results-file", "out.jsonl"]


def start(studio, folder, word, *arguments, token=TOKEN):
    environment = {**os.environ, "LABEL_STUDIO_URL": studio.url, "LABEL_STUDIO_API_KEY": token}
    with open(folder / "said", "a") as said:
        return subprocess.Popen([
            support.BINARY, "label-studio", word, "run-1", *map(str, arguments), "--json",
            "--retry-seconds", "300"],
                                cwd=folder,
                                env=environment,
                                text=True,
                                stdout=subprocess.PIPE,
                                stderr=said)


def run(studio, folder, word, *arguments, token=TOKEN):
    process = start(studio, folder, word, *arguments, token=token)
    out, _ = process.communicate(timeout=7200)
    assert process.returncode == 0, (folder / "said").read_text()[-3000:]
    return json.loads(out)


def killed(studio, folder, word, *arguments, kills, seconds, draw, token=TOKEN):
    """Runs the command again and again and kills it after random times; returns the last report and
    how often it was killed."""
    count = 0
    while True:
        process = start(studio, folder, word, *arguments, token=token)
        if count < kills:
            timer = threading.Timer(draw.uniform(0.05, seconds), process.kill)
            timer.start()
        out, _ = process.communicate(timeout=7200)
        if count < kills:
            timer.cancel()
        assert process.returncode in (0, -9), (folder / "said").read_text()[-3000:]
        if process.returncode == 0:
            return json.loads(out), count
        count += 1


def choice(name, word):
    return {
        "id": name, "from_name": name, "to_name": "quern_text", "type": "choices", "value": {
            "choices": [word]}}


def pulled(folder):
    return [json.loads(line) for line in (folder / "judged.jsonl").read_text().splitlines()]


def test_ten_answers_there_and_back_with_each_kind_of_token(studio, tmp_path):
    personal = studio.personal
    for token in (TOKEN, personal):
        folder = tmp_path / token[:3]
        folder.mkdir()
        answers, which = files(folder, 10)
        done = run(studio, folder, "push", *which, token=token)
        tasks = studio.tasks(done["project"])
        assert done["pushed"] == 10 and [name for _, name in tasks] == [f"c{i}" for i in range(10)]
        project = studio.call(f"/api/projects/{done['project']}/")
        assert set(project["parsed_label_config"]) == {
            "recommendation", "score", "fit.stars", "sure", "reason", "tags", "quern_rating",
            "quern_comment"}
        results = {
            r["from_name"]: r["value"]
            for r in studio.call(f"/api/tasks/{tasks[3][0]}/")["predictions"][0]["result"]}
        assert results["recommendation"] == {"choices": [answers[3]["recommendation"]]
                                             } and results["reason"] == {
                                                 "text": [answers[3]["reason"]]}
        other = next(word for word in WORDS if word != answers[0]["recommendation"])
        studio.call(f"/api/tasks/{tasks[0][0]}/annotations/",
                    {"result": [choice("recommendation", other)]})
        studio.call(f"/api/tasks/{tasks[1][0]}/annotations/",
                    {"result": [choice("recommendation", answers[1]["recommendation"])]})
        studio.call(f"/api/tasks/{tasks[2][0]}/annotations/", {"result": [], "was_cancelled": True})
        assert run(studio, folder, "sync", *which, "-o", "judged.jsonl", token=token)["pulled"] == 3
        by = {j["custom_id"]: j for j in pulled(folder)}
        assert [by[f"c{i}"]["verdict"] for i in range(3)] == ["corrected", "accepted", "skipped"]
        assert by["c0"]["fields"] == {"recommendation": other
                                      } and by["c0"]["curator"] == "ana@example.test"
        assert run(studio, folder, "sync", *which, token=token)["pulled"] == 0 and len(
            studio.tasks(done["project"])) == 10


def test_judgements_of_quern_become_annotations_once_and_do_not_come_back(studio, tmp_path):
    answers, which = files(tmp_path, 4)
    judged = [{
        "id": "made-here-1", "custom_id": "c0", "curator": "Bo", "verdict": "accepted", "rating": 4,
        "comment": "good \u202e<b>"}, {
            "id": "made-here-2", "custom_id": "c1", "curator": "Bo", "verdict": "corrected",
            "fields": {"score": 17, "reason": "x"}, "flagged": True}, {
                "id": "made-here-3", "custom_id": "c2", "curator": "Bo", "verdict": "skipped"}, {
                    "id": "made-here-4", "custom_id": "c2", "curator": "Cy", "verdict": "accepted"}]
    (tmp_path / "kept.jsonl").write_text("".join(
        json.dumps(judgement) + "\n" for judgement in judged))
    which += ["--judgements-file", "kept.jsonl"]
    done = run(studio, tmp_path, "sync", *which)
    assert (done["sent"], done["pulled"]) == (4, 0)
    found = studio.annotations(done["project"])
    values = {(name, cancelled): {r["from_name"]: next(iter(r["value"].values()))
                                  for r in result}
              for name, result, cancelled in found}
    assert len(found) == 4 and values["c0", 0]["quern_rating"] == 4 and values[
        "c0", 0]["quern_comment"] == ["Bo on quern: good \u202e<b>"]
    assert values["c1", 0]["score"] == 17 and values["c1", 0]["recommendation"] == [
        answers[1]["recommendation"]] and set(values["c2", 1]) == {"quern_comment"}
    (tmp_path /
     "label-studio-run-1.jsonl").unlink()  # a lost state: each is sent again, and refused there
    done = run(studio, tmp_path, "sync", *which, "--project", done["project"])
    assert (done["sent"], done["pulled"], len(studio.annotations(done["project"]))) == (4, 0, 4)
    number = dict((name, task) for task, name in studio.tasks(done["project"]))["c1"]
    (annotation,) = studio.call(f"/api/tasks/{number}/annotations/")
    studio.call(f"/api/annotations/{annotation['id']}/",
                {"result": [choice("recommendation", WORDS[0])]}, "PATCH")
    assert run(studio, tmp_path, "sync", *which)["pulled"] == 1


def test_a_review_is_kept_by_the_free_edition_and_goes_both_ways(studio, tmp_path):
    answers, which = files(tmp_path, 6)
    kept = [{"id": f"made-{i}", "custom_id": f"c{i}", "curator": "Bo", "verdict": verdict, **more}
            for i, (verdict, more) in enumerate([
                ("accepted", {}), ("corrected", {"fields": {"score": 17}}),
                ("accepted", {"flagged": True})])]
    (tmp_path / "kept.jsonl").write_text("".join(json.dumps(one) + "\n" for one in kept))
    which += ["--judgements-file", "kept.jsonl", "-o", "judged.jsonl", "--overwrite"]
    done = run(studio, tmp_path, "sync", *which)
    assert (done["sent"], done["pulled"]) == (3, 0)
    tasks = {name: number for number, name in studio.tasks(done["project"])}

    def annotations(name):
        return studio.call(f"/api/tasks/{tasks[name]}/annotations/")

    assert [annotations(f"c{i}")[0]["last_action"] for i in range(3)] == [
        "accepted", "fixed_and_accepted", "rejected"]
    assert run(studio, tmp_path, "sync", *which)["pulled"] == 0
    made = [studio.call(f"/api/tasks/{tasks[name]}/annotations/", {"result": [
        choice("recommendation", answers[int(name[1:])]["recommendation"])]})["id"]
            for name in ("c3", "c4")]
    assert run(studio, tmp_path, "sync", *which)["pulled"] == 2
    for annotation, action in zip(made, ("accepted", "rejected")):
        studio.call(f"/api/annotations/{annotation}/", {"last_action": action}, "PATCH")
    studio.call(f"/api/annotations/{annotations('c0')[0]['id']}/", {"last_action": "rejected"},
                "PATCH")
    assert run(studio, tmp_path, "sync", *which)["pulled"] == 3
    newest = {one["custom_id"]: one for one in pulled(tmp_path)}
    assert [(newest[name]["verdict"], newest[name]["flagged"]) for name in ("c3", "c4", "c0")] == [
        ("accepted", False), ("skipped", True), ("skipped", True)]
    assert run(studio, tmp_path, "sync", *which)["pulled"] == 0


def test_objects_of_an_array_and_a_project_that_was_there_already(studio, tmp_path):
    job = {"type": "object", "properties": {
        "company": {"type": "string"}, "years": {"type": "integer"}}}
    schema = {"type": "object", "properties": {"jobs": {"type": "array", "items": job}}}
    jobs = [{"company": "Acme", "years": 2}, {"company": "Bolt", "years": 5}]
    with open(tmp_path / "in.jsonl", "w") as inputs, open(tmp_path / "out.jsonl", "w") as outputs:
        for i in range(3):
            inputs.write(json.dumps({
                "custom_id": f"c{i}", "method": "POST", "url": "/v1/chat/completions", "body": {
                    "model": "m", "messages": [{"role": "user", "content": f"profile {i}"}],
                    "response_format": {"type": "json_schema", "json_schema": {
                        "name": "x", "schema": schema}}}}) + "\n")
            outputs.write(json.dumps({
                "id": "r", "custom_id": f"c{i}", "error": None, "response": {
                    "status_code": 200, "body": {"model": "m-1", "choices": [{
                        "message": {"content": json.dumps({"jobs": jobs})}}]}}}) + "\n")
    which = ["-i", "in.jsonl", "--results-file", "out.jsonl"]
    done = run(studio, tmp_path, "push", *which)
    tasks = [number for number, _ in studio.tasks(done["project"])]
    config = studio.call(f"/api/projects/{done['project']}/")["parsed_label_config"]
    assert {f"jobs.{i}{rest}" for i in range(3) for rest in ("", ".company", ".years")} <= set(config)
    shown = studio.call(f"/api/tasks/{tasks[0]}/")["predictions"][0]["result"]
    assert {r["from_name"]: r["value"] for r in shown} == {
        "jobs.0.company": {"text": ["Acme"]}, "jobs.0.years": {"number": 2},
        "jobs.1.company": {"text": ["Bolt"]}, "jobs.1.years": {"number": 5}}
    added = {"id": "n", "from_name": "jobs.2.company", "to_name": "quern_text", "type": "textarea",
             "value": {"text": ["Cog"]}}
    for task, result in zip(tasks, (shown, [choice("jobs.0", "remove this entry")], shown + [added])):
        studio.call(f"/api/tasks/{task}/annotations/", {"result": result})
    assert run(studio, tmp_path, "pull", *which, "-o", "judged.jsonl")["pulled"] == 3
    by = {j["custom_id"]: j for j in pulled(tmp_path)}
    assert by["c0"]["verdict"] == "accepted"
    assert by["c1"]["fields"] == {"jobs": jobs[1:]}
    assert by["c2"]["fields"] == {"jobs": [*jobs, {"company": "Cog"}]}

    old = studio.call("/api/projects/", {"title": "old one", "label_config": (
        '<View><Text name="t" value="$text"/><Choices name="fit" toName="t"><Choice value="yes"/>'
        '<Choice value="no"/></Choices><Choices name="tags" toName="t" choice="multiple">'
        '<Choice value="a"/><Choice value="b"/></Choices></View>')})["id"]
    studio.call(f"/api/projects/{old}/import", [{"text": f"t{i}", "row": i} for i in range(3)])
    found = studio.call(f"/api/tasks/?project={old}&fields=all&page_size=10")["tasks"]
    for task, word in zip(found, ("yes", "no")):
        studio.call(f"/api/tasks/{task['id']}/annotations/", {"result": [
            choice("fit", word) | {"to_name": "t"}, choice("tags", "a") | {"to_name": "t"}]})
    said = support.quern("label-studio", "import", old, "-o", tmp_path / "old.jsonl", "--id-field",
                         "row", "--json", env={**os.environ, "LABEL_STUDIO_URL": studio.url,
                                               "LABEL_STUDIO_API_KEY": TOKEN})
    assert said.returncode == 0, said.stderr
    rows = [json.loads(line) for line in (tmp_path / "old.jsonl").read_text().splitlines()]
    assert [(row["custom_id"], row["curator"], row["judgement"]) for row in rows] == [
        ("0", "ana@example.test", {"fit": "yes", "tags": ["a"]}),
        ("1", "ana@example.test", {"fit": "no", "tags": ["a"]})]


def test_many_tasks_and_annotations_each_exactly_once_under_kills(studio, tmp_path):
    draw, personal = random.Random(int(os.environ.get("QUERN_SEED", "1"))), studio.personal
    bought = studio.bought_tokens()
    answers, which = files(tmp_path, TASKS)
    begun = time.monotonic()
    done, kills = killed(studio,
                         tmp_path,
                         "push",
                         *which,
                         kills=KILLS,
                         seconds=12,
                         draw=draw,
                         token=personal)
    again = run(studio, tmp_path, "push", *which, token=personal)
    push_s = time.monotonic() - begun
    names = [name for _, name in studio.tasks(done["project"])]
    assert again["pushed"] == 0 and len(names) == TASKS and set(names) == {
        f"c{i}"
        for i in range(TASKS)}
    assert studio.predictions(done["project"]) == (TASKS, TASKS)
    print(
        f"\n{TASKS} tasks pushed in {push_s:.0f} s with {kills} kills, {done['removed'] + again['removed']} second tasks removed"
    )

    begun = time.monotonic()
    tasks = studio.tasks(done["project"])
    corrected = annotate(studio, done["project"], tasks, answers, draw)
    annotate_s = time.monotonic() - begun
    begun = time.monotonic()
    _, kills = killed(studio,
                      tmp_path,
                      "pull",
                      *which,
                      "-o",
                      "judged.jsonl",
                      kills=KILLS,
                      seconds=20,
                      draw=draw,
                      token=personal)
    pull_s = time.monotonic() - begun
    judged = pulled(tmp_path)
    assert len(judged) == TASKS == len({j["id"]
                                        for j in judged}) == len({j["custom_id"]
                                                                  for j in judged})
    assert {j["custom_id"]: j["fields"] for j in judged if j["verdict"] == "corrected"} == corrected
    assert sum(j["verdict"] == "accepted" for j in judged) == TASKS - len(corrected)
    assert run(studio, tmp_path, "pull", *which, token=personal)["pulled"] == 0
    print(
        f"{TASKS} annotations made in {annotate_s:.0f} s, pulled in {pull_s:.0f} s with {kills} kills"
    )
    print(f"{studio.bought_tokens() - bought} tokens bought")


def annotate(studio, project, tasks, answers, draw):
    """One annotation per task by the server's action that takes predictions over, 1,000 tasks a
    call; then some that differ, one by one. Returns what these correct."""
    numbers = dict((name, number) for number, name in tasks)
    chosen = draw.sample(sorted(numbers), min(CORRECTED, len(numbers) // 2))
    rest = sorted(set(numbers.values()) - {numbers[name] for name in chosen})
    for at in range(0, len(rest), 1000):
        studio.call(f"/api/dm/actions?id=predictions_to_annotations&project={project}",
                    {"selectedItems": {"all": False, "included": rest[at:at + 1000]}})
    corrected = {}
    for name in chosen:
        word = next(word for word in WORDS if word != answers[int(name[1:])]["recommendation"])
        corrected[name] = {"recommendation": word}
        studio.call(f"/api/tasks/{numbers[name]}/annotations/",
                    {"result": [choice("recommendation", word)], "lead_time": 1})
    assert len(studio.annotations(project)) == len(tasks)
    return corrected
