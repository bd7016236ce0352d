# SPDX-License-Identifier: Apache-2.0
"""`quern run` from the outside: files, flags, exit statuses. The echo worker answers."""
import json, re, subprocess

import pytest

import support, upstream


def run(tmp_path, content, *arguments):
    (tmp_path / "in.jsonl").write_bytes(content)
    return support.quern("run", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl",
                         "--model", "smollm2=echo", *arguments)


def test_the_results_are_in_input_order_and_the_folder_is_gone(tmp_path):
    lines = [support.request(f"id {i} é\u2028", f"text {i}") for i in range(500)]
    done = run(tmp_path, support.jsonl(lines), "--json")
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [r["custom_id"] for r in results] == [l["custom_id"] for l in lines]
    assert not (tmp_path / "out.jsonl.quern").exists()
    summary = json.loads(done.stdout)
    assert summary["done_before"] == 0 and summary[
        "req_s"] > 0  # also where all lines are done before the first look
    assert list(summary) == [
        "requests", "completed", "failed", "seconds", "load_seconds", "cpu_seconds", "req_s",
        "seconds_before", "prompt_tokens", "cached_tokens", "completion_tokens", "context_tokens", "peak_rss_bytes",
        "done_before", "rest", "shapes", "costs"] and summary["shapes"] is None
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
    done = run(tmp_path, support.jsonl([support.request(
        "a", "x")]), "--max-model-len", "4096", "--max-num-seqs", "8", "--max-num-batched-tokens",
               "512", "--enable-prefix-caching", "--gpu-memory-utilization", "0.9",
               "--tensor-parallel-size", "1", "--dtype", "auto", "--enforce-eager", "--seed", "1")
    assert done.returncode == 0, done.stderr
    for flag in ("enforce-eager", "seed"):
        assert len(re.findall(f"--{flag}.* changes nothing: ", done.stderr)) == 1


def test_another_input_for_an_unfinished_output_is_refused(tmp_path):
    (tmp_path / "out.jsonl.quern").mkdir()
    (tmp_path / "other.jsonl").write_bytes(
        support.jsonl([support.request("b", "y", max_tokens=8) for _ in range(1)]))
    (tmp_path / "in.jsonl").write_bytes(support.jsonl([support.request("a", "x")]))
    # An engine that cannot start leaves the folder with the first input in it.
    (tmp_path / "bad.gguf").write_bytes(b"GGUF")
    first = support.quern("run", "-i", tmp_path / "other.jsonl", "-o", tmp_path / "out.jsonl",
                          "--model", tmp_path / "bad.gguf")
    assert first.returncode == 3, first.stderr
    second = support.quern("run", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl",
                           "--model", "smollm2=echo")
    assert second.returncode == 7 and "another input" in second.stderr, second.stderr


def test_a_missing_input_is_named(tmp_path):
    done = support.quern("run", "-i", tmp_path / "nowhere.jsonl", "-o", tmp_path / "out.jsonl",
                         "--model", "echo")
    assert done.returncode == 4 and "nowhere.jsonl" in done.stderr


# --- names that would cost a file ---

REQUESTS = support.jsonl([support.request("a", "x"), support.request("b", "y")])


@pytest.mark.parametrize("how", ["same name", "hard link", "link"])
def test_the_input_is_not_its_own_output(tmp_path, how):
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(REQUESTS)
    if how == "hard link":
        out.hardlink_to(source)
    elif how == "link":
        out.symlink_to(source)
    done = support.quern("run", "-i", source, "-o", source if how == "same name" else out,
                         "--model", "smollm2=echo", "--overwrite")
    assert done.returncode == 3 and "input itself" in done.stderr and source.read_bytes(
    ) == REQUESTS
    assert sorted(p.name for p in tmp_path.iterdir()) == (["in.jsonl"] if how == "same name" else [
        "in.jsonl", "out.jsonl"])


def test_a_foreign_file_is_replaced_only_by_who_says_so(tmp_path):
    (tmp_path / "out.jsonl").write_text("the results of last week\n")
    done = run(tmp_path, REQUESTS)
    assert done.returncode == 7 and "--overwrite" in done.stderr
    assert (tmp_path / "out.jsonl").read_text() == "the results of last week\n" and not (
        tmp_path / "out.jsonl.quern").exists()
    done = run(tmp_path, REQUESTS, "--overwrite")
    assert done.returncode == 0 and len((tmp_path / "out.jsonl").read_text().splitlines()) == 2


def test_a_file_that_comes_while_a_run_is_under_way_is_not_replaced(tmp_path):
    """Nor by a later call that ends the run; all results are kept until there is a place for
    them."""
    out, folder = tmp_path / "out.jsonl", tmp_path / "out.jsonl.quern"
    (tmp_path / "in.jsonl").write_bytes(REQUESTS)
    with upstream.held("smollm2") as far:
        command = [
            support.BINARY, "run", "-i", tmp_path / "in.jsonl", "-o", out, "--upstream",
            f"u={far.url}"]
        first = subprocess.Popen(command,
                                 stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE,
                                 text=True)
        try:
            assert far.is_asked.wait(600)
            out.write_text("another program's results\n")
            far.may_answer.set()
            said = first.communicate(timeout=600)[1]
        finally:
            first.kill()
    assert first.returncode == 7 and "another program" in said and "--overwrite" in said, said
    again = run(tmp_path, REQUESTS)
    assert again.returncode == 7 and "--overwrite" in again.stderr and folder.exists(), again.stderr
    assert out.read_text() == "another program's results\n"
    out.unlink()
    assert run(tmp_path, REQUESTS).returncode == 0 and not folder.exists()
    assert [json.loads(line)["custom_id"] for line in out.read_text().splitlines()] == ["a", "b"]


def test_the_same_command_again_says_that_it_has_finished(tmp_path):
    assert run(tmp_path, REQUESTS).returncode == 0
    first = (tmp_path / "out.jsonl").read_bytes()
    done = run(tmp_path, REQUESTS)
    if done.returncode == 7:
        pytest.skip("this file system has no extended attributes")
    assert done.returncode == 0 and "nothing is left to do" in done.stderr and (
        tmp_path / "out.jsonl").read_bytes() == first
    assert json.loads(run(tmp_path, REQUESTS, "--json").stdout) == {
        "was_finished": True, "failed": 0}
    done = run(tmp_path,
               support.jsonl([support.request("a", "another question"),
                              support.request("b", "y")]))
    assert done.returncode == 7 and (
        tmp_path / "out.jsonl").read_bytes() == first, "the same ids are not the same input"


def test_a_finished_run_with_failed_lines_keeps_its_exit_status(tmp_path):
    lines = support.jsonl([
        support.request("a", "x"),
        support.request("b", "y", echo={"status": 400})])
    first, again = run(tmp_path, lines), run(tmp_path, lines)
    if again.returncode == 7:
        pytest.skip("this file system has no extended attributes")
    assert first.returncode == again.returncode == 1 and "1 of them failed" in again.stderr


@pytest.mark.parametrize("name,said", [("nowhere/out.jsonl", "nowhere"), ("folder", "directory"),
                                       ("in.jsonl/out.jsonl", "no directory"),
                                       ("pipe", "no plain file"), ("link", "leads nowhere"),
                                       ("", "empty")])
def test_an_output_that_cannot_be_written_is_refused_before_anything_is_made(tmp_path, name, said):
    import os
    (tmp_path / "in.jsonl").write_bytes(REQUESTS)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("missing")
    before = sorted(p.name for p in tmp_path.iterdir())
    done = support.quern("run", "-i", tmp_path / "in.jsonl", "-o", tmp_path / name if name else "",
                         "--model", "org/nothing", "--pull", "--overwrite")
    assert done.returncode == 3 and said in done.stderr and name in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_an_input_that_is_a_folder_is_named(tmp_path):
    done = support.quern("run", "-i", tmp_path, "-o", tmp_path / "out.jsonl", "--model",
                         "smollm2=echo")
    assert done.returncode == 3 and "is a directory" in done.stderr
