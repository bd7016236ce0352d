# SPDX-License-Identifier: Apache-2.0
"""quern in pipelines of Ray Data. Ray is no dependency of this wheel.

    from quern.ray import QuernPredictor

    answered = dataset.map_batches(QuernPredictor, fn_constructor_kwargs={"model": "smollm2"},
                                   batch_size=4096, compute=ray.data.ActorPoolStrategy(size=2))

    from quern.ray import QuernProcessorConfig, build_processor

    processor = build_processor(
        QuernProcessorConfig(model_source="smollm2", concurrency=2),
        preprocess=lambda row: {"messages": [{"role": "user", "content": row["question"]}],
                                "sampling_params": {"temperature": 0, "max_tokens": 64}},
        postprocess=lambda row: {"answer": row["generated_text"]})
    answered = processor(dataset)

Ray owns storage and retries there: quern keeps a batch only until its rows are given back. A server
that dies is started again inside the call, and the batch goes on; a row that fails is a row.
"""
from __future__ import annotations

import http.client
import json
import os
import time
import uuid
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from ._child import Child
from ._run import QuernError
from ._server import Server, ServerGone
from .batch import FINISHED
from .llm import _output

Row = Dict[str, Any]
TROUBLES = 5  # restarts without a further result, after which a call gives up
POLL_FIRST_S, POLL_LAST_S = 0.02, 0.5
ERROR = "error"
RAY_ERROR = "__inference_error__"  # ray.data.llm's name for it
# Members of a request that stand in columns of their own.
MORE = ("tools", "tool_choice", "response_format", "chat_template_kwargs")

__all__ = ["QuernPredictor", "QuernProcessorConfig", "Processor", "build_processor"]


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value != value)


def _plain(value: Any) -> Any:
    """A value of a batch as JSON has it. Arrow gives every struct the members of all structs, with
    null for those that it lacks: they are left out. Of a number that is null elsewhere it makes a
    float, with NaN for null: 64.0 is 64 again."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        plain = {key: _plain(each) for key, each in value.items()}
        return {key: each for key, each in plain.items() if not _is_missing(each)}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _listed(value: Any) -> Any:
    """Arrays in arrays as lists in lists, which Arrow takes back."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {key: _listed(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_listed(each) for each in value]
    return value


def _column(values: Any) -> Any:
    """A column of the input as it goes back."""
    return _listed(values) if getattr(values, "dtype", None) == object else values


class _Job:
    """The rows of one call that run as one batch."""

    def __init__(self, lines: Dict[int, str], url: str) -> None:
        self.lines, self.url, self.key = lines, url, uuid.uuid4().hex
        self.file_id: Optional[str] = None
        self.batch_id: Optional[str] = None
        self.ended = 0  # rows that have ended, as far as is known


class QuernPredictor:
    """Answers the rows of a batch, for `ray.data.Dataset.map_batches`; works without Ray, too.

    `model` and the keyword arguments are those of `quern serve`: max_model_len=4096, threads=8. A
    row has `messages` (a chat), `prompt` (a text to continue) or `input` (a text to embed), may
    have `sampling_params` (over those given here), `tools`, `tool_choice`, `response_format` and
    `chat_template_kwargs`. It comes back with `generated_text`, `finish_reason`,
    `num_input_tokens`, `num_generated_tokens`, for an input `embeddings`, and `error`, which is
    empty for a good row. Calls of several threads share the server."""

    def __init__(self,
                 model: str,
                 sampling_params: Optional[Dict[str, Any]] = None,
                 **options: Any) -> None:
        self.sampling_params = sampling_params or {}
        self.child = Child(model, options)
        self._model: str = self._server().json("GET", "/models")["data"][0]["id"]

    def close(self) -> None:
        """Ends the server. Else it ends with this process."""
        self.child.close()

    def _server(self) -> Server:
        return Server(self.child.url, is_ours=True)

    # --- rows and requests ---

    def _request(self, row: Row) -> Tuple[str, Row]:
        """Endpoint and body for a row."""
        row = _plain(row)
        params = {**self.sampling_params, **(row.get("sampling_params") or {})}
        params.pop("detokenize", None)  # vLLM's: whether text is made of the tokens
        more = {name: row[name] for name in MORE if name in row}
        if "messages" in row:
            return "/v1/chat/completions", {
                **params, **more, "model": self._model, "messages": row["messages"]}
        if "prompt" in row:
            return "/v1/completions", {**params, "model": self._model, "prompt": row["prompt"]}
        if "input" in row:
            return "/v1/embeddings", {"model": self._model, "input": row["input"]}
        raise ValueError("a row has messages, prompt or input")

    def __call__(self, batch: Dict[str, Any]) -> Dict[str, Any]:
        names = list(batch)
        count = len(batch[names[0]]) if names else 0
        jobs: Dict[str, Dict[int, str]] = {}
        results: List[Row] = [{} for _ in range(count)]
        for number in range(count):
            try:
                url, body = self._request({name: batch[name][number] for name in names})
                line = json.dumps(
                    {"custom_id": str(number), "method": "POST", "url": url, "body": body},
                    allow_nan=False)
                jobs.setdefault(url, {})[number] = line
            except (TypeError, ValueError) as wrong:
                results[number] = {ERROR: str(wrong) or "the row cannot be a request"}
        for url, lines in jobs.items():
            while lines:
                self._answer(_Job(lines, url), results)
                lines = {number: line for number, line in lines.items() if not results[number]}
        columns = ["generated_text", "finish_reason", "num_input_tokens", "num_generated_tokens"]
        answered: Dict[str, Any] = {name: _column(values) for name, values in batch.items()}
        empty = {"num_input_tokens": 0, "num_generated_tokens": 0}
        for name in [*columns, ERROR]:
            answered[name] = [result.get(name, empty.get(name, "")) for result in results]
        if "/v1/embeddings" in jobs:
            answered["embeddings"] = [result.get("embeddings") or [] for result in results]
        return answered

    # --- one batch of the server ---

    def _answer(self, job: _Job, results: List[Row]) -> None:
        """Runs the batch, through deaths of the server, and fills in results; none for lines that
        wait for those that were refused."""
        troubles, ended = 0, 0
        while True:
            try:
                return self._go_on(job, results)
            except (QuernError, OSError, http.client.HTTPException) as broken:
                lasts = isinstance(broken, QuernError) and not isinstance(broken, ServerGone)
                if not self.child.is_dead(1) and lasts:
                    raise
                troubles = 0 if job.ended > ended else troubles + 1
                ended = max(ended, job.ended)
                if troubles > TROUBLES:
                    raise QuernError(f"{broken}; quern serve said: {self.child.log()}") from None

    def _go_on(self, job: _Job, results: List[Row]) -> None:
        self.child.ensure()
        server, wait_s = self._server(), POLL_FIRST_S
        self._begin(server, job)
        while True:
            batch = server.json("GET", f"/batches/{job.batch_id}")
            counts = batch.get("request_counts") or {}
            job.ended = counts.get("completed", 0) + counts.get("failed", 0)
            if batch["status"] in FINISHED:
                break
            time.sleep(wait_s)
            wait_s = min(wait_s * 1.5, POLL_LAST_S)
        if batch["status"] == "failed":
            self._take_refusals(job, batch, results)
        else:
            self._take_results(server, job, batch, results)
        try:  # what stays goes with the folder
            server.json("DELETE", f"/batches/{job.batch_id}")
        except (QuernError, OSError, http.client.HTTPException):
            pass

    def _begin(self, server: Server, job: _Job) -> None:
        """Makes the batch, unless an earlier try did: its key makes no second one."""
        if not job.file_id:
            path = self.child.folder / f"{job.key}.jsonl"
            path.write_text("".join(line + "\n" for line in job.lines.values()), encoding="utf-8")
            job.file_id = server.upload(path)["id"]
            path.unlink()
        if not job.batch_id:
            job.batch_id = server.json(
                "POST",
                "/batches", {
                    "input_file_id": job.file_id, "endpoint": job.url, "completion_window": "24h"},
                headers={"Idempotency-Key": job.key})["id"]

    @staticmethod
    def _take_refusals(job: _Job, batch: Row, results: List[Row]) -> None:
        """A file with lines that are no requests is refused as a whole: those lines get their
        errors, and the others go again."""
        numbers, refused = list(job.lines), 0
        errors = (batch.get("errors") or {}).get("data") or []
        for error in errors:
            if error.get("line"):
                refused += 1
                results[numbers[error["line"] - 1]] = {ERROR: error.get("message") or "refused"}
        if not refused:
            said = errors[0].get("message") if errors else "the server refused the rows"
            for number in numbers:
                results[number] = {ERROR: said or "refused"}

    def _take_results(self, server: Server, job: _Job, batch: Row, results: List[Row]) -> None:
        path = self.child.folder / f"{job.key}.out"
        for name in ("output_file_id", "error_file_id"):
            if not batch.get(name):
                continue
            server.download(batch[name], path)
            with open(path, encoding="utf-8") as file:
                for line in file:
                    result = json.loads(line)
                    results[int(result["custom_id"])] = _columns(result)
            os.unlink(path)
        for number in job.lines:
            if not results[number]:
                results[number] = {ERROR: f"the batch is {batch['status']}, and has no result"}


def _columns(result: Row) -> Row:
    output = _output(None, result)
    if output.error:
        return {ERROR: output.error}
    found: Row = {
        "num_input_tokens": output.prompt_tokens, "num_generated_tokens": output.completion_tokens}
    if output.outputs:
        found["generated_text"] = output.outputs[0].text
        found["finish_reason"] = output.outputs[0].finish_reason or ""
    data = result["response"]["body"].get("data")
    if data and "embedding" in data[0]:
        found["embeddings"] = data[0]["embedding"]
    return found


# --- in the shape of ray.data.llm ---

class _RayPredictor(QuernPredictor):
    """The predictor of a processor, with ray.data.llm's column of errors."""

    def __init__(self, continues: bool, **keywords: Any) -> None:
        super().__init__(**keywords)
        self._continues = continues

    def __call__(self, batch: Dict[str, Any]) -> Dict[str, Any]:
        answered = super().__call__(batch)
        errors = answered.pop(ERROR)
        failed = [error for error in errors if error]
        if failed and not self._continues:
            raise QuernError(f"{len(failed)} of {len(errors)} rows failed, such as: {failed[0]}")
        answered[RAY_ERROR] = errors
        return answered


@dataclass
class QuernProcessorConfig:
    """A processor, in the words of ray.data.llm's configurations.

    `engine_kwargs` are options of `quern serve`. `concurrency` is the number of servers, or the
    least and the most. `num_cpus` and `num_gpus` are those of one server; without a GPU it computes
    with num_cpus threads, unless engine_kwargs has `threads`. Two batches run in a server at a time
    (`max_concurrent_batches`), so that none waits for the longest row of the one before. A row that
    fails is a row with a text in `__inference_error__` and is not given to `postprocess`; with
    should_continue_on_error=False it ends the job."""

    model_source: str
    engine_kwargs: Dict[str, Any] = field(default_factory=dict)
    sampling_params: Dict[str, Any] = field(default_factory=dict)
    batch_size: int = 1024
    concurrency: Union[int, Tuple[int, int]] = 1
    num_cpus: float = 1
    num_gpus: float = 0
    accelerator_type: Optional[str] = None
    max_concurrent_batches: int = 2
    should_continue_on_error: bool = True
    runtime_env: Optional[Dict[str, Any]] = None

    def options(self) -> Dict[str, Any]:
        threads = {} if self.num_gpus else {"threads": max(1, int(self.num_cpus))}
        return {**threads, **self.engine_kwargs}


class Processor:
    """Preprocess, answer, postprocess: a Dataset in, a Dataset out, nothing computed yet."""

    def __init__(self, config: QuernProcessorConfig, preprocess: Optional[Callable[[Row], Row]],
                 postprocess: Optional[Callable[[Row], Row]], preprocess_map_kwargs: Dict[str, Any],
                 postprocess_map_kwargs: Dict[str, Any]) -> None:
        self.config = config
        self.preprocess, self.postprocess = preprocess, postprocess
        self.preprocess_map_kwargs = preprocess_map_kwargs
        self.postprocess_map_kwargs = postprocess_map_kwargs

    def _before(self, row: Row) -> Row:
        return {**row, **self.preprocess(row)} if self.preprocess else row

    def _after(self, row: Row) -> Row:
        if row[RAY_ERROR] or not self.postprocess:
            return row
        return {**self.postprocess(row), RAY_ERROR: ""}

    def _map_keywords(self) -> Dict[str, Any]:
        """Arguments of map_batches."""
        import ray.data
        config = self.config
        least, most = (config.concurrency if isinstance(config.concurrency, tuple) else
                       (config.concurrency, config.concurrency))
        keywords: Dict[str, Any] = {
            "batch_size": config.batch_size, "num_cpus": config.num_cpus,
            "num_gpus": config.num_gpus, "compute": ray.data.ActorPoolStrategy(
                min_size=least, max_size=most, enable_true_multi_threading=True,
                max_concurrent_calls_per_actor=config.max_concurrent_batches),
            "fn_constructor_kwargs": {
                "continues": config.should_continue_on_error, "model": config.model_source,
                "sampling_params": config.sampling_params, **config.options()}}
        if config.accelerator_type:
            keywords["accelerator_type"] = config.accelerator_type
        if config.runtime_env:
            keywords["runtime_env"] = config.runtime_env
        return keywords

    def __call__(self, dataset: Any) -> Any:
        dataset = dataset.map(self._before, **self.preprocess_map_kwargs)
        dataset = dataset.map_batches(_RayPredictor, **self._map_keywords())
        return dataset.map(self._after, **self.postprocess_map_kwargs)


def build_processor(config: QuernProcessorConfig,
                    preprocess: Optional[Callable[[Row], Row]] = None,
                    postprocess: Optional[Callable[[Row], Row]] = None,
                    preprocess_map_kwargs: Optional[Dict[str, Any]] = None,
                    postprocess_map_kwargs: Optional[Dict[str, Any]] = None) -> Processor:
    """A processor in the shape of ray.data.llm's. `preprocess` makes of a row the members of a
    request, such as messages and sampling_params; all columns of the row go on to `postprocess`,
    with generated_text and the others of QuernPredictor."""
    return Processor(config, preprocess, postprocess, preprocess_map_kwargs or {},
                     postprocess_map_kwargs or {})
