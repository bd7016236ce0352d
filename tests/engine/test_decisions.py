# SPDX-License-Identifier: Apache-2.0
"""/v1/decisions, live and as lines of batches: probabilities against a softmax in float64 over
reference logits, the same bits however the reads are computed, what the openai client reads, and
what is refused."""
import json, math

import openai
import pytest

import support

URL = "/v1/decisions"
TINY = support.SHARED / "tiny"
STATE = "Résumé of Ada Example. Ten years of servers, two of data pipelines. " + "She writes plainly and answers mail within a day. " * 8
TEXT = "Works remotely?"
LAST = "Answer with the letter of one option only."
pytestmark = pytest.mark.skipif(not TINY.exists(), reason="shared/tiny is not here")


def predicate(name=None, text=TEXT):
    return {"type": "predicate", "instructions": text, **({"name": name} if name else {})}


def choice(count, name="team"):
    return {
        "type": "choice", "name": name, "instructions": "Which team?",
        "choices": [{"value": f"team {i}"} for i in range(count)]}


SCORE = {
    "type": "score", "name": "fit", "instructions": "How good a fit?",
    "levels": [{"label": "weak"}, {"label": "fair", "description": "some of it"}, {
        "label": "strong"}]}
MIXED = {
    "type": "choice", "instructions": "Which?", "choices": [{"value": True}, {
        "value": "true", "description": "the text"}]}
QUESTIONS = [predicate("remote"), choice(4), SCORE, MIXED]
# Prompt format 1, written out.
BLOCKS = [f"Question: {TEXT}\nA: false\nB: true\n{LAST}",
          f'Question: Which team?\nA: "team 0"\nB: "team 1"\nC: "team 2"\nD: "team 3"\n{LAST}',
          f"Question: How good a fit?\nA: weak\nB: fair - some of it\nC: strong\n{LAST}",
          f'Question: Which?\nA: true\nB: "true" - the text\n{LAST}']


def body(questions=QUESTIONS, model="smollm2", text=STATE):
    return {"model": model, "input": text, "questions": questions}


def shares_of(answer):
    if answer["type"] == "predicate":
        return [1 - answer["probability"], answer["probability"]]
    return [entry["probability"] for entry in answer["probabilities"]]


def softmax(values):
    weights = [math.exp(value - max(values)) for value in values]
    return [weight / math.fsum(weights) for weight in weights]


def label_ids(server, text, count):
    """The token that each of the first letters adds behind the text, which has its control
    tokens."""
    before = server.json("POST", "/tokenize",
                         {"prompt": text, "add_special_tokens": False})["tokens"]
    found = []
    for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[:count]:
        ids = server.json("POST", "/tokenize",
                          {"prompt": text + letter, "add_special_tokens": False})["tokens"]
        assert ids[:-1] == before
        found.append(ids[-1])
    return found


def token_count(family):
    """Tokens of the vocabulary: rows of the matrix behind them are padding, which no token has."""
    read = json.loads((TINY / family / "tokenizer.json").read_text())
    return max([*read["model"]["vocab"].values(), *(token["id"]
                                                    for token in read["added_tokens"])]) + 1


# --- probabilities ---

@pytest.mark.parametrize("family", ["llama3", "mistral", "qwen2", "qwen3", "gemma3"])
def test_the_probabilities_are_those_of_the_reference_in_every_family(tmp_path, family):
    """A template that writes a prompt of shared/tiny whatever it is asked, so that the logits are
    known: those of transformers."""
    compared = 0
    for case in json.loads((TINY / family / "reference.json").read_text())["cases"]:
        text = support.quern("tokenize",
                             "--model",
                             TINY / family,
                             "--decode",
                             "--special",
                             input=json.dumps(case["ids"])).stdout.removesuffix("\n")
        state = tmp_path / f"state-{len(case['ids'])}"
        with support.serving(state, "--model", f"m={TINY / family}", "--reference",
                             "--chat-template", "{{ " + json.dumps(text) + " }}") as server:
            if server.json(
                    "POST", "/tokenize",
                {"messages": [{"role": "user", "content": "x"}]})["tokens"] != case["ids"]:
                continue  # a prompt that no text of its own has
            answer = server.json("POST", URL, body([choice(5), predicate()], "m"))
            ids = label_ids(server, text, 5)
            logits = case["last_logits"][:token_count(family)]
            expected = softmax([logits[i] for i in ids])
            assert max(
                abs(a - b)
                for a, b in zip(shares_of(answer["answers"][0]), expected, strict=True)) <= 1e-5
            assert abs(answer["answers"][0]["label_mass"] - sum(softmax(logits)[i]
                                                                for i in ids)) <= 1e-5
            assert abs(answer["answers"][1]["probability"] - softmax([logits[i]
                                                                      for i in ids[:2]])[1]) <= 1e-5
            assert answer["usage"]["input_tokens"] == 2 * len(case["ids"])
            compared += 1
    assert compared > 0


@pytest.mark.parametrize("path", ["fast", "reference"])
def test_each_question_has_the_prompt_of_format_1(tmp_path, path):
    """Prompts written out here, rendered as chats and given to `quern logits`. The slow path has
    one."""
    arguments = ["--reference"] if path == "reference" else []
    count = 1 if path == "reference" else len(BLOCKS)
    text = STATE[:80]
    with support.serving(tmp_path / "state", "--model", "smollm2", *arguments) as server:
        answers = server.json("POST", URL, body(QUESTIONS[:count], text=text))["answers"]
        prompts = [
            server.json("POST", "/tokenize",
                        {"messages": [{"role": "user", "content": f"{text}\n\n{block}"}]})["tokens"]
            for block in BLOCKS[:count]]
        ids = label_ids(server, "<|im_start|>assistant\n", 4)
    lines = "".join(
        json.dumps({"ids": prompt, "positions": [-1], "top": 49152}) + "\n" for prompt in prompts)
    done = support.quern("logits", "--model", "smollm2", "--batch", *arguments, input=lines)
    assert done.returncode == 0, done.stderr
    for answer, line in zip(answers, done.stdout.splitlines(), strict=True):
        logits = dict(map(tuple, json.loads(line)["positions"][0]["top"]))
        shares = shares_of(answer)
        expected = softmax([logits[i] for i in ids[:len(shares)]])
        assert max(abs(a - b) for a, b in zip(shares, expected, strict=True)) <= 1e-5
        most = max(logits.values())
        whole = math.fsum(math.exp(logit - most) for logit in logits.values())
        assert abs(answer["label_mass"] -
                   sum(math.exp(logits[i] - most) for i in ids[:len(shares)]) / whole) <= 1e-5


def test_the_prompts_can_be_rendered(tmp_path):
    """`quern render --decision` shows the prompts that the engine computes, on both routes."""
    text = STATE[:80]
    wished = body(text=text)
    states = {
        "model": "smollm2", "state": text, "questions": {
            "a": {"type": "noul", "instructions": "Is it?"}}}
    done = support.quern("render", "--model", "smollm2", "--decision", input=json.dumps(wished))
    assert done.returncode == 0, done.stderr
    shown = [json.loads(line) for line in done.stdout.splitlines()]
    chats = "".join(
        json.dumps({
            "messages": [{"role": "user", "content": f"{text}\n\n{block}"}],
            "add_generation_prompt": True}) + "\n" for block in BLOCKS)
    prompts = [
        json.loads(line) for line in support.quern(
            "render", "--model", "smollm2", "--batch", input=chats).stdout.splitlines()]
    assert [one["prompt"] for one in shown] == prompts
    assert [one["question"] for one in shown] == [
        question.get("name") for question in wished["questions"]]
    assert all(one["labels"] == list("ABCDEFGH")[:len(one["labels"])] for one in shown)
    done = support.quern("render",
                         "--model",
                         "smollm2",
                         "--decision",
                         "--batch",
                         input=f"{json.dumps(states)}\n{{}}\n")
    [one], refused = map(json.loads, done.stdout.splitlines())
    assert one["question"] == "a" and one["labels"] == [
        "no", "yes"] and "Answer with yes or no only." in one["prompt"] and "error" in refused
    assert support.quern("render", "--decision", "--template", tmp_path / "x",
                         input="{}").returncode == 2
    with support.serving(tmp_path / "state", "--model", "smollm2") as server:
        assert server.json("POST", URL,
                           wished)["usage"]["input_tokens"] == sum(one["tokens"] for one in shown)
        said = server.json("GET", "/v1/models/smollm2")
        assert said["capabilities"] == ["completion", "decision"
                                        ] and said["decision_prompt_format"] == 1


def test_the_bits_do_not_depend_on_how_the_reads_are_computed(tmp_path):
    questions = QUESTIONS + [choice(26), choice(30), predicate("last", "Is this the last one?")]
    found, text = [], STATE[:160]
    for i, arguments in enumerate([(), ("--max-num-seqs", "1", "--threads", "1"),
                                   ("--max-num-batched-tokens", "48"),
                                   ("--no-enable-prefix-caching", )]):
        with support.serving(tmp_path / f"state-{i}", "--model", "smollm2", *arguments) as server:
            for _ in range(2):  # the second finds its prompts computed
                found.append(server.json("POST", URL, body(questions, text=text))["answers"])
            alone = [
                server.json("POST", URL, body([question], text=text))["answers"][0]
                for question in questions[:3]]
            assert alone == found[0][:3]
    assert all(answers == found[0] for answers in found)


# --- counting ---

def test_the_text_is_computed_once(tmp_path):
    with support.serving(tmp_path / "state", "--model", "smollm2") as server:
        usage = server.json("POST", URL,
                            body([predicate(text=f"Is number {i} right?")
                                  for i in range(20)]))["usage"]
        count = server.json("POST", "/tokenize", {"prompt": STATE})["count"]
    assert usage["output_tokens"] == usage["output_tokens_details"]["reasoning_tokens"] == 0
    assert usage["total_tokens"] == usage["input_tokens"] > 20 * count
    computed = usage["input_tokens"] - usage["input_tokens_details"]["cached_tokens"]
    own = usage["input_tokens"] / 20 - count
    assert computed <= count + 20 * (own + 15)


# --- clients ---

def test_the_openai_client_reads_every_type(model_server):
    client = openai.OpenAI(base_url=model_server.url, api_key="none", max_retries=0, timeout=300)
    if not hasattr(client, "decisions"):
        pytest.skip("this openai client has no decisions")
    made = client.decisions.create(**body([predicate(), SCORE, MIXED, choice(2), choice(60)]))
    first, score, mixed, two, many = made.answers
    assert first.type == "predicate" and first.name is None and 0 <= first.probability <= 1
    assert score.type == "score" and 0 <= score.score <= 2 and [
        p.label for p in score.probabilities] == ["weak", "fair", "strong"]
    assert mixed.choice in (True, "true") and [p.value
                                               for p in mixed.probabilities] == [True, "true"]
    assert two.name == "team" and len(many.probabilities) == 60  # labels of two letters
    for answer in (score, mixed, two, many):
        assert abs(math.fsum(p.probability for p in answer.probabilities) -
                   1) <= 1e-12 and 0 <= answer.confidence <= 1
    assert made.usage.input_tokens == made.usage.total_tokens
    assert made.usage.input_tokens_details.cache_write_tokens == 0


def test_an_input_may_be_items(model_server):
    said = body([predicate()], text="a\n\nb")
    items = [{"role": "user", "content": "a"}, {
        "type": "message", "role": "user", "content": [{"type": "input_text", "text": "b"}]}]
    assert model_server.json("POST", URL, said)["answers"] == model_server.json(
        "POST", URL, {**said, "input": items})["answers"]


@pytest.mark.parametrize("change, code, param", [
    ({"input": None}, "missing_required_parameter", "input"),
    ({"questions": []}, "array_below_min_length", "questions"),
    ({"questions": [predicate()] * 401}, "array_above_max_length", "questions"),
    ({"questions": [choice(256)]}, "array_above_max_length", "questions[0].choices"),
    ({"questions": [choice(3), {**choice(2), "choices": [{"value": "a"}, {"value": "a"}]}]
      }, "invalid_value", "questions[1].choices[1].value"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]
      }, "unsupported_parameter", "input[0].content[0].type"),
    ({"stream": True}, "invalid_value", "stream"),
    ({"temperature": 0}, "invalid_value", "temperature"),
    ({"input": "word " * 20000}, "context_length_exceeded", "input"), ])
def test_what_is_wrong_is_refused_by_name(model_server, change, code, param):
    error = model_server.json("POST", URL, {**body(), **change}, status=400)["error"]
    assert error["code"] == code and error["param"] == param and param.split(
        "[")[0] in error["message"]


def test_harmless_fields_are_taken(model_server):
    extra = {
        "stream": False, "safety_identifier": "s", "prompt_cache_key": None,
        "prompt_cache_options": {"mode": "implicit"}, "temperature": 1}
    assert model_server.json("POST", URL,
                             {**body([predicate()]), **extra})["answers"][0]["type"] == "predicate"


@pytest.mark.parametrize("family", ["llama3", "mistral", "qwen2", "qwen3", "gemma3"])
def test_a_template_may_end_without_a_control_token(tmp_path, family):
    with support.serving(tmp_path / "state", "--model", f"m={TINY / family}") as server:
        answers = server.json(
            "POST", URL,
            body([predicate(), choice(3), SCORE, choice(30)], "m", "A short text."))["answers"]
    assert all(abs(math.fsum(shares_of(answer)) - 1) <= 1e-12 for answer in answers)


def test_a_model_without_a_chat_template_is_refused(tmp_path):
    (tmp_path / "bare").mkdir()
    for file in (TINY / "qwen3").glob("*.[js]*"):
        if file.name != "tokenizer_config.json":
            (tmp_path / "bare" / file.name).symlink_to(file)
    with support.serving(tmp_path / "state", "--model", f"m={tmp_path / 'bare'}") as server:
        error = server.json("POST", URL, body(model="m"), status=400)["error"]
    assert error["code"] == "unsupported_model" and error["param"] == "model"


# --- batches ---

def line(custom_id, **change):
    return {"custom_id": custom_id, "method": "POST", "url": URL, "body": {**body(), **change}}


def test_lines_of_a_batch_have_the_answers_of_single_requests(tmp_path):
    with support.serving(tmp_path / "state", "--model", "smollm2") as server:
        lines = [
            line("a"),
            line("b", input="Another text."),
            line("same as a"),
            line("bad", questions=[choice(2), {"type": "yes_no"}]),
            support.request("chat", "hello", temperature=0, max_tokens=2)]
        batch = server.wait(server.create(support.jsonl(lines), endpoint=URL)["id"])
        output, errors = server.results(batch)
        assert batch["request_counts"] == {"total": 5, "completed": 4, "failed": 1}
        found = {entry["custom_id"]: entry["response"]["body"] for entry in output}
        assert found["a"]["answers"] == found["same as a"]["answers"] == server.json(
            "POST", URL, lines[0]["body"])["answers"]
        assert found["b"]["answers"] == server.json("POST", URL, lines[1]["body"])["answers"]
        assert found["chat"]["choices"]
        assert errors[0]["custom_id"] == "bad" and errors[0]["response"]["status_code"] == 400
        assert errors[0]["response"]["body"]["error"]["param"] == "questions[1].type"
        chat = found["chat"]["usage"]
        assert batch["usage"]["input_tokens"] == sum(
            found[name]["usage"]["input_tokens"]
            for name in ("a", "b", "same as a")) + chat["prompt_tokens"]
        assert batch["usage"]["output_tokens"] == chat["completion_tokens"]
        assert server.stop() == 0
    support.fsck(tmp_path / "state")


@pytest.mark.parametrize("change, code, param, words", [
    ({"input": None}, "invalid_request", "body.input", "Input parameter is required."),
    ({"questions": None}, "invalid_request", "body.questions", "Questions parameter is required."),
    ({"stream": True}, "streaming_unsupported", "body.stream", "Streaming"),
])
def test_a_batch_is_checked_before_it_runs(model_server, change, code, param, words):
    batch = model_server.wait(
        model_server.create(support.jsonl([line("good"), line("bad", **change)]),
                            endpoint=URL)["id"])
    assert batch["status"] == "failed"
    [error] = batch["errors"]["data"]
    assert error["code"] == code and error["param"] == param and error[
        "line"] == 2 and words in error["message"]


def test_the_profile_of_openai_has_no_batches_of_decisions(tmp_path):
    with support.serving(tmp_path / "state", "--model", "smollm2=echo", "--profile",
                         "openai") as server:
        file = server.upload(support.jsonl([line("a")]))
        file = file if isinstance(file, str) else file["id"]
        for url in (URL, "/v1/systemone"):
            error = server.json(
                "POST",
                "/v1/batches", {"input_file_id": file, "endpoint": url, "completion_window": "24h"},
                status=400)["error"]
            assert error["code"] == "invalid_value" and error[
                "param"] == "endpoint" and url in error["message"]


def test_preflight_counts_every_read(tmp_path):
    (tmp_path / "in.jsonl").write_bytes(
        support.jsonl([line(f"l{i}", input=f"{i}. {STATE}")
                       for i in range(3)] + [line("bad", questions=[])]))
    with support.serving(tmp_path / "state", "--model", "smollm2") as server:
        tokens = sum(
            server.json("POST", URL,
                        line("", input=f"{i}. {STATE}")["body"])["usage"]["input_tokens"]
            for i in range(3))
    done = support.quern("preflight", tmp_path / "in.jsonl", "--model", "smollm2", "--json",
                         "--pilot", "0")
    said = json.loads(done.stdout)
    assert (said["token_counts"], said["requests"], said["faulty"]) == ("exact", 4, 1), done.stderr
    assert said["prompt_tokens"] == tokens
