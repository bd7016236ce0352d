# SPDX-License-Identifier: Apache-2.0
"""The engine process from outside: no secrets in it, nothing open but what it needs, shut in, and
still able to say where it stands. And a server whose engines get mutated model files: it stays up
and says why."""
import contextlib, json, os, pathlib, random, re, shutil

import pytest

import support

TINY = support.SHARED / "tiny/llama3/model-q8_0.gguf"
SECRETS = {
    "OPENAI_API_KEY": "canary-one", "HF_TOKEN": "canary-two",
    "QUERN_WEBHOOK_SECRET": "canary-three-canary-three-canary", "LD_PRELOAD": ""}
SHOWN = {
    "CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "CUDA_CACHE_MAXSIZE": "1073741824"}


def engines(server):
    """The process ids of all engine children."""
    return set(support.children(server.process.pid))


def read(path):
    try:
        return pathlib.Path(path).read_bytes()
    except PermissionError:
        pytest.skip("only root looks into a process that is closed to debuggers")


@pytest.fixture(scope="module", params=["cpu", "stub", "device", "card"])
def server(request, tmp_path_factory):
    """A server on the CPU; one whose engine has opened a GPU with a thread of its driver, and
    computes on the CPU; one on a device; one on a real GPU."""
    if request.param == "card" and not support.has_card():
        pytest.skip(support.NO_CARD)
    tmp = tmp_path_factory.mktemp("sandbox")
    device = {"cpu": ["cpu"], "stub": ["auto", "--device-plugin", str(support.plugin("good"))],
              "device": ["cuda", "--device-plugin", str(support.plain_device())],
              "card": ["cuda", "--device-plugin", str(support.cuda_plugin())]}[request.param]
    with support.serving(tmp / "state",
                         "--model",
                         f"tiny={TINY}",
                         "--no-packed-cache",
                         "--device",
                         *device,
                         environment=SECRETS | SHOWN) as server:
        server.has_stub, server.has_card = request.param == "stub", request.param == "card"
        yield server
    support.fsck(tmp / "state")


def test_the_engine_has_no_secret_of_the_environment(server):
    pid, = engines(server)
    environment = read(f"/proc/{pid}/environ")
    assert b"canary" not in environment
    names = {pair.split(b"=")[0].decode() for pair in environment.split(b"\0") if pair}
    assert names >= set(SHOWN)
    assert names <= {
        *SHOWN, "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "LD_LIBRARY_PATH",
        "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LSAN_OPTIONS"}


def drivers_sockets(pid):
    """The Unix socket at which a GPU's driver hands its memory's descriptor to other processes of
    the user. It is bound to an abstract name, and the sandbox lets nobody be answered at it."""
    rows = [
        line.split() for line in pathlib.Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]]
    return [
        f"socket:[{row[6]}]" for row in rows if len(row) > 7 and row[7].startswith("@cuda-uvmfd-")]


def test_the_engine_has_nothing_open_but_its_socket_its_log_and_its_stacks(server):
    pid, = engines(server)
    read(f"/proc/{pid}/environ")
    opened = {int(fd): os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    rest = {fd: path for fd, path in opened.items() if fd > 2}
    if server.has_card:
        driver = drivers_sockets(pid)
        rest = {
            fd: path
            for fd, path in rest.items()
            if path not in driver
            and not re.match(r"/dev/nvidia|anon_inode:\[event(fd|poll)\]|pipe:", path)}
    assert opened[0] == "/dev/null" and opened[1] == opened[2] == server.log.name
    assert sorted(re.sub(r"\[\d+\]|/\d+/", "/N/", path) for path in rest.values()) == \
        ["/memfd:quern-stacks (deleted)", "/proc/N/task", "socket:/N/"], rest
    maps = read(f"/proc/{pid}/maps").decode()
    assert str(server.state) not in maps


def test_every_thread_of_the_engine_is_shut_in(server):
    pid, = engines(server)
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            status = (task / "status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # a thread of the start that has ended meanwhile
        assert re.search(r"^NoNewPrivs:\t1$", status, re.M) and re.search(
            r"^Seccomp:\t2$", status, re.M), status
    assert re.search(r"^Max core file size +0 +0 ",
                     pathlib.Path(f"/proc/{pid}/limits").read_text(), re.M)
    assert re.search(r"engine (info|warn) event=sandbox landlock=\d+ seccomp=1", server.log_text())

    def names():
        found = set()
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found.add((task / "comm").read_text().strip())
        return found
    # A thread names itself when it runs for the first time, which may be after the engine is ready.
    support.until(lambda: {"quern-write", "quern-loop", "quern-prep", "quern-finish"} <= names())
    assert ("stub-driver" in names()) == server.has_stub


def mutated(content, rng):
    """One to three bits of the descriptions flipped, the end cut off, or a number made huge."""
    at = rng.randrange(8, 40000)
    how = rng.randrange(4)
    if how == 0:
        return content[:rng.randrange(len(content))]
    if how == 1:
        return content[:at] + rng.choice([b"\xff" * 8, b"\0" * 8, b"\xff" * 4, b"\0\0\0\x80"
                                          ]) + content[at + 8:]
    changed = bytearray(content)
    for _ in range(rng.randrange(1, 4)):
        changed[rng.randrange(8, 40000)] ^= 1 << rng.randrange(8)
    return bytes(changed)


@pytest.mark.parametrize("seed", [5, 6])
def test_a_server_whose_models_are_mutated_stays_up_and_says_why(tmp_path, seed):
    rng, content, count = random.Random(seed), TINY.read_bytes(), 15
    models = [tmp_path / f"m{i}.gguf" for i in range(count)]
    for path in models:
        shutil.copy(TINY, path)
    arguments = [word for i, path in enumerate(models) for word in ("--model", f"m{i}={path}")]
    with support.serving(tmp_path / "state", *arguments, "--threads", "1", "--max-loaded-models",
                         "1") as server:
        for path in models:
            path.with_suffix(".new").write_bytes(mutated(content, rng))
            path.with_suffix(".new").replace(path)
        answers = []
        for i in range(count):
            body = {"model": f"m{i}", "prompt": "Hello", "max_tokens": 1}
            answers.append(server.call("POST", "/v1/completions", body))
        refused = [
            json.loads(data)["error"]["message"] for status, data in answers if status != 200]
        print(refused)
        assert len(refused) >= count // 3
        for sentence in refused:
            assert sentence.isprintable(
            ) and 10 < len(sentence) < 600 and "signal" not in sentence, sentence
        status, _ = server.call("GET", "/health")
        assert status == 200 and server.process.poll() is None
    support.fsck(tmp_path / "state")
