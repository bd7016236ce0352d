# SPDX-License-Identifier: Apache-2.0
"""The Python module of the wheel, from the source tree: batches against a server and through `quern
run`, and the offline class. The echo worker answers with the prompt."""
import inspect, json, os, pathlib, subprocess, sys

import pytest

import support

sys.path.insert(0, str(support.ROOT / "packaging/python"))
import quern  # noqa: E402
from quern import LLM, Batch, QuernError, SamplingParams  # noqa: E402

os.environ.setdefault("QUERN_BINARY", support.BINARY)


def chat(text):
    return [{"role": "user", "content": text}]


def texts_of(path):
    return [
        json.loads(line)["response"]["body"]["choices"][0]["message"]["content"]
        for line in pathlib.Path(path).read_text().splitlines()]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    yield from support.server_of_session(tmp_path_factory, "module", "--model", "smollm2=echo")


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("where", ["server", "environment", "provider", "here"])
def test_the_five_lines(server, where, monkeypatch):
    keywords = {"here": {"models": "smollm2=echo"}, "server": {"base_url": server.url}}.get(
        where, {})
    if where == "environment":
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    if where == "provider":
        keywords["provider"] = type("Provider", (), {"base_url": server.url, "api_key": "none"})()
    with Batch(progress=False, **keywords) as batch:
        for number in range(30):
            batch.add_to_batch(model="smollm2", messages=chat(f"question {number} é\u2028"))
        result, output_path, error_path = batch.submit_wait_download(interval=0.05)
    assert result.status == "completed" and result.request_counts.completed == 30 == result[
        "request_counts"]["total"]
    assert error_path is None and output_path == f"{batch.batch_id}-output.jsonl"
    assert texts_of(output_path) == [f"question {number} é\u2028" for number in range(30)]
    assert sorted(p.name for p in pathlib.Path().iterdir()) == sorted([
        output_path, str(batch.submission_input_file)])


@pytest.mark.parametrize("where", ["server", "here"])
def test_lines_that_failed_are_in_the_other_file(server, where, tmp_path):
    keywords = {"models": "smollm2=echo"} if where == "here" else {"base_url": server.url}
    with Batch("in.jsonl",
               "out.jsonl",
               "err.jsonl",
               custom_id_prefix="q",
               progress=False,
               **keywords) as batch:
        assert batch.add_to_batch(model="smollm2", messages=chat("good")) == "q-1"
        assert batch.add_to_batch(custom_id="mine",
                                  model="smollm2",
                                  messages=chat("bad"),
                                  echo={"status": 418}) == "mine"
        seen = []
        result, *paths = batch.submit_wait_download(interval=0.05, status_callback=seen.append)
    assert paths == ["out.jsonl", "err.jsonl"] and texts_of("out.jsonl") == [
        "good"] and seen[-1] == result
    assert json.loads(pathlib.Path(
        "err.jsonl").read_text())["custom_id"] == "mine" and result.request_counts.failed == 1


def test_a_batch_is_taken_up_by_its_id(server):
    with Batch(base_url=server.url, progress=False) as batch:
        batch.add_to_batch(model="smollm2", messages=chat("x"))
        batch.submit(metadata={"job": "one"})
    with Batch(batch_id=batch.batch_id,
               output_file="late.jsonl",
               base_url=server.url,
               progress=False) as again:
        assert again.wait(interval=0.05).metadata.job == "one"
        assert again.download() == ("late.jsonl", None)
        with pytest.raises(ValueError, match="no more requests"):
            again.add_to_batch(model="smollm2", messages=chat("y"))


def test_a_file_that_was_written_before_is_submitted(server):
    pathlib.Path("made.jsonl").write_bytes(
        support.jsonl([support.request("a", "x"),
                       support.request("b", "y")]))
    for keywords in ({"base_url": server.url}, {"models": "smollm2=echo"}):
        with Batch("made.jsonl", "out.jsonl", progress=False, **keywords) as batch:
            assert batch.submit_wait_download(interval=0.05)[0].request_counts.completed == 2
        assert texts_of("out.jsonl") == ["x", "y"]


def test_what_cannot_be_is_said(server):
    with pytest.raises(QuernError, match="line 1: .*other"), Batch(base_url=server.url,
                                                                   progress=False) as batch:
        batch.add_to_batch(model="other", messages=chat("x"))
        batch.submit_wait_download(interval=0.05)
    with pytest.raises(QuernError, match="nowhere.gguf"), Batch(models="./nowhere.gguf",
                                                                progress=False) as batch:
        batch.add_to_batch(model="nowhere", messages=chat("x"))
        batch.submit_wait_download()
    with pytest.raises(QuernError, match="404"):
        Batch(batch_id="batch_none", base_url=server.url).status()
    with pytest.raises(ValueError, match="base_url"):
        Batch(batch_id="batch_none")
    with pytest.raises(TypeError, match="threads"):
        Batch(base_url=server.url, threads=3)
    batch = Batch(base_url=server.url)
    for body, said in [({"messages": []}, "model"), ({"model": "m"}, "messages"),
                       ({"model": "m", "messages": [], "input": "x"}, "not to both")]:
        with pytest.raises(ValueError, match=said):
            batch.add_to_batch(**body)
    batch.add_to_batch(model="m", input="x")
    with pytest.raises(ValueError, match="belongs into another"):
        batch.add_to_batch(model="m", text_1="a", text_2="b")
    with batch:
        assert batch.submit(dry_run=True) == "batch-dry-run"


def test_a_key_goes_to_the_server_and_into_no_message(server):
    keyed = Batch(batch_id="batch_none", base_url=server.url, api_key="sk-secret-of-mine")
    with pytest.raises(QuernError) as caught:
        keyed.status()
    assert "sk-secret" not in str(caught.value)


def test_the_offline_class(tmp_path):
    llm = LLM("smollm2=echo", max_num_seqs=4)
    outputs = llm.chat([chat(f"conversation {number}") for number in range(20)],
                       SamplingParams(temperature=0, max_tokens=64),
                       use_tqdm=False)
    assert [output.outputs[0].text for output in outputs] == [
        f"conversation {number}" for number in range(20)]
    assert all(
        output.finished and output.outputs[0].finish_reason == "stop" and output.prompt_tokens > 0
        for output in outputs)
    assert [output.outputs[0].text for output in llm.chat(chat("one"), use_tqdm=False)] == ["one"]
    assert [
        output.outputs[0].text for output in llm.generate(
            ["a", "b"], [SamplingParams(), SamplingParams(seed=1)], use_tqdm=False)] == ["a", "b"]
    assert llm.chat([]) == [] and list(tmp_path.iterdir()) == []


def test_the_offline_class_raises_for_prompts_that_failed():
    class Failing(SamplingParams):
        def body(self):
            return {**super().body(), "echo": {"status": 418}}

    llm = LLM("smollm2=echo")
    with pytest.raises(QuernError, match="1 of 2 prompts failed; number 1: told to") as caught:
        llm.chat([chat("a"), chat("b")], [SamplingParams(), Failing()], use_tqdm=False)
    assert caught.value.outputs[0].outputs[0].text == "a"
    with pytest.raises(ValueError, match="2 prompts and 1"):
        llm.generate(["a", "b"], [SamplingParams()])


def test_sampling_params_say_what_differs_from_the_api():
    assert SamplingParams(max_tokens=None).body() == {"temperature": 1.0}
    assert SamplingParams(n=2, temperature=0, stop=["x"],
                          structured_outputs={"choice": ["a"]}).body() == {
                              "n": 2, "temperature": 0, "stop": ["x"], "structured_outputs": {
                                  "choice": ["a"]}, "max_tokens": 16}


def test_the_module_is_documented_and_needs_the_standard_library_only():
    for name in quern.__all__:
        assert inspect.getdoc(getattr(quern, name)), name
    code = "import sys, quern; print([m for m in sys.modules if 'site-packages' in (getattr(sys.modules[m], '__file__', None) or '')])"
    done = subprocess.run([sys.executable, "-S", "-c", code],
                          capture_output=True,
                          text=True,
                          env={"PYTHONPATH": str(support.ROOT / "packaging/python")})
    assert done.stdout.strip() == "[]", done.stderr
