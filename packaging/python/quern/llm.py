# SPDX-License-Identifier: Apache-2.0
"""Models without a server, in the shape of vLLM's offline class."""
from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Sequence, Union

from ._run import QuernError, options_of, run

Message = Dict[str, Any]


@dataclass
class SamplingParams:
    """How answers are drawn. Names and defaults are vLLM's; `structured_outputs` is a dict such as
    {"json": schema} or {"choice": […]}."""

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: Optional[int] = None
    stop: Union[str, List[str], None] = None
    max_tokens: Optional[int] = 16
    min_tokens: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    ignore_eos: bool = False
    structured_outputs: Optional[Dict[str, Any]] = None

    def body(self) -> Dict[str, Any]:
        """The members of a request's body: temperature, and all that is not a default of the
        API."""
        members = {
            each.name: getattr(self, each.name)
            for each in dataclasses.fields(self)
            if getattr(self, each.name) != each.default}
        members["temperature"] = self.temperature
        if self.max_tokens is None:
            members.pop("max_tokens", None)
        else:
            members["max_tokens"] = self.max_tokens
        return members


@dataclass
class CompletionOutput:
    """One answer."""

    index: int
    text: str
    finish_reason: Optional[str] = None
    stop_reason: Union[int, str, None] = None
    tool_calls: List[Dict[str, Any]] = field(default_factory=list)


@dataclass
class RequestOutput:
    """The answers to one prompt. `error` says why there are none."""

    request_id: str
    prompt: Union[str, List[Message]]
    outputs: List[CompletionOutput]
    prompt_tokens: int = 0
    completion_tokens: int = 0
    num_cached_tokens: int = 0
    finished: bool = True
    error: Optional[str] = None


class LLM:
    """A model that answers lists of prompts on this machine.

    `model` is what `quern run --model` takes: a name, a GGUF file, a folder. Keyword arguments
    become options of `quern run`: max_model_len=4096, device="cuda". Each call loads the model, so
    one call with all prompts is the fast way. """

    def __init__(self, model: str, **options: Any) -> None:
        self.model, self.options = model, options

    def chat(self,
             messages: Union[Sequence[Message], Sequence[Sequence[Message]]],
             sampling_params: Union[SamplingParams, Sequence[SamplingParams], None] = None,
             use_tqdm: bool = True,
             *,
             tools: Optional[List[Dict[str, Any]]] = None,
             chat_template_kwargs: Optional[Dict[str, Any]] = None) -> List[RequestOutput]:
        """Answers one conversation, or each of a list of them, in their order. QuernError, with all
        answers in its `outputs`, if any failed."""
        conversations: List[Any] = [
            messages] if messages and isinstance(messages[0], dict) else list(messages)
        more: Dict[str, Any] = {}
        if tools is not None:
            more["tools"] = tools
        if chat_template_kwargs is not None:
            more["chat_template_kwargs"] = chat_template_kwargs
        return self._answer("/v1/chat/completions", "messages",
                            [list(each) for each in conversations], sampling_params, use_tqdm, more)

    def generate(self,
                 prompts: Union[str, Sequence[str]],
                 sampling_params: Union[SamplingParams, Sequence[SamplingParams], None] = None,
                 use_tqdm: bool = True) -> List[RequestOutput]:
        """Continues one prompt, or each of a list of them, without a template."""
        return self._answer("/v1/completions", "prompt",
                            [prompts] if isinstance(prompts, str) else list(prompts),
                            sampling_params, use_tqdm, {})

    def _answer(self, url: str, member: str, prompts: List[Any], sampling: Any, progress: bool,
                more: Dict[str, Any]) -> List[RequestOutput]:
        if not prompts:
            return []
        each = [sampling] * len(prompts) if sampling is None or isinstance(
            sampling, SamplingParams) else list(sampling)
        if len(each) != len(prompts):
            raise ValueError(f"{len(prompts)} prompts and {len(each)} sampling_params")
        with tempfile.TemporaryDirectory(prefix="quern-") as folder:
            source, result = os.path.join(folder, "in.jsonl"), os.path.join(folder, "out.jsonl")
            with open(source, "w", encoding="utf-8") as file:
                for number, (prompt, params) in enumerate(zip(prompts, each)):
                    body = {member: prompt, **(params.body() if params else {}), **more}
                    file.write(
                        json.dumps({
                            "custom_id": str(number), "method": "POST", "url": url, "body": body}) +
                        "\n")
            run(source, result, [self.model], options_of(self.options), progress)
            with open(result, encoding="utf-8") as file:
                outputs = [_output(prompt, json.loads(line)) for prompt, line in zip(prompts, file)]
        failed = [output for output in outputs if output.error]
        if failed:
            error = QuernError(
                f"{len(failed)} of {len(outputs)} prompts failed; number {failed[0].request_id}: {failed[0].error}"
            )
            error.outputs = outputs  # type: ignore[attr-defined]
            raise error
        return outputs


def _output(prompt: Any, result: Dict[str, Any]) -> RequestOutput:
    body = (result.get("response") or {}).get("body") or {}
    error = result.get("error") or body.get("error")
    usage = body.get("usage") or {}
    return RequestOutput(
        request_id=result["custom_id"],
        prompt=prompt,
        outputs=[_completion(choice) for choice in body.get("choices") or []],
        prompt_tokens=usage.get("prompt_tokens") or 0,
        completion_tokens=usage.get("completion_tokens") or 0,
        num_cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
        error=(error.get("message") or error.get("code") or "failed") if error else None)


def _completion(choice: Dict[str, Any]) -> CompletionOutput:
    message = choice.get("message") or {}
    text = choice.get("text") if "text" in choice else message.get("content")
    return CompletionOutput(index=choice.get("index") or 0,
                            text=text or "",
                            finish_reason=choice.get("finish_reason"),
                            stop_reason=choice.get("stop_reason"),
                            tool_calls=message.get("tool_calls") or [])
