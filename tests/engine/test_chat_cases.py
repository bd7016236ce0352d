# SPDX-License-Identifier: Apache-2.0
"""Cases of the wire contract that need an engine that generates: through the openai client, on the
default model."""
import concurrent.futures, json, math

import openai
import pytest

import support


@pytest.fixture(scope="module")
def client(model_server):
    return openai.OpenAI(base_url=model_server.url, api_key="none", max_retries=0)


def ask(client, text="Name three colours.", **options):
    options = {"model": "smollm2", "max_tokens": 24, "temperature": 0, **options}
    return client.chat.completions.create(messages=[{"role": "user", "content": text}], **options)


def refused(client, **options):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, **options)
    return caught.value


def test_case_88_a_greedy_batch_line_has_the_text_of_the_interactive_request(client, model_server):
    texts = [f"Write one sentence about {word}." for word in ("rivers", "clocks", "bread", "snow")]
    batch = model_server.create(
        support.jsonl([
            support.request(str(i), text, temperature=0, max_tokens=24)
            for i, text in enumerate(texts)]))
    output, errors = model_server.results(model_server.wait(batch["id"]))
    assert not errors
    for line, text in zip(output, texts, strict=True):
        assert line["response"]["body"]["choices"][0]["message"]["content"] == ask(
            client, text).choices[0].message.content


def test_case_89_batch_usage_is_the_sum_over_its_lines(model_server):
    batch = model_server.create(
        support.jsonl([
            support.request(str(i), "Count. " * i, temperature=0, max_tokens=4 + i)
            for i in range(6)]))
    batch = model_server.wait(batch["id"])
    output, _ = model_server.results(batch)
    usages = [line["response"]["body"]["usage"] for line in output]
    assert batch["usage"]["input_tokens"] == sum(u["prompt_tokens"] for u in usages)
    assert batch["usage"]["output_tokens"] == sum(u["completion_tokens"] for u in usages)
    assert batch["usage"][
        "total_tokens"] == batch["usage"]["input_tokens"] + batch["usage"]["output_tokens"]


def test_cases_83_84_97_bad_lines_fail_alone_and_an_all_failed_batch_is_completed(model_server):
    lines = [
        support.request("good", "Hello", max_tokens=4),
        support.request("bad", "Hello", max_tokens=-1),
        support.request("long", "word " * 9000, max_tokens=4)]
    batch = model_server.wait(model_server.create(support.jsonl(lines))["id"])
    assert batch["status"] == "completed" and batch["request_counts"] == {
        "total": 3, "completed": 1, "failed": 2}
    output, errors = model_server.results(batch)
    assert [line["custom_id"] for line in output] == ["good"]
    by_id = {line["custom_id"]: line for line in errors}
    assert by_id["bad"]["response"]["status_code"] == 400 and by_id["bad"]["error"] is None
    assert by_id["bad"]["response"]["body"]["error"]["param"] == "max_tokens"
    assert by_id["long"]["response"]["body"]["error"]["code"] == "context_length_exceeded"
    batch = model_server.wait(model_server.create(support.jsonl(lines[1:2]))["id"])
    assert (batch["status"], batch["output_file_id"]) == ("completed",
                                                          None) and batch["error_file_id"]


def test_case_117_n_gives_choices_with_distinct_indices(client):
    answer = ask(client, n=3, temperature=1, seed=7)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in answer.choices}) > 1
    assert [c.message.content for c in ask(client, n=3, temperature=1, seed=7).choices] == [
        c.message.content for c in answer.choices]


def test_case_118_a_stop_string_across_tokens_ends_the_text_before_it_in_streams_too(client):
    whole = ask(client, max_tokens=40).choices[0].message.content
    for start in range(4, len(whole) - 6, 8):
        stop = whole[start:start + 5]
        answer = ask(client, max_tokens=40, stop=[stop]).choices[0]
        assert answer.finish_reason == "stop" and answer.message.content == whole[:whole.index(stop
                                                                                               )]
        streamed = "".join(chunk.choices[0].delta.content or ""
                           for chunk in ask(client, max_tokens=40, stop=[stop], stream=True)
                           if chunk.choices)
        assert streamed == answer.message.content


def test_case_119_five_stops_or_an_empty_one_are_refused(client):
    assert refused(client, stop=list("abcde")).param == "stop"
    assert refused(client, stop="").param == "stop"


def test_cases_120_121_the_maximum_ends_the_text_and_the_newer_name_wins(client):
    answer = ask(client, max_tokens=1)
    assert answer.choices[0].finish_reason == "length" and answer.usage.completion_tokens == 1
    assert ask(client, max_tokens=9, max_completion_tokens=3).usage.completion_tokens == 3


@pytest.mark.parametrize("options", [{"temperature": 2.1}, {"temperature": -1}, {"top_p": 1.1}, {
    "n": 0}, {"presence_penalty": 3}, {"frequency_penalty": -3}, {"top_logprobs": 2}, {
        "max_tokens": 0}, {"seed": "x"}, {"logit_bias": {"5": 101}}],
                         ids=str)
def test_cases_122_124_a_value_out_of_range_is_refused_by_name(client, options):
    error = refused(client, **options)
    name = next(iter(options))
    assert name in str(error) and error.param.startswith(name)


def test_case_123_logprobs_have_the_token_its_bytes_and_its_neighbours(client):
    answer = ask(client, logprobs=True, top_logprobs=2, max_tokens=8)
    entries = answer.choices[0].logprobs.content
    assert len(entries) == answer.usage.completion_tokens
    for entry in entries:
        assert len(entry.top_logprobs) >= 2 and bytes(
            entry.bytes).decode(errors="replace") == entry.token
        assert entry.logprob <= 0 and math.isfinite(entry.logprob)
        assert entry.top_logprobs[0].logprob >= entry.top_logprobs[1].logprob


def test_case_125_the_same_seed_gives_the_same_text_alone_and_under_load(client):
    alone = ask(client, temperature=1, seed=11, max_tokens=32).choices[0].message.content
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        others = [
            pool.submit(ask, client, f"Say {i}", temperature=1, max_tokens=40) for i in range(11)]
        assert pool.submit(ask, client, temperature=1, seed=11,
                           max_tokens=32).result().choices[0].message.content == alone
        [other.result() for other in others]


@pytest.mark.parametrize(
    "field", [{"response_format": {"type": "structural_tag"}}, {"guided_grammar": "root ::= b"}, {
        "structured_outputs": {"json": {"not": {}}}}, {"tools": []}, {"chat_template": "x"}],
    ids=str)
def test_cases_126_129_138_what_is_not_there_yet_is_refused_and_never_ignored(
        client, model_server, field):
    body = {
        "model": "smollm2", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4,
        **field}
    status, data = model_server.call("POST", "/v1/chat/completions", body)
    error = json.loads(data)["error"]
    assert status == 400 and set(error) == {"message", "type", "param", "code"} and error["message"]


def test_case_130_a_stream_ends_with_usage_and_is_the_text_of_the_plain_answer(client):
    plain = ask(client)
    chunks = list(ask(client, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices == [] and chunks[
        -1].usage.completion_tokens == plain.usage.completion_tokens
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({chunk.id for chunk in chunks}) == 1
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert text == plain.choices[0].message.content
    assert [
        chunk.choices[0].finish_reason
        for chunk in chunks[:-1]
        if chunk.choices[0].finish_reason] == [plain.choices[0].finish_reason]


def test_case_136_an_unknown_model_is_404(client):
    with pytest.raises(openai.NotFoundError) as caught:
        ask(client, model="nobody")
    assert caught.value.code == "model_not_found"


def test_case_137_no_messages_is_refused(client):
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="smollm2", messages=[])


def test_case_139_completions_of_two_prompts_with_n_two_are_four_choices_of_sixteen_tokens(client):
    answer = client.completions.create(model="smollm2",
                                       prompt=["Once upon", "The sea"],
                                       n=2,
                                       temperature=1,
                                       seed=3,
                                       extra_body={"ignore_eos": True})
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert answer.usage.completion_tokens == 64
    greedy = client.completions.create(model="smollm2",
                                       prompt=[504, 3575, 282, 4649, 314],
                                       max_tokens=3,
                                       temperature=0)
    assert greedy.choices[0].text.startswith(" Paris")
