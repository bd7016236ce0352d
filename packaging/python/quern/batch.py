# SPDX-License-Identifier: Apache-2.0
"""One batch: its requests are added one by one, sent, waited for, and its results written to
files."""
from __future__ import annotations

import hashlib
import json
import os
import pathlib
import sys
import time
from typing import IO, Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from ._run import PathLike, QuernError, Run, options_of
from ._server import Server

FINISHED = ("failed", "completed", "expired", "cancelled")
BAR_CELLS = 30


class Record(dict):  # type: ignore[type-arg]
    """An object of JSON whose members are attributes, too: batch.request_counts.completed."""

    def __getattr__(self, name: str) -> Any:
        try:
            value = self[name]
        except KeyError:
            raise AttributeError(name) from None
        return Record(value) if isinstance(value, dict) else value


def endpoint_of(body: Dict[str, Any]) -> str:
    """The endpoint of a request, by the parameter that only this endpoint has."""
    marks = [("messages", "/v1/chat/completions"), ("questions", "/v1/decisions"),
             ("input", "/v1/embeddings"), ("documents", "/v1/score"), ("text_1", "/v1/score"),
             ("prompt", "/v1/completions")]
    found = [endpoint for mark, endpoint in marks if mark in body]
    if not found:
        raise ValueError(
            "a request has messages (chat), prompt (completions), input (embeddings), questions (decisions), text_1 and text_2, or query and documents (score)"
        )
    if len(set(found)) > 1 and found[0] != "/v1/decisions":
        raise ValueError(f"a request is one to {found[0]} or to {found[1]}, not to both")
    return found[0]


class Batch:
    """A batch of requests, in the shape of the openai-batch helper.

    With `base_url` (or OPENAI_BASE_URL) it runs on that server, with `api_key` (or OPENAI_API_KEY).
    `provider` may be a provider of openai-batch. Without a server it runs here, through `quern
    run`: keyword arguments that are not named below become its options (max_model_len=4096,
    threads=8), and `models` the models to load (default: those that the requests name). """

    def __init__(self,
                 submission_input_file: Optional[PathLike] = None,
                 output_file: Optional[PathLike] = None,
                 error_file: Optional[PathLike] = None,
                 custom_id_prefix: str = "line",
                 batch_id: Optional[str] = None,
                 provider: Any = None,
                 *,
                 base_url: Optional[str] = None,
                 api_key: Optional[str] = None,
                 models: Union[str, Sequence[str], None] = None,
                 progress: bool = True,
                 **options: Any) -> None:
        base_url = base_url or getattr(provider, "base_url",
                                       None) or os.environ.get("OPENAI_BASE_URL")
        api_key = api_key or getattr(provider, "api_key", None) or os.environ.get("OPENAI_API_KEY")
        if submission_input_file is not None and batch_id is not None:
            raise ValueError(
                "a batch that exists takes no more requests: give submission_input_file or batch_id"
            )
        if batch_id is not None and not base_url:
            raise ValueError(
                "batch_id names a batch of a server: base_url or OPENAI_BASE_URL is missing")
        if base_url and options:
            raise TypeError(
                f"{next(iter(options))} is an option of quern run, and this batch runs on {base_url}"
            )
        self.submission_input_file = submission_input_file
        self.output_file, self.error_file = output_file, error_file
        self.custom_id_prefix, self.batch_id, self.progress = custom_id_prefix, batch_id, progress
        self.n_requests = 0
        self.server = Server(base_url, api_key) if base_url else None
        self._models: List[str] = [models] if isinstance(models, str) else list(models or ())
        self._options = options
        self._named: Dict[str, None] = {}  # the models that requests name, in their order
        self._endpoint: Optional[str] = None
        self._file: Optional[IO[str]] = None
        self._run: Optional[Run] = None
        self._ended: Optional[Record] = None  # record of a local run

    def __enter__(self) -> "Batch":
        return self

    def __exit__(self, *exception: Any) -> None:
        self._close()
        if self._run and not self._ended:
            self._run.stop()

    def _close(self) -> None:
        if self._file:
            self._file.close()
            self._file = None

    def add_to_batch(self, *, custom_id: Optional[str] = None, **body: Any) -> str:
        """Adds a request by its body, such as model=…, messages=…; returns its custom_id."""
        if self.batch_id is not None:
            raise ValueError("this batch was submitted: it takes no more requests")
        if "model" not in body:
            raise ValueError("model is missing")
        endpoint = endpoint_of(body)
        self._endpoint = self._endpoint or endpoint
        if endpoint != self._endpoint:
            raise ValueError(
                f"this batch has requests to {self._endpoint}: one to {endpoint} belongs into another"
            )
        if not self._file:
            if self.submission_input_file is None:
                self.submission_input_file = f"batch_submission_{time.strftime('%Y%m%d_%H%M%S')}.jsonl"
            path = pathlib.Path(self.submission_input_file)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(path, "a" if self.n_requests else "w", encoding="utf-8")
        custom_id = custom_id or f"{self.custom_id_prefix}-{self.n_requests + 1}"
        self._file.write(
            json.dumps({"custom_id": custom_id, "method": "POST", "url": endpoint, "body": body}) +
            "\n")
        self._named.setdefault(str(body["model"]))
        self.n_requests += 1
        return custom_id

    def _look_at_input(self, path: PathLike) -> str:
        """The models and the endpoint of a file that was written before; its hash."""
        digest = hashlib.sha256()
        with open(path, "rb") as file:
            for line in file:
                digest.update(line)
                if self.n_requests or not line.strip():
                    continue
                request = json.loads(line)
                self._endpoint = self._endpoint or request.get("url")
                if request.get("body", {}).get("model"):
                    self._named.setdefault(str(request["body"]["model"]))
        return digest.hexdigest()

    def submit(self, metadata: Optional[Dict[str, str]] = None, dry_run: bool = False) -> str:
        """Sends the requests, or starts `quern run`; returns the batch's id."""
        self._close()
        if self.batch_id is not None:
            raise ValueError("this batch was submitted already")
        if self.submission_input_file is None:
            raise ValueError("no requests have been added to the batch")
        digest = self._look_at_input(self.submission_input_file)
        if dry_run:
            self.batch_id = "batch-dry-run"
        elif self.server:
            file = self.server.upload(self.submission_input_file)
            # A create call whose answer was lost is not sent again: it might be a second batch.
            batch = self.server.json(
                "POST",
                "/batches", {
                    "input_file_id": file["id"], "endpoint": self._endpoint
                    or "/v1/chat/completions", "completion_window": "24h", "metadata": metadata},
                again=False)
            self.batch_id = str(batch["id"])
        else:
            self.batch_id = f"run-{digest[:16]}"
            self._run = Run(self.submission_input_file, self._merged(), self._models
                            or list(self._named),
                            # The merged file, which a manifest would prove, does not stay.
                            ["--overwrite", "--manifest", "", *options_of(self._options)],
                            self.progress)
        return self.batch_id

    def _merged(self) -> str:
        """The one result file of a local run, until download."""
        return f"{self._path(self.output_file, 'output')}.run"

    def _path(self, given: Optional[PathLike], kind: str) -> str:
        return os.fspath(given) if given is not None else f"{self.batch_id}-{kind}.jsonl"

    def status(self, dry_run: bool = False) -> Record:
        """The batch object. Of a local run: `in_progress`, then `completed` with its counts."""
        if not self.batch_id:
            raise ValueError("the batch has not been submitted yet")
        if dry_run:
            return Record(id=self.batch_id,
                          object="batch",
                          status="completed",
                          request_counts={"total": 0, "completed": 0, "failed": 0})
        if self.server:
            return Record(self.server.json("GET", f"/batches/{self.batch_id}"))
        assert self._run
        if not self._ended and not self._run.is_running():
            self._end_run()
        return self._ended or Record(id=self.batch_id,
                                     object="batch",
                                     status="in_progress",
                                     request_counts={
                                         "total": self.n_requests, "completed": 0, "failed": 0})

    def _end_run(self) -> None:
        assert self._run
        summary = self._run.wait()
        if summary.get("was_finished"):
            with open(self._merged(), "rb") as file:
                total = sum(1 for _ in file)
            summary = {**summary, "requests": total, "completed": total - summary["failed"]}
        self._ended = Record(id=self.batch_id,
                             object="batch",
                             status="completed",
                             summary=summary,
                             request_counts={
                                 "total": summary["requests"], "completed": summary["completed"],
                                 "failed": summary["failed"]})

    def wait(self,
             interval: float = 2.0,
             status_callback: Optional[Callable[[Record], Any]] = None) -> Record:
        """Waits until the batch has ended, with a line of progress on a terminal; returns the batch
        object."""
        began, bar = time.monotonic(), _Bar(self.progress and self.server is not None)
        while True:
            batch = self.status()
            if status_callback is not None:
                status_callback(batch)
            bar.show(batch, time.monotonic() - began)
            if batch["status"] in FINISHED:
                bar.end(batch)
                return batch
            if self._run and status_callback is None:
                self._end_run()
            else:
                time.sleep(interval if self.server else min(interval, 0.2))

    def download(self, dry_run: bool = False) -> Tuple[Optional[str], Optional[str]]:
        """Writes the results that succeeded and those that failed to two files; their paths, None
        for one that has no lines."""
        if not self.batch_id:
            raise ValueError("the batch has not been submitted yet")
        if dry_run:
            return None, None
        if not self.server:
            return self._split()
        paths: List[Optional[str]] = []
        batch = self.status()
        for kind, given in (("output", self.output_file), ("error", self.error_file)):
            file_id = batch.get(f"{kind}_file_id")
            path = self._path(given, "errors" if kind == "error" else kind)
            if file_id:
                self.server.download(file_id, path)
            paths.append(path if file_id else None)
        return paths[0], paths[1]

    def _split(self) -> Tuple[Optional[str], Optional[str]]:
        """Two files of a local run's one, as a server gives them."""
        if not self._ended:
            self._end_run()
        merged, paths, counts = self._merged(), [
            self._path(self.output_file, "output"),
            self._path(self.error_file, "errors")], [0, 0]
        with open(merged, "rb") as source, open(paths[0] + ".part", "wb") as good, open(
                paths[1] + ".part", "wb") as bad:
            for line in source:
                result = json.loads(line)
                failed = bool(result.get("error")) or (result.get("response")
                                                       or {}).get("status_code") != 200
                (bad if failed else good).write(line)
                counts[failed] += 1
        for path, count in zip(paths, counts):
            if count:
                os.replace(path + ".part", path)
            else:
                os.unlink(path + ".part")
        os.unlink(merged)
        return (paths[0] if counts[0] else None), (paths[1] if counts[1] else None)

    def submit_wait_download(self,
                             interval: float = 2.0,
                             status_callback: Optional[Callable[[Record], Any]] = None,
                             metadata: Optional[Dict[str, str]] = None,
                             dry_run: bool = False) -> Tuple[Record, Optional[str], Optional[str]]:
        """submit, wait and download: the batch object, the path of the results, the path of the
        errors."""
        self.submit(metadata, dry_run)
        if dry_run:
            return self.status(dry_run=True), None, None
        batch = self.wait(interval, status_callback)
        if batch["status"] == "failed":
            errors = ((batch.get("errors") or {}).get("data") or [{}])[0]
            raise QuernError(
                f"{self.batch_id} was refused: line {errors.get('line')}: {errors.get('message')}")
        output_path, error_path = self.download()
        return batch, output_path, error_path


class _Bar:
    """A line of progress on the terminal: drawn anew at each look, and nowhere else."""

    def __init__(self, wanted: bool) -> None:
        self.is_shown = wanted and sys.stderr is not None and sys.stderr.isatty()

    def show(self, batch: Record, seconds: float) -> None:
        counts = batch.get("request_counts") or {}
        total, failed = counts.get("total") or 0, counts.get("failed") or 0
        done = (counts.get("completed") or 0) + failed
        if not self.is_shown:
            return
        if not total:
            sys.stderr.write(f"\r\x1b[K{batch['status']}")
        else:
            cells, rate = BAR_CELLS * done // total, done / seconds if seconds > 0 else 0
            left = f", ETA {int((total - done) / rate)} s" if rate > 0 and done < total else ""
            sys.stderr.write(
                f"\r\x1b[K[{'#' * cells}{'.' * (BAR_CELLS - cells)}] {done}/{total} done, {failed} failed, {rate:.1f} req/s{left}"
            )
        sys.stderr.flush()

    def end(self, batch: Record) -> None:
        if self.is_shown:
            sys.stderr.write("\n")
