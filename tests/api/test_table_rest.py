# SPDX-License-Identifier: Apache-2.0
"""Tables of results that do not fit into rows: nothing of them is lost, and no cell is empty
without a word."""
import csv, json, os

import pytest

import support
from small_server import SmallServer

SCHEMA = {
    "type": "object", "properties": {"score": {"type": "integer"}, "reason": {"type": "string"}},
    "required": ["score"], "additionalProperties": False}


def choice(content, index=0, **message):
    return {
        "index": index, "message": {"role": "assistant", "content": content, **message},
        "finish_reason": "stop"}


def result(custom_id, *choices, **more):
    return json.dumps({
        "id": "r", "custom_id": custom_id, "response": {
            "status_code": 200, "body": {"choices": list(choices)}}, "error": None, **more}) + "\n"


def table(folder, results, ids="abcd", *words):
    (folder / "in.jsonl").write_bytes(support.jsonl([support.request(each, each) for each in ids]))
    (folder / "results.jsonl").write_text(results)
    done = support.quern("table", "in.jsonl", "results.jsonl", "-o", "out.csv", *words, cwd=folder)
    rows = {row["custom_id"]: row
            for row in csv.DictReader(open(folder /
                                           "out.csv", newline=""))} if (folder /
                                                                        "out.csv").exists() else {}
    rest = folder / "out.csv.rest.jsonl"
    return done, rows, rest.read_text() if rest.exists() else None


def test_a_damaged_result_is_named_in_its_row(tmp_path):
    good = result("a", choice("A"))
    cut = result("b", choice("PAID"))[:-20] + "\n"
    nan = result("c", choice("C"), logprob=float("nan"))
    foreign = result("z", choice("Z"))
    noise = "<html>502</html>\n"
    done, rows, rest = table(tmp_path, good + noise + cut + nan + foreign)
    assert done.returncode == 1, done.stderr
    assert rows["a"] == {"custom_id": "a", "answer": "A", "error": "", "finish_reason": "stop"}
    assert rows["b"]["error"].startswith(
        "unreadable_result: Line 3 of results.jsonl: not valid JSON")
    assert rows["c"]["error"].startswith(
        "unreadable_result: Line 4 of results.jsonl: not valid JSON")
    assert rows["d"]["error"] == "no_result: No file of results has this line."
    assert sorted(rest.splitlines()) == sorted((noise + cut + nan + foreign).splitlines())
    for said in (
            "1 request has no result",
            "3 lines cannot be read as results; the first is results.jsonl: line 2: not valid JSON",
            "1 result belongs to no request; the first is results.jsonl: line 5: custom_id 'z'",
            "out.csv.rest.jsonl"):
        assert said in done.stderr, (said, done.stderr)


def test_of_a_damaged_and_a_good_line_the_good_one_counts(tmp_path):
    good = result("a", choice("A"))
    for lines in (good + good[:-9] + "\n", good[:-9] + "\n" + good):
        done, rows, rest = table(tmp_path, lines, "a", "--overwrite")
        assert done.returncode == 1 and rows["a"][
            "answer"] == "A" and rest == good[:-9] + "\n", done.stderr


def test_a_second_choice_stands_in_the_second_file(tmp_path):
    two = result("a", choice("SECOND", 1), choice("FIRST", 0))
    calls = result("b", choice("", tool_calls=[{"function": {"name": "find"}}]))
    both = result("c", choice("I look.", tool_calls=[{"function": {"name": "find"}}]))
    done, rows, rest = table(tmp_path, two + calls + both, "abc")
    assert done.returncode == 0, done.stderr
    assert rows["a"]["answer"] == "FIRST" and "find" in rows["b"]["answer"] and rows["c"][
        "answer"] == "I look."
    assert rest == two + both and "2 results have more than the row shows" in done.stderr
    (tmp_path / "out.csv").unlink()
    again, _, rest = table(tmp_path, two + calls + both, "abc")
    assert again.returncode == 7 and "out.csv.rest.jsonl exists" in again.stderr and not (
        tmp_path / "out.csv").exists() and rest == two + both
    done, rows, rest = table(tmp_path, calls, "b", "--overwrite")
    assert done.returncode == 0 and not done.stderr


@pytest.mark.parametrize("lines,said", [
    ([{"custom_id": "a"}, {"custom_id": "a"}
      ], "in.jsonl: line 2: an earlier request has its custom_id"),
    (['{"custom_id": "a", "body": {"mess'], "in.jsonl: line 1: it is no request"), ])
def test_requests_that_cannot_be_read_are_refused(tmp_path, lines, said):
    (tmp_path / "in.jsonl").write_text("".join(
        (line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    (tmp_path / "results.jsonl").write_text(result("a", choice("A")))
    done = support.quern("table", "in.jsonl", "results.jsonl", "-o", "out.csv", cwd=tmp_path)
    assert done.returncode == 3 and said in done.stderr, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "results.jsonl"]


class Upstream(SmallServer):
    """Answers each chat with the body that its message names."""

    def __init__(self, bodies):
        super().__init__()
        self.bodies = bodies

    def take(self, handler, body):
        if not body:
            return handler.answer(
                200, {"object": "list", "data": [{"id": "fake", "object": "model", "created": 1}]})
        return handler.answer(
            200, {
                "id": "x", "object": "chat.completion", "created": 1, "model": "fake",
                **self.bodies[json.loads(body)["messages"][-1]["content"]], "usage": {
                    "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}})


BODIES = {
    "Ann": {"choices": [choice("SECOND", 1), choice("FIRST", 0)]}, "Bob": {
        "choices": [choice("ONE")]}}


def run(folder, up, *words, env=None, out="out.csv"):
    (folder / "in.csv").write_text("name\nAnn\nBob\n")
    (folder / "p.jinja").write_text("{{ name }}")
    return support.quern("run",
                         "-i",
                         "in.csv",
                         "--prompt",
                         "p.jinja",
                         "-o",
                         out,
                         "--upstream",
                         f"up={up.site},models=fake",
                         *words,
                         cwd=folder,
                         env={**os.environ, **(env or {})})


def test_a_run_keeps_what_its_table_does_not_show(tmp_path):
    with Upstream(BODIES) as up:
        done = run(tmp_path, up)
        assert done.returncode == 0 and "1 result has more than the table shows: whole in out.csv.rest.jsonl" in done.stderr, done.stderr
        assert [
            row["answer"] for row in csv.DictReader(open(tmp_path / "out.csv", newline=""))] == [
                "FIRST", "ONE"]
        rest = [
            json.loads(line) for line in (tmp_path / "out.csv.rest.jsonl").read_text().splitlines()]
        assert [line["custom_id"] for line in rest] == ["1"] and "SECOND" in json.dumps(rest)
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            "in.csv", "out.csv", "out.csv.manifest.json", "out.csv.manifest.salts.json",
            "out.csv.rest.jsonl", "p.jinja"]
        (tmp_path / "out.csv").unlink()
        (tmp_path / "out.csv.rest.jsonl").unlink()
        (tmp_path / "out.csv.rest.jsonl").write_text("of another\n")
        done = run(tmp_path, up, "--json")
        assert done.returncode == 7 and "out.csv.rest.jsonl" in done.stderr and (
            tmp_path / "out.csv.rest.jsonl").read_text() == "of another\n", done.stderr
        (tmp_path / "out.csv.rest.jsonl").unlink()
        done = run(tmp_path, up, "--json")
        assert done.returncode == 0 and json.loads(done.stdout)["rest"] == 1, done.stderr


def test_a_killed_run_makes_both_files_again(tmp_path):
    """A kill at each rename: of the one that names the rest, too, which the next call then knows as
    its own."""
    with Upstream(BODIES) as up:
        died = 0
        for at in range(1, 20):
            done = run(tmp_path, up, env={"QUERN_FAULT": f"rename:{at}:KILL"})
            died += done.returncode == -9
            if done.returncode == 0:
                break
        assert done.returncode == 0 and died > 1, done.stderr
        assert "SECOND" in (tmp_path / "out.csv.rest.jsonl").read_text() and "FIRST" in (
            tmp_path / "out.csv").read_text()


def test_an_answer_in_another_form_stands_in_its_row(tmp_path):
    (tmp_path / "s.json").write_text(json.dumps(SCHEMA))
    with Upstream({
            "Ann": {"choices": [choice('```json\n{"score": 7}\n```')]}, "Bob": {
                "choices": [choice('{"score": 8}')]}}) as up:
        done = run(tmp_path, up, "--schema", "s.json")
    rows = list(csv.DictReader(open(tmp_path / "out.csv", newline="")))
    assert done.returncode == 1 and [row["score"] for row in rows] == ["", "8"], done.stderr
    assert rows[0]["error"].startswith("schema_mismatch: ") and rows[0]["error"].endswith(
        'invalid_answer: ```json\n{"score": 7}\n```')
