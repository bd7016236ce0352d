# SPDX-License-Identifier: Apache-2.0
"""`quern run` with Parquet tables. The helper program is a stand-in whose Parquet is JSONL;
tests/clients/test_tables.py has the real one."""
import json, os, subprocess

import pytest

import support

STAND_IN = """#!/bin/sh
if [ "$1" = rows ]; then
    case "$2" in *broken*) head -n 1 "$2"; echo "quern-parquet: it is broken" >&2; exit 1;; esac
    cat "$2"
else
    [ "$#" = 3 ] || [ "$4" = --like ] || exit 1
    echo "$4 $5" >"$3.words"
    cat "$2" >"$3"
fi
"""
ROWS = [{"id": 2**62, "text": "x\ny", "score": 0.5, "tags": ["a", 1]}, {
    "id": 2, "text": None, "score": 1e300, "tags": None}]


def run(folder, *arguments, rows=ROWS, name="in.parquet", out="out.parquet", path=None):
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin/quern-parquet").write_text(STAND_IN)
    (folder / "bin/quern-parquet").chmod(0o755)
    (folder / name).write_bytes(support.jsonl(rows))
    (folder / "p.jinja").write_text("{{ id + 1 }} {{ text is none }} {{ tags | tojson }}")
    command = [
        support.BINARY, "run", "-i", folder / name, "-o", folder / out, "--prompt",
        folder / "p.jinja", "--model", "smollm2=echo", *arguments]
    return subprocess.run(command,
                          capture_output=True,
                          text=True,
                          env={**os.environ, "PATH": f"{path or folder / 'bin'}:/usr/bin:/bin"})


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_rows_keep_their_types_on_the_way(tmp_path):
    done = run(tmp_path, "--token-columns", "--id", "id")
    assert done.returncode == 0, done.stderr
    found = rows_of(tmp_path / "out.parquet")
    assert [{name: row[name] for name in ROWS[0]} for row in found] == ROWS
    assert [row["answer"] for row in found] == [f'{2**62 + 1} False ["a", 1]', "3 True null"]
    assert list(found[0])[4:] == [
        "answer", "error", "finish_reason", "prompt_tokens", "completion_tokens"
    ] and found[0]["error"] is None
    assert not (tmp_path / "out.parquet.quern").exists()


def test_it_meets_other_kinds_of_tables(tmp_path):
    assert run(tmp_path, out="out.csv").returncode == 0
    assert (tmp_path / "out.csv").read_text().startswith(
        'id,text,score,tags,answer,error,finish_reason\n4611686018427387904,"x\ny",0.5,"[""a"", 1]",'
    )
    assert run(tmp_path, name="in.jsonl").returncode == 0
    assert [row["id"] for row in rows_of(tmp_path / "out.parquet")] == [2**62, 2]


def test_a_helper_that_fails_refuses_the_table(tmp_path):
    done = run(tmp_path, name="broken.parquet")
    assert done.returncode == 3 and "it is broken" in done.stderr and "exited with status 1" in done.stderr
    assert not (tmp_path / "out.parquet.quern").exists()
    done = run(tmp_path, "--limit", "1",
               name="broken.parquet")  # a reading that ends early asks for no status
    assert done.returncode == 0, done.stderr


def test_without_the_helper_the_remedy_is_said(tmp_path):
    done = run(tmp_path, path="/nowhere")
    assert done.returncode == 4 and "pip install 'quern[parquet]'" in done.stderr
