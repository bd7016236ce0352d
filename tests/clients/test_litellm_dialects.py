# SPDX-License-Identifier: Apache-2.0
"""LiteLLM's providers for the languages of others: `anthropic/`, `ollama/`, `ollama_chat/`, and its
calls of Responses and of Messages."""
import asyncio

import litellm
import pytest

USER = [{"role": "user", "content": "Grüße"}]
WEATHER = {"type": "function", "function": {
    "name": "weather", "description": "The weather of a city.", "parameters": {
        "type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"],
        "additionalProperties": False}}}
PROVIDERS = ["anthropic/claude-sonnet-4-5", "ollama/llama3.2", "ollama_chat/llama3.2"]


def ask(server, model, **more):
    return litellm.completion(**{
        "model": model, "messages": USER, "api_base": server.site, "api_key": "x",
        "max_tokens": 300, "num_retries": 0, **more})


@pytest.mark.parametrize("model", PROVIDERS)
def test_a_chat_and_its_stream_are_equal(named, model):
    whole = ask(named, model)
    # `ollama/` makes a prompt of its own out of the messages.
    assert "Grüße" in whole.choices[0].message.content and whole.choices[0].finish_reason == "stop"
    assert whole.usage.completion_tokens > 0
    chunks = list(ask(named, model, stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].choices[0].finish_reason == "stop"


@pytest.mark.parametrize("streams", [False, True])
def test_a_tool_is_called_by_messages(tools, streams):
    more = {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "weather"}}}
    if streams:
        answer = litellm.stream_chunk_builder(list(ask(tools, "anthropic/tiny", stream=True, **more)))
    else:
        answer = ask(tools, "anthropic/tiny", **more)
    [call] = answer.choices[0].message.tool_calls
    assert call.function.name == "weather" and ("Rome" in call.function.arguments or
                                                "Oslo" in call.function.arguments)
    assert answer.choices[0].finish_reason == "tool_calls"


def test_responses(named):
    answer = litellm.responses(model="openai/gpt-4.1", input="Grüße", api_base=named.url,
                               api_key="x")
    assert answer.output[0].content[0].text == "Grüße" and answer.status == "completed"
    events = list(litellm.responses(model="openai/gpt-4.1", input="Grüße", stream=True,
                                    api_base=named.url, api_key="x"))
    assert events[-1].type == "response.completed"


def test_messages_as_they_are(named):

    async def messages():
        return await litellm.anthropic.messages.acreate(
            model="anthropic/claude-sonnet-4-5", messages=USER, max_tokens=50,
            api_base=named.site, api_key="x")

    assert asyncio.run(messages())["content"][0]["text"] == "Grüße"


def test_a_model_that_nobody_serves_is_its_own_error(echo):
    for model in ("anthropic/nobody", "ollama_chat/nobody"):
        with pytest.raises((litellm.NotFoundError, litellm.APIConnectionError)):
            ask(echo, model)
