# SPDX-License-Identifier: Apache-2.0
"""One `quern serve` of this process, started again when it dies."""
from __future__ import annotations

import atexit
import concurrent.futures
import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading
from typing import Any, Dict, IO, List, Optional

from ._run import QuernError, find_binary, options_of

LOG_BYTES = 2000  # the end of the child's log in an error


def _folder() -> "tuple[pathlib.Path, IO[bytes]]":
    """A new folder, and the lock that says that its process lives. Folders whose processes have
    ended are removed: a killed actor cannot do so."""
    base = pathlib.Path(tempfile.gettempdir()) / f"quern-children-{os.getuid()}"
    base.mkdir(mode=0o700, exist_ok=True)
    if base.is_symlink() or base.stat().st_uid != os.getuid():
        raise QuernError(f"{base} belongs to another user; set TMPDIR")
    for old in base.iterdir():
        try:
            with open(old / "lock", "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(old, ignore_errors=True)
        except OSError:
            continue  # its process lives, or begins
    folder = pathlib.Path(tempfile.mkdtemp(dir=base))
    lock = open(folder / "lock.new", "wb")
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.rename(folder / "lock.new", folder / "lock")
    return folder, lock


class Child:
    """A server on a free port of the loopback, for one model. Its state stays while this object
    does, so that a batch goes on when the server was killed."""

    def __init__(self, model: str, options: Dict[str, Any]) -> None:
        self._command: List[str] = [
            find_binary(), "serve", "--model", model, "--host", "127.0.0.1", "--port", "0",
            "--config", os.devnull, "--end-with-parent", "--no-access-log", "--log-level", "warn", *options_of(options)]
        # Settings of a service on this machine, which would keep this process out.
        self._environment = {
            name: value
            for name, value in os.environ.items()
            if name not in ("QUERN_API_KEY", "QUERN_API_KEY_FILE", "QUERN_SSL_CERTFILE",
                            "QUERN_SSL_KEYFILE")}
        self.folder, self._kept = _folder()
        self._process: Optional["subprocess.Popen[str]"] = None
        self._lock = threading.Lock()
        # The kernel kills a child when the thread that started it ends, so one thread starts all.
        self._starter = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="quern")
        self.url, self.starts = "", 0
        atexit.register(self.close)
        try:
            self.ensure()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    def log(self) -> str:
        """The end of what the server has said."""
        try:
            text = (self.folder / "log").read_bytes()[-LOG_BYTES:]
        except OSError:
            return ""
        return text.decode("utf-8", "replace").strip()

    def is_dead(self, seconds: float = 0) -> bool:
        """Whether the server ends within that time; a connection breaks shortly before."""
        process = self._process
        if process is None:
            return True
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def ensure(self) -> None:
        """Starts the server, unless it runs."""
        with self._lock:
            if self.is_dead():
                self._starter.submit(self._start).result()

    def _start(self) -> None:
        command = [*self._command, "--state-dir", str(self.folder / "state")]
        with open(self.folder / "log", "ab") as log:
            process = subprocess.Popen(command,
                                       stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE,
                                       stderr=log,
                                       text=True,
                                       env=self._environment)
        assert process.stdout is not None
        if self._process and self._process.stdout:
            self._process.stdout.close()
        self._process, self.starts = process, self.starts + 1
        line = process.stdout.readline()
        found = re.match(r"listening on (http://\S+:\d+)$", line.strip())
        if not found:
            process.kill()
            process.wait()
            raise QuernError(f"quern serve did not start: {self.log()}")
        self.url = found[1] + "/v1"

    def close(self) -> None:
        """Ends the server and removes its folder."""
        atexit.unregister(self.close)
        if self._process:
            self._process.kill()
            self._process.wait()
            if self._process.stdout:
                self._process.stdout.close()
        self._starter.shutdown(wait=False)
        shutil.rmtree(self.folder, ignore_errors=True)
        self._kept.close()
