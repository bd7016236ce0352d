# SPDX-License-Identifier: Apache-2.0
"""Cases 155 to 160: the tools people run, unmodified: the openai-batch helper (0.3.3 as a library,
and the command lines of 0.3.3 and 0.3.4, whose own submit() after add_to_batch() is broken), vLLM's
run-batch files, LiteLLM's SDK."""
import contextlib, fcntl, json, os, pathlib, subprocess, sys

import pytest

import support
from cases import CHAT, line, plain

TOOLS = pathlib.Path(sys.executable).parent.parent / "tools"
LITELLM = "litellm==1.106.2"
# The helper looks at its batch once a minute; its waiting is cut short, nothing else of it is
# touched.
IMPATIENT = "import runpy, sys, time; wait = time.sleep; time.sleep = lambda s: wait(min(s, 0.2)); runpy.run_module('openai_batch.run', run_name='__main__')"


@contextlib.contextmanager
def alone_in_tools():
    """The folder is shared with other runs of these tests."""
    TOOLS.mkdir(exist_ok=True)
    with open(TOOLS / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def lines_of(path):
    return [json.loads(text) for text in pathlib.Path(path).read_text().splitlines()]


def check_chat(lines, count):
    assert len(lines) == count
    for entry in lines:
        body = entry["response"]["body"]
        assert {"id", "object", "created", "model"
                } <= set(body) and body["choices"][0]["index"] == 0
        assert {"role", "content"} <= set(body["choices"][0]["message"])


def provider_of(server, **more):
    from openai_batch.providers import Provider
    return Provider(name="quern",
                    base_url=server.url,
                    api_key="none",
                    requires_consistency=False,
                    **more)


def round_trip(folder, provider, count, **request):
    from openai_batch import Batch
    files = {name: str(folder / f"{name}.jsonl") for name in ("in", "out", "err")}
    with Batch(submission_input_file=files["in"],
               output_file=files["out"],
               error_file=files["err"],
               provider=provider) as batch:
        for i in range(count):
            batch.add_to_batch(
                **{key: value(i) if callable(value) else value
                   for key, value in request.items()})
        result, _, _ = batch.submit_wait_download(interval=0.05, metadata={"job": "library"})
    assert result.status == "completed" and result.request_counts.completed == count and result.metadata == {
        "job": "library"}
    return lines_of(files["out"])


def command_line(version):
    """The helper's own command line of that version, in an environment that has just what it
    needs."""
    environment = dict(os.environ)
    if version != "0.3.3":
        target = TOOLS / f"openai-batch-{version}"
        with alone_in_tools():
            if not (target / "openai_batch").exists():
                subprocess.run([
                    sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q",
                    "--no-deps", "--target",
                    str(target), f"openai-batch=={version}"],
                               check=True)
        environment["PYTHONPATH"] = str(target)
    return [sys.executable, "-c", IMPATIENT], environment


def helper(version, folder, *arguments):
    command, environment = command_line(version)
    done = subprocess.run([*command, *arguments],
                          cwd=folder,
                          env=environment,
                          capture_output=True,
                          text=True,
                          timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_case_155_the_library_goes_there_and_back(echo, tmp_path):
    """openai-batch 0.3.3 as a library, with chat, embeddings and score requests: files written,
    counts right."""
    for name in ("chat", "embeddings", "score"):
        (tmp_path / name).mkdir()
    check_chat(round_trip(tmp_path / "chat", provider_of(echo), 20, model="smollm2", max_tokens=8,
                          messages=lambda i: [{"role": "user", "content": f"Question {i} é"}]), 20)
    embedded = round_trip(tmp_path / "embeddings",
                          provider_of(echo),
                          5,
                          model="smollm2",
                          input=lambda i: f"text {i}")
    assert [len(entry["response"]["body"]["data"]) for entry in embedded] == [1] * 5
    scored = round_trip(tmp_path / "score",
                        provider_of(echo),
                        5,
                        model="smollm2",
                        text_1="a",
                        text_2=lambda i: f"text {i}")
    assert [entry["response"]["body"]["data"][0]["object"] for entry in scored] == ["score"] * 5


@pytest.mark.parametrize("version", ["0.3.3", "0.3.4"])
@pytest.mark.slow
def test_case_156_the_command_line(echo, tmp_path, version):
    """The command line on a chat file and on an embeddings file (for which it names the chat
    endpoint): both complete."""
    where = ["--base-url", echo.url, "--api-key", "none"]
    (tmp_path / "chat.jsonl").write_bytes(support.jsonl([line(f"q{i}") for i in range(5)]))
    (tmp_path / "embeddings.jsonl").write_bytes(
        support.jsonl([{
            "custom_id": f"e{i}", "method": "POST", "url": "/v1/embeddings", "body": {
                "model": "smollm2", "input": "hello"}} for i in range(5)]))
    helper(version, tmp_path, *where, "-o", "chat-out.jsonl", "chat.jsonl")
    check_chat(lines_of(tmp_path / "chat-out.jsonl"), 5)
    helper(version, tmp_path, *where, "-o", "embeddings-out.jsonl", "embeddings.jsonl")
    assert len(lines_of(tmp_path / "embeddings-out.jsonl")) == 5


@pytest.mark.parametrize("version", ["0.3.3", "0.3.4"])
def test_case_157_create_and_resume(echo, tmp_path, version):
    """--create, and later --resume: the results are downloaded."""
    where = ["--base-url", echo.url, "--api-key", "none"]
    (tmp_path / "in.jsonl").write_bytes(support.jsonl([line(f"q{i}") for i in range(20)]))
    batch_id = helper(version, tmp_path, *where, "--create",
                      "in.jsonl").split("Created ")[1].split(".")[0]
    echo.wait(batch_id)
    helper(version, tmp_path, *where, "--resume", batch_id, "-o", "out.jsonl")
    check_chat(lines_of(tmp_path / "out.jsonl"), 20)


@pytest.mark.slow
def test_case_158_the_helpers_own_live_tests(tmp_path, monkeypatch):
    """What the helper's five usable live tests do, with its two vendors pointed here: 20 requests
    each by command line and library, and a resume that finds the vendor."""
    from openai_batch import Batch, providers
    models = {"openai": "gpt-4", "parasail": "meta-llama/Llama-3.1-8B-Instruct"}
    with support.serving(tmp_path / "state",
                         *sum((["--model", f"{model}=echo"] for model in models.values()),
                              [])) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        monkeypatch.setenv("PARASAIL_API_KEY", "none")
        for vendor in providers.all_providers:
            monkeypatch.setattr(vendor, "base_url", server.url)
        for vendor, model in models.items():
            folder = tmp_path / vendor
            folder.mkdir()
            (folder / "in.jsonl").write_bytes(
                support.jsonl([line(f"line-{i}", model=model) for i in range(20)]))
            helper("0.3.3", folder, "-p", vendor, "--base-url", server.url, "-o", "main.jsonl",
                   "in.jsonl")
            check_chat(lines_of(folder / "main.jsonl"), 20)
            check_chat(round_trip(folder, providers.get_provider_by_model(model), 20, model=model,
                                  messages=[{"role": "user", "content": "hello"}]), 20)
        made = server.create(support.jsonl([line("a", model="gpt-4")]))
        server.wait(made["id"])
        resumed = Batch(batch_id=made["id"])
        assert resumed.auto_detect_provider() is not False and resumed.status(
        ).status == "completed"


def vllm_file(model=None):
    """A file as vLLM's documentation has it; its `model` may be left out there."""
    texts = [("request-1", "You are a helpful assistant.", "Hello world!"),
             ("request-2", "You are an unhelpful assistant.", "Hello world!")]
    requests = [{
        "custom_id": i, "method": "POST", "url": CHAT, "body": {
            "messages": [{"role": "system", "content": s}, {"role": "user", "content": u}],
            "max_completion_tokens": 12}} for i, s, u in texts]
    return support.jsonl(
        [{**r, "body": {**({"model": model} if model else {}), **r["body"]}} for r in requests])


def test_case_159_vllm_run_batch_files(real, echo, strict, tmp_path):
    """A vllm run-batch file runs as it is, also without a model when exactly one is served; ids and
    body shape are vLLM's."""
    for content in (vllm_file("smollm2"), vllm_file()):
        batch = real.wait(real.create(content)["id"])
        assert (batch["status"], batch["model"]) == ("completed", "smollm2")
        output, errors = real.results(batch)
        assert [entry["custom_id"]
                for entry in output] == ["request-1", "request-2"] and errors == []
        for entry in output:
            body = entry["response"]["body"]
            assert entry["response"]["status_code"] == 200 and entry["error"] is None and body[
                "model"] == "smollm2"
            assert {"id", "object", "created", "model", "choices", "usage"} <= set(body)
            assert {"index", "message", "logprobs", "finish_reason"} <= set(body["choices"][0])
    (tmp_path / "in.jsonl").write_bytes(vllm_file())
    done = support.quern("run", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl",
                         "--model", "smollm2")
    assert done.returncode == 0, done.stderr
    assert [entry["custom_id"] for entry in lines_of(tmp_path / "out.jsonl")] == [
        "request-1", "request-2"]
    for server in (echo,
                   strict):  # several are served; the strict profile wants a model in any case
        batch = server.wait(server.create(vllm_file())["id"])
        assert {(error["code"], error["param"])
                for error in batch["errors"]["data"]} == {("invalid_request", "body.model")}


def litellm_python():
    """An environment with litellm, which needs another major version of openai than the other
    tests."""
    venv, stamp = TOOLS / "litellm", TOOLS / "litellm" / "installed"
    with alone_in_tools():
        if not stamp.exists() or stamp.read_text() != LITELLM:
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
            subprocess.run([
                venv / "bin/python", "-m", "pip", "--disable-pip-version-check", "install", "-q",
                LITELLM],
                           check=True)
            stamp.write_text(LITELLM)
    return str(venv / "bin/python")


@pytest.mark.slow
def test_case_160_litellm(echo, tmp_path):
    """LiteLLM's SDK with hosted_vllm and with openai: create_file, create_batch, retrieve,
    file_content complete; its proxy's probe is no 404."""
    assert plain(echo, "GET", "/v1/files")[0] == 200 and plain(echo, "GET", "/v1/files/")[0] == 200
    (tmp_path / "in.jsonl").write_bytes(support.jsonl([line(f"q{i}") for i in range(5)]))
    flow = pathlib.Path(__file__).parent / "litellm_flow.py"
    done = subprocess.run([litellm_python(), str(flow), echo.url, "in.jsonl"],
                          cwd=tmp_path,
                          capture_output=True,
                          text=True,
                          env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"})
    assert done.returncode == 0, done.stderr[-3000:]
    for text, provider in zip(done.stdout.splitlines(), ("hosted_vllm", "openai"), strict=True):
        seen = json.loads(text)
        assert (seen["provider"], seen["status"], seen["total"],
                seen["metadata"]) == (provider, "completed", 5, {"a": "b"})
        check_chat(seen["lines"], 5)
