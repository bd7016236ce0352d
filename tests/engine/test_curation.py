# SPDX-License-Identifier: Apache-2.0
"""Curators over answers that tell how uncertain the model was: decisions of both routes and chats
with logprobs, by the default model. The queue of the most uncertain, the schema made of questions,
and corrected decisions that `quern calibrate` and `quern compare` read."""
import json, math

import pytest

import support

QUESTIONS = [{"type": "predicate", "name": "remote", "instructions": "Works remotely?"}, {
    "type": "choice", "name": "team", "instructions": "Which team?", "choices": [{"value": "ops"}, {
        "value": "data"}, {"value": True}]}, {
            "type": "score", "instructions": "How good?", "levels": [{"label": "weak"}, {
                "label": "fair"}, {"label": "strong"}]}]
SYSTEMONE = {
    "remote": {"type": "noul", "instructions": "Works remotely?"}, "team": {
        "type": "choice", "instructions": "Which team?", "criteria": {"ops": None, "data": None}},
    "fit": {"type": "score", "instructions": "How good?", "criteria": ["weak", "fair", "strong"]}}
TEXTS = [
    "writes shell scripts at home", "builds tables in Berlin", "hires people",
    "reads logs at night", "trains models", "answers the phone"]


def make(server, lines, endpoint):
    return server.wait(server.create(support.jsonl(lines), endpoint=endpoint)["id"])["id"]


@pytest.fixture(scope="module", params=["/v1/decisions", "/v1/systemone"])
def decided(model_server, request):
    """(route, batch, its result lines)"""
    lines = [{
        "custom_id": f"c-{i}", "method": "POST", "url": request.param, "body": {
            "model": "smollm2",
            **({"input": text, "questions": QUESTIONS} if request.param == "/v1/decisions" else {
                   "state": text, "questions": SYSTEMONE})}} for i, text in enumerate(TEXTS)]
    batch = make(model_server, lines, request.param)
    return request.param, batch, model_server.results(model_server.batch(batch))[0]


def shares_of(answer):
    truth = answer.get("probability", answer.get("noul"))
    if truth is not None:
        return [truth, 1 - truth]
    shares = answer["probabilities"]
    return list(shares.values()) if isinstance(shares, dict) else [
        share["probability"] for share in shares]


def entropy_of(line):
    answers = line["response"]["body"]["answers"]
    answers = list(answers.values()) if isinstance(answers, dict) else answers
    return sum(
        -p * math.log(p) for answer in answers for p in shares_of(answer) if p > 0) / len(answers)


def made(server, path):
    """The response about a batch once its answers are read."""
    support.until(lambda: server.json("GET", path)["is_made"])
    return server.json("GET", path)


def cards(server, batch, query):
    return made(server, f"/v1/batches/{batch}/cards?limit=50&{query}")["data"]


def judge(server, batch, custom_id, verdict="accepted", fields=None):
    body = {
        "custom_id": custom_id, "id": f"only-of-{custom_id}", "version": 0, "curator": "Ana",
        "verdict": verdict, "fields": fields}
    assert server.call("POST", f"/v1/batches/{batch}/judgements", body)[0] == 200


def test_the_most_uncertain_decisions_come_first(model_server, decided):
    _, batch, lines = decided
    wanted = sorted(((entropy_of(line), line["custom_id"]) for line in lines),
                    key=lambda pair: -pair[0])
    found = cards(model_server, batch, "queue=uncertain&judged=any")
    assert [card["custom_id"] for card in found] == [custom_id for _, custom_id in wanted]
    assert [card["uncertainty"] for card in found] == [
        pytest.approx(entropy, rel=1e-4) for entropy, _ in wanted]
    first = made(model_server, f"/v1/batches/{batch}/cards?queue=uncertain&judged=any&limit=2")
    then = model_server.json(
        "GET",
        f"/v1/batches/{batch}/cards?queue=uncertain&judged=any&limit=50&after={first['after']}")
    assert [card["custom_id"] for card in first["data"] + then["data"]] == [
        custom_id for _, custom_id in wanted]


def test_the_card_of_a_decision_has_values_by_question(model_server, decided):
    route, batch, lines = decided
    names = ["remote", "team", "2"] if route == "/v1/decisions" else ["remote", "team", "fit"]
    for card, line in zip(cards(model_server, batch, "judged=any"), lines, strict=True):
        assert list(card["answer"]) == names
        answers = line["response"]["body"]["answers"]
        remote, team, fit = answers if isinstance(answers, list) else answers.values()
        levels = shares_of(fit)
        assert card["answer"] == {
            names[0]: shares_of(remote)[0] >= 0.5, names[1]: team["choice"], names[2]: levels.index(
                max(levels))}
    options = ["ops", "data", True] if route == "/v1/decisions" else ["ops", "data"]
    assert made(model_server, f"/v1/batches/{batch}/schema")["schema"] == {
        "type": "object", "properties": {
            names[0]: {"type": "boolean", "description": "Works remotely?"}, names[1]: {
                "enum": options, "description": "Which team?"}, names[2]: {
                "type": "integer", "minimum": 0, "maximum": 2, "description": "How good?"}}}


def test_corrected_decisions_are_read_by_calibrate_and_compare(model_server, decided, tmp_path):
    route, batch, lines = decided
    last = "2" if route == "/v1/decisions" else "fit"
    shown = {card["custom_id"]: card["answer"] for card in cards(model_server, batch, "judged=any")}
    right = {custom_id: dict(answer) for custom_id, answer in shown.items()}
    for custom_id, fields in (("c-1", {"remote": not shown["c-1"]["remote"],
                                       "no question": 1}), ("c-2", {"team": "data", last: 0})):
        judge(model_server, batch, custom_id, "corrected", fields)
        right[custom_id].update({
            name: value
            for name, value in fields.items()
            if name in right[custom_id]})
    judge(model_server, batch, "c-0")
    judge(model_server, batch, "c-3", "skipped")
    files = {}
    for form in ("calibrate", "compare", "few_shot"):
        status, files[form] = model_server.call(
            "GET", f"/v1/batches/{batch}/judgements/export?format={form}")
        assert status == 200
    assert files["few_shot"] == b""  # a decision is no chat
    labelled = [json.loads(line) for line in files["calibrate"].splitlines()]
    assert {line["custom_id"]: line["expected"]
            for line in labelled} == {name: right[name]
                                      for name in ("c-0", "c-1", "c-2")}
    (tmp_path / "labelled.jsonl").write_bytes(files["calibrate"])
    (tmp_path / "right.jsonl").write_bytes(files["compare"])
    (tmp_path / "answers.jsonl").write_bytes(support.jsonl(lines))
    done = support.quern("calibrate", tmp_path / "labelled.jsonl", "--answers",
                         tmp_path / "answers.jsonl", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["lines"], said["unanswered"], [
        question["cases"] for question in said["questions"]]) == (3, 0, [3, 3, 3])
    done = support.quern("compare", tmp_path / "answers.jsonl", tmp_path / "right.jsonl", "--json")
    assert done.returncode == 0, done.stderr
    fields = {field["name"]: field for field in json.loads(done.stdout)["fields"]}
    assert (fields["remote"]["rows"], fields["remote"]["equal"]) == (3, 2)
    assert fields["team"]["equal"] == 3 - (shown["c-2"]["team"] != "data")


def test_chats_with_logprobs_are_ordered_by_their_tokens(model_server):
    lines = [
        support.request(f"c-{i}",
                        text,
                        max_tokens=4,
                        temperature=0,
                        **({"logprobs": True} if i != 2 else {}))
        for i, text in enumerate(TEXTS[:5])]
    batch = make(model_server, lines, "/v1/chat/completions")
    told = {}
    for line in model_server.results(model_server.batch(batch))[0]:
        tokens = (line["response"]["body"]["choices"][0].get("logprobs") or {}).get("content") or []
        if tokens:
            told[line["custom_id"]] = -sum(token["logprob"] for token in tokens) / len(tokens)
    found = cards(model_server, batch, "queue=uncertain")
    assert len(told) == 4 and [card["custom_id"]
                               for card in found] == sorted(told, key=lambda name: -told[name])
    assert [card["uncertainty"] for card in found] == [
        pytest.approx(told[card["custom_id"]], rel=1e-4, abs=1e-6) for card in found]
