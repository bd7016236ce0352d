# SPDX-License-Identifier: Apache-2.0
"""Packed weights are kept, mapped by the next engine inside its sandbox, and made anew when they
are damaged."""
import os, pathlib, re

import pytest

import support

MODEL = pathlib.Path(os.environ.get(
    "XDG_CACHE_HOME",
    pathlib.Path.home() / ".cache")) / "quern/models/SmolLM2-135M-Instruct.Q4_1.gguf"
pytestmark = pytest.mark.skipif(not MODEL.exists(), reason="the default model is not here")


def answer(tmp_path, name, *arguments, until=None):
    """(the text of a greedy answer, how the weights came) of a server that runs until `until` is
    there."""
    with support.serving(tmp_path / name, "--model", "smollm2", *arguments) as server:
        body = server.json(
            "POST", "/v1/chat/completions", {
                "model": "smollm2", "messages": [{"role": "user", "content": "Name three colours."}
                                                 ], "max_tokens": 12, "temperature": 0})
        support.until(until or (lambda: True))
        return body["choices"][0]["message"]["content"], re.search(
            r"event=model_loaded .* weights=(\w+)", server.log_text())[1]


def test_the_second_server_maps_what_the_first_one_packed(tmp_path):
    folder = tmp_path / "packed"
    files = lambda: list(folder.glob("*/*.packed"))
    text, how = answer(tmp_path, "one", "--packed-cache-dir", folder, until=files)
    assert how == "packed" and len(files()) == 1
    assert answer(tmp_path, "two", "--packed-cache-dir", folder) == (text, "mapped")
    whole = files()[0].read_bytes()
    middle = len(whole) // 2
    files()[0].write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1:])
    assert answer(tmp_path,
                  "three",
                  "--packed-cache-dir",
                  folder,
                  until=lambda: files()[0].read_bytes() == whole) == (text, "packed")
    assert answer(tmp_path, "four", "--packed-cache-dir", folder) == (text, "mapped")


def test_nothing_is_kept_where_nothing_may_be(tmp_path):
    folder = tmp_path / "packed"
    assert answer(tmp_path, "one", "--packed-cache-dir", folder, "--no-packed-cache")[1] == "packed"
    assert not folder.exists()
    assert answer(tmp_path, "two", "--packed-cache-dir", "/proc/none")[1] == "packed"
