# SPDX-License-Identifier: Apache-2.0
"""/v1/systemone, live and as lines of batches: its own words, read with the logits of `quern
logits`; the bodies that LiteLLM sends and what its reader needs; temperatures of /v1/decisions and
of /v1/systemone."""
import json, math

import pytest

import support

URL = "/v1/systemone"
DECISIONS = "/v1/decisions"
TINY = support.SHARED / "tiny"
STATE = "Ten years of servers, two of data pipelines. Lives by the sea and takes the train."
LETTER, WORD, NUMBER = ("Answer with the letter of one option only.", "Answer with yes or no only.",
                        "Answer with the number of one level only.")
pytestmark = pytest.mark.skipif(not TINY.exists(), reason="shared/tiny is not here")

# One call of litellm.decisions to a provider without /v1/decisions (decisions.md 1.8), and the
# blocks of prompt format 1 for it.
LITELLM = {"p": {"type": "noul", "instructions": "is it?"},
           "c": {"type": "choice", "instructions": "w?", "criteria": {"x": None, "true": "d"}},
           "s": {"type": "score", "instructions": "s?", "criteria": ["lo: low one", "hi"]}}
BLOCKS = {
    "p": f"Question: is it?\nyes\nno\n{WORD}", "c": f"Question: w?\nA: x\nB: true - d\n{LETTER}",
    "s": f"Question: s?\n0: lo: low one\n1: hi\n{NUMBER}",
    "sides": f"yes: by train\nno: by car\n{WORD}"}
LABELS = {"p": ["no", "yes"], "c": ["A", "B"], "s": ["0", "1"], "sides": ["no", "yes"]}
SIDES = {"type": "noul", "criteria": {"false": "by car", "true": "by train"}}


def body(questions=None, state=STATE, **more):
    return {"model": "smollm2", "state": state, "questions": questions or LITELLM, **more}


def shares_of(answer):
    if answer["type"] == "noul":
        return [1 - answer["noul"], answer["noul"]]
    return list(answer["probabilities"].values())


def softmax(values):
    weights = [math.exp(value - max(values)) for value in values]
    return [weight / math.fsum(weights) for weight in weights]


def token_behind(server, text, label):
    before, after = (server.json("POST", "/tokenize",
                                 {"prompt": t, "add_special_tokens": False})["tokens"]
                     for t in (text, text + label))
    assert after[:-1] == before
    return after[-1]


@pytest.mark.parametrize("path", ["fast", "reference"])
def test_each_question_has_the_prompt_of_format_1(tmp_path, path):
    arguments = ["--reference"] if path == "reference" else []
    questions = {"sides": SIDES} if path == "reference" else {**LITELLM, "sides": SIDES}
    with support.serving(tmp_path / "state", "--model", "smollm2", *arguments) as server:
        answers = server.json("POST", URL, body(questions, instructions="Be strict."))["answers"]
        prompts = [
            server.json(
                "POST", "/tokenize", {
                    "messages": [{"role": "system", "content": "Be strict."}, {
                        "role": "user", "content": f"{STATE}\n\n{BLOCKS[name]}"}]})["tokens"]
            for name in questions]
        ids = {
            label: token_behind(server, "<|im_start|>assistant\n", label)
            for label in ("no", "yes", "A", "B", "0", "1")}
    lines = "".join(
        json.dumps({"ids": prompt, "positions": [-1], "top": 49152}) + "\n" for prompt in prompts)
    done = support.quern("logits", "--model", "smollm2", "--batch", *arguments, input=lines)
    assert done.returncode == 0, done.stderr
    assert list(answers) == list(questions)
    for name, line in zip(questions, done.stdout.splitlines(), strict=True):
        logits = dict(map(tuple, json.loads(line)["positions"][0]["top"]))
        expected = softmax([logits[ids[label]] for label in LABELS[name]])
        assert max(abs(a - b)
                   for a, b in zip(shares_of(answers[name]), expected, strict=True)) <= 1e-5, name
        most = max(logits.values())
        mass = sum(math.exp(logits[ids[label]] - most) for label in LABELS[name]) / math.fsum(
            math.exp(logit - most) for logit in logits.values())
        assert abs(answers[name]["label_mass"] - mass) <= 1e-5


def test_what_the_reader_of_litellm_needs_is_there(model_server):
    read = model_server.json("POST", URL, body(state="t"))
    assert set(read) == {"model", "answers", "usage"
                         } and read["usage"]["output_tokens"] == 0 < read["usage"]["input_tokens"]
    p, c, s = (read["answers"][name] for name in "pcs")
    assert p["type"] == "noul" and 0 <= p["noul"] <= 1
    assert c["choice"] in ("x", "true") and list(c["probabilities"]) == [
        "x", "true"] and 0 <= c["confidence"] <= 1
    assert s["legend"] == {"0": "lo: low one", "1": "hi"} and list(s["probabilities"]) == [
        "0", "1"] and 0 <= s["confidence"] <= 1
    assert abs(s["score"] - s["probabilities"]["1"]) < 1e-12
    # Its health probe.
    probe = model_server.json(
        "POST", URL,
        body({
            "0": {
                "type": "choice", "instructions": "Is the service reachable?", "criteria": {
                    "yes": None, "no": None}}}))
    assert probe["answers"]["0"]["choice"] in ("yes", "no")


def test_a_state_of_json_is_shown_as_python_writes_it(model_server):
    state = {"name": "Ada é", "years": [3, 4.5, None], "remote": True}
    answers = [
        model_server.json("POST", URL, body(state=text))["answers"]
        for text in (state, json.dumps(state, ensure_ascii=False))]
    assert answers[0] == answers[1]


@pytest.mark.parametrize("change, code, param", [
    ({"state": None}, "missing_required_parameter", "state"),
    ({"questions": []}, "invalid_type", "questions"),
    ({"questions": {"q": {"type": "box"}}}, "invalid_value", "questions.q.type"),
    ({"questions": {"q": {"type": "choice", "criteria": {str(i): None
                                                         for i in range(256)}}}
      }, "array_above_max_length", "questions.q.criteria"),
    ({"images": ["x"]}, "unsupported_parameter", "images"),
    ({"temperature": 0}, "invalid_value", "temperature"),
    ({"temperatures": {"p": "warm"}}, "invalid_type", "temperatures.p"),
    ({"stream": True}, "invalid_value", "stream"),
    ({"state": "word " * 20000}, "context_length_exceeded", "state"), ])
def test_what_is_wrong_is_refused_by_name(model_server, change, code, param):
    error = model_server.json("POST", URL, {**body(), **change}, status=400)["error"]
    assert error["code"] == code and error["param"] == param


@pytest.mark.parametrize("family", ["llama3", "mistral", "qwen2", "qwen3", "gemma3"])
def test_every_family_answers_or_names_the_labels_it_lacks(tmp_path, family):
    """The vocabularies of shared/tiny are small: some have no token for "yes"."""
    with support.serving(tmp_path / "state", "--model", f"m={TINY / family}") as server:
        for name, question in LITELLM.items():
            status, answer = server.call("POST", URL, {**body({name: question}), "model": "m"})
            read = json.loads(answer)
            if status == 400:
                assert name != "c" and read["error"][
                    "code"] == "unsupported_model" and "token of its own" in read["error"]["message"]
            else:
                assert status == 200 and abs(math.fsum(shares_of(read["answers"][name])) -
                                             1) <= 1e-12


# --- temperatures ---

def test_temperatures_divide_log_probabilities_on_both_routes(model_server):
    plain = model_server.json("POST", URL, body())["answers"]
    cooled = model_server.json("POST", URL, body(temperature=2, temperatures={"c": 0.5}))["answers"]
    for name, temperature in (("p", 2), ("c", 0.5), ("s", 2)):
        expected = softmax([math.log(share) / temperature for share in shares_of(plain[name])])
        assert max(
            abs(a - b) for a, b in zip(shares_of(cooled[name]), expected, strict=True)) < 1e-9, name
        assert plain[name]["label_mass"] == cooled[name]["label_mass"]
    asked = {
        "model": "smollm2", "input": STATE, "questions": [{
            "type": "predicate", "name": "a", "instructions": "is it?"}, {
                "type": "predicate", "instructions": "is it?"}]}
    one = model_server.json("POST", DECISIONS, asked)["answers"][0]["probability"]
    first, second = (answer["probability"] for answer in model_server.json(
        "POST", DECISIONS, {**asked, "temperatures": {"a": 1.0, "1": 3}})["answers"])
    assert first == one and abs(second - softmax([math.log(1 - one) /
                                                  3, math.log(one) / 3])[1]) < 1e-9


# --- batches ---

def line(custom_id, url=URL, **change):
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": {**body(), **change}}


def test_lines_of_a_batch_have_the_answers_of_single_requests_and_equal_ones_run_once(tmp_path):
    with support.serving(tmp_path / "state", "--model", "smollm2") as server:
        asked = {
            "model": "smollm2", "input": STATE, "questions": [{
                "type": "predicate", "instructions": "is it?"}]}
        lines = [
            line("a"),
            line("same"),
            line("warm", temperature=2),
            line("bad", questions={"q": {"type": "?"}}), {
                "custom_id": "d", "method": "POST", "url": DECISIONS, "body": asked}, {
                    "custom_id": "d warm", "method": "POST", "url": DECISIONS,
                    "body": {**asked, "temperatures": {"0": 4}}}]
        batch = server.wait(server.create(support.jsonl(lines), endpoint=URL)["id"])
        output, errors = server.results(batch)
        found = {entry["custom_id"]: entry["response"]["body"] for entry in output}
        assert batch["request_counts"] == {"total": 6, "completed": 5, "failed": 1
                                           } and errors[0]["custom_id"] == "bad"
        assert found["a"] == found["same"] and found["a"]["answers"] == server.json(
            "POST", URL, body())["answers"]
        assert found["warm"]["answers"] == server.json(
            "POST", URL, body(temperature=2))["answers"] != found["a"]["answers"]
        assert found["d"]["answers"] != found["d warm"]["answers"]
        assert server.stop() == 0
    support.fsck(tmp_path / "state")


@pytest.mark.parametrize("change, code, param", [
    ({"state": None}, "invalid_request", "body.state"),
    ({"questions": None}, "invalid_request", "body.questions"),
])
def test_a_batch_is_checked_before_it_runs(model_server, change, code, param):
    batch = model_server.wait(
        model_server.create(support.jsonl([line("good"), line("bad", **change)]),
                            endpoint=URL)["id"])
    assert batch["status"] == "failed"
    [error] = batch["errors"]["data"]
    assert error["code"] == code and error["param"] == param and error["line"] == 2


def test_preflight_counts_every_read(tmp_path):
    (tmp_path / "in.jsonl").write_bytes(
        support.jsonl([line(f"l{i}", state=f"{i}. {STATE}") for i in range(3)]))
    with support.serving(tmp_path / "state", "--model", "smollm2") as server:
        tokens = sum(
            server.json("POST", URL, body(state=f"{i}. {STATE}"))["usage"]["input_tokens"]
            for i in range(3))
    done = support.quern("preflight", tmp_path / "in.jsonl", "--model", "smollm2", "--json",
                         "--pilot", "0")
    said = json.loads(done.stdout)
    assert (said["token_counts"], said["requests"], said["faulty"],
            said["prompt_tokens"]) == ("exact", 3, 0, tokens), done.stderr
