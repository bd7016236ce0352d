# SPDX-License-Identifier: Apache-2.0
"""`quern calibrate`: made-up answers whose true temperature is known, on both routes; a real model
from the labelled lines to requests with the temperatures; what is refused."""
import json, math, os, random

import pytest

import support

NAMES = ["ops", "data", "hr"]
QUESTIONS = [{"type": "predicate", "name": "remote", "instructions": "?"}, {
    "type": "choice", "name": "team", "instructions": "?",
    "choices": [{"value": name} for name in NAMES] + [{"value": True}]}, {
        "type": "score", "instructions": "?", "levels": [{"label": "weak"}, {"label": "fair"}, {
            "label": "strong"}]}]
SYSTEMONE = {
    "remote": {"type": "noul"}, "team": {
        "type": "choice", "criteria": {**dict.fromkeys(NAMES), "true": None}}, "2": {
                                           "type": "score", "criteria": ["weak", "fair", "strong"]}}


def shares(logs, temperature):
    weights = [math.exp(log / temperature) for log in logs]
    return [weight / sum(weights) for weight in weights]


def answers_of(drawn, is_systemone):
    """The answers of a server to the three questions with these log probabilities."""
    remote, team, fit = (shares(logs, 1) for logs in drawn)
    if is_systemone:
        return {
            "remote": {"type": "noul", "noul": remote[1]},
            "team": {"type": "choice", "probabilities": dict(zip([*NAMES, "true"], team))}, "2": {
                "type": "score", "probabilities": {str(i): share
                                                   for i, share in enumerate(fit)}}}
    return [{"type": "predicate", "name": "remote", "probability": remote[1]}, {
        "type": "choice", "name": "team", "probabilities": [
            {"value": value, "probability": share} for value, share in zip([*NAMES, True], team)]},
            {
                "type": "score", "name": None, "probabilities": [{
                    "value": i, "label": "x", "probability": share}
                                                                 for i, share in enumerate(fit)]}]


def made_up(folder, temperatures, is_systemone=False, lines=4000, asked=1.0):
    """Files whose truths are drawn from the answers' probabilities at known temperatures."""
    rng, labelled, answers = random.Random(5), [], []
    for i in range(lines):
        drawn = [[rng.uniform(-5, 0) for _ in range(count)] for count in (2, 4, 3)]
        truths = [
            rng.choices(range(len(logs)), shares(logs, temperature))[0]
            for logs, temperature in zip(drawn, temperatures)]
        expected = {
            "remote": bool(truths[0]), "team": [*NAMES,
                                                "true" if is_systemone else True][truths[1]],
            "2": ["weak", "fair", "strong"][truths[2]] if i % 2 else truths[2]}
        body = {
            "model": "m", "temperature": asked,
            **({"state": "x", "questions": SYSTEMONE} if is_systemone else {
                   "input": "x", "questions": QUESTIONS})}
        labelled.append({
            "custom_id": f"l{i} é", "method": "POST",
            "url": "/v1/systemone" if is_systemone else "/v1/decisions", "body": body,
            "expected": expected})
        body = {
            "model": "m", "answers": answers_of([[log / asked for log in logs] for logs in drawn],
                                                is_systemone)}
        answers.append({
            "custom_id": f"l{i} é", "response": {"status_code": 200, "body": body}, "error": None})
    rng.shuffle(answers)
    (folder / "labelled.jsonl").write_bytes(support.jsonl(labelled))
    (folder / "answers.jsonl").write_bytes(support.jsonl(answers))
    return labelled, answers


def calibrate(folder, *arguments, **keywords):
    return support.quern("calibrate", folder / "labelled.jsonl", "--answers",
                         folder / "answers.jsonl", *arguments, **keywords)


@pytest.mark.parametrize("is_systemone, asked", [(False, 1.0), (False, 2.5), (True, 1.0)])
def test_the_true_temperature_of_each_question_is_found(tmp_path, is_systemone, asked):
    made_up(tmp_path, (1.0, 0.5, 2.5), is_systemone, asked=asked)
    done = calibrate(tmp_path, "--json", "-o", tmp_path / "t.json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["lines"], said["unanswered"]) == (4000, 0)
    assert json.loads((tmp_path / "t.json").read_text()) == {"temperatures": said["temperatures"]}
    for question, name, truth in zip(said["questions"], ("remote", "team", "2"), (1.0, 0.5, 2.5),
                                     strict=True):
        assert question["name"] == name and question["cases"] == 4000
        assert said["temperatures"][name] == question["temperature"] and abs(
            question["temperature"] / truth - 1) < 0.1
        assert question["log_loss"]["after"] <= question["log_loss"]["before"]
        assert question["ece"]["after"] < 0.03
        if truth != 1:
            assert question["ece"]["before"] > 2 * question["ece"]["after"]


def test_the_table_names_questions_and_lines_without_answers(tmp_path):
    _, answers = made_up(tmp_path, (1.0, 1.0, 1.0), lines=40)
    answers[0]["response"]["status_code"] = 500
    (tmp_path / "answers.jsonl").write_bytes(support.jsonl(answers[:39]))
    done = calibrate(tmp_path)
    assert done.returncode == 0 and "2 of 40 lines have no answer" in done.stderr
    for name in ("remote", "team", "2"):
        row = next(line for line in done.stdout.splitlines() if line.split()[0] == name)
        assert row.split()[1] == "38" and "few cases" in row


@pytest.mark.parametrize("change, words", [
    (lambda line: line.pop("expected"), "no object 'expected'"),
    (lambda line: line["expected"].update(team="nobody"),
     "what it expects of 'team' is none of its options"),
    (lambda line: line["expected"].update(remote="true"), "what it expects of 'remote'"),
    (lambda line: line["expected"].update({"2": 3}), "what it expects of '2'"),
    (lambda line: line["expected"].update(unknown=True), "an answer to no question"),
    (lambda line: line.update(url="/v1/chat/completions"),
     "neither /v1/decisions nor /v1/systemone"),
    (lambda line: line["body"].update(questions=[]), "questions"), ])
def test_a_line_that_cannot_be_used_is_named(tmp_path, change, words):
    labelled, _ = made_up(tmp_path, (1.0, 1.0, 1.0), lines=5)
    change(labelled[2])
    (tmp_path / "labelled.jsonl").write_bytes(support.jsonl(labelled))
    done = calibrate(tmp_path)
    assert done.returncode == 3 and "labelled.jsonl, line 3: " in done.stderr and words in done.stderr


def test_answers_to_other_questions_are_refused(tmp_path):
    _, answers = made_up(tmp_path, (1.0, 1.0, 1.0), lines=5)
    answers[1]["response"]["body"]["answers"] = answers[1]["response"]["body"]["answers"][:2]
    (tmp_path / "answers.jsonl").write_bytes(support.jsonl(answers))
    done = calibrate(tmp_path)
    assert done.returncode == 3 and "answer is one to other questions" in done.stderr
    assert support.quern("calibrate", tmp_path / "labelled.jsonl", "--answers",
                         tmp_path / "none").returncode == 4
    assert support.quern("calibrate").returncode == 2


@pytest.mark.skipif(not (support.SHARED / "tiny").exists(), reason="shared/tiny is not here")
def test_a_model_is_asked_once_and_its_temperatures_go_into_requests(tmp_path):
    words = "river stone lantern market winter engine garden copper".split()
    lines = [{
        "custom_id": f"l{i}", "method": "POST", "url": "/v1/decisions", "expected": {
            "about": i % 3 == 0}, "body": {
                "model": "smollm2", "input": f"A note about the {words[i % 8]} of {words[i % 5]}.",
                "questions": [{
                    "type": "predicate", "name": "about",
                    "instructions": f"Is it about a {words[(i + i % 3) % 8]}?"}]}}
             for i in range(12)]
    (tmp_path / "in.jsonl").write_bytes(support.jsonl(lines))
    command = ("calibrate", tmp_path / "in.jsonl", "--model", "smollm2", "--json", "-o",
               tmp_path / "t.json")
    done = support.quern(*command)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["questions"][0]["cases"] == 12 and (tmp_path / "in.jsonl.answers").exists()
    assert support.quern(*command).stdout == done.stdout  # the answers are there: nothing is asked
    temperatures = json.loads((tmp_path / "t.json").read_text())
    with support.serving(tmp_path / "state", "--model", "smollm2") as server:
        plain = server.json("POST", "/v1/decisions", lines[0]["body"])["answers"][0]["probability"]
        cooled = server.json("POST", "/v1/decisions",
                             {**lines[0]["body"], **temperatures})["answers"][0]["probability"]
    logit = math.log(plain / (1 - plain)) / temperatures["temperatures"]["about"]
    assert abs(cooled - 1 / (1 + math.exp(-logit))) < 1e-9


def test_the_file_of_temperatures_is_whole_and_nothing_else_is_replaced(tmp_path):
    made_up(tmp_path, (1.0, 1.0, 1.0), lines=60)
    output = tmp_path / "t.json"
    command = ("-o", output)
    done = calibrate(tmp_path, *command)
    assert done.returncode == 0, done.stderr
    text = output.read_text()
    assert list(json.loads(text)) == ["temperatures"] and calibrate(tmp_path, *
                                                                    command).returncode == 0
    output.write_text("mine")
    done = calibrate(tmp_path, *command)
    assert done.returncode == 7 and "--overwrite" in done.stderr and output.read_text() == "mine"
    # A failed write, sync or rename leaves what was there.
    for call in ("write", "fsync", "rename"):
        done = calibrate(tmp_path,
                         *command,
                         "--overwrite",
                         env={**os.environ, "QUERN_FAULT": f"{call}:1:EIO"})
        assert done.returncode != 0 and output.read_text() == "mine", (call, done.stderr)
    assert calibrate(tmp_path, *command,
                     "--overwrite").returncode == 0 and output.read_text() == text
    assert calibrate(tmp_path, "-o", tmp_path).returncode == 2
    assert not list(tmp_path.glob("*.tmp"))
