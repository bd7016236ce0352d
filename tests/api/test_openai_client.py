# SPDX-License-Identifier: Apache-2.0
"""What the wire contract's cases (tests/contract) leave open, through the real `openai` Python
client and plain HTTP.

QUERN_BASE_URL points to a running server, such as tests/unit/service/api/api_server, e.g.
http://127.0.0.1:8000; it needs no model beyond one that answers (QUERN_MODEL, default: the first
one listed). QUERN_API_KEY is the key it wants, if any. Run: pytest tests/api/test_openai_client.py
(needs the packages openai and pytest)."""

import asyncio
import http.client
import json
import os
import re
import urllib.parse

import openai
import pytest

import metrics

BASE = os.environ.get("QUERN_BASE_URL", "")
KEY = os.environ.get("QUERN_API_KEY", "none")

pytestmark = pytest.mark.skipif(not BASE, reason="QUERN_BASE_URL is not set")


@pytest.fixture(scope="session")
def client():
    return openai.OpenAI(base_url=BASE + "/v1", api_key=KEY, max_retries=0, timeout=60)


@pytest.fixture(scope="session")
def model(client):
    return os.environ.get("QUERN_MODEL") or client.models.list().data[0].id


def plain(method, path, body=None, headers=None):
    """One request without a client library: (status, headers, body)."""
    url = urllib.parse.urlsplit(BASE)
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=60)
    connection.request(method, path, body, {"Authorization": "Bearer " + KEY, **(headers or {})})
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, data


def post_json(path, value, headers=None):
    status, _, data = plain("POST", path, json.dumps(value),
                            {"Content-Type": "application/json", **(headers or {})})
    return status, json.loads(data)


def test_trailing_slashes_make_no_difference():
    assert plain("GET", "/v1/models/")[2] == plain("GET", "/v1/models")[2]


@pytest.mark.parametrize("body,param", [({"messages": []}, "model"), ({"model": 7}, "model"),
                                        ({"model": None}, "model")])
def test_a_model_is_required(body, param):
    for path in ("/v1/chat/completions", "/v1/completions"):
        status, answer = post_json(path, body)
        assert (status, answer["error"]["param"]) == (400, param)


def test_stream_is_a_boolean(model):
    status, answer = post_json("/v1/chat/completions",
                               {"model": model, "messages": [], "stream": "yes"})
    assert (status, answer["error"]["code"], answer["error"]["param"]) == (400, "invalid_type",
                                                                           "stream")


def test_completions_answer(client, model):
    answer = client.completions.create(model=model, prompt="abc")
    assert answer.object == "text_completion" and answer.choices[0].index == 0


def test_models_are_listed_with_their_aliases(client, model):
    listed = client.models.list().data
    assert model in [entry.id for entry in listed]
    for entry in listed:
        assert entry.object == "model" and entry.owned_by and hasattr(entry, "max_model_len")
        assert client.models.retrieve(entry.id).id == entry.id
        messages = [{"role": "user", "content": "x"}]
        assert client.chat.completions.create(model=entry.id, messages=messages).choices


@pytest.mark.parametrize("path", ["/v1/responses/compact", "/v1/audio/speech"])
def test_endpoints_that_are_not_there_say_so(path):
    status, answer = post_json(path, {"model": "x"})
    assert status in (400, 404) and answer["error"]["code"] in ("unsupported_endpoint", None)


def test_health_version_and_metrics():
    assert plain("GET", "/health")[0] == plain("GET", "/ping")[0] == plain("GET",
                                                                           "/ready")[0] == 200
    assert json.loads(plain("GET", "/version")[2])["version"]
    status, headers, data = plain("GET", "/metrics")
    assert status == 200 and headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    told = metrics.Metrics(data.decode())
    for name, kind in told.kinds.items():
        assert re.fullmatch(r"(quern|process)_[a-z0-9_]+", name)
        assert (kind == "counter") == name.endswith("_total")
    assert told.series("quern_batches", status="in_progress")
    assert told.series("quern_requests_total", endpoint="score", outcome="expired")
    assert told.value("process_resident_memory_bytes") > 0


def test_the_async_client_works_many_at_a_time(model):
    async def all_of_them():
        async with openai.AsyncOpenAI(base_url=BASE + "/v1", api_key=KEY, max_retries=0) as client:
            async def chat(number):
                messages = [{"role": "user", "content": f"number {number}"}]
                answer = await client.chat.completions.create(model=model, messages=messages)
                stream = await client.chat.completions.create(model=model,
                                                              messages=messages,
                                                              stream=True)
                text = "".join([
                    choice.delta.content or ""
                    async for chunk in stream for choice in chunk.choices])
                return answer.choices[0].message.content == text
            file = await client.files.create(file=b"{}\n", purpose="batch")
            listed = [entry.id async for entry in client.files.list(limit=3)]
            assert file.id in listed and len(listed) == len(set(listed))
            return await asyncio.gather(*(chat(number) for number in range(60)))
    assert all(asyncio.run(all_of_them()))


def test_streams_can_be_left_half_way(client, model):
    for _ in range(10):
        stream = client.chat.completions.create(model=model,
                                                messages=[{"role": "user", "content": "x"}],
                                                stream=True)
        next(iter(stream))
        stream.close()
    assert plain("GET", "/health")[0] == 200
