# SPDX-License-Identifier: Apache-2.0
"""LlamaIndex, unmodified, by Ollama's API and by Anthropic's Messages."""
import asyncio

from llama_index.core.llms import ChatMessage
from llama_index.llms.anthropic import Anthropic
from llama_index.llms.ollama import Ollama


def test_llama_index_asks_by_ollama(named):
    model = Ollama(model="llama3.2", base_url=named.site, request_timeout=60)
    assert model.complete("Grüße").text == "Grüße"
    assert model.chat([ChatMessage(role="user", content="one two")]).message.content == "one two"
    *_, last = model.stream_chat([ChatMessage(role="user", content="one two")])
    assert last.message.content == "one two"
    assert asyncio.run(model.acomplete("async")).text == "async"


def test_llama_index_asks_by_messages(named):
    model = Anthropic(model="claude-sonnet-4-5", base_url=named.site, api_key="x", max_retries=0)
    assert model.complete("Grüße").text == "Grüße"
    *_, last = model.stream_chat([ChatMessage(role="user", content="one two")])
    assert last.message.content == "one two"
