# SPDX-License-Identifier: Apache-2.0
"""The drawn constraints of test_constraints.py through the routes of other APIs: /v1/completions,
Ollama's /api/chat and /api/generate, /v1/responses, and Anthropic's /v1/messages. A member that an API does not
have is refused by name where it would constrain the answer; what an API has of its own is held."""
import json

import pytest

import support
from test_constraints import BODIES, CHOICES, COUNT, SCHEMA, SEED, keeps_schema

TURNS = [{"role": "user", "content": "Say a number."}]
# What holds an answer without being a shape, and what asks for nothing.
JUDGE = {"type": "function", "function": {"name": "judge"}}
HOLDING = [{"tool_choice": "required"}, {"tool_choice": JUDGE}, {"parallel_tool_calls": False},
           {"logit_bias": {"5": 100}}, {"min_tokens": 4}, {"stop": ["x"]}, {"stop": "x"},
           {"stop_token_ids": [5]}, {"stop_sequences": ["x"]}, {"bad_words": ["x"]},
           {"functions": [{"name": "f"}]}, {"function_call": {"name": "f"}},
           {"allowed_token_ids": [5]}, {"toolChoice": "required"},
           {"response_format": {"type": "json_object"}},
           {"x" * 70000: 1, "guided_regex": "a" * 70000}]
QUIET = [{"tool_choice": "auto"}, {"tool_choice": None}, {"parallel_tool_calls": True},
         {"stop": []}, {"stop": ""}, {"logit_bias": {}}, {"min_tokens": 0},
         {"response_format": None}, {"user": "regex"}, {"metadata": {"guided_json": "x"}},
         {"n": 1}, {"schema_version": "3"},
         {"x" * 70000: 1}, {"grammar": ""}, {"guided_json": {}}]


class Route:
    """A route, the members that it reads itself, and the text of its answer."""

    def __init__(self, path, base, own, text, inside=None):
        self.path, self.base, self.own, self.text, self.inside = path, base, own, text, inside

    def post(self, server, members):
        status, data = server.call("POST", self.path, {**self.base, **members})
        return status, json.loads(data)


def said(answer):
    """The sentence of a refusal in the form of any of these APIs."""
    error = answer["error"]
    return error if isinstance(error, str) else error["message"]


def blocks(answer):
    return "".join(block.get("text", "") for block in answer["content"])


SAMPLED = {"options": {"temperature": 1, "seed": 7, "num_predict": 24}}
ROUTES = [
    Route("/v1/completions", {
        "model": "smollm2", "prompt": "Say a number.", "temperature": 1, "seed": 7,
        "max_tokens": 24}, None, lambda answer: answer["choices"][0]["text"]),
    Route("/api/chat", {"model": "smollm2", "stream": False, "messages": TURNS, **SAMPLED},
          {"format", "options", "tools"}, lambda answer: answer["message"]["content"], "options"),
    Route("/api/generate", {
        "model": "smollm2", "stream": False, "prompt": "Say a number.", **SAMPLED},
          {"format", "options"}, lambda answer: answer["response"], "options"),
    Route("/v1/responses", {"model": "smollm2", "max_output_tokens": 24, "input": "Say a number."},
          {"text", "tools"}, lambda answer: "".join(
              part.get("text", "") for item in answer["output"]
              for part in item.get("content") or []), "text"),
    Route("/v1/messages", {"model": "smollm2", "max_tokens": 24, "messages": TURNS},
          {"output_format", "output_config", "tools"}, blocks, "output_config")]


WITH_DOOR = [route for route in ROUTES if route.own]


def is_cut(answer):
    """The answer ended at its bound, in the words of any of these APIs."""
    found = answer.get("choices", [{}])[0]
    if answer.get("status") == "incomplete":
        return True
    return "length" in (found.get("finish_reason"), answer.get("done_reason")) or answer.get(
        "stop_reason") == "max_tokens"


@pytest.mark.slow
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
def test_each_constraint_is_held_or_refused_by_name(model_server, route):
    held = 0
    step = max(1, round(1 / support.SHARE))
    for i in range(0, COUNT, step):
        members, name, check = BODIES[i]
        status, answer = route.post(model_server, members)
        where = f"QUERN_SEED={SEED}, body {i}: {members} → {status} {answer}"
        if status == 400:
            assert name in said(answer), where
            assert route.own is None or name not in route.own or not check, where
            continue
        assert status == 200, where
        if name == "options" and route.inside == "options":
            continue  # Ollama's own, and no constraint
        assert check and (route.own is None or name in route.own), where
        assert is_cut(answer) or check(route.text(answer)), where
        held += 1
    assert held >= (40 // step if route.own is None else 0), held


@pytest.mark.parametrize("route", WITH_DOOR, ids=lambda route: route.path)
def test_what_bounds_the_tokens_is_refused_and_what_asks_for_nothing_is_taken(model_server, route):
    own = {
        "/v1/messages": {"stop_sequences", "tool_choice"}, "/v1/responses": {
            "stop", "logit_bias", "min_tokens", "stop_token_ids", "tool_choice", "metadata",
            "parallel_tool_calls"}}.get(route.path, set())
    for members in HOLDING:
        name = list(members)[-1]
        if name in own:
            continue
        status, answer = route.post(model_server, members)
        assert status == 400 and name in said(answer), (members, status, answer)
    for members in QUIET:
        if own & set(members):
            continue
        status, answer = route.post(model_server, members)
        assert status == 200, (members, status, answer)


@pytest.mark.parametrize("route", WITH_DOOR, ids=lambda route: route.path)
def test_the_inside_of_the_apis_own_object_is_looked_at(model_server, route):
    given = {key: value for key, value in route.base.get(route.inside, {}).items()}
    for members in ({"grammar": "root"}, {"json_schema": SCHEMA}, {"guided_choice": CHOICES},
                    {"logit_bias": {"5": 1}}, {"Format": "json"}):
        status, answer = route.post(model_server, {route.inside: {**given, **members}})
        assert status == 400 and f"{route.inside}.{list(members)[0]}" in said(answer), answer
    if route.inside == "options":
        for members in ({"num_thread": 4, "mirostat": 0, "penalize_newline": True},
                        {"stop": ["x"]}, {"use_mmap": None}):
            status, answer = route.post(model_server, {"options": {**given, **members}})
            assert status == 200, answer
    form = {"type": "json_schema", "name": "a", "schema": SCHEMA}
    asked = {
        "options": {"format": SCHEMA}, "output_config": {
            "output_config": {"format": form, "effort": "low"}}, "text": {"text": {"format": form}}}
    status, answer = route.post(model_server, asked[route.inside])
    assert status == 200 and (is_cut(answer) or keeps_schema(route.text(answer))), answer
