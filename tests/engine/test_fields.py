# SPDX-License-Identifier: Apache-2.0
"""The inference fields on the default model, through the openai client; numbers are checked against
the logits of `quern logits`."""
import concurrent.futures, contextlib, json, math, os, signal, socket

import openai
import pytest

import support

VOCABULARY = 49152


@pytest.fixture(scope="module")
def client(model_server):
    return openai.OpenAI(base_url=model_server.url, api_key="none", max_retries=0)


def chat(client, text="Name three colours.", **options):
    options = {"model": "smollm2", "max_tokens": 16, "temperature": 0, **options}
    extra = {key: options.pop(key) for key in list(options) if key in EXTRA}
    return client.chat.completions.create(messages=[{"role": "user", "content": text}],
                                          extra_body=extra,
                                          **options)


def complete(client, prompt, **options):
    options = {"model": "smollm2", "max_tokens": 12, "temperature": 0, **options}
    extra = {key: options.pop(key) for key in list(options) if key in EXTRA}
    return client.completions.create(prompt=prompt, extra_body=extra, **options)


EXTRA = {
    "return_token_ids", "prompt_logprobs", "logprob_token_ids", "allowed_token_ids", "bad_words",
    "min_tokens", "repetition_penalty", "return_tokens_as_token_ids", "cache_salt", "request_id",
    "ignore_eos", "stop_token_ids", "include_stop_str_in_output", "top_k", "min_p",
    "skip_special_tokens", "truncate_prompt_tokens"}


def logits_at(ids, positions):
    """The whole row of logits at each position, as lists by token id."""
    query = json.dumps({"ids": ids, "positions": positions, "top": VOCABULARY})
    done = support.quern("logits", "--model", "smollm2", "--batch", input=query + "\n")
    assert done.returncode == 0, done.stderr
    rows = []
    for position in json.loads(done.stdout)["positions"]:
        row = [0.0] * VOCABULARY
        for token, logit in position["top"]:
            row[token] = logit
        rows.append(row)
    return rows


def log_softmax(row):
    most = max(row)
    whole = most + math.log(math.fsum(math.exp(logit - most) for logit in row))
    return [logit - whole for logit in row]


def test_logprobs_are_the_log_softmax_of_the_raw_logits_whatever_the_sampling(client):
    answer = complete(client,
                      "The capital of France is",
                      max_tokens=4,
                      logprobs=5,
                      temperature=1,
                      top_p=0.5,
                      seed=3,
                      presence_penalty=1.5,
                      logit_bias={"504": 3},
                      return_token_ids=True,
                      return_tokens_as_token_ids=True)
    choice = answer.choices[0]
    prompt, made = choice.prompt_token_ids, choice.token_ids
    rows = logits_at(prompt + made, [len(prompt) - 1 + i for i in range(len(made))])
    for i, row in enumerate(rows):
        expected = log_softmax(row)
        assert abs(choice.logprobs.token_logprobs[i] - expected[made[i]]) < 1e-4
        best = sorted(range(VOCABULARY), key=lambda token: (-row[token], token))[:5]
        top = choice.logprobs.top_logprobs[i]
        assert set(top) == {f"token_id:{token}" for token in best} | {f"token_id:{made[i]}"}
        for token in best:
            assert abs(top[f"token_id:{token}"] - expected[token]) < 1e-4


def test_logprobs_of_a_prompt_are_those_of_its_rows_with_their_ranks(client):
    answer = complete(client,
                      "Once upon a time there was",
                      max_tokens=1,
                      prompt_logprobs=2,
                      return_token_ids=True)
    ids, scores = answer.choices[0].prompt_token_ids, answer.choices[0].prompt_logprobs
    assert scores[0] is None and len(scores) == len(ids)
    for i, row in enumerate(logits_at(ids, list(range(len(ids) - 1))), start=1):
        expected = log_softmax(row)
        own = scores[i][str(ids[i])]
        assert abs(own["logprob"] - expected[ids[i]]) < 1e-4
        assert own["rank"] == 1 + sum(logit > row[ids[i]] for logit in row)
        best = sorted(range(VOCABULARY), key=lambda token: (-row[token], token))[:2]
        assert set(scores[i]) == {str(token) for token in [*best, ids[i]]}
        assert [scores[i][str(token)]["rank"] for token in best] == [1, 2]


def test_echo_with_logprobs_scores_a_text_as_evaluation_suites_ask_for_it(client):
    text = "The capital of France is Paris."
    scored = complete(client, text, max_tokens=0, echo=True, logprobs=1).choices[0]
    assert scored.text == text and scored.finish_reason == "length"
    assert scored.logprobs.tokens[0] == "The" and scored.logprobs.token_logprobs[0] is None
    assert "".join(scored.logprobs.tokens) == text
    assert all(text[at:].startswith(token)
               for at, token in zip(scored.logprobs.text_offset, scored.logprobs.tokens))
    more = complete(client, text, max_tokens=3, echo=True, logprobs=1).choices[0]
    assert more.logprobs.token_logprobs[:len(scored.logprobs.tokens
                                             )] == scored.logprobs.token_logprobs
    assert more.logprobs.text_offset[len(scored.logprobs.tokens)] == len(text)


def test_logprobs_do_not_depend_on_what_else_runs(client):
    def ask(_=None):
        answer = complete(client, "A short list of fruit:", logprobs=5, prompt_logprobs=3)
        return answer.choices[0].text, answer.choices[0].logprobs, answer.choices[0].prompt_logprobs

    alone = ask()
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        others = [
            pool.submit(chat, client, f"Say {i}. " * i, temperature=1, max_tokens=30, logprobs=True)
            for i in range(1, 8)]
        for mine in [pool.submit(ask) for _ in range(3)]:
            assert mine.result() == alone
        [other.result() for other in others]


def test_logprobs_are_bitwise_the_same_however_prompts_are_cut_into_steps(tmp_path):
    lines = [
        support.request(str(i),
                        f"Write about number {i}. " + "Keep it short and plain. " * (i % 5),
                        temperature=0,
                        max_tokens=8,
                        logprobs=True,
                        top_logprobs=2,
                        **({"prompt_logprobs": 2} if i % 2 else {})) for i in range(8)]
    (tmp_path / "in.jsonl").write_bytes(support.jsonl(lines))
    seen = []
    for number, flags in enumerate([(), ("--max-num-batched-tokens", 37, "--max-num-seqs", 5),
                                    ("--max-num-seqs", 1, "--threads", 1)]):
        out = tmp_path / f"out{number}.jsonl"
        done = support.quern("run", "-i", tmp_path / "in.jsonl", "-o", out, "--model", "smollm2",
                             *flags)
        assert done.returncode == 0, done.stderr
        seen.append([support.masked(json.loads(line)) for line in out.read_text().splitlines()])
    assert seen[0] == seen[1] == seen[2]
    assert '"prompt_logprobs"' in seen[0][1]


def test_greedy_text_under_penalties_and_biases_follows_their_definitions(client):
    options = {"presence_penalty": 0.7, "frequency_penalty": 0.4, "repetition_penalty": 1.3}
    bias = {"33": -100, "2178": 4.5}
    answer = complete(client,
                      "One two three one two three",
                      max_tokens=10,
                      logit_bias=bias,
                      ignore_eos=True,
                      return_token_ids=True,
                      **options)
    prompt, made = answer.choices[0].prompt_token_ids, answer.choices[0].token_ids
    rows = logits_at(prompt + made, [len(prompt) - 1 + i for i in range(len(made))])
    for i, row in enumerate(rows):
        for token, value in bias.items():
            row[int(token)] += value
        for token in set(prompt + made[:i]):
            row[token] = row[token] / 1.3 if row[token] > 0 else row[token] * 1.3
        for token in set(made[:i]):
            row[token] -= 0.7 + 0.4 * made[:i].count(token)
        best = max(row)
        assert row[made[i]] >= best - 1e-4, f"token {i}"


def test_allowed_tokens_and_bad_words_are_kept(client):
    plain = chat(client).choices[0].message.content
    colours = [word for word in ("Red", "Blue", "Green") if word in plain]
    assert colours
    answer = chat(client, bad_words=colours).choices[0].message.content
    assert not any(colour in answer for colour in colours)
    answer = complete(client,
                      "Once",
                      allowed_token_ids=[28, 30, 260],
                      max_tokens=20,
                      temperature=1,
                      seed=5,
                      return_token_ids=True).choices[0]
    assert set(answer.token_ids) <= {28, 30, 260} and len(answer.token_ids) == 20


def test_named_tokens_get_their_logprobs_for_scoring_labels(client):
    entry = chat(client,
                 "Is the sky blue? Answer yes or no.",
                 logprobs=True,
                 logprob_token_ids=[5345, 3383, 1, 2],
                 max_tokens=1)
    tops = entry.choices[0].logprobs.content[0].top_logprobs
    assert len(tops) == 4 and [top.logprob for top in tops] == sorted(
        (top.logprob for top in tops), reverse=True)


def test_the_best_of_many_is_the_one_with_the_best_mean_logprob(client):
    options = {"temperature": 1.2, "seed": 9, "max_tokens": 10, "ignore_eos": True}
    every = complete(client, "My favourite", n=5, logprobs=0, **options).choices
    means = [sum(choice.logprobs.token_logprobs) for choice in every]
    best = complete(client, "My favourite", best_of=5, **options)
    assert best.choices[0].text == every[means.index(max(means))].text
    assert best.usage.completion_tokens == 50


def test_n_may_be_128_and_greedy(client):
    answer = chat(client, n=128, max_tokens=2)
    assert [choice.index for choice in answer.choices] == list(range(128))
    assert len({choice.message.content for choice in answer.choices}) == 1


def test_a_salt_separates_tenants_in_the_prefix_cache(client):
    prompt = "A tenant's own long system prompt. " * 12
    cached = [
        chat(client, prompt, max_tokens=1,
             cache_salt=salt).usage.prompt_tokens_details.cached_tokens
        for salt in ("a", "b", "a", "b")]
    assert cached[:2] == [0, 0] and min(cached[2:]) > 0


def test_the_request_id_and_the_tier_come_back(client):
    answer = chat(client, request_id="row-17", service_tier="flex", max_tokens=1)
    assert answer.id == "chatcmpl-row-17" and answer.service_tier == "flex"
    assert chat(client, max_tokens=1).service_tier == "default"


@pytest.mark.parametrize(
    "options, param", [
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
        ({"prompt_logprobs": 21}, "prompt_logprobs"), ({"best_of": 0}, "best_of"),
        ({"min_p": 1.5}, "min_p"), ({"top_k": -2}, "top_k"),
        ({"repetition_penalty": 0}, "repetition_penalty"), ({"min_tokens": -1}, "min_tokens"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"allowed_token_ids": [VOCABULARY]}, "allowed_token_ids"),
        ({"bad_words": [1]}, "bad_words[0]"), ({"logprob_token_ids": [1]}, "logprob_token_ids"),
        ({"cache_salt": ""}, "cache_salt"), ({"request_id": 5}, "request_id"),
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"), ({"n": 129}, "n"),
        ({"chat_template": "x"}, "chat_template"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"tools": []}, "tools"), ({"tool_choice": "auto"}, "tool_choice"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}
          }, "response_format"), ({"guided_regex": "a(?=b)"}, "guided_regex"),
        ({"regex": "a("}, "regex"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
        ({"mirostat": 2}, "mirostat"), ({"max_new_tokens": 4}, "max_new_tokens"), ],
    ids=lambda value: value if isinstance(value, str) else "")
def test_what_is_out_of_range_or_not_there_is_refused_by_name(model_server, options, param):
    body = {
        "model": "smollm2", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2,
        **options}
    error = model_server.json("POST", "/v1/chat/completions", body, status=400)["error"]
    assert error["param"] == param and error["type"] == "invalid_request_error" and error["code"]
    assert param.split("[")[0] in error["message"]


FIELDS = [{}, {"logprobs": True, "top_logprobs": 3}, {"n": 2, "temperature": 1, "seed": 4}, {
    "stop": ["a"], "max_tokens": 30}, {"stop": [" is"], "include_stop_str_in_output": True}, {
        "return_token_ids": True}, {"bad_words": [" the"]}, {
            "presence_penalty": 1.5, "frequency_penalty": 0.5}, {"repetition_penalty": 1.4}, {
                "logit_bias": {"28": -100}}, {"allowed_token_ids": [28, 30, 260, 253]}, {
                    "min_tokens": 12, "max_tokens": 14},
          {"skip_special_tokens": False, "max_tokens": 60}, {"stop_token_ids": [30]}, {
              "logprobs": True, "return_tokens_as_token_ids": True, "top_logprobs": 1}, {
                  "logprobs": True, "logprob_token_ids": [1, 2]}, {"truncate_prompt_tokens": 5}, {
                      "min_p": 0.1, "temperature": 1, "seed": 2}, {
                          "top_k": 5, "temperature": 1.5, "seed": 2}, {"max_tokens": 1}]


@pytest.mark.parametrize("options", FIELDS, ids=str)
def test_a_stream_says_what_the_whole_answer_says(client, options):
    text = "Tell me about the caf\u00e9 \u2615 and the \U0001F600."
    whole = chat(client, text, **options)
    texts, logprobs, ids, reasons = {}, {}, {}, {}
    for chunk in chat(client, text, stream=True, **options):
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
            if choice.logprobs:
                logprobs.setdefault(choice.index, []).extend(choice.logprobs.content)
            ids.setdefault(choice.index, []).extend(getattr(choice, "token_ids", None) or [])
            reasons[choice.index] = choice.finish_reason
    for choice in whole.choices:
        assert texts[choice.index] == choice.message.content
        assert reasons[choice.index] == choice.finish_reason
        if choice.logprobs:
            assert logprobs[choice.index] == choice.logprobs.content
        if options.get("return_token_ids"):
            assert ids[choice.index] == choice.token_ids


@pytest.mark.parametrize("options", [{"echo": True}, {"echo": True, "logprobs": 2, "n": 2}, {
    "logprobs": 3}, {"echo": True, "logprobs": 0, "max_tokens": 0}],
                         ids=str)
def test_a_stream_of_a_completion_says_what_the_whole_answer_says(client, options):
    prompt = ["Once upon a time", "The \u2615 was"]
    whole = complete(client, prompt, **options)
    texts, columns = {}, {}
    for chunk in complete(client, prompt, stream=True, **options):
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + choice.text
            for key, values in (choice.logprobs.model_dump() if choice.logprobs else {}).items():
                columns.setdefault(choice.index, {}).setdefault(key, []).extend(values)
    for choice in whole.choices:
        assert texts[choice.index] == choice.text
        if choice.logprobs:
            assert columns[choice.index] == choice.logprobs.model_dump()


def test_case_88_batch_lines_with_fields_have_the_bodies_of_single_requests(model_server):
    lines = [
        support.request(str(i), "Name a river.", **{"temperature": 0, "max_tokens": 12, **options})
        for i, options in enumerate(FIELDS)]
    batch = model_server.wait(model_server.create(support.jsonl(lines))["id"])
    output, errors = model_server.results(batch)
    assert not errors
    for line in output:
        body = model_server.json("POST", "/v1/chat/completions",
                                 lines[int(line["custom_id"])]["body"])
        single = {
            "custom_id": line["custom_id"], "response": {"status_code": 200, "body": body},
            "error": None}
        assert support.masked(line) == support.masked(
            {**single, "id": None, "response": {**single["response"], "request_id": None}})


def test_case_131_an_engine_that_dies_ends_a_stream_with_an_error(tmp_path):
    with support.serving(tmp_path / "state", "--model", "smollm2") as server:
        client = openai.OpenAI(base_url=server.url, api_key="none", max_retries=0)
        stream = chat(client,
                      "Tell me a very long story.",
                      stream=True,
                      max_tokens=2000,
                      ignore_eos=True)
        with pytest.raises(openai.APIError):
            for number, _ in enumerate(stream):
                if number == 3:
                    os.kill(server.engine_pid(), signal.SIGKILL)
        # The next engine answers as if nothing had been.
        def is_answered():
            with contextlib.suppress(openai.APIError):
                return chat(client, max_tokens=2).usage.completion_tokens == 2

        support.until(is_answered)


CANCELLED = 'quern_requests_total{endpoint="chat",outcome="cancelled"}'


def metric(server, start):
    _, text = server.call("GET", "/metrics")
    return sum(
        float(line.split()[-1]) for line in text.decode().splitlines() if line.startswith(start))


def test_case_132_a_client_that_leaves_frees_its_sequence(model_server):
    body = json.dumps({
        "model": "smollm2", "messages": [{"role": "user", "content": "Count."}], "stream": True,
        "max_tokens": 8000, "ignore_eos": True})
    before = metric(model_server, CANCELLED)
    with socket.create_connection(("127.0.0.1", model_server.port)) as connection:
        connection.sendall(
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
            .encode())
        received = b""
        while received.count(b"data: ") < 3:
            received += connection.recv(65536)
    # 8000 tokens would take minutes.
    support.until(
        lambda: metric(model_server, CANCELLED) > before and metric(
            model_server, "quern_engine_running") == 0, 60)


# A template that shows tools, and what the default model will go on with after a few of the same.
TOOL_TEMPLATE = "{# <tool_call> #}{% for tool in tools or [] %}{{ tool.function.name }}\n{% endfor %}{{ messages[0].content }}"
TOOL_CALL = '<tool_call>{"name": "look_up", "arguments": {"river": "Rhine"}}</tool_call>\n'
TOOLS = [{
    "type": "function", "function": {
        "name": "look_up", "parameters": {
            "type": "object", "properties": {"river": {"type": "string"}}}}}]


def test_case_138_a_model_that_writes_calls_answers_with_tool_calls_in_streams_too(tmp_path):
    with support.serving(tmp_path / "state", "--model", "smollm2",
                         "--trust-request-chat-template") as server:
        client = openai.OpenAI(base_url=server.url, api_key="none", max_retries=0)
        options = {
            "model": "smollm2", "messages": [{"role": "user", "content": TOOL_CALL * 8}],
            "temperature": 0, "max_tokens": 80, "stop": ["\n"], "tools": TOOLS, "extra_body": {
                "chat_template": TOOL_TEMPLATE}}
        whole = client.chat.completions.create(**options).choices[0]
        assert whole.finish_reason == "tool_calls" and whole.message.content is None
        [call] = whole.message.tool_calls
        assert call.function.name == "look_up" and json.loads(call.function.arguments) == {
            "river": "Rhine"} and call.id.startswith("call_")
        deltas, reasons = [], []
        for chunk in client.chat.completions.create(stream=True, **options):
            deltas += chunk.choices[0].delta.tool_calls or []
            reasons.append(chunk.choices[0].finish_reason)
            assert not chunk.choices[0].delta.content
        assert reasons[-1] == "tool_calls" and set(reasons[:-1]) == {None}
        assert deltas[0].function.name == "look_up" and deltas[
            0].function.arguments == "" and deltas[0].type == "function"
        assert "".join(delta.function.arguments for delta in deltas) == call.function.arguments
        # Without tools, or with a template that does not show them, nothing is read as a call.
        options.pop("tools")
        assert client.chat.completions.create(
            **options).choices[0].message.content == TOOL_CALL.strip()
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(**{**options, "tools": TOOLS, "extra_body": {}})
        assert caught.value.param == "tools"
