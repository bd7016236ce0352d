# SPDX-License-Identifier: Apache-2.0
"""The unmodified openai-batch helper: version 0.3.3 as a library, and the command lines of 0.3.3 and 0.3.4 (whose own
submit() after add_to_batch() is broken, but whose command line works)."""
import json, os, pathlib, subprocess, sys

import pytest

import support

TOOLS = pathlib.Path(sys.executable).parent.parent / "tools"


def lines_of(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


def check_chat(lines, count):
    assert len(lines) == count
    for line in lines:
        body = line["response"]["body"]
        assert {"id", "object", "created", "model"} <= set(body)
        assert body["choices"][0]["index"] == 0
        assert {"role", "content"} <= set(body["choices"][0]["message"])


def test_case_155_the_library_goes_there_and_back(echo_server, tmp_path):
    from openai_batch import Batch
    from openai_batch.providers import Provider
    provider = Provider(name="quern", display_name="quern", base_url=echo_server.url, api_key="none", requires_consistency=False,
                        api_key_env_var="NONE", default_chat_model="smollm2", default_embedding_model="none", batch_input_max_requests=50000,
                        batch_input_max_bytes=10 ** 8)
    files = {name: str(tmp_path / f"{name}.jsonl") for name in ("in", "out", "err")}
    with Batch(submission_input_file=files["in"], output_file=files["out"], error_file=files["err"], provider=provider) as batch:
        for i in range(20):
            batch.add_to_batch(model="smollm2", messages=[{"role": "user", "content": f"Question {i} é"}], max_tokens=8)
        result, output, errors = batch.submit_wait_download(interval=0.05, metadata={"job": "library"})
    assert result.status == "completed"
    assert result.request_counts.completed == 20
    assert result.metadata == {"job": "library"}
    check_chat(lines_of(files["out"]), 20)


def command_line(version):
    """The helper's own command line of that version, in an environment that has just what it needs."""
    environment = dict(os.environ)
    if version != "0.3.3":
        target = TOOLS / f"openai-batch-{version}"
        if not target.exists():
            subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps", "--target", str(target),
                            f"openai-batch=={version}"], check=True)
        environment["PYTHONPATH"] = str(target)
    return [sys.executable, "-m", "openai_batch.run"], environment


@pytest.mark.parametrize("version", ["0.3.3", "0.3.4"])
def test_case_157_the_command_line_creates_and_resumes(echo_server, tmp_path, version):
    command, environment = command_line(version)
    (tmp_path / "in.jsonl").write_bytes(support.jsonl([support.request(f"q{i}", f"Hello {i}") for i in range(20)]))
    where = ["--base-url", echo_server.url, "--api-key", "none"]
    made = subprocess.run([*command, *where, "--create", "in.jsonl"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    batch_id = made.stdout.split("Created ")[1].split(".")[0]
    echo_server.wait(batch_id)
    done = subprocess.run([*command, *where, "--resume", batch_id, "-o", "out.jsonl"], cwd=tmp_path, env=environment,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    check_chat(lines_of(tmp_path / "out.jsonl"), 20)


@pytest.mark.parametrize("version", ["0.3.3", "0.3.4"])
def test_case_156_the_command_line_runs_a_chat_file_to_its_end(echo_server, tmp_path, version):
    command, environment = command_line(version)
    (tmp_path / "in.jsonl").write_bytes(support.jsonl([support.request(f"q{i}", f"Hello {i}") for i in range(5)]))
    done = subprocess.run([*command, "--base-url", echo_server.url, "--api-key", "none", "-o", "out.jsonl", "in.jsonl"], cwd=tmp_path,
                          env=environment, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    check_chat(lines_of(tmp_path / "out.jsonl"), 5)
