# SPDX-License-Identifier: Apache-2.0
"""Anthropic's own Python client, old and new, unmodified: messages and their streams, tools,
counts, models, batches with inline requests, and the errors as its own classes."""
import asyncio, json

import anthropic
import pytest

import support

USER = [{"role": "user", "content": "Name a river of Europe."}]
WEATHER = {
    "name": "weather", "description": "The weather of a city.", "input_schema": {
        "type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"],
        "additionalProperties": False}}


def client_of(server, **more):
    more.setdefault("api_key", "sk-none")
    more.setdefault("max_retries", 0)
    return anthropic.Anthropic(base_url=server.site, **more)


def asked(name, text="x", **more):
    return {
        "custom_id": name, "params": {
            "model": "gpt-4", "max_tokens": 50, "messages": [{"role": "user", "content": text}],
            **more}}


def ended(client, batch):
    support.until(
        lambda: client.messages.batches.retrieve(batch.id).processing_status == "ended", 60)
    return client.messages.batches.retrieve(batch.id)


def test_a_message_and_its_stream_are_equal(tiny):
    client = client_of(tiny)
    asked_for = {
        "model": "tiny", "max_tokens": 12, "messages": USER, "system": "Be brief.",
        # The newest client has no such argument.
        "extra_body": {"temperature": 0}}
    whole = client.messages.create(**asked_for)
    assert whole.type == "message" and whole.role == "assistant" and whole.model == "tiny"
    with client.messages.stream(**asked_for) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert [block.type for block in final.content] == [block.type for block in whole.content]
    joined = "".join(block.text for block in whole.content if block.type == "text")
    assert text == joined and final.stop_reason == whole.stop_reason == "max_tokens"
    assert final.usage.output_tokens == whole.usage.output_tokens == 12
    counted = client.messages.count_tokens(model="tiny", messages=USER, system="Be brief.")
    usage = whole.usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


def test_turns_with_blocks_of_every_kind(echo):
    messages = [
        {"role": "user", "content": [
            {"type": "text", "text": "one", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
            {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Rome"}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"},
            {"type": "text", "text": "two"}]}]
    message = client_of(echo).messages.create(model="gpt-4", max_tokens=50, messages=messages,
                                              tools=[WEATHER], metadata={"user_id": "u"})
    assert message.content[0].text == "two" and message.stop_reason == "end_turn"


@pytest.mark.parametrize("streams", [False, True])
def test_a_tool_that_must_be_called_is_called(tools, streams):
    asked_for = {
        "model": "tiny", "max_tokens": 400, "messages": USER, "tools": [WEATHER],
        "tool_choice": {"type": "tool", "name": "weather"}, "extra_body": {"temperature": 0}}
    if streams:
        with client_of(tools).messages.stream(**asked_for) as stream:
            message = stream.get_final_message()
    else:
        message = client_of(tools).messages.create(**asked_for)
    calls = [block for block in message.content if block.type == "tool_use"]
    assert len(calls) == 1 and calls[0].name == "weather" and message.stop_reason == "tool_use"
    assert calls[0].input["city"] in ("Rome", "Oslo") and calls[0].id


def test_an_asynchronous_client_streams(echo):

    async def ask():
        client = anthropic.AsyncAnthropic(base_url=echo.site, api_key="x")
        events = []
        async with client.messages.stream(model="gpt-4", max_tokens=50, messages=USER) as stream:
            async for event in stream:
                events.append(event.type)
        return events

    events = asyncio.run(ask())
    assert events[0] == "message_start" and events[-1] == "message_stop"


def test_models_are_listed(echo):
    client = client_of(echo)
    assert {model.id for model in client.models.list()} >= {"gpt-4", "org/name"}
    model = client.models.retrieve("gpt-4")
    assert model.type == "model" and model.display_name and model.created_at
    with pytest.raises(anthropic.NotFoundError):
        client.models.retrieve("nobody")


def test_errors_are_its_own_classes(echo, keyed):
    client = client_of(echo)
    with pytest.raises(anthropic.NotFoundError) as told:
        client.messages.create(model="nobody", max_tokens=5, messages=USER)
    assert told.value.body["error"]["type"] == "not_found_error"
    for bad in ({"max_tokens": 0}, {"messages": []}, {"tools": [{"type": "bash_20250124"}]},
                {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}):
        with pytest.raises(anthropic.BadRequestError):
            client.messages.create(**{"model": "gpt-4", "max_tokens": 5, "messages": USER, **bad})
    with pytest.raises(anthropic.AuthenticationError):
        client_of(keyed, api_key="sk-wrong").messages.create(model="gpt-4", max_tokens=5,
                                                             messages=USER)
    good = client_of(keyed, api_key="sk-right")
    assert good.messages.create(model="gpt-4", max_tokens=5, messages=USER).content


def test_a_batch_from_its_requests_to_its_results(echo):
    client = client_of(echo)
    batch = client.messages.batches.create(requests=[
        asked("good", "Grüße"), asked("second", "two"), asked("unknown", model="nobody"),
        asked("image", [{"type": "image", "source": {}}])])
    assert batch.type == "message_batch" and batch.request_counts.processing == 4
    assert (batch.expires_at - batch.created_at).days == 1 and batch.results_url is None
    with pytest.raises(anthropic.AnthropicError):
        client.messages.batches.results(batch.id)
    batch = ended(client, batch)
    counts = batch.request_counts
    assert (counts.succeeded, counts.errored, counts.processing) == (2, 2, 0) and batch.ended_at
    found = {one.custom_id: one.result for one in client.messages.batches.results(batch.id)}
    assert found["good"].message.content[0].text == "Grüße"
    assert found["second"].type == "succeeded" and found["second"].message.stop_reason == "end_turn"
    assert found["unknown"].error.error.type == "not_found_error"
    assert found["image"].error.error.type == "invalid_request_error"
    assert client.messages.batches.delete(batch.id).type == "message_batch_deleted"
    with pytest.raises(anthropic.NotFoundError):
        client.messages.batches.retrieve(batch.id)


def test_pages_of_batches_go_on_by_themselves(echo):
    client = client_of(echo)
    made = [client.messages.batches.create(requests=[asked("a")]).id for _ in range(5)]
    listed = [batch.id for batch in client.messages.batches.list(limit=2)]
    assert listed[:5] == made[::-1] and len(set(listed)) == len(listed)
    before = client.messages.batches.list(limit=2, before_id=made[0])
    assert [batch.id for batch in before.data] == [made[2], made[1]] and before.has_more


def test_a_batch_is_cancelled(echo):
    client = client_of(echo)
    batch = client.messages.batches.create(requests=[asked(f"r{i}") for i in range(2000)])
    going = client.messages.batches.cancel(batch.id)
    assert going.processing_status in ("canceling", "ended")
    batch = ended(client, batch)
    counts = batch.request_counts
    assert counts.canceled + counts.succeeded == 2000
    kinds = [result.result.type for result in client.messages.batches.results(batch.id)]
    assert kinds.count("canceled") == counts.canceled and len(kinds) == 2000


@pytest.mark.parametrize("requests", [[], [asked("a b")], [asked("a"), asked("a")],
                                      [{"custom_id": "a"}]])
def test_a_batch_that_is_refused_is_a_bad_request(echo, requests):
    with pytest.raises(anthropic.BadRequestError) as told:
        client_of(echo).messages.batches.create(requests=requests)
    assert told.value.body["error"]["type"] == "invalid_request_error"


def test_the_beta_of_batches_is_the_same(echo):
    client = client_of(echo)
    batch = client.beta.messages.batches.create(requests=[asked("a", "beta")])
    ended(client, batch)
    (result,) = client.beta.messages.batches.results(batch.id)
    assert result.result.message.content[0].text == "beta"


def test_a_batch_is_kept_from_a_wrong_key(keyed):
    with pytest.raises(anthropic.AuthenticationError):
        client_of(keyed, api_key="sk-wrong").messages.batches.create(requests=[asked("a")])
    client = client_of(keyed, api_key="sk-right")
    batch = ended(client, client.messages.batches.create(requests=[asked("a")]))
    assert json.loads(next(iter(client.messages.batches.results(batch.id))).to_json())[
        "result"]["type"] == "succeeded"
