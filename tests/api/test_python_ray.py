# SPDX-License-Identifier: Apache-2.0
"""quern.ray without Ray: the predictor that its actors run, on the echo worker. Ray itself calls it
in tests/clients/test_ray.py."""
import concurrent.futures, json, os, pathlib, signal, subprocess, sys, urllib.request

import pytest

import support

sys.path.insert(0, str(support.ROOT / "packaging/python"))
from quern import QuernError  # noqa: E402
from quern.ray import QuernPredictor  # noqa: E402

os.environ.setdefault("QUERN_BINARY", support.BINARY)


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield
    monkeypatch.setattr("tempfile.tempdir", None)


@pytest.fixture
def predictor(own_folder):
    made = QuernPredictor("smollm2=echo", {"max_tokens": 64})
    yield made
    made.close()


def chats(*texts):
    return [[{"role": "user", "content": text}] for text in texts]


def test_each_row_gets_its_answer_and_keeps_its_columns(predictor):
    texts = [f"question {number} é" for number in range(300)]
    found = predictor({"id": list(range(300)), "messages": chats(*texts)})
    assert found["generated_text"] == texts and found["id"] == list(range(300))
    assert set(found["finish_reason"]) == {"stop"} and set(found["error"]) == {""}
    assert min(found["num_input_tokens"]) > 0 and min(found["num_generated_tokens"]) > 0
    assert predictor({"prompt": ["a", "b"]})["generated_text"] == ["a", "b"]
    vectors = predictor({"input": ["x", "y", "x"]})
    assert vectors["embeddings"][0] == vectors["embeddings"][2] != vectors["embeddings"][1]
    assert vectors["generated_text"] == ["", "", ""]
    assert predictor({})["generated_text"] == [] and predictor({"prompt": []})["error"] == []
    with urllib.request.urlopen(predictor.child.url + "/batches") as answer:
        assert json.load(answer)["data"] == []  # nothing is kept of a call that has ended


def test_a_row_that_fails_is_a_row(predictor):
    wishes = [None, {"echo": {"status": 418}}, {"stream": True}, {"stop": {1, 2}}, None,
              {"temperature": float("inf")}, None]
    messages = chats(*"abcdefg")
    messages[6] = None
    found = predictor({"messages": messages, "sampling_params": wishes})
    assert found["generated_text"] == ["a", "", "", "", "e", "", ""]
    good = [not error for error in found["error"]]
    assert good == [True, False, False, False, True, False, False]
    assert "'stream'" in found["error"][2] and "messages, prompt or input" in found["error"][6]
    assert found["num_input_tokens"][1] == 0
    all_bad = predictor({"prompt": ["a"], "sampling_params": [{"stream": True}]})
    assert all_bad["generated_text"] == [""] and "'stream'" in all_bad["error"][0]


def test_a_request_is_the_one_before_arrow_changed_it(predictor):
    row = {"messages": [{"role": "user", "content": "a", "tool_calls": None}], "tools": None,
           "sampling_params": {"max_tokens": 64.0, "seed": float("nan"), "temperature": 0.5}}
    url, body = predictor._request(row)
    assert url == "/v1/chat/completions" and body == {
        "model": "smollm2", "messages": [{"role": "user", "content": "a"}], "max_tokens": 64,
        "temperature": 0.5}
    assert isinstance(body["max_tokens"], int)


def test_a_server_that_is_killed_in_a_call_goes_on_with_its_batch(tmp_path, monkeypatch):
    clock = support.Clock(tmp_path)
    for name, value in clock.environment.items():
        monkeypatch.setenv(name, value)
    predictor = QuernPredictor("smollm2=echo")
    texts = [f"t{number}" for number in range(50)]
    wishes = [{"echo": {"delay_ms": 600000}} if number == 25 else None for number in range(50)]

    def ended():
        with urllib.request.urlopen(predictor.child.url + "/batches") as answer:
            return [batch["request_counts"]["completed"] for batch in json.load(answer)["data"]]

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        call = pool.submit(predictor, {"messages": chats(*texts), "sampling_params": wishes})
        support.until(lambda: ended() and ended()[0] > 0)
        os.kill(predictor.child.pid, signal.SIGKILL)
        support.until(lambda: predictor.child.starts == 2 or call.done())
        clock.until(call.done, 60)
        found = call.result()
    assert found["generated_text"] == texts and set(found["error"]) == {""}
    assert predictor.child.starts == 2
    predictor.close()


def test_settings_of_a_service_in_the_environment_do_not_reach_the_server(tmp_path, monkeypatch):
    keys = tmp_path / "keys"
    keys.write_text("sk-other\n")
    keys.chmod(0o600)
    for name, value in {"API_KEY_FILE": str(keys), "HOST": "0.0.0.0", "PORT": "1"}.items():
        monkeypatch.setenv(f"QUERN_{name}", value)
    predictor = QuernPredictor("smollm2=echo")
    assert predictor.child.url.startswith("http://127.0.0.1:")
    assert predictor({"prompt": ["a"]})["generated_text"] == ["a"]
    predictor.close()


def test_a_server_that_cannot_start_says_why():
    with pytest.raises(QuernError, match="nowhere.gguf"):
        QuernPredictor("./nowhere.gguf")
    with pytest.raises(QuernError, match="no_such_option|no-such-option"):
        QuernPredictor("smollm2=echo", no_such_option=1)


def test_a_server_that_always_dies_ends_the_call_with_its_log(predictor, monkeypatch):
    predictor.child._command[1:] = ["serve", "--no-such-option"]
    os.kill(predictor.child.pid, signal.SIGKILL)
    with pytest.raises(QuernError, match="no-such-option"):
        predictor({"prompt": ["a"]})


def test_a_server_ends_with_its_process_and_the_next_one_clears_up(tmp_path):
    code = ("import os, signal, sys\nfrom quern.ray import QuernPredictor\n"
            "made = QuernPredictor('smollm2=echo')\nprint(made.child.pid, made.child.folder)\n"
            "sys.stdout.flush()\nos.kill(os.getpid(), signal.SIGKILL)\n")
    done = subprocess.run([sys.executable, "-c", code],
                          stdout=subprocess.PIPE,
                          text=True,
                          env={**os.environ, "PYTHONPATH": str(support.ROOT / "packaging/python")})
    pid, folder = done.stdout.split()
    assert done.returncode == -signal.SIGKILL
    support.until(lambda: not is_running(pid))
    assert pathlib.Path(folder).exists()
    predictor = QuernPredictor("smollm2=echo")
    assert not pathlib.Path(folder).exists() and predictor.child.folder.exists()
    predictor.close()
    assert not predictor.child.folder.exists()


def is_running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_module_needs_the_standard_library_only():
    code = "import sys, quern.ray; print([m for m in sys.modules if m == 'ray' or 'site-packages' in (getattr(sys.modules[m], '__file__', None) or '')])"
    done = subprocess.run([sys.executable, "-S", "-c", code],
                          capture_output=True,
                          text=True,
                          env={"PYTHONPATH": str(support.ROOT / "packaging/python")})
    assert done.stdout.strip() == "[]", done.stderr
