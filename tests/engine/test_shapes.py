# SPDX-License-Identifier: Apache-2.0
"""Answers held to a shape: JSON schemas drawn by a seed, regular expressions, choices, on the
default model at temperature 1.

An answer that ends with "stop" is valid by the plain validator below, which knows nothing of
quern's grammars."""
import json, random, re

import pytest

import support


def valid(schema, value):
    """Whether the value keeps the schema, for the keywords that `draw` uses."""
    if "anyOf" in schema:
        return any(valid(one, value) for one in schema["anyOf"])
    if "enum" in schema:
        return any(value == one and type(value) is type(one) for one in schema["enum"])
    kind = schema["type"]
    if kind == "null":
        return value is None
    if kind == "boolean":
        return isinstance(value, bool)
    if kind in ("integer", "number"):
        good = isinstance(value, int if kind == "integer" else
                          (int, float)) and not isinstance(value, bool)
        return good and schema.get("minimum", value) <= value <= schema.get("maximum", value)
    if kind == "string":
        return (isinstance(value, str)
                and schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
                and re.search(schema.get("pattern", ""), value) is not None)
    if kind == "array":
        return (isinstance(value, list)
                and schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
                and all(valid(schema["items"], item) for item in value))
    order = [name for name in schema["properties"]
             if name in value] if isinstance(value, dict) else None
    return (isinstance(value, dict) and list(value) == order
            and set(schema["required"]) <= set(value)
            and all(valid(schema["properties"][name], item) for name, item in value.items()))


def draw(rng, depth):
    """A random schema; objects only down to `depth`."""
    kind = rng.choice(["object", "array"] if depth == 2 else
                      ["string", "integer", "number", "enum", "any", "null", "boolean", "pattern"] +
                      ["object", "array"] * (depth > 0))
    if kind == "object":
        names = rng.sample(["name", "age", "über", "a b", 'q"uote', "notes", "kind"],
                           rng.randint(1, 4))
        return {
            "type": "object", "properties": {name: draw(rng, depth - 1)
                                             for name in names}, "required": [
                                                 name for name in names if rng.random() < 0.7],
            "additionalProperties": False}
    if kind == "array":
        low = rng.randint(0, 2)
        return {
            "type": "array", "items": draw(rng, depth - 1), "minItems": low,
            "maxItems": low + rng.randint(0, 2)}
    if kind == "any":
        return {"anyOf": [draw(rng, 0), draw(rng, 0)]}
    if kind == "enum":
        return {"enum": rng.sample(["yes", "no", "né\n", 1, 20, -3, None, True, 2.5], 3)}
    if kind == "string":
        low = rng.randint(0, 4)
        return {"type": "string", "minLength": low, "maxLength": low + rng.randint(0, 12)}
    if kind == "pattern":
        return {
            "type": "string", "pattern": rng.choice([
                "^[a-z]{2,6}$", "^\\d{3}-\\d{4}$", "^(red|green) (car|bus)$", "^[^0-9]{1,5}$"])}
    if kind in ("integer", "number"):
        low = rng.randint(-200, 200)
        return {"type": kind, "minimum": low, "maximum": low + rng.randint(0, 300)}
    return {"type": kind}


def ask(server, **options):
    body = {
        "model": "smollm2", "messages": [{"role": "user", "content": "Give me something."}],
        "temperature": 1, "max_tokens": 150, **options}
    return server.json("POST", "/v1/chat/completions", body)["choices"]


def of_schema(schema):
    return {
        "type": "json_schema", "json_schema": {"name": "shape", "strict": True, "schema": schema}}


@pytest.mark.parametrize("seed", range(12))
def test_answers_are_valid_for_drawn_schemas(model_server, seed):
    schema = draw(random.Random(seed), 2)
    choices = ask(model_server, response_format=of_schema(schema), n=3, seed=seed)
    for choice in choices:
        if choice["finish_reason"] == "stop":
            assert valid(schema, json.loads(choice["message"]["content"])), (schema, choice)
        else:
            assert choice["finish_reason"] == "length"


def test_json_objects_choices_and_regular_expressions(model_server):
    for choice in ask(model_server, response_format={"type": "json_object"}, n=4, seed=3):
        assert choice["finish_reason"] == "length" or isinstance(
            json.loads(choice["message"]["content"]), dict)
    for field in ({"structured_outputs": {"choice": ["yes", "no", "not sure"]}}, {
            "guided_choice": ["yes", "no", "not sure"]}):
        for choice in ask(model_server, n=4, seed=3, **field):
            assert choice["message"]["content"] in (
                "yes", "no", "not sure") and choice["finish_reason"] == "stop"
    for field in ({"structured_outputs": {"regex": r"\d{3}-[a-f]{2,4}(!|\?)"}}, {
            "guided_regex": r"^\d{3}-[a-f]{2,4}(!|\?)$"}):
        for choice in ask(model_server, n=4, seed=3, **field):
            assert re.fullmatch(r"\d{3}-[a-f]{2,4}(!|\?)", choice["message"]["content"])


def test_rules_hold_answers(model_server):
    rules = 'root ::= sum "=" [0-9]+\nsum ::= sum "+" term | term\nterm ::= [0-9]{1,3} | "(" sum ")"'
    for field in ({"structured_outputs": {"grammar": rules}}, {"guided_grammar": rules}):
        for choice in ask(model_server, n=4, seed=3, **field):
            text, before = re.sub(r"\d+", "n", choice["message"]["content"]), None
            while text != before:
                text, before = text.replace("(n)", "n").replace("n+n", "n"), text
            assert choice["finish_reason"] == "length" or text == "n=n"


def test_structural_tags_hold_calls_between_free_text(model_server):
    call = {
        "type": "tag", "begin": "<call>", "content": {
            "type": "json_schema", "json_schema": {"type": "integer"}}, "end": "</call>"}
    forced = {
        "type": "tags_with_separator", "tags": [call], "separator": "\n", "at_least_one": True,
        "stop_after_first": True}
    for field in ({"response_format": {"type": "structural_tag", "format": forced}}, {
            "structured_outputs": {
                "structural_tag": json.dumps({"type": "structural_tag", "format": forced})}}):
        for choice in ask(model_server, n=3, seed=3, **field):
            assert re.fullmatch(r"<call>-?\d+</call>",
                                choice["message"]["content"]) or choice["finish_reason"] == "length"
    older = {
        "type": "structural_tag", "triggers": ["<call>"], "structures": [{
            "begin": "<call>", "schema": {"type": "integer"}, "end": "</call>"}]}
    for choice in ask(model_server, n=3, seed=3, response_format=older):
        text = choice["message"]["content"]
        assert re.fullmatch(r"([^<]|<(?!call>)|<call>-?\d+</call>)*", text,
                            re.S) or choice["finish_reason"] == "length"


def test_the_shape_wins_over_other_fields_of_sampling(model_server):
    schema = {
        "type": "object", "properties": {"a": {"type": "integer", "minimum": 10, "maximum": 99}},
        "required": ["a"], "additionalProperties": False}
    for options in ({"temperature": 0}, {"bad_words": ["{"]}, {"logit_bias": {"107": -100}}, {
            "presence_penalty": 2, "repetition_penalty": 1.9}, {"top_k": 1}, {"top_p": 0.01}, {
                "min_tokens": 40}, {"allowed_token_ids": [5, 6]}, {
                    "logprobs": True, "top_logprobs": 3}):
        choice = ask(model_server, response_format=of_schema(schema), seed=1, **options)[0]
        assert valid(schema, json.loads(choice["message"]["content"])), options
    ended = ask(model_server,
                response_format=of_schema(schema),
                seed=1,
                ignore_eos=True,
                max_tokens=40)[0]
    assert valid(schema, json.loads(
        ended["message"]["content"])) and ended["finish_reason"] == "length"
    cut = ask(model_server, response_format=of_schema(schema), seed=1, max_tokens=2)[0]
    assert cut["finish_reason"] == "length"


def test_a_stream_has_the_text_of_the_plain_answer(model_server):
    schema = draw(random.Random(5), 2)
    plain = ask(model_server, response_format=of_schema(schema), seed=9)[0]["message"]["content"]
    body = {
        "model": "smollm2", "messages": [{"role": "user",
                                          "content": "Give me something."}], "temperature": 1,
        "max_tokens": 150, "seed": 9, "stream": True, "response_format": of_schema(schema)}
    status, data = model_server.call("POST", "/v1/chat/completions", body)
    assert status == 200
    chunks = [
        json.loads(line[6:]) for line in data.decode().split("\n") if line.startswith("data: {")]
    assert "".join(chunk["choices"][0]["delta"].get("content") or ""
                   for chunk in chunks
                   if chunk["choices"]) == plain


def test_text_completions_have_shapes_too(model_server):
    body = {
        "model": "smollm2", "prompt": ["The colour is ", "My age is "], "max_tokens": 20,
        "structured_outputs": {"regex": "[a-z]{3}"}}
    for choice in model_server.json("POST", "/v1/completions", body)["choices"]:
        assert re.fullmatch("[a-z]{3}", choice["text"])


@pytest.mark.parametrize("fields, param, words", [
    ({"response_format": of_schema({"properties": {"a": {"not": {}}}})
      }, "response_format", "$.properties.a: the keyword 'not' is not supported"),
    ({"response_format": of_schema({"type": "string", "format": "iban"})
      }, "response_format", "the format 'iban' is not supported"),
    ({"guided_regex": "(?<=a)b"}, "guided_regex", "look-around"),
    ({"guided_grammar": "root ::= a\na ::= b"
      }, "guided_grammar", "line 2 of the grammar: the rule 'b' is not there"),
    ({"structured_outputs": {"regex": "a", "choice": ["a"]}
      }, "structured_outputs.choice", "only use one"), ],
                         ids=lambda value: value if isinstance(value, str) else "")
def test_what_cannot_be_held_is_refused_by_name(model_server, fields, param, words):
    body = {
        "model": "smollm2", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5,
        **fields}
    error = model_server.json("POST", "/v1/chat/completions", body, status=400)["error"]
    assert error["param"] == param and words in error["message"]


def shaped_lines():
    """Lines that end in each way a model's own answers can, some of them equal, and some that ask
    for no shape."""
    integer = {
        "type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
        "additionalProperties": False}
    whole = {"structured_outputs": {"choice": ["yes", "no"]}, "max_tokens": 20}
    ways = [
        whole, {**whole, "temperature": 0}, {
            "response_format": of_schema(integer), "max_tokens": 2},
        {**whole, "stop": ["e", "o"]}, {"response_format": {"type": "text"}, "max_tokens": 2}, {
            "max_tokens": 2}, {**whole, "n": 2}, {**whole, "max_tokens": 10**6}]
    return [
        support.request(f"c{i}-{j}", "Yes or no?", **({"temperature": 1, "seed": j} | way))
        for i, way in enumerate(ways)
        for j in range(6)]


EXPECTED = {
    "asked": 36, "valid": 18, "truncated": 12, "repaired": 0, "unchecked": 0, "refused": 0,
    "mismatched": 0, "failed": 6}


def shaped_metrics(server):
    text = server.call("GET", "/metrics")[1].decode()
    return {
        end: int(count)
        for end, count in re.findall(r'^quern_shaped_lines_total\{end="(\w+)"\} (\d+)$', text, re.M)
    }


def test_a_batch_counts_how_its_shapes_ended_over_a_kill(tmp_path):
    state, lines = tmp_path / "state", shaped_lines()
    with support.serving(state, "--model", "smollm2") as server:
        batch = server.create(support.jsonl(lines))
        support.until(lambda: server.batch(batch["id"])["request_counts"]["completed"] > 0)
        server.kill()
    support.fsck(state)
    with support.serving(state, "--model", "smollm2") as server:
        batch = server.wait(batch["id"])
        assert (batch["request_counts"]["completed"], batch["request_counts"]["failed"]) == (42, 6)
        assert batch["quern"]["quality"]["shapes"] == EXPECTED
        assert server.stop() == 0
    with support.serving(state, "--model", "smollm2") as server:
        assert server.batch(batch["id"])["quern"]["quality"]["shapes"] == EXPECTED
        again = server.wait(server.create(
            support.jsonl(lines))["id"])  # nearly all of it with answers that were kept
        assert again["quern"]["quality"]["shapes"] == EXPECTED and again["usage"][
            "input_tokens_details"]["deduplicated_tokens"] > 0
        assert shaped_metrics(server) == {
            end: EXPECTED[end]
            for end in ("valid", "truncated", "unchecked", "refused", "mismatched", "failed")}
        assert server.stop() == 0
    support.fsck(state)


def test_a_run_ends_with_the_table_of_its_shapes(tmp_path):
    (tmp_path / "in.jsonl").write_bytes(support.jsonl(shaped_lines()))
    arguments = [
        "run", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", "--model", "smollm2",
        "--quiet", "--overwrite"]
    done = support.quern(*arguments)
    assert "Shapes: 18 of 36 answers valid (50.0 %), 12 truncated, 0 repaired, 0 refused, 6 failed" in done.stderr, done.stderr
    assert json.loads(support.quern(*arguments, "--json").stdout)["shapes"] == EXPECTED
