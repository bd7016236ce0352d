# SPDX-License-Identifier: Apache-2.0
"""A model file that is truncated, bit-flipped or lying: one clear sentence, exit 3, and nothing
else happens."""
import os, pathlib, random, signal

import pytest

import support

MODEL = pathlib.Path(os.environ.get(
    "XDG_CACHE_HOME",
    pathlib.Path.home() / ".cache")) / "quern/models/SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="module")
def whole():
    return MODEL.read_bytes()


def run(tmp_path, name, content):
    model = tmp_path / f"{name}.gguf"
    model.write_bytes(content)
    (tmp_path / "in.jsonl").write_bytes(
        support.jsonl([support.request("a", "Hello", model=name, max_tokens=2)]))
    done = support.quern("run",
                         "-i",
                         tmp_path / "in.jsonl",
                         "-o",
                         tmp_path / "out.jsonl",
                         "--model",
                         model,
                         "--quiet",
                         timeout=120)
    model.unlink()
    return done


def one_sentence(done):
    assert done.returncode == 3, (done.returncode, done.stderr)
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("quern run: "), done.stderr


@pytest.mark.parametrize("kept", [0, 3, 4, 23, 24, 100, 5000, 1 << 20, 50 << 20, 98362431])
def test_a_truncated_file_is_refused(tmp_path, whole, kept):
    one_sentence(run(tmp_path, "cut", whole[:kept]))


@pytest.mark.parametrize("at,value", [(0, b"X"), (4, b"\x01"), (4, b"\x09"), (8, b"\xff" * 8),
                                      (16, b"\xff" * 8), (24, b"\xff" * 8), (24, b"\x00" * 8)])
def test_a_header_that_lies_is_refused(tmp_path, whole, at, value):
    one_sentence(run(tmp_path, "lie", whole[:at] + value + whole[at + len(value):]))


def test_flipped_bits_in_the_metadata_are_refused_or_harmless(tmp_path, whole):
    """A flip in a name or a number either breaks the file, with one sentence, or changes what it
    says; never a crash."""
    rng = random.Random(11)
    for i in range(12):
        at = rng.randrange(24, 4000)
        done = run(tmp_path, "flip",
                   whole[:at] + bytes([whole[at] ^ 1 << rng.randrange(8)]) + whole[at + 1:])
        assert done.returncode in (0, 1, 3), (at, done.stderr)
        if done.returncode == 3:
            one_sentence(done)


def test_a_model_that_is_not_there_is_not_found(tmp_path):
    (tmp_path / "in.jsonl").write_bytes(support.jsonl([support.request("a", "Hello")]))
    done = support.quern("run", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl",
                         "--model", "no-such-model")
    assert done.returncode == 4 and "no-such-model" in done.stderr


def test_the_server_says_why_it_does_not_start(tmp_path, whole):
    (tmp_path / "cut.gguf").write_bytes(whole[:5000])
    done = support.quern("serve",
                         "--port",
                         "0",
                         "--state-dir",
                         tmp_path / "state",
                         "--model",
                         tmp_path / "cut.gguf",
                         timeout=60)
    assert done.returncode == 3 and "quern serve: " in done.stderr and "listening" not in done.stdout


def test_a_model_that_cannot_be_loaded_again_ends_its_lines_and_no_others(tmp_path, whole):
    model, cut = tmp_path / "mine.gguf", tmp_path / "cut"
    model.write_bytes(whole)
    cut.write_bytes(whole[:5000])
    with support.serving(tmp_path / "state", "--model", f"mine={model}", "--model",
                         "far=echo") as server:
        assert server.wait(
            server.create(support.jsonl([
                support.request("a", "Hello", model="mine",
                                max_tokens=2)]))["id"])["request_counts"]["completed"] == 1
        os.replace(cut, model)
        os.kill(server.engine_pid(), signal.SIGKILL)
        both = [
            support.request(f"{name}{i}", f"Hello {i}", model=name, max_tokens=2)
            for i in range(20)
            for name in ("mine", "far")]
        batches = [
            server.wait(server.create(content, **extra)["id"], seconds=120)
            for content, extra in ((support.jsonl(both),
                                    {}), (support.jsonl(both[:2]),
                                          {"retry": {"attempts": 2, "statuses": [503]}}),
                                   (support.jsonl(both[:1]), {}))]
        assert [batch["request_counts"] for batch in batches] == [{
            "total": 40, "completed": 20,
            "failed": 20}, {"total": 2, "completed": 1, "failed": 1}, {
                "total": 1, "completed": 0, "failed": 1}]
        for batch in batches:
            good, bad = server.results(batch)
            assert all(line["custom_id"].startswith("far") for line in good)
            for line in bad:
                error = line["response"]["body"]["error"]
                assert line["custom_id"].startswith(
                    "mine") and line["response"]["status_code"] == 503 and line["error"] is None
                assert error["code"] == "model_unavailable" and "'mine' cannot be loaded" in error[
                    "message"]
        assert server.json("GET", "/health")["models"] == {
            "unloaded": 0, "loading": 0, "loaded": 1, "failed": 1}
        status, data = server.call(
            "POST", "/v1/chat/completions",
            {"model": "mine", "messages": [{"role": "user", "content": "Hello"}]})
        assert status == 503 and b"cannot be loaded" in data
        assert server.log_text().count("event=engine_down will_restart=no") == 1
    support.fsck(tmp_path / "state")
