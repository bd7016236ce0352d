# SPDX-License-Identifier: Apache-2.0
"""`quern run` from the outside: files, flags, exit statuses. The echo worker answers."""
import json

import pytest

import support


def run(tmp_path, content, *arguments):
    (tmp_path / "in.jsonl").write_bytes(content)
    return support.quern("run", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", "--model", "smollm2=echo", *arguments)


def test_the_results_are_in_input_order_and_the_folder_is_gone(tmp_path):
    lines = [support.request(f"id {i} é\u2028", f"text {i}") for i in range(500)]
    done = run(tmp_path, support.jsonl(lines), "--json")
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [r["custom_id"] for r in results] == [l["custom_id"] for l in lines]
    assert not (tmp_path / "out.jsonl.quern").exists()
    summary = json.loads(done.stdout)
    assert list(summary) == ["requests", "completed", "failed", "seconds", "load_seconds", "req_s", "prompt_tokens", "cached_tokens",
                             "completion_tokens", "peak_rss_bytes"]
    assert (summary["requests"], summary["completed"], summary["failed"]) == (500, 500, 0)


@pytest.mark.parametrize("content,said", [
    (b"", "empty"),
    (b"\n \n", "blank"),
    (b"{nonsense\n", "line 1"),
    (support.jsonl([support.request("a", "x")]) + b"{nonsense\n", "line 2"),
    (support.jsonl([support.request("a", "x"), support.request("a", "y")]), "line 2"),
    (support.jsonl([support.request("a", "x", model="other")]), "other"),
    (support.jsonl([dict(support.request("a", "x"), url="/v1/nope")]), "line 1"),
], ids=["empty", "blank", "first line", "second line", "same id", "other model", "url"])
def test_a_file_that_is_wrong_is_refused_before_anything_runs(tmp_path, content, said):
    done = run(tmp_path, content)
    assert done.returncode == 3, done.stderr
    assert said in done.stderr.lower()
    assert not (tmp_path / "out.jsonl").exists() and not (tmp_path / "out.jsonl.quern").exists()


@pytest.mark.parametrize("arguments,said", [
    (["--modle", "x"], "did you mean --model"),
    (["--max-num-seqs", "many"], "many"),
    (["--max-num-seqs", "-1"], "outside"),
    (["--max-model-len"], "needs a value"),
    (["stray"], "stray"),
])
def test_a_wrong_flag_is_named(tmp_path, arguments, said):
    done = run(tmp_path, support.jsonl([support.request("a", "x")]), *arguments)
    assert done.returncode == 2 and said in done.stderr


def test_the_flags_of_run_batch_are_taken_and_what_means_nothing_is_said_once(tmp_path):
    done = run(tmp_path, support.jsonl([support.request("a", "x")]), "--max-model-len", "4096", "--max-num-seqs", "8",
               "--max-num-batched-tokens", "512", "--enable-prefix-caching", "--gpu-memory-utilization", "0.9",
               "--tensor-parallel-size", "1", "--dtype", "auto", "--enforce-eager", "--seed", "1")
    assert done.returncode == 0, done.stderr
    for flag in ("enforce-eager", "seed"):
        assert done.stderr.count(f"--{flag} has no meaning") == 1


def test_another_input_for_an_unfinished_output_is_refused(tmp_path):
    (tmp_path / "out.jsonl.quern").mkdir()
    (tmp_path / "other.jsonl").write_bytes(support.jsonl([support.request("b", "y", max_tokens=8) for _ in range(1)]))
    (tmp_path / "in.jsonl").write_bytes(support.jsonl([support.request("a", "x")]))
    # An engine that cannot start leaves the folder with the first input in it.
    (tmp_path / "bad.gguf").write_bytes(b"GGUF")
    first = support.quern("run", "-i", tmp_path / "other.jsonl", "-o", tmp_path / "out.jsonl", "--model", tmp_path / "bad.gguf")
    assert first.returncode == 3, first.stderr
    second = support.quern("run", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", "--model", "smollm2=echo")
    assert second.returncode == 7 and "another input" in second.stderr, second.stderr


def test_a_missing_input_is_named(tmp_path):
    done = support.quern("run", "-i", tmp_path / "nowhere.jsonl", "-o", tmp_path / "out.jsonl", "--model", "echo")
    assert done.returncode == 4 and "nowhere.jsonl" in done.stderr
