# SPDX-License-Identifier: Apache-2.0
"""Batches of LLM requests from Python, against an OpenAI-compatible server or with the `quern` of
this wheel.

    from quern import Batch

    with Batch() as batch:
        for question in questions:
            batch.add_to_batch(model="smollm2", messages=[{"role": "user", "content": question}])
        result, output_path, error_path = batch.submit_wait_download()

    from quern import LLM, SamplingParams

    outputs = LLM("smollm2").chat(conversations, SamplingParams(temperature=0, max_tokens=64))
    print(outputs[0].outputs[0].text)

It needs nothing but the standard library. `quern.ray` has what pipelines of Ray Data need.
"""
from ._run import QuernError, find_binary
from .batch import Batch, Record
from .llm import LLM, CompletionOutput, RequestOutput, SamplingParams

__all__ = [
    "Batch", "CompletionOutput", "LLM", "QuernError", "Record", "RequestOutput", "SamplingParams",
    "find_binary"]
