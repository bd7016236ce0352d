# SPDX-License-Identifier: Apache-2.0
"""The five calls to an OpenAI-compatible server that a batch needs."""
from __future__ import annotations

import http.client
import json
import os
import pathlib
import time
import urllib.error
import urllib.request
import uuid
from typing import IO, Any, Dict, Iterator, Optional, Union

from ._run import QuernError

TRIES = 5
PIECE_BYTES = 1 << 20


class ServerGone(QuernError):
    """No answer came."""


class Server:
    """A server by its base URL, such as http://127.0.0.1:8080/v1. Answers of 429, 500, 502, 503 and
    504 are asked for again, five times in all, and so is a server that does not answer, unless the
    caller looks after it (`is_ours`)."""

    def __init__(self,
                 base_url: str,
                 api_key: Optional[str] = None,
                 is_ours: bool = False) -> None:
        self.base_url, self.api_key, self.is_ours = base_url.rstrip("/"), api_key, is_ours

    def _open(self,
              method: str,
              path: str,
              body: Any = None,
              headers: Optional[Dict[str, str]] = None,
              again: bool = True) -> Any:
        """An open answer. `body` is bytes, or a function that makes the iterator of a body for each
        try."""
        for attempt in range(1, TRIES + 1):
            data = body() if callable(body) else body
            request = urllib.request.Request(self.base_url + path,
                                             data=data,
                                             method=method,
                                             headers=dict(headers or {}))
            if self.api_key:
                request.add_unredirected_header("Authorization", f"Bearer {self.api_key}")
            try:
                return urllib.request.urlopen(request)
            except urllib.error.HTTPError as answer:
                with answer:
                    message = self._message(answer)
                if answer.code not in (
                        429, 500, 502, 503,
                        504) or attempt == TRIES or not (again or answer.code in (429, 503)):
                    raise QuernError(f"{method} {path}: {answer.code}: {message}") from None
                wait = answer.headers.get("retry-after", "")
                time.sleep(min(float(wait), 60) if wait.isdigit() else min(2.0 ** attempt / 2, 8))
            except (urllib.error.URLError, http.client.HTTPException, ConnectionError,
                    TimeoutError) as broken:
                if attempt == TRIES or not again or self.is_ours:
                    raise ServerGone(
                        f"{method} {self.base_url}{path}: {getattr(broken, 'reason', None) or broken}"
                    ) from None
                time.sleep(min(2.0 ** attempt / 2, 8))
        raise AssertionError("the last try returns or raises")

    @staticmethod
    def _message(answer: urllib.error.HTTPError) -> str:
        text = answer.read(65536).decode("utf-8", "replace")
        try:
            return str(json.loads(text)["error"]["message"])
        except (ValueError, KeyError, TypeError):
            return text[:200] or str(answer.reason)

    def json(self,
             method: str,
             path: str,
             body: Any = None,
             again: bool = True,
             headers: Optional[Dict[str, str]] = None) -> Dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"} if data else {}
        with self._open(method, path, data, {**kind, **(headers or {})}, again) as answer:
            found: Dict[str, Any] = json.loads(answer.read())
        return found

    def upload(self, path: Union[str, "os.PathLike[str]"]) -> Dict[str, Any]:
        """Uploads a file of requests, a piece at a time."""
        edge = uuid.uuid4().hex
        name = pathlib.Path(path).name.replace('"', "_").encode("ascii", "replace").decode()
        head = (
            f'--{edge}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--{edge}\r\nContent-Disposition: form-data; name="file"; '
            f'filename="{name}"\r\nContent-Type: application/octet-stream\r\n\r\n').encode()
        tail = f"\r\n--{edge}--\r\n".encode()

        def pieces() -> Iterator[bytes]:
            yield head
            with open(path, "rb") as file:
                while piece := file.read(PIECE_BYTES):
                    yield piece
            yield tail

        headers = {
            "Content-Type": f"multipart/form-data; boundary={edge}",
            "Content-Length": str(len(head) + os.path.getsize(path) + len(tail))}
        with self._open("POST", "/files", pieces, headers) as answer:
            found: Dict[str, Any] = json.loads(answer.read())
        return found

    def download(self, file_id: str, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes the content of a file next to `path`, and gives it that name when it is whole."""
        part = f"{os.fspath(path)}.part"
        with self._open("GET", f"/files/{file_id}/content") as answer, open(part, "wb") as file:
            copy(answer, file)
            left = answer.headers.get("Content-Length")
            if left is not None and file.tell() != int(left):
                raise ServerGone(
                    f"GET /files/{file_id}/content: the connection ended after {file.tell()} of {left} bytes"
                )
        os.replace(part, path)


def copy(source: Any, target: IO[bytes]) -> None:
    while piece := source.read(PIECE_BYTES):
        target.write(piece)
