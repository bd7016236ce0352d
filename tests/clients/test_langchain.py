# SPDX-License-Identifier: Apache-2.0
"""LangChain's class for decisions: every type of question, an object as input, and many drawn
answers, whose numbers it checks."""
import asyncio, random

import pytest
from langchain_openai.decisions import Choice, OpenAIDecisions, Predicate, Score

WORDS = "river stone lantern market winter engine garden copper letter window harbour signal".split(
)
QUESTIONS = {
    "urgent": Predicate(instructions="Is it urgent?"), "department": Choice(
        instructions="Which team?",
        choices={"billing": "Payment or subscription issues.", "technical": "Product bugs."}),
    "frustration": Score(instructions="How frustrated?", levels=["Calm", "Concerned", "Angry"])}


def model_of(server, name):
    return OpenAIDecisions(model=name,
                           base_url=server.url,
                           api_key="none",
                           max_retries=0,
                           timeout=300)


def check(read):
    assert 0 <= read.predicates["urgent"].probability <= 1
    assert read.choices["department"].choice in ("billing", "technical")
    assert 0 <= read.scores["frustration"].score <= 2


def test_every_type_of_question(real):
    check(
        model_of(real, "smollm2").invoke({
            "input": "Stripe has failed to connect for three days. Help ASAP.",
            "questions": QUESTIONS}))


def test_an_object_is_an_input(real):
    check(
        model_of(real, "smollm2").invoke({
            "input": {"subject": "Überweisung", "lines": [1, 2.5, None]}, "questions": QUESTIONS}))


def test_asynchronous_calls_have_the_same_answers(real):
    model, asked = model_of(real, "smollm2"), {
        "input": "The invoice is wrong again.", "questions": QUESTIONS}
    assert asyncio.run(model.ainvoke(asked)).answers == model.invoke(asked).answers


def test_it_accepts_a_thousand_drawn_answers(tiny):
    """50 requests of 20 questions; it refuses a probability outside 0 to 1."""
    rng = random.Random(7)
    for _ in range(50):
        questions = {}
        for i in range(20):
            options = rng.sample(WORDS, rng.randrange(2, 9))
            questions[f"q{i}"] = [
                Predicate(instructions=options[0]),
                Choice(instructions="Which?", choices=dict.fromkeys(options, "one of them")),
                Score(instructions="How much?", levels=options)][rng.randrange(3)]
        read = model_of(tiny, "tiny").invoke({
            "input": " ".join(rng.choices(WORDS, k=30)), "questions": questions})
        assert len(read.answers) == 20


def test_an_error_is_one_of_openai(tiny):
    import openai
    with pytest.raises(openai.NotFoundError):
        model_of(tiny, "nobody").invoke({"input": "x", "questions": QUESTIONS})
