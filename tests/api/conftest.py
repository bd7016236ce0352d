# SPDX-License-Identifier: Apache-2.0
"""The client suite wants a server in QUERN_BASE_URL; without one it gets a server with the echo
worker."""
import os, pathlib, shutil, tempfile

import pytest

import support

_started = []


@pytest.fixture
def copy(made, tmp_path):
    """A copy of the folder that a file's own fixture `made` has, to damage; a model stays where it
    was."""
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy"


def pytest_configure(config):
    if os.environ.get("QUERN_BASE_URL"):
        return
    folder = tempfile.TemporaryDirectory(prefix="quern-api-")
    server = support.Server(
        pathlib.Path(folder.name) / "state", "--model", "smollm2=echo", "--model",
        "gpt-4=echo").start()
    os.environ["QUERN_ECHO"] = "1"
    os.environ["QUERN_BASE_URL"] = server.url.removesuffix("/v1")
    _started.append((server, folder))


def pytest_unconfigure(config):
    for server, folder in _started:
        assert server.stop() == 0, server.log_text()[-2000:]
        support.fsck(server.state)
        folder.cleanup()
