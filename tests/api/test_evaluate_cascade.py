# SPDX-License-Identifier: Apache-2.0
"""`quern evaluate --cascade`: on drawn workloads the answers are those of the plain runs, the small
model's where it is sure and the large one's elsewhere; what each did is told; interruptions; what
is refused."""
import collections, json, random, time

import pytest

import support
from small_server import SmallServer

SEED = support.SEED
WHOLE = ("requests", "answered", "failed", "truncated", "prompt_tokens", "completion_tokens")


class Raters(SmallServer):
    """Models that answer a chat n times and a list of questions, each model in its own way, and
    always alike. The small one is of two minds about some requests."""

    url = property(lambda self: f"{self.site}/v1")
    delay = 0

    def draw(self, model, text):
        return random.Random(f"{model} {text}")

    def chat(self, body):
        text = body["messages"][-1]["content"]
        rng, count = self.draw(body["model"], text), body.get("n") or 1
        score, doubts = rng.randrange(10), rng.choice([0, 0, 1, 3])
        # The spelling and the reasoning of an answer are not what it says.
        said = [
            json.dumps({"score": (score + (i < doubts)) % 10, "fit": "yes"}, indent=rng.choice([None, 1]))
            for i in range(count)]
        return {
            "id": f"chatcmpl-{text}", "object": "chat.completion", "created": 1,
            "model": body["model"], "choices": [{
                "index": i, "finish_reason": "stop", "message": {
                    "role": "assistant", "content": words, "reasoning_content": f"thought {i}"}}
                                                for i, words in enumerate(said)],
            "usage": {"prompt_tokens": len(text), "completion_tokens": count,
                      "total_tokens": len(text) + count}}

    def decisions(self, body):
        rng = self.draw(body["model"], body["input"])
        answers = [{
            "type": "predicate", "name": question["name"], "probability": rng.random() ** 0.2,
            "label_mass": 1.0} for question in body["questions"]]
        return {"object": "decision", "model": body["model"], "answers": answers, "usage": {
            "prompt_tokens": 7, "completion_tokens": 0, "total_tokens": 7}}

    def take(self, handler, body):
        if not body:
            return handler.answer(200, {"object": "list", "data": [
                {"id": name, "object": "model", "created": 1} for name in ("small", "large")]})
        body = json.loads(body)
        if self.delay:
            time.sleep(self.delay)
        answer = self.decisions(body) if "questions" in body else self.chat(body)
        return handler.answer(200, answer)


@pytest.fixture(scope="module")
def raters():
    with Raters() as server:
        yield server


def chats(count, n=5):
    return [support.request(f"c{i}", f"applicant {i}", model="any", n=n) for i in range(count)]


def decisions(count):
    return [{"custom_id": f"d{i}", "method": "POST", "url": "/v1/decisions", "body": {
        "model": "any", "input": f"applicant {i}", "questions": [
            {"type": "predicate", "name": name, "instructions": name}
            for name in ("fit", "remote")]}} for i in range(count)]


def write(path, lines):
    path.write_bytes(support.jsonl(lines))
    return path


def models(server, *names):
    return [part for name in names for part in ("--upstream", f"{name}={server.url}")]


def evaluate(path, *arguments):
    done = support.quern("evaluate", path, "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def by_id(path):
    lines = path.read_text().splitlines()
    return {json.loads(line)["custom_id"]: line for line in lines}


def answer_of(line):
    line = json.loads(line)
    return line["response"]["body"], line["error"]


def confidence(line):
    body = answer_of(line)[0]
    if "answers" in body:
        return min(abs(2 * answer["probability"] - 1) for answer in body["answers"])
    said = [json.dumps(json.loads(choice["message"]["content"]), sort_keys=True)
            for choice in body["choices"]]
    return collections.Counter(said).most_common(1)[0][1] / len(said)


@pytest.mark.parametrize("lines, until", [(chats(60), 0.8), (decisions(60), 0.7)])
def test_its_answers_are_those_of_the_plain_runs(tmp_path, raters, lines, until):
    path = write(tmp_path / "in.jsonl", lines)
    plain = evaluate(path, *models(raters, "small", "large"), "-o", tmp_path / "plain")
    said = evaluate(path, *models(raters, "small", "large"), "--cascade", "small,large", "--until",
                    str(until), "-o", tmp_path / "both")
    small, large = by_id(tmp_path / "plain/small.jsonl"), by_id(tmp_path / "plain/large.jsonl")
    first, whole = by_id(tmp_path / "both/small.jsonl"), by_id(tmp_path / "both/cascade.jsonl")
    assert list(whole) == [line["custom_id"] for line in lines], "in the order of the requests"
    sure = {name for name, line in small.items() if confidence(line) >= until}
    assert 10 < len(sure) < 50, "the draw has both"
    for name, line in whole.items():
        if name in sure:
            assert line == first[name]
        assert answer_of(line) == answer_of((small if name in sure else large)[name])
    assert set(by_id(tmp_path / "both/large.jsonl")) == set(small) - sure
    stages = said["cascade"]["models"]
    ways = [json.loads(line) for line in (tmp_path / "both/cascade.lines").read_text().splitlines()]
    assert said["cascade"]["lines"] == "cascade.lines"
    assert ways == [{
        "custom_id": name, "model": "small" if name in sure else "large", "asked": [{
            "model": model, "confidence": pytest.approx(confidence(lines_of[name]))}
            for model, lines_of in (("small", small), ("large", large))][:1 if name in sure else 2]}
                    for name in whole]
    assert said["cascade"]["until"] == until
    assert [(stage["name"], stage["requests"], stage["answers"], stage["confidence_unknown"])
            for stage in stages] == [("small", 60, len(sure), 0),
                                     ("large", 60 - len(sure), 60 - len(sure), 0)]
    assert [stage["share"] for stage in stages] == [len(sure) / 60, (60 - len(sure)) / 60]
    for name in ("small", "cascade"):
        [model] = [model for model in said["models"] if model["name"] == name]
        assert (model["requests"], model["answered"]) == (60, 60)
    assert plain["models"][0]["prompt_tokens"] == said["models"][0]["prompt_tokens"]
    page = (tmp_path / "both/report.html").read_text()
    assert "<h2>Cascade</h2>" in page and "<h2>Cascade</h2>" not in (
        tmp_path / "plain/report.html").read_text()


def test_time_and_cost_are_the_sums_of_the_models(tmp_path, raters):
    path = write(tmp_path / "in.jsonl", chats(40))
    prices = ["--watts", "50", "--price-per-kwh", "0.4", "--input-price", "2", "--output-price", "3"]
    said = evaluate(path, *models(raters, "small", "large"), "--cascade", "small,large", *prices)
    small, large, whole = said["models"]
    stages = said["cascade"]["models"]
    assert whole["name"] == "cascade"
    for job in range(4):
        count = whole["jobs"][job]["requests"]
        late = stages[1]["requests_share"] * count
        seconds = sum(model["load_seconds"] for model in (small, large)) + count / small[
            "req_s"] + late / large["req_s"]
        assert whole["jobs"][job]["seconds"] == pytest.approx(seconds, rel=1e-6)
        paid = [count / 40 * stage["managed_api"] for stage in stages]
        assert whole["jobs"][job]["managed_api"] == pytest.approx(sum(paid), rel=1e-6)
    assert all(stage["electricity"] is not None for stage in stages)
    table = support.quern("evaluate", path, *models(raters, "small", "large"), "--cascade",
                          "small,large", *prices)
    assert f"{'large':28} {stages[1]['requests']:8} {stages[1]['answers']:8}" in table.stdout


def test_a_model_that_is_sure_of_all_or_of_nothing(tmp_path, raters):
    path = write(tmp_path / "in.jsonl", chats(10))
    arguments = [*models(raters, "small", "large"), "--cascade", "small,large"]
    said = evaluate(path, *arguments, "--until", "0", "-o", tmp_path / "all")
    assert [stage["answers"] for stage in said["cascade"]["models"]] == [10, 0]
    assert not (tmp_path / "all/large.jsonl").exists()
    assert said["models"][1]["summary"] is None and said["choice"]["model"] in ("small", "cascade")
    path = write(tmp_path / "one.jsonl", chats(10, n=1))
    said = evaluate(path, *arguments, "-o", tmp_path / "none")
    stages = said["cascade"]["models"]
    assert [stage["answers"] for stage in stages] == [0, 10]
    assert [stage["confidence_unknown"] for stage in stages] == [10, 10]
    done = support.quern("evaluate", path, *arguments, "-o", tmp_path / "none")
    assert "No answer of small has a confidence" in done.stdout


def test_killed_at_any_moment_it_ends_with_the_same_answers(tmp_path, raters):
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    path = write(tmp_path / "in.jsonl", chats(40))
    arguments = [*models(raters, "small", "large"), "--cascade", "small,large", "--compare-to",
                 "small"]
    wanted = evaluate(path, *arguments, "-o", tmp_path / "whole")
    command = [support.BINARY, "evaluate", path, "-o", tmp_path / "broken", *arguments]
    raters.delay = 0.01
    try:
        support.interrupt(command, rng, 0.9)
        said = evaluate(path, "-o", tmp_path / "broken", *arguments)
    finally:
        raters.delay = 0

    def lasting(folder, report):
        return [{name: model[name] for name in WHOLE} for model in report["models"]], [
            (stage["requests"], stage["answers"]) for stage in report["cascade"]["models"]
        ], report["agreement"], {
            name: answer_of(line) for name, line in by_id(tmp_path / folder / "cascade.jsonl").items()}

    assert lasting("broken", said) == lasting("whole", wanted)


@pytest.mark.parametrize("arguments, words", [
    (["--cascade", "small"], "'small' is one model"),
    (["--cascade", "small,none"], "no model is called 'none'"),
    (["--cascade", "small,small"], "has 'small' twice"),
    (["--cascade", "small,large", "--until", "2"], "--until"),
    (["--until", "0.5"], "--until goes with --cascade"),
    (["--cascade", "small,large", "--compare-to", "large"], "gets a part of the requests only"),
    (["--cascade", "small,large", "--upstream", "cascade=http://127.0.0.1:9/v1"],
     "two models are called 'cascade'"),
    (["--cascade", "small,large", "--until", "0.4"], "cascade: the folder has a run"),
    ([], "large: the folder has a run of this model with other options")])
def test_what_it_cannot_do_it_says(tmp_path, raters, arguments, words):
    path = write(tmp_path / "in.jsonl", chats(12))
    if "0.4" in arguments or not arguments:
        evaluate(path, *models(raters, "small", "large"), "--cascade", "small,large")
    done = support.quern("evaluate", path, *models(raters, "small", "large"), *arguments)
    assert done.returncode in (2, 3) and words in done.stderr, done.stderr
