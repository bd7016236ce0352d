# SPDX-License-Identifier: Apache-2.0
"""Starts `quern run`, which does the work of this package where there is no server."""
from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
from typing import Any, Dict, List, Sequence, Union

PathLike = Union[str, "os.PathLike[str]"]


class QuernError(Exception):
    """A command or a server that did not do what it was asked, in its own words."""


def find_binary() -> str:
    """The program `quern`: QUERN_BINARY, else the one of this environment, else the first in
    PATH."""
    given = os.environ.get("QUERN_BINARY")
    if given:
        return given
    folders = [sysconfig.get_path("scripts"), str(pathlib.Path(sys.executable).parent)]
    for folder in folders:
        found = shutil.which("quern", path=folder)
        if found:
            return found
    found = shutil.which("quern")
    if found:
        return found
    raise QuernError(
        "the program quern is neither in this Python's environment nor in PATH; QUERN_BINARY can name it"
    )


def options_of(keywords: Dict[str, Any]) -> List[str]:
    """Keyword arguments as options of the command line: max_model_len=4096 is --max-model-len 4096,
    True a switch."""
    options: List[str] = []
    for name, value in keywords.items():
        flag = "--" + name.replace("_", "-")
        if value is None:
            continue
        if value is True or value is False:
            options.append(flag if value else "--no-" + flag[2:])
        else:
            for one in value if isinstance(value, (list, tuple)) else [value]:
                options += [flag, str(one)]
    return options


class Run:
    """One `quern run`, from its start to its end. Its results are kept on disk as they come: the
    same run continues after an interruption."""
    def __init__(self,
                 source: PathLike,
                 result: PathLike,
                 models: Sequence[str],
                 options: Sequence[str] = (),
                 progress: bool = True) -> None:
        command = [
            find_binary(), "run", "-i",
            os.fspath(source), "-o",
            os.fspath(result), "--json", *options]
        for model in models:
            command += ["--model", model]
        # With a progress bar, the command writes to the terminal itself, errors too.
        self._has_terminal = progress and sys.stderr is not None
        self.process = subprocess.Popen(command + ([] if self._has_terminal else ["--quiet"]),
                                        stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE,
                                        stderr=None if self._has_terminal else subprocess.PIPE)

    def is_running(self) -> bool:
        return self.process.poll() is None

    def wait(self) -> Dict[str, Any]:
        """Waits for the end and returns the summary (quern-run(1), --json). Lines that failed are
        no error here: they have results."""
        try:
            out, err = self.process.communicate()
        except BaseException:
            self.stop()
            raise
        if self.process.returncode not in (0, 1) or not out.strip():
            said = (err or b"").decode("utf-8", "replace").strip()
            raise QuernError(said or f"quern run ended with status {self.process.returncode}")
        summary: Dict[str, Any] = json.loads(out)
        return summary

    def stop(self) -> None:
        """Ends the command; finished results stay in its folder."""
        if self.is_running():
            self.process.terminate()
        self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe:
                pipe.close()


def run(source: PathLike,
        result: PathLike,
        models: Sequence[str],
        options: Sequence[str] = (),
        progress: bool = True) -> Dict[str, Any]:
    """`quern run` from start to end; its summary."""
    return Run(source, result, models, options, progress).wait()
