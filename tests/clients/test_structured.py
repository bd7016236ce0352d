# SPDX-License-Identifier: Apache-2.0
"""Clients that want typed answers: LangChain's three methods, instructor's modes, pydantic-ai's
three outputs, openai-agents with a tool and an output type, `llm --schema`. The model has random
weights: an answer is of its type because quern holds it there, not because the model meant it.
Modes that ask for any JSON, and hope for the type, are tried as far as the request and the parsing
of the answer go."""
import asyncio, json, os, subprocess, sys
from typing import Literal

import openai, pydantic
import pytest


class Mood(pydantic.BaseModel):
    """A type without bounds, which strict schemas leave out."""
    kind: Literal["good", "bad"]
    sure: bool


class Person(pydantic.BaseModel):
    """Somebody."""
    name: str = pydantic.Field(min_length=1, max_length=12)
    age: int = pydantic.Field(ge=0, le=130)
    kind: Literal["a", "b"]
    tags: list[Literal["x", "y"]] = pydantic.Field(max_length=3)


PROMPT = "Tell me about somebody."


def client_of(server, kind=openai.OpenAI):
    return kind(base_url=server.url, api_key="none", max_retries=0, timeout=300)


# --- LangChain ---

def chat_of(server, **options):
    from langchain_openai import ChatOpenAI
    return ChatOpenAI(model="tiny",
                      base_url=server.url,
                      api_key="none",
                      max_retries=0,
                      temperature=1,
                      seed=1,
                      max_tokens=300,
                      **options)


@pytest.mark.parametrize(
    "options", [{}, {"method": "json_schema"}, {"method": "json_schema", "strict": True}, {
        "method": "function_calling"}, {"method": "function_calling", "strict": True}],
    ids=str)
def test_langchain_has_a_person(tools, options):
    assert isinstance(
        chat_of(tools).with_structured_output(Person, **options).invoke(PROMPT), Person)


def test_langchain_has_an_object_in_json_mode(tools):
    """Any object ends an answer; one that max_tokens cuts is an error of the client's own class."""
    try:
        read = chat_of(tools).with_structured_output(None, method="json_mode",
                                                     include_raw=True).invoke(PROMPT)
        assert isinstance(read["parsed"], dict) and read["parsing_error"] is None
    except openai.LengthFinishReasonError:
        pass


def test_langchain_streams_a_person(tools):
    *_, last = chat_of(tools).with_structured_output(Person).stream(PROMPT)
    assert isinstance(last, Person)


def test_langchain_is_given_a_call_of_any_tool(tools):
    from langchain_core.tools import tool

    @tool
    def weather(city: Literal["Oslo", "Bergen"]) -> str:
        """The weather of a city."""
        return city

    answer = chat_of(tools).bind_tools([weather], tool_choice="any",
                                       parallel_tool_calls=False).invoke(PROMPT)
    [call] = answer.tool_calls
    assert call["name"] == "weather" and call["args"]["city"] in ("Oslo", "Bergen")


# --- instructor ---

@pytest.mark.parametrize("mode", ["TOOLS", "TOOLS_STRICT", "JSON_SCHEMA"])
def test_instructor_has_a_person(tools, mode):
    import instructor
    client = instructor.from_openai(client_of(tools), mode=getattr(instructor.Mode, mode))
    person = client.chat.completions.create(model="tiny",
                                            messages=[{"role": "user", "content": PROMPT}],
                                            response_model=Person,
                                            max_retries=0,
                                            temperature=1,
                                            seed=2,
                                            max_tokens=300)
    assert isinstance(person, Person)


@pytest.mark.parametrize("mode", ["JSON", "MD_JSON", "PARALLEL_TOOLS"])
def test_instructor_is_answered_in_modes_that_hope(tools, mode):
    import collections.abc, instructor
    client = instructor.from_openai(client_of(tools), mode=getattr(instructor.Mode, mode))
    wanted = collections.abc.Iterable[Person] if mode == "PARALLEL_TOOLS" else Person
    answers = []
    client.on("completion:response", answers.append)
    try:
        found = client.chat.completions.create(model="tiny",
                                               messages=[{"role": "user", "content": PROMPT}],
                                               response_model=wanted,
                                               max_retries=0,
                                               temperature=1,
                                               seed=2,
                                               max_tokens=60)
        list(found or []) if mode == "PARALLEL_TOOLS" else Person.model_validate(found)
    except Exception as error:  # the model's words are random: the client finds no person in them
        assert not isinstance(error.__cause__ or error, openai.APIError), error
    assert len(answers) == 1 and answers[0].choices[0].finish_reason in ("stop", "length",
                                                                         "tool_calls")


def test_instructor_streams_a_person(tools):
    import instructor
    client = instructor.from_openai(client_of(tools), mode=instructor.Mode.TOOLS)
    *_, last = client.chat.completions.create_partial(model="tiny",
                                                      messages=[{"role": "user",
                                                                 "content": PROMPT}],
                                                      response_model=Person,
                                                      max_retries=0,
                                                      temperature=1,
                                                      seed=3,
                                                      max_tokens=200)
    assert Person.model_validate(last.model_dump())


# --- pydantic-ai ---

def model_of(server):
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    return OpenAIChatModel(
        "tiny", provider=OpenAIProvider(openai_client=client_of(server, openai.AsyncOpenAI)))


@pytest.mark.parametrize("output", ["tool", "native", "strict"])
def test_pydantic_ai_has_a_person(tools, output):
    from pydantic_ai import Agent, NativeOutput, ToolOutput
    kind = {
        "tool": ToolOutput(Person), "native": NativeOutput(Person),
        "strict": NativeOutput(Mood, strict=True)}[output]
    agent = Agent(model_of(tools),
                  output_type=kind,
                  model_settings={
                      "temperature": 1, "seed": 4, "max_tokens": 300, "parallel_tool_calls": False})
    assert isinstance(agent.run_sync(PROMPT).output, Mood if output == "strict" else Person)


def test_pydantic_ai_asks_for_an_object_by_prompt(tools):
    """PromptedOutput sends json_object and hopes for the type."""
    from pydantic_ai import Agent, PromptedOutput, UnexpectedModelBehavior
    agent = Agent(model_of(tools),
                  output_type=PromptedOutput(Person),
                  retries=0,
                  model_settings={"temperature": 1, "seed": 4, "max_tokens": 60})
    try:
        assert isinstance(agent.run_sync(PROMPT).output, Person)
    except UnexpectedModelBehavior:
        pass


# --- openai-agents ---

def test_agents_call_a_tool_and_have_an_output_type(tools):
    """The tool is named in the first turn, and the second one ends with the output."""
    from agents import Agent, ModelSettings, RunConfig, Runner, function_tool
    from agents import OpenAIChatCompletionsModel
    asked = []

    @function_tool
    def weather(city: Literal["Oslo", "Bergen"]) -> str:
        """The weather of a city."""
        asked.append(city)
        return "rain"

    settings = ModelSettings(tool_choice="weather",
                             parallel_tool_calls=False,
                             temperature=1,
                             max_tokens=300)
    model = OpenAIChatCompletionsModel("tiny", client_of(tools, openai.AsyncOpenAI))
    agent = Agent(name="a",
                  instructions="Answer.",
                  model=model,
                  tools=[weather],
                  model_settings=settings,
                  output_type=Person)
    result = asyncio.run(
        Runner.run(agent, PROMPT, run_config=RunConfig(tracing_disabled=True), max_turns=8))
    assert asked and set(asked) <= {"Oslo", "Bergen"} and isinstance(result.final_output, Person)


# --- llm ---

def test_llm_has_an_answer_of_the_schema(tools, tmp_path):
    models = f"- model_id: tiny\n  model_name: tiny\n  api_base: {tools.url}\n  supports_schema: true\n"
    (tmp_path / "extra-openai-models.yaml").write_text(models)
    schema = {
        "type": "object", "properties": {
            "age": {"type": "integer", "minimum": 0, "maximum": 130}, "kind": {"enum": ["a", "b"]}},
        "required": ["age", "kind"], "additionalProperties": False}
    environment = {**os.environ, "LLM_USER_PATH": str(tmp_path), "OPENAI_API_KEY": "none"}
    program = [
        sys.executable, "-m", "llm", "-m", "tiny", "--schema",
        json.dumps(schema), "-o", "max_tokens", "300", "-o", "temperature", "1", PROMPT]
    for more in ([], ["--no-stream"]):
        done = subprocess.run([*program, *more],
                              capture_output=True,
                              text=True,
                              env=environment,
                              timeout=300)
        assert done.returncode == 0, done.stderr
        value = json.loads(done.stdout)
        assert value["kind"] in ("a", "b") and 0 <= value["age"] <= 130
