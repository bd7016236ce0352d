# SPDX-License-Identifier: Apache-2.0
"""Tokens that a schema forces are given, not sampled: the answers are those of masks alone, their
tokens the tokenizer's own.

With `logprobs` every token is sampled, so a request is its own witness."""
import json

import pytest

SENTENCE = "The only answer that may be given: 42, says the émigré."
KEYS = {
    "type": "object", "properties": {
        "educational_pedigree": {"enum": ["Great", "Good"]}, "is_software_engineer": {
            "type": "boolean"}}, "required": ["educational_pedigree", "is_software_engineer"],
    "additionalProperties": False}


def body(**options):
    return {
        "model": "smollm2", "messages": [{"role": "user", "content": "Rate the candidate."}],
        "temperature": 0, "max_tokens": 120, "return_token_ids": True, **options}


def ask(server, **options):
    answer = server.json("POST", "/v1/chat/completions", body(**options))
    usage = answer["usage"]["completion_tokens"]
    assert usage == sum(len(choice["token_ids"]) for choice in answer["choices"])
    return answer["choices"]


def ids_of(server, text):
    return server.json("POST", "/tokenize",
                       {"model": "smollm2", "prompt": text, "add_special_tokens": False})["tokens"]


@pytest.mark.parametrize("temperature", [0, 1])
def test_a_forced_answer_has_the_tokens_of_the_tokenizer(model_server, temperature):
    choices = ask(model_server, guided_choice=[SENTENCE], temperature=temperature, n=3, seed=1)
    for choice in choices:
        assert choice["message"]["content"] == SENTENCE and choice["finish_reason"] == "stop"
        assert choice["token_ids"][:-1] == ids_of(model_server, SENTENCE)


def test_log_probabilities_switch_it_off(model_server):
    [choice] = ask(model_server, guided_choice=[SENTENCE], logprobs=True, top_logprobs=2)
    assert choice["message"]["content"] == SENTENCE
    assert len(choice["logprobs"]["content"]) in (len(
        choice["token_ids"]), len(choice["token_ids"]) - 1)
    assert all(len(entry["top_logprobs"]) == 2 for entry in choice["logprobs"]["content"])


def test_given_names_leave_the_values_to_the_model(model_server):
    """What is not forced may differ: the model reads the tokenizer's tokens, where it might have
    written others."""
    shape = {"type": "json_schema", "json_schema": {"name": "rating", "schema": KEYS}}
    for options in ({}, {"logprobs": True}, {"temperature": 1, "n": 3, "seed": 4}):
        for choice in ask(model_server, response_format=shape, **options):
            value = json.loads(choice["message"]["content"])
            assert list(value) == list(
                KEYS["properties"]) and value["educational_pedigree"] in ("Great", "Good")
            assert value["is_software_engineer"] in (True,
                                                     False) and choice["finish_reason"] == "stop"


@pytest.mark.parametrize("tokens", [1, 2, 7])
def test_max_tokens_cuts_given_tokens(model_server, tokens):
    [choice] = ask(model_server, guided_choice=[SENTENCE], max_tokens=tokens)
    assert choice["finish_reason"] == "length" and len(choice["token_ids"]) == tokens
    assert choice["token_ids"] == ids_of(model_server, SENTENCE)[:tokens]
    assert SENTENCE.startswith(choice["message"]["content"]) and choice["message"]["content"]


def test_stop_strings_cut_given_tokens(model_server):
    [choice] = ask(model_server, guided_choice=[SENTENCE], stop=["be given"])
    assert choice["message"]["content"] == "The only answer that may " and choice[
        "finish_reason"] == "stop"


@pytest.mark.parametrize(
    "options", [{"stop_token_ids": [28]}, {"logit_bias": {"28": -100}}, {"bad_words": ["zebra"]}],
    ids=["stop", "bias", "bad"])
def test_fields_about_single_tokens_leave_every_token_to_the_model(model_server, options):
    [choice] = ask(model_server, guided_choice=[SENTENCE], **options)
    assert choice["finish_reason"] == "stop" and SENTENCE.startswith(choice["message"]["content"])
    assert "stop_token_ids" in options or choice["message"]["content"] == SENTENCE


def test_a_stream_has_the_same_answer(model_server):
    options = body(guided_choice=[SENTENCE], stream=True, stream_options={"include_usage": True})
    status, data = model_server.call("POST", "/v1/chat/completions", options)
    assert status == 200
    text = data.decode()
    chunks = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    deltas = [
        choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]]
    assert "".join(deltas) == SENTENCE
    assert chunks[-1]["usage"]["completion_tokens"] == len(ids_of(model_server, SENTENCE)) + 1
