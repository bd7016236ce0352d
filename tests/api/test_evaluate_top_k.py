# SPDX-License-Identifier: Apache-2.0
"""`quern evaluate --top-k`: on drawn workloads the best are those of a run of all requests, with the
same answers; what was computed is told; interruptions; what is refused."""
import json, random, time

import pytest

import support
from small_server import SmallServer

SEED = support.SEED
TINY = support.SHARED / "tiny/qwen3"


class Rater(SmallServer):
    """A model whose answers follow from the request alone: a rating, which is broken or refused for
    some, and decisions."""

    url = property(lambda self: f"{self.site}/v1")
    delay, asked = 0, 0

    def chat(self, body, rng):
        schema = body["response_format"]["json_schema"]["schema"]
        content = json.dumps({
            "score": rng.randrange(schema["properties"]["score"].get("maximum", 1000) + 1),
            "reason": "x" * rng.randrange(40)})
        return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
                "choices": [{"index": 0, "finish_reason": "stop", "message": {
                    "role": "assistant", "content": content}}]}

    def take(self, handler, body):
        if not body:
            return handler.answer(200, {"object": "list", "data": [
                {"id": "m", "object": "model", "created": 1}]})
        body = json.loads(body)
        self.asked += 1
        time.sleep(self.delay)
        text = body["input"] if "questions" in body else body["messages"][-1]["content"]
        if random.Random(f"refused {text}").random() < 0.1:
            return handler.answer(400, {"error": {"message": "not this one", "code": 400}})
        if "questions" in body:
            answer = {"object": "decision", "model": "m", "answers": [{
                "type": "predicate", "name": question["name"], "label_mass": 1.0,
                "probability": round(random.Random(f"{question['name']} {text}").random(), 2)}
                                                                      for question in body["questions"]]}
            prompt = 50 + 10 * len(body["questions"])
        else:
            answer, prompt = self.chat(body, random.Random(text)), 10
        return handler.answer(200, answer | {"usage": {
            "prompt_tokens": prompt, "completion_tokens": 5, "total_tokens": prompt + 5}})


@pytest.fixture(scope="module")
def rater():
    with Rater() as server:
        yield server


def chats(rng, count, maximum):
    limits = {"maximum": maximum} if maximum else {}
    return [support.request(f"c{i}", f"{rng.random()} applicant {i}", model="any", temperature=0,
                            max_tokens=30, response_format={
        "type": "json_schema", "json_schema": {"name": "r", "schema": {
            "type": "object", "properties": {
                "score": {"type": "integer", "minimum": 0, **limits},
                "reason": {"type": "string", "maxLength": 40}},
            "required": ["score", "reason"], "additionalProperties": False}}})
            for i in range(count)]


def decisions(rng, count):
    return [{"custom_id": f"d{i}", "method": "POST", "url": "/v1/decisions", "body": {
        "model": "any", "input": f"{rng.random()} applicant {i}", "questions": [
            {"type": "predicate", "name": name, "instructions": name}
            for name in ("remote", "fit", "near")]}} for i in range(count)]


def write(path, lines):
    path.write_bytes(support.jsonl(lines))
    return path


def evaluate(path, *arguments):
    done = support.quern("evaluate", path, "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["models"][0]


def results_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def value_of(line):
    if line["error"] or line["response"]["status_code"] != 200:
        return None
    body = line["response"]["body"]
    if "answers" in body:
        return next(one["probability"] for one in body["answers"] if one["name"] == "fit")
    try:
        return json.loads(body["choices"][0]["message"]["content"])["score"]
    except ValueError:
        return None


def best_of(lines, count):
    """The best of the results of all requests, of equal ones the first."""
    valued = [line for line in lines if value_of(line) is not None]
    return sorted(valued, key=lambda line: -value_of(line))[:count]


def answers_of(lines):
    return [(line["custom_id"], json.loads(support.masked(line))["response"]) for line in lines]


def draw(seed):
    rng = random.Random(seed)
    count, kind = rng.randrange(70, 150), rng.choice(["bounded", "free", "decisions"])
    lines = decisions(rng, count) if kind == "decisions" else chats(
        rng, count, rng.choice([1, 9, 99]) if kind == "bounded" else 0)
    return kind, lines, rng.choice([1, 3, 10, 40, 200])


@pytest.mark.parametrize("number", support.drawn(range(20), least=2))
def test_the_best_of_a_drawn_workload_are_those_of_the_whole_run(tmp_path, rater, number):
    print(f"seed {SEED}")
    kind, lines, count = draw(f"{SEED} {number}")
    path = write(tmp_path / "in.jsonl", lines)
    model = ["--upstream", f"m={rater.url}"]
    evaluate(path, *model, "-o", tmp_path / "all")
    rater.asked = 0
    said = evaluate(path, *model, "-o", tmp_path / "best", "--top-k", count, "--by",
                    "fit.probability" if kind == "decisions" else "score")
    wanted = best_of(results_of(tmp_path / "all/m.jsonl"), count)
    assert answers_of(results_of(tmp_path / "best/m.jsonl")) == answers_of(wanted)
    top = said["top_k"]
    assert (top["requests"], said["answered"]) == (len(lines), len(wanted))
    assert top["whole"] + top["short_only"] + top["left_out"] == len(lines)
    fates = results_of(tmp_path / "best/m.lines")
    assert [fate["custom_id"] for fate in fates] == [line["custom_id"] for line in lines]
    assert [sum(fate["computed"] == kind for fate in fates)
            for kind in ("whole", "short", "left_out")] == [
                top["whole"], top["short_only"], top["left_out"]]
    ranked = sorted((fate for fate in fates if fate["rank"]), key=lambda fate: fate["rank"])
    assert [(fate["custom_id"], fate["value"]) for fate in ranked] == [
        (line["custom_id"], value_of(line)) for line in wanted]
    assert all(fate["value"] is None for fate in fates if fate["computed"] == "left_out")
    done = [line for i in range(top["rounds"])
            for line in results_of(tmp_path / f"best/m.round-{i + 1}.jsonl")]
    assert len(done) == rater.asked and top["computed_tokens"] == sum(
        line["response"]["body"]["usage"]["total_tokens"] for line in done
        if line["response"]["status_code"] == 200)
    if kind == "free":
        assert (top["whole"], top["rounds"]) == (len(lines), 1), "nothing can be left out"
    assert kind != "bounded" or top["short_only"] == 0


def test_the_first_member_of_a_schema_is_computed_without_the_rest(tmp_path):
    if not TINY.exists():
        pytest.skip("shared/tiny is not here")
    lines = chats(random.Random(5), 60, 9)
    path = write(tmp_path / "in.jsonl", lines)
    model = ["--model", f"m={TINY}", "--device", "cpu"]
    evaluate(path, *model, "-o", tmp_path / "all")
    said = evaluate(path, *model, "-o", tmp_path / "best", "--top-k", "4", "--by", "score")
    whole = results_of(tmp_path / "all/m.jsonl")
    assert answers_of(results_of(tmp_path / "best/m.jsonl")) == answers_of(best_of(whole, 4))
    assert said["top_k"]["short_only"] > 0 and said["top_k"]["computed_share"] < 1


def test_killed_at_any_moment_it_finds_the_same(tmp_path, rater):
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    path = write(tmp_path / "in.jsonl", decisions(rng, 80))
    arguments = ["--upstream", f"m={rater.url}", "--top-k", "5", "--by", "fit.probability"]
    wanted = evaluate(path, *arguments, "-o", tmp_path / "whole")
    command = [support.BINARY, "evaluate", path, "-o", tmp_path / "broken", *arguments]
    rater.delay = 0.01
    try:
        support.interrupt(command, rng, 0.9)
        said = evaluate(path, "-o", tmp_path / "broken", *arguments)
    finally:
        rater.delay = 0
    assert said["top_k"] == wanted["top_k"]
    assert answers_of(results_of(tmp_path / "broken/m.jsonl")) == answers_of(
        results_of(tmp_path / "whole/m.jsonl"))


@pytest.mark.parametrize("arguments, words", [
    (["--top-k", "3"], "go together"),
    (["--by", "score"], "go together"),
    (["--top-k", "3", "--by", "fit"], "no answer of m has 'fit' as a number"),
    (["--top-k", "3", "--by", "score", "--cascade", "m,m"], "does not go with --cascade"),
    (["--top-k", "2", "--by", "score"], "with other options")])
def test_what_it_cannot_do_it_says(tmp_path, rater, arguments, words):
    path = write(tmp_path / "in.jsonl", chats(random.Random(1), 12, 9))
    model = ["--upstream", f"m={rater.url}"]
    if "2" in arguments:
        evaluate(path, *model)
    done = support.quern("evaluate", path, *model, *arguments)
    assert done.returncode in (2, 3) and words in done.stderr, done.stderr
