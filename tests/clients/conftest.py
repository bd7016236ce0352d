# SPDX-License-Identifier: Apache-2.0
"""Servers for the clients of others, each started once, and what their tests share. pytest runs in
the environment of one client."""
import contextlib, json, re, socket, subprocess, threading

import pytest

import support

# a model of random weights: real answers of the CPU engine in milliseconds
TINY_FOLDER = support.SHARED / "tiny/qwen3"


@pytest.fixture(scope="session")
def echo(tmp_path_factory):
    """Answers with the text that it was asked; bytes are its tokens."""
    yield from support.server_of_session(tmp_path_factory, "echo", "--model", "gpt-4=echo",
                                         "--model", "org/name=echo")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """The CPU engine with one model, known as `tiny`, whose folder TINY_FOLDER has the tokenizer
    that Hugging Face's library reads."""
    if not TINY_FOLDER.exists():
        pytest.skip("the tiny models of ../shared are not there")
    yield from support.server_of_session(tmp_path_factory, "tiny", "--model", f"tiny={TINY_FOLDER}",
                                         "--threads", "1")


@pytest.fixture(scope="session")
def tools(tmp_path_factory):
    """The model of `tiny` with a template that shows tools to it."""
    template = support.SHARED / "templates/Qwen-Qwen2.5-7B-Instruct.jinja"
    if not (TINY_FOLDER.exists() and template.exists()):
        pytest.skip("the tiny models and templates of ../shared are not there")
    yield from support.server_of_session(tmp_path_factory, "tools",
                                         "--model", f"tiny={TINY_FOLDER}", "--chat-template",
                                         str(template), "--threads", "1")


@pytest.fixture(scope="session")
def small_model():
    """The name of the default model, which takes milliseconds per token."""
    if subprocess.run([support.ROOT / "tools/fetch-model", "smollm2"],
                      capture_output=True).returncode != 0:
        pytest.skip("the default model cannot be fetched")
    return "smollm2"


@pytest.fixture(scope="session")
def real(tmp_path_factory, small_model):
    """The CPU engine with the default model."""
    yield from support.server_of_session(tmp_path_factory, "real", "--model", small_model)


@pytest.fixture(scope="session")
def keyed(tmp_path_factory):
    """Wants the key `sk-right`."""
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("sk-right\n")
    keys.chmod(0o600)
    yield from support.server_of_session(tmp_path_factory, "keyed", "--model", "gpt-4=echo",
                                         "--api-key-file", str(keys))


@pytest.fixture(scope="session")
def named(tmp_path_factory):
    """The echo worker under the names that frameworks know."""
    yield from support.server_of_session(
        tmp_path_factory, "named", "--model", "m=echo", "--alias", "claude-*=m", "--alias",
        "gpt-4.1=m", "--alias", "llama3.2=m")


@pytest.fixture(scope="session")
def small_memory(tmp_path_factory):
    """Has 4 MiB for the bodies of all requests, each counted four times."""
    yield from support.server_of_session(tmp_path_factory, "small", "--model", "gpt-4=echo",
                                         "--body-memory-bytes", "4MiB")


@pytest.fixture(scope="session")
def counted(tmp_path_factory):
    """A server and a key that may send 12 requests per minute: the thirteenth has to wait up to 5
    s."""
    folder = tmp_path_factory.mktemp("counted")
    made = support.quern("key", "create", "--name", "counted", "--requests-per-minute", "12",
                         "--state-dir", folder / "state")
    assert made.returncode == 0, made.stderr
    with support.serving(folder / "state", "--model", "gpt-4=echo") as server:
        yield server, made.stdout.strip()


def metric(server, name):
    """The value of a metric, whose name includes its labels."""
    text = server.call("GET", "/metrics")[1].decode()
    return float(re.search(rf"^{re.escape(name)} (\S+)$", text, re.M)[1])


def refused_chats(server):
    return metric(server, 'quern_http_requests_total{route="createChatCompletion",code="5xx"}')


LONG_TEXT = "long " * 80_000  # 400 kB


@contextlib.contextmanager
def full_memory(server):
    """Fills the memory for bodies of `small_memory` until a chat with LONG_TEXT was refused for it,
    with 503 and retry-after."""
    before = refused_chats(server)
    holder = socket.create_connection(("127.0.0.1", server.port))
    holder.sendall(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 900000\r\n\r\n"
    )
    holder.sendall(b" " * 800_000)
    support.until(lambda: metric(server, "quern_http_body_bytes") >= 800_000)
    releasing = threading.Thread(
        target=lambda: (support.until(lambda: refused_chats(server) > before), holder.close()))
    releasing.start()
    yield
    releasing.join()
    assert refused_chats(server) == before + 1, "the client came again, once, and was served"


GRIND = {
    "type": "function", "function": {
        "name": "grind", "description": "Grinds grain.", "strict": True, "parameters": {
            "type": "object", "properties": {
                "grain": {"enum": ["wheat", "rye"]}, "fine": {"type": "boolean"}}, "required": [
                    "grain", "fine"], "additionalProperties": False}}}


def is_grind(call):
    """Whether a client's call of a tool is one that GRIND allows."""
    told = json.loads(call.function.arguments)
    return call.function.name == "grind" and told["grain"] in ("wheat", "rye") and isinstance(
        told["fine"], bool) and len(told) == 2


def line(custom_id, text, model="gpt-4", **body):
    """A chat as a line of a batch file."""
    return support.request(custom_id, text, model, **body)
