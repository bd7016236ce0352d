# SPDX-License-Identifier: Apache-2.0
"""OpenAI's Python library, in its versions 2 and 3: batches, files, chats, streams, embeddings,
errors and the tries after them."""
import asyncio, json, time

import openai
import pydantic
import pytest

import support
from conftest import GRIND, LONG_TEXT, full_memory, is_grind, line

CHAT = "/v1/chat/completions"


def client_of(server, **options):
    return openai.OpenAI(
        **{"base_url": server.url, "api_key": "none", "max_retries": 0, "timeout": 300, **options})


def run(client, requests, **options):
    """The batch of these requests when it has ended."""
    file = client.files.create(file=("in.jsonl", support.jsonl(requests)), purpose="batch")
    batch = client.batches.create(
        **{"input_file_id": file.id, "endpoint": CHAT, "completion_window": "24h", **options})
    deadline = time.monotonic() + 300
    while batch.status not in support.TERMINAL:
        assert time.monotonic() < deadline, batch
        time.sleep(0.05)
        batch = client.batches.retrieve(batch.id)
    return batch


def lines_of(client, file_id):
    return [json.loads(text)
            for text in client.files.content(file_id).text.splitlines()] if file_id else []


def messages(text):
    return [{"role": "user", "content": text}]


def test_each_line_of_a_batch_has_the_answer_of_the_same_chat(tiny):
    client = client_of(tiny)
    asked = {f"line-{i}": f"Tell me about the number {i}." for i in range(8)}
    batch = run(client, [
        support.request(name, text, "tiny", max_tokens=8, temperature=0)
        for name, text in asked.items()],
                metadata={"job": "same"})
    assert batch.status == "completed" and batch.metadata == {"job": "same"}
    assert (batch.request_counts.completed, batch.request_counts.failed,
            batch.request_counts.total) == (8, 0, 8)
    output = lines_of(client, batch.output_file_id)
    assert [entry["custom_id"]
            for entry in output] == list(asked), "results have the order of the input"
    for entry in output:
        chat = client.chat.completions.create(model="tiny",
                                              messages=messages(asked[entry["custom_id"]]),
                                              max_tokens=8,
                                              temperature=0)
        body = openai.types.chat.ChatCompletion.model_validate(entry["response"]["body"])
        assert entry["error"] is None and entry["response"]["status_code"] == 200
        assert body.choices == chat.choices
        assert (body.usage.prompt_tokens,
                body.usage.completion_tokens) == (chat.usage.prompt_tokens,
                                                  chat.usage.completion_tokens)
    assert (batch.usage.input_tokens, batch.usage.output_tokens) == (
        sum(entry["response"]["body"]["usage"]["prompt_tokens"] for entry in output),
        sum(entry["response"]["body"]["usage"]["completion_tokens"] for entry in output))


def test_a_batch_of_good_and_bad_lines_ends_with_both_files(tiny):
    client = client_of(tiny)
    batch = run(client, [
        line("good", "hello", "tiny", max_tokens=2),
        line("bad", "x", "tiny", max_tokens=-1),
        line("late", "bye", "tiny", max_tokens=2)])
    assert batch.status == "completed" and (batch.request_counts.completed,
                                            batch.request_counts.failed) == (2, 1)
    assert [entry["custom_id"] for entry in lines_of(client, batch.output_file_id)] == [
        "good", "late"]
    assert [(entry["custom_id"], entry["response"]["status_code"])
            for entry in lines_of(client, batch.error_file_id)] == [("bad", 400)]


def test_a_batch_that_cannot_run_says_why(echo):
    batch = run(client_of(echo), [line("a", "x"), line("a", "y"), {"custom_id": "b"}])
    assert batch.status == "failed" and batch.output_file_id is None
    assert {(error.line, error.code)
            for error in batch.errors.data} >= {
                (2, "duplicate_custom_id")} and {error.line
                                                 for error in batch.errors.data} == {2, 3}


def test_a_batch_is_cancelled_and_listed(echo):
    client = client_of(echo)
    file = client.files.create(
        file=("in.jsonl", support.jsonl([line("stuck", "x", echo={"hang": True})])),
        purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
    assert client.batches.cancel(batch.id).status in ("cancelling", "cancelled")
    support.until(lambda: client.batches.retrieve(batch.id).status == "cancelled")
    assert batch.id in [
        entry.id for entry in client.batches.list(limit=2)], "the iteration goes over all pages"


def test_files_are_stored_listed_and_deleted(echo, tmp_path):
    client, content = client_of(echo), support.jsonl([line(f"q{i}", "é" * 100) for i in range(50)])
    (tmp_path / "in.jsonl").write_bytes(content)
    made = [client.files.create(file=tmp_path / "in.jsonl", purpose="batch") for _ in range(3)]
    assert made[0].filename == "in.jsonl" and made[0].bytes == len(content)
    assert {file.id
            for file in made} <= {file.id
                                  for file in client.files.list(limit=1, purpose="batch")}
    assert client.files.retrieve(made[0].id) == made[0] and client.files.wait_for_processing(
        made[0].id).status == "processed"
    assert client.files.content(made[0].id).read() == content
    with client.files.with_streaming_response.content(made[1].id) as answer:
        answer.stream_to_file(tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_bytes() == content
    assert client.files.delete(made[2].id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(made[2].id)


def test_a_large_file_is_uploaded_in_parts(echo, tmp_path):
    (tmp_path / "in.jsonl").write_bytes(
        support.jsonl([line(f"q{i}", "x" * 1000) for i in range(3000)]))
    client = client_of(echo)
    upload = client.uploads.upload_file_chunked(file=tmp_path / "in.jsonl",
                                                mime_type="application/jsonl",
                                                purpose="batch",
                                                part_size=1 << 20)
    assert upload.status == "completed" and client.files.content(
        upload.file.id).read() == (tmp_path / "in.jsonl").read_bytes()


@pytest.mark.parametrize("logprobs", [False, True])
def test_a_streamed_chat_is_the_same_as_a_whole_one(tiny, logprobs):
    client = client_of(tiny)
    asked = {
        "model": "tiny", "messages": messages("Once upon a time"), "max_tokens": 12,
        "temperature": 0, "n": 2, "logprobs": logprobs, **({"top_logprobs": 3} if logprobs else {})}
    whole = client.chat.completions.create(**asked)
    chunks = list(
        client.chat.completions.create(**asked, stream=True,
                                       stream_options={"include_usage": True}))
    assert len(whole.choices) == 2 and {chunk.id for chunk in chunks} == {chunks[0].id}
    for choice in whole.choices:
        pieces = [
            piece for chunk in chunks for piece in chunk.choices if piece.index == choice.index]
        assert "".join(piece.delta.content or "" for piece in pieces) == choice.message.content
        assert [piece.finish_reason for piece in pieces if piece.finish_reason] == [
            choice.finish_reason]
        if logprobs:
            assert [
                entry for piece in pieces
                for entry in (piece.logprobs.content or [] if piece.logprobs else [])
            ] == choice.logprobs.content
    assert chunks[-1].choices == [] and chunks[
        -1].usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens and all(
        chunk.usage is None for chunk in chunks[:-1])


def test_the_library_puts_a_stream_together(echo):
    with client_of(echo).chat.completions.stream(model="gpt-4",
                                                 messages=messages("some words")) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"content.delta", "content.done"
            } <= kinds and final.choices[0].message.content == "some words"


def test_streamed_completions_are_the_same_as_whole_ones(tiny):
    client = client_of(tiny)
    asked = {"model": "tiny", "prompt": ["Once upon", "a time"], "max_tokens": 10, "temperature": 0}
    whole = client.completions.create(**asked)
    texts = ["", ""]
    for chunk in client.completions.create(**asked, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [
        choice.text for choice in whole.choices] and whole.usage.completion_tokens == sum(
            client.completions.create(**{**asked, "prompt": prompt}).usage.completion_tokens
            for prompt in asked["prompt"])


class Verdict(pydantic.BaseModel):
    good: bool
    kind: str = pydantic.Field(pattern="^(wheat|rye|oat)$")
    grade: int = pydantic.Field(ge=0, le=9)


def test_a_parsed_answer_has_the_type_that_was_asked_for(tiny):
    answer = client_of(tiny).chat.completions.parse(model="tiny",
                                                    messages=messages("Judge the grain."),
                                                    response_format=Verdict,
                                                    max_tokens=200,
                                                    temperature=0)
    verdict = answer.choices[0].message.parsed
    assert isinstance(verdict, Verdict) and verdict.kind in ("wheat", "rye", "oat")


@pytest.mark.parametrize("choice",
                         ["required", {"type": "function", "function": {"name": "grind"}}])
def test_a_forced_call_of_a_tool_is_the_same_whole_and_streamed(tools, choice):
    client = client_of(tools)
    asked = {
        "model": "tiny", "messages": messages("Grind the wheat."), "max_tokens": 400,
        "temperature": 0, "tools": [GRIND], "tool_choice": choice, "parallel_tool_calls": False}
    whole = client.chat.completions.create(**asked).choices[0]
    with client.chat.completions.stream(**asked) as stream:
        events = [event.type for event in stream]
        streamed = stream.get_final_completion().choices[0]
    assert whole.message.tool_calls and all(is_grind(call) for call in whole.message.tool_calls)
    assert [call.function.arguments for call in streamed.message.tool_calls] == [
        call.function.arguments for call in whole.message.tool_calls]
    assert "tool_calls.function.arguments.done" in events and streamed.finish_reason == whole.finish_reason
    parsed = client.chat.completions.parse(**asked).choices[0].message.tool_calls
    assert [call.function.parsed_arguments for call in parsed] == [
        json.loads(call.function.arguments) for call in whole.message.tool_calls]


def test_many_asynchronous_chats_at_a_time(tiny):
    async def all_of_them():
        async with openai.AsyncOpenAI(base_url=tiny.url, api_key="none", max_retries=0,
                                      timeout=300) as client:
            async def both(number):
                asked = {
                    "model": "tiny", "messages": messages(f"number {number}"), "max_tokens": 6,
                    "temperature": 0}
                whole = await client.chat.completions.create(**asked)
                stream = await client.chat.completions.create(**asked, stream=True)
                return whole.choices[0].message.content == "".join([
                    c.delta.content or "" async for chunk in stream for c in chunk.choices])
            return await asyncio.gather(*(both(number) for number in range(40)))
    assert all(asyncio.run(all_of_them()))


def test_embeddings_as_numbers_and_as_base64(echo):
    client = client_of(echo)
    numbers = client.embeddings.create(model="gpt-4", input=["a", "b"], encoding_format="float")
    packed = client.embeddings.create(model="gpt-4", input=[
        "a", "b"])  # base64 on the wire, which the library unpacks
    assert [entry.index for entry in packed.data] == [
        0, 1] and packed.usage.prompt_tokens == packed.usage.total_tokens > 0
    assert all(left.embedding == pytest.approx(right.embedding, rel=1e-6)
               for left, right in zip(numbers.data, packed.data, strict=True))


def test_models_are_listed(echo):
    client = client_of(echo)
    assert {"gpt-4", "org/name"} <= {model.id
                                     for model in client.models.list()
                                     } and client.models.retrieve("org/name").id == "org/name"


@pytest.mark.parametrize("call, kind, code, param", [
    (lambda client: client.chat.completions.create(
        model="gpt-4", messages=messages("x"), stream="yes"), openai.BadRequestError,
     "invalid_type", "stream"),
    (lambda client: client.chat.completions.create(model="absent", messages=messages("x")),
     openai.NotFoundError, "model_not_found", "model"),
    (lambda client: client.chat.completions.create(
        model="absent", messages=messages("x"), stream=True), openai.NotFoundError,
     "model_not_found", "model"),
    (lambda client: client.files.retrieve("file-absent"), openai.NotFoundError, None, "id"),
    (lambda client: client.batches.retrieve("batch_absent"), openai.NotFoundError, None, None),
    (lambda client: client.batches.create(
        input_file_id="file-absent", endpoint="/v1/none", completion_window="24h"),
     openai.BadRequestError, None, "endpoint"),
    (lambda client: client.fine_tuning.jobs.list(), openai.NotFoundError, None, None),
    (lambda client: client.chat.completions.create(
        model="gpt-4", messages=messages("x"), extra_body={"echo": {"status": 422}}),
     openai.UnprocessableEntityError, None, None),
    (lambda client: client.chat.completions.create(
        model="gpt-4", messages=messages("x"), extra_body={"echo": {"status": 500}}),
     openai.InternalServerError, None, None)])
def test_errors_have_the_class_that_the_library_names_for_them(echo, call, kind, code, param):
    with pytest.raises(kind) as caught:
        call(client_of(echo))
    error = caught.value
    assert error.message and error.type and error.request_id.startswith("req_")
    assert (code is None or error.code == code) and (param is None or error.param == param)


def test_an_engine_refuses_what_it_cannot_do(tiny):
    client = client_of(tiny)
    for param, value in (("max_tokens", -1), ("temperature", 9), ("logit_bias", {
            "99999": 1}), ("messages", [])):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(
                **{"model": "tiny", "messages": messages("x"), param: value})
        assert caught.value.param.startswith(param), param
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="tiny", messages=messages("long " * 2000))
    assert caught.value.code == "context_length_exceeded"


def test_a_wrong_key_is_an_authentication_error(keyed):
    with pytest.raises(openai.AuthenticationError) as caught:
        client_of(keyed, api_key="sk-wrong").models.list()
    assert caught.value.code == "invalid_api_key"
    assert client_of(keyed, api_key="sk-right").models.list().data


def test_too_many_requests_are_a_rate_limit_error_and_the_library_waits_as_told(counted):
    server, key = counted
    client = client_of(server, api_key=key)
    for _ in range(12):
        client.models.list()
    with pytest.raises(openai.RateLimitError) as caught:
        client.models.list()
    assert 1 <= int(caught.value.response.headers["retry-after"]) <= 6
    assert client_of(server, api_key=key, max_retries=4).models.list().data


def test_a_full_server_is_asked_again_and_answers(small_memory):
    with full_memory(small_memory):
        answer = client_of(small_memory,
                           max_retries=3).chat.completions.create(model="gpt-4",
                                                                  messages=messages(LONG_TEXT))
    assert answer.choices[0].message.content == LONG_TEXT


def test_a_stream_that_breaks_is_an_error(echo):
    """The server told the error in the stream, after some text."""
    with pytest.raises(openai.APIError):
        list(
            client_of(echo).chat.completions.create(model="gpt-4",
                                                    messages=messages("x"),
                                                    stream=True,
                                                    extra_body={"echo": {"status": 500}}))


# --- decisions: version 3 ---

LEVELS = [{"label": "weak"}, {"label": "fair", "description": "some of it"}, {"label": "strong"}]


@pytest.mark.skipif(not hasattr(openai.OpenAI, "decisions"), reason="this version has no decisions")
@pytest.mark.parametrize("options", [2, 26, 255])
def test_decisions_of_every_type(real, options):
    choices = [{"value": True}, {"value": "true"}] + [{"value": f"team {i}"}
                                                      for i in range(options - 2)]
    asked = [{"type": "predicate", "instructions": "Works remotely?"}, {
        "type": "score", "name": "fit", "instructions": "How good?", "levels": LEVELS}, {
            "type": "choice", "name": "team", "instructions": "Which?", "choices": choices}]
    made = client_of(real).decisions.create(model="smollm2",
                                            input="Ten years of servers.",
                                            questions=asked)
    first, fit, team = made.answers
    assert first.name is None and 0 <= first.probability <= 1 and 0 <= fit.score <= 2
    assert [p.value for p in team.probabilities] == [choice["value"]
                                                     for choice in choices] and team.choice in [
                                                         choice["value"] for choice in choices]
    assert abs(sum(p.probability for p in team.probabilities) - 1) < 1e-12
    assert made.usage.output_tokens == 0 and made.usage.total_tokens == made.usage.input_tokens


@pytest.mark.skipif(not hasattr(openai.OpenAI, "decisions"), reason="this version has no decisions")
def test_four_hundred_decisions_and_temperatures(tiny):
    client = client_of(tiny)
    asked = [{"type": "predicate", "name": f"q{i}", "instructions": f"Is {i} right?"}
             for i in range(400)]
    made = client.decisions.create(model="tiny", input="A text.", questions=asked)
    assert [answer.name for answer in made.answers] == [question["name"] for question in asked]
    warm = client.decisions.create(model="tiny",
                                   input="A text.",
                                   questions=asked[:1],
                                   extra_body={"temperatures": {"q0": 100}})
    assert abs(warm.answers[0].probability - 0.5) <= abs(made.answers[0].probability - 0.5)
    with pytest.raises(openai.BadRequestError):
        client.decisions.create(model="tiny", input="A text.", questions=asked + asked[:1])
