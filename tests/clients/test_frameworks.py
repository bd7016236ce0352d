# SPDX-License-Identifier: Apache-2.0
"""Frameworks over the languages of others: LangChain, pydantic-ai and openai-agents, unmodified, by
Anthropic's Messages, OpenAI's Responses and Ollama's base URL. The echo worker answers
what it is asked; a model of random weights calls what it must call."""
import asyncio
from typing import Literal

import openai, pydantic
import pytest

import support


class Day(pydantic.BaseModel):
    """A type without bounds: Anthropic's clients take them out of the schema."""
    city: Literal["Rome", "Oslo"]
    rains: bool


class Trip(pydantic.BaseModel):
    """Where to go."""
    city: Literal["Rome", "Oslo"]
    days: int = pydantic.Field(ge=1, le=9)


# --- LangChain ---

def claude(server, **more):
    from langchain_anthropic import ChatAnthropic
    return ChatAnthropic(**{
        "model": "claude-sonnet-4-5", "base_url": server.site, "api_key": "x", "max_tokens": 300,
        "max_retries": 0, **more})


def test_langchain_asks_by_messages(named):
    answer = claude(named).invoke([("system", "s"), ("human", "Grüße")])
    assert answer.content == "Grüße" and answer.usage_metadata["output_tokens"] > 0
    assert answer.response_metadata["stop_reason"] == "end_turn"
    chunks = list(claude(named).stream("one two"))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert whole.text == "one two" or whole.text() == "one two"
    assert asyncio.run(claude(named).ainvoke("async")).content == "async"
    assert [one.content for one in claude(named).batch(["a", "b"])] == ["a", "b"]


def test_langchain_counts_tokens(tiny):
    from langchain_core.messages import HumanMessage
    assert claude(tiny, model="tiny").get_num_tokens_from_messages([HumanMessage("Grüße")]) > 0


@pytest.mark.parametrize("method", ["function_calling", "json_schema"])
def test_langchain_has_a_typed_answer_by_messages(tools, method):
    model = claude(tools, model="tiny").with_structured_output(Day, method=method)
    assert isinstance(model.invoke("Where to?"), Day)


def test_langchain_goes_on_after_a_call(named):
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    turns = [
        HumanMessage("Weather?"),
        AIMessage("", tool_calls=[{"name": "weather", "args": {"city": "Rome"}, "id": "toolu_1"}]),
        ToolMessage("sunny", tool_call_id="toolu_1"), HumanMessage("And now?")]
    assert claude(named).bind_tools([Trip]).invoke(turns).text == "And now?"


def responses(server, **more):
    from langchain_openai import ChatOpenAI
    return ChatOpenAI(**{
        "model": "gpt-4.1", "base_url": server.url, "api_key": "x", "use_responses_api": True,
        "max_retries": 0, "max_tokens": 300, **more})


def test_langchain_asks_by_responses(named):
    answer = responses(named).invoke([("system", "s"), ("human", "Grüße")])
    assert answer.text == "Grüße" and answer.usage_metadata["output_tokens"] > 0
    chunks = list(responses(named).stream("one two"))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert whole.text == "one two"


def test_langchain_has_a_typed_answer_by_responses(tools):
    for method in ("json_schema", "function_calling"):
        model = responses(tools, model="tiny").with_structured_output(Trip, method=method)
        assert isinstance(model.invoke("Where to?"), Trip)


# --- pydantic-ai ---

def pydantic_model(server, kind, name):
    if kind == "messages":
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider
        return AnthropicModel(name, provider=AnthropicProvider(base_url=server.site, api_key="x"))
    if kind == "responses":
        from pydantic_ai.models.openai import OpenAIResponsesModel
        from pydantic_ai.providers.openai import OpenAIProvider
        return OpenAIResponsesModel(name, provider=OpenAIProvider(base_url=server.url, api_key="x"))
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.ollama import OllamaProvider
    return OpenAIChatModel(name, provider=OllamaProvider(base_url=server.url, api_key="x"))


@pytest.mark.parametrize("kind, name", [("messages", "claude-sonnet-4-5"), ("responses", "gpt-4.1"),
                                        ("ollama", "llama3.2")])
def test_pydantic_ai_asks_and_streams(named, kind, name):
    from pydantic_ai import Agent
    agent = Agent(pydantic_model(named, kind, name), system_prompt="s")
    assert agent.run_sync("Grüße").output == "Grüße"

    async def stream():
        async with agent.run_stream("one two") as result:
            return [text async for text in result.stream_text()]

    assert asyncio.run(stream())[-1] == "one two"


@pytest.mark.parametrize("kind", ["messages", "responses", "ollama"])
@pytest.mark.parametrize("output", ["ToolOutput", "NativeOutput"])
def test_pydantic_ai_has_a_typed_output(tools, kind, output):
    import pydantic_ai
    agent = pydantic_ai.Agent(pydantic_model(tools, kind, "tiny"),
                              output_type=getattr(pydantic_ai, output)(Trip),
                              model_settings={"max_tokens": 300})
    try:
        assert isinstance(agent.run_sync("Where to?").output, Trip)
    except pydantic_ai.exceptions.UserError as error: # a profile that rules the output out
        assert output == "NativeOutput" and "not supported" in str(error)


# --- openai-agents ---

def test_an_agent_answers_by_responses(named):
    from agents import Agent, OpenAIResponsesModel, RunConfig, Runner
    client = openai.AsyncOpenAI(base_url=named.url, api_key="x", max_retries=0)
    agent = Agent(name="a", instructions="s", model=OpenAIResponsesModel("gpt-4.1", client))
    quiet = RunConfig(tracing_disabled=True)

    async def ask():
        result = await Runner.run(agent, "Grüße", run_config=quiet)
        turns = [*result.to_input_list(), {"role": "user", "content": "more"}]
        again = await Runner.run(agent, turns, run_config=quiet)
        going = Runner.run_streamed(agent, "one two", run_config=quiet)
        kinds = [event.data.type async for event in going.stream_events()
                 if event.type == "raw_response_event"]
        return result.final_output, again.final_output, going.final_output, kinds[-1]

    assert asyncio.run(ask()) == ("Grüße", "more", "one two", "response.completed")


def test_an_agent_calls_its_tool_by_responses(tools):
    from agents import Agent, ModelSettings, OpenAIResponsesModel, RunConfig, Runner, function_tool
    called = []

    @function_tool
    def book(city: Literal["Rome", "Oslo"]) -> str:
        """Books a trip."""
        called.append(city)
        return f"booked {city}"

    client = openai.AsyncOpenAI(base_url=tools.url, api_key="x", max_retries=0)
    agent = Agent(name="a", tools=[book], model=OpenAIResponsesModel("tiny", client),
                  tool_use_behavior="stop_on_first_tool",
                  model_settings=ModelSettings(tool_choice="book", max_tokens=300))
    result = Runner.run_sync(agent, "Book.", run_config=RunConfig(tracing_disabled=True))
    assert called and result.final_output == f"booked {called[0]}"
