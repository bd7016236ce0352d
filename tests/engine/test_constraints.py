# SPDX-License-Identifier: Apache-2.0
"""No constraint is ignored in silence: 200 bodies per worker, drawn by a seed, with constraints in
the spellings of many servers, and in spellings of nobody. Each answer is held to its constraint, or
its request is refused by the member's name; alone, as a line, in a run and in a preflight."""
import json, os, random, re

import pytest

import support
import upstream

SEED = int(os.environ["QUERN_SEED"]) if os.environ.get("QUERN_SEED", "").isdigit() else 20261128
COUNT = 200
SCHEMA = {
    "type": "object", "properties": {"answer": {"type": "integer", "minimum": 7, "maximum": 9}},
    "required": ["answer"], "additionalProperties": False}
CHOICES, REGEX, RULES = ["yes", "no"], "(yes|no)!", 'root ::= "yes" | "no"'
TOOL = {"name": "judge", "description": "Judges.", "parameters": SCHEMA}
STRICT = {"type": "function", "function": {**TOOL, "strict": True}}
AS_TEXT = json.dumps(SCHEMA)


def is_object(text):
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def keeps_schema(text):
    return is_object(text) and json.loads(text) in ({"answer": 7}, {"answer": 8}, {"answer": 9})


def is_choice(text):
    return text in CHOICES


def is_word(text):
    return re.fullmatch(REGEX, text) is not None


# Where a value stands, and what the text must then be.
KNOWN = [(("response_format", ), {"type": "json_object"}, is_object),
         (("response_format", ), {"type": "json_object", "schema": SCHEMA}, keeps_schema),
         (("response_format", ), {
             "type": "json_schema", "json_schema": {"name": "a", "strict": True,
                                                    "schema": SCHEMA}}, keeps_schema),
         (("response_format", ), {"type": "json_schema", "schema": SCHEMA}, keeps_schema),
         (("response_format", ), {
             "type": "json_schema", "name": "a", "strict": True, "schema": SCHEMA}, keeps_schema),
         (("response_format", ), {"type": "json", "value": SCHEMA}, keeps_schema),
         (("response_format", ), {"type": "regex", "pattern": REGEX}, is_word),
         (("response_format", ), {"type": "regex", "regex": REGEX}, is_word),
         (("response_format", ), {"type": "grammar", "grammar": RULES}, is_choice),
         (("guided_json", ), SCHEMA, keeps_schema), (("guided_json", ), AS_TEXT, keeps_schema),
         (("guided_regex", ), REGEX, is_word), (("guided_choice", ), CHOICES, is_choice),
         (("guided_grammar", ), RULES, is_choice), (("guided_json_object", ), True, is_object),
         (("structured_outputs", ), {"json": SCHEMA}, keeps_schema),
         (("structured_outputs", ), {"regex": REGEX}, is_word),
         (("structured_outputs", ), {"choice": CHOICES}, is_choice),
         (("structured_outputs", ), {"grammar": RULES}, is_choice),
         (("structured_outputs", ), {"json_object": True}, is_object),
         (("grammar", ), RULES, is_choice),
         (("grammar", ), {"type": "json", "value": SCHEMA}, keeps_schema),
         (("grammar", ), {"type": "regex", "value": REGEX}, is_word),
         (("json_schema", ), SCHEMA, keeps_schema), (("json_schema", ), AS_TEXT, keeps_schema),
         (("regex", ), REGEX, is_word), (("ebnf", ), RULES, is_choice),
         (("format", ), "json", is_object), (("format", ), SCHEMA, keeps_schema),
         (("text", ), {"format": {"type": "json_schema", "name": "a",
                                  "schema": SCHEMA}}, keeps_schema),
         (("output_format", ), {"type": "json_schema", "schema": SCHEMA}, keeps_schema),
         (("output_config", ), {"format": {"type": "json_schema", "schema": SCHEMA}}, keeps_schema),
         ]
NEVER = [(("response_format", ), {"type": "text", "json_schema": {"name": "a", "schema": SCHEMA}}),
         (("response_format", ), {"type": "json_object", "pattern": REGEX}),
         (("response_format", ), {
             "type": "json_object", "json_schema": {"name": "a", "schema": SCHEMA}}),
         (("response_format", ), {"type": "lark", "lark": RULES}),
         (("response_format", ), {
             "type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA,
                                                    "regex": REGEX}}),
         (("options", ), {"temperature": 0, "num_predict": 4}),
         (("extra_body", ), {"guided_choice": CHOICES}), (("extra_body", ), {"top_k": 1}),
         (("response_schema", ), SCHEMA), (("responseSchema", ), SCHEMA), (("json_mode", ), True),
         (("grammar_string", ), RULES), (("regex_pattern", ), REGEX),
         (("guided_decoding", ), {"json": SCHEMA}), (("response_mime_type", ), "application/json"),
         (("generationConfig", "responseSchema"), SCHEMA),
         (("generation_config", "response_mime_type"), "application/json"),
         (("nvext", "guided_json"), SCHEMA), (("sampling_params", "regex"), REGEX),
         (("sampling_params", "json_schema"), AS_TEXT),
         (("parameters", "grammar"), {"type": "json", "value": SCHEMA}), (("constraint", ), REGEX),
         (("choices", ), CHOICES), (("schema", ), SCHEMA),
         (("x", "structured_outputs"), {"json": SCHEMA}),
         (("structured_outputs", ), {"json": SCHEMA, "jsonx": 1}),
         (("structured_outputs", ), {"json": SCHEMA, "regex": REGEX}),
         (("tools", ), [{**STRICT, "strict": True}]),
         (("tools", ), [{
             "type": "function", "function": {"name": "f", "strict": True,
                                              "input_schema": SCHEMA}}]), ]


def spelled_otherwise(rng, name):
    words = name.split("_")
    ways = [
        lambda: "".join([words[0], *map(str.capitalize, words[1:])]),
        lambda: "".join(map(str.capitalize, words)), lambda: "-".join(words), name.upper]
    if len(name) >= 8:
        at = rng.randrange(1, len(name) - 1)
        ways += [
            lambda: name[:at] + name[at + 1:], lambda: name[:at] + "q" + name[at:],
            lambda: name[:at - 1] + name[at] + name[at - 1] + name[at + 1:],
            lambda: name[:at] + "q" + name[at + 1:]]
    return rng.choice(ways)()


def drawn(rng):
    """The members of a body, the name of the first, and the check of a text; None: it must be
    refused."""
    if rng.random() < 0.2:
        path, value = rng.choice(NEVER)
        check = None
    else:
        path, value, check = rng.choice(KNOWN)
        if rng.random() < 0.4 and path[0] != "text":
            path, check = (spelled_otherwise(rng, path[0]),), None
        elif rng.random() < 0.2:
            path, check = (rng.choice(["extra_body", "extraBody", "sampling_params",
                                       "nvext"]), *path), None
            if path[-1] in ("text", "output_config"):
                path, value = path[:-1] + ("response_format",), {"type": "json_object"}
    name, body = path[0], value
    for key in reversed(path):
        body = {key: body}
    return body, name, check


BODIES = [drawn(random.Random(SEED * 1000 + i)) for i in range(COUNT)]
# A spelling in another case may be the field itself.
BODIES = [(body, name, next((known[2] for known in KNOWN if {known[0][0]: known[1]} == body),
                            check)) for body, name, check in BODIES]


def says_why(error, name):
    return error["param"].startswith(
        name) and name in error["message"] and error["type"] == "invalid_request_error"


def request(i, text="Say a number.", model="m"):
    made = support.request(f"c{i}", text, model=model, temperature=1, seed=i, max_tokens=24)
    made["body"].update(BODIES[i][0])
    return made


def judge(i, status, answer, refusals=(400,)):
    """True if it was held; False if it was refused."""
    body, name, check = BODIES[i]
    where = f"QUERN_SEED={SEED}, body {i}: {body}"
    if status != 200:
        assert status in refusals, (where, answer)
        assert status == 502 or says_why(answer["error"], name), (where, answer)
        return False
    assert check, (where, answer)
    [choice] = answer["choices"]
    assert choice["finish_reason"] == "length" or check(choice["message"]["content"]), (where,
                                                                                        choice)
    return True


def singles(server, refusals=(400,), text="Say a number."):
    held = []
    for i in range(COUNT):
        status, data = server.call("POST", "/v1/chat/completions", request(i, text)["body"])
        held.append(judge(i, status, json.loads(data), refusals))
    return held


def lines_are_as_singles(server, held, refusals=(400,)):
    """A file of all bodies fails with an error for each that was refused alone; the others run and
    are held."""
    bad = [i for i in range(COUNT) if BODIES[i][2] is None]
    batch = server.wait(server.create(support.jsonl([request(i) for i in bad[:100]]))["id"])
    assert batch["status"] == "failed"
    found = {error["line"]: error for error in batch["errors"]["data"]}
    assert set(found) == set(range(1, len(bad[:100]) + 1))
    for number, error in found.items():
        assert error["param"].startswith("body.") and says_why(
            {**error, "param": error["param"][5:], "type": "invalid_request_error"},
            BODIES[bad[number - 1]][1]), error
    good = [i for i in range(COUNT) if BODIES[i][2]]
    batch = server.wait(server.create(support.jsonl([request(i) for i in good]))["id"])
    output, errors = server.results(batch)
    assert len(output) + len(errors) == len(good)
    for record in output + errors:
        i = int(record["custom_id"][1:])
        assert judge(i, record["response"]["status_code"], record["response"]["body"],
                     refusals) == held[i]
    return bad, good


def test_the_engine_holds_every_constraint_or_refuses_it(tmp_path):
    with support.serving(tmp_path / "state", "--model", "m=smollm2") as server:
        held = singles(server)
        assert held == [check is not None for _, _, check in BODIES], "what can be held is held"
        bad, good = lines_are_as_singles(server, held)
    path = tmp_path / "in.jsonl"
    path.write_bytes(support.jsonl([request(i) for i in range(COUNT)]))
    told = support.quern("preflight", path, "--model", "m=smollm2", "--pilot", "0", "--json")
    assert told.returncode == 1 and json.loads(told.stdout)["refused"] == len(bad)
    assert {fault["line"] for fault in json.loads(told.stdout)["faults"]} <= {i + 1 for i in bad}
    assert support.quern("run", "-i", path, "-o", tmp_path / "out.jsonl", "--model",
                         "m=smollm2").returncode != 0
    path.write_bytes(support.jsonl([request(i) for i in good]))
    assert support.quern("run", "-i", path, "-o", tmp_path / "out.jsonl", "--model",
                         "m=smollm2").returncode == 0
    for record in map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines()):
        assert judge(int(record["custom_id"][1:]), record["response"]["status_code"],
                     record["response"]["body"])


def test_the_echo_worker_refuses_what_it_does_not_hold(tmp_path):
    with support.serving(tmp_path / "state", "--model", "m=echo") as server:
        held = singles(server)
        assert not any(held)
        lines_are_as_singles(server, held)
        told = support.quern("preflight", _file(tmp_path), "--model", "m=echo", "--json")
        assert told.returncode == 1
        for text, body in ('{"answer": 8}', {
                "response_format": {"type": "json_object", "schema": SCHEMA}}), ("yes", {
                    "guided_choice": CHOICES}):
            assert server.json(
                "POST", "/v1/chat/completions",
                {"model": "m", "messages": [{"role": "user", "content": text}], **body})["choices"]
        for body in {"tools": [STRICT], "tool_choice": "required"}, {
                "tools": [STRICT], "tool_choice": {
                    "type": "function", "function": {"name": "judge"}}}:
            error = server.json(
                "POST",
                "/v1/chat/completions",
                {"model": "m", "messages": [{"role": "user", "content": "x"}], **body},
                status=400)["error"]
            assert error["param"] == "tool_choice"


def _file(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_bytes(support.jsonl([request(i) for i in range(COUNT)]))
    return path


def test_an_upstream_that_ignores_constraints_gives_no_answer_of_another_form(tmp_path):
    fake = upstream.Upstream()
    try:
        with support.serving(tmp_path / "state", "--upstream", f"up={fake.url},models=fake",
                             "--alias", "m=fake") as server:
            held = singles(server, (400, 502), text="say=words")
            assert not any(held)
            assert len(fake.behaviour.bodies) == sum(
                check is not None for _, _, check in BODIES), "what nobody reads is not sent"
            lines_are_as_singles(server, held, (400, 502))
            assert support.quern("preflight", _file(tmp_path), "--upstream",
                                 f"up={fake.url},models=fake", "--alias", "m=fake",
                                 "--json").returncode == 1
    finally:
        fake.stop()


@pytest.mark.parametrize(
    "body",
    [{"metadata": {"schema": "v2", "guided_json": "x"}}, {"user": "regex"}, {"schema_version": "3"},
     {"guided_decoding_backend": "outlines"}, {"extra_body": {}}, {"format": ""}, {"grammar": ""}, {
         "regex": None}, {"response_format": {"type": "text"}}, {"response_format": None}, {
             "text": {"verbosity": "low"}}, {"chat_template_kwargs": {"schema": {"a": 1}}}, {
                 "store": True, "prompt_cache_key": "a", "safety_identifier": "b"}, {
                     "litellm_metadata": {"json_schema": SCHEMA}}],
    ids=lambda body: next(iter(body)))
def test_what_asks_for_nothing_is_taken(model_server, body):
    answer = model_server.json("POST", "/v1/chat/completions", {
        "model": "smollm2", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, **body
    })
    assert answer["choices"][0]["finish_reason"]
