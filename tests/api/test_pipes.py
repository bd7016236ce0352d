# SPDX-License-Identifier: Apache-2.0
"""Commands whose file is a pipe: it is read, or refused with a sentence; one that nobody writes to
waits no longer than until Ctrl-C."""
import json, os, pathlib, signal, subprocess, threading, time

import pytest

import support

LINES = [support.request(f"a{i}", f"hello {i}", "m") for i in range(3)]
ECHO = ["--model", "m=echo"]
FAR = ["--base-url", "http://127.0.0.1:1/v1"]
STUDIO = ["label-studio", "sync", "run-1", "--label-studio-url", "http://127.0.0.1:1"]
# Each with a FIFO as {p}.
WAIT = [
    ["run", "-i", "{p}", "-o", "new.jsonl", *ECHO],
    ["run", "-i", "{p}.csv", "--prompt", "prompt", "-o", "new.csv", *ECHO],
    ["run", "-i", "rows.csv", "--prompt", "{p}", "-o", "new.csv", *ECHO],
    ["run", "-i", "rows.csv", "--prompt", "prompt", "--schema", "{p}", "-o", "new.csv", *ECHO],
    ["table", "{p}.csv", "--prompt", "prompt", "-o", "new.jsonl"],
    ["verify", "out.jsonl", "--public-key", "{p}"]]
REFUSE = [
    ["submit", "{p}", *FAR], ["compare", "{p}", "out.jsonl"], ["compare", "out.jsonl", "{p}"],
    ["evaluate", "{p}", *ECHO], ["evaluate", "in.jsonl", *ECHO, "--compare-to", "{p}"],
    ["erase", "{p}", "--custom-id", "a0", "--reason", "x"],
    ["erase", "out.jsonl", "--custom-id", "a0", "--reason", "x", "--judgements", "{p}"],
    ["log", "{p}", "--custom-id", "a0"],
    ["log", "out.jsonl", "--custom-id", "a0", "--judgements", "{p}"], ["replay", "{p}"],
    ["verify", "{p}"], ["preflight", "{p}", *ECHO], ["tune", "{p}", "--model", "smollm2"],
    ["calibrate", "{p}", *ECHO], ["calibrate", "in.jsonl", "--answers", "{p}"],
    [*STUDIO, "-i", "{p}", "--results-file", "out.jsonl"],
    [*STUDIO, "-i", "in.jsonl", "--results-file", "{p}"], ["list", "--api-key-file", "{p}", *FAR],
    ["run", "-i", "in.jsonl", "-o", "{p}", *ECHO], ["results", "batch_1", "-o", "{p}", *FAR]]


@pytest.fixture
def place(tmp_path):
    (tmp_path / "in.jsonl").write_bytes(support.jsonl(LINES))
    (tmp_path / "rows.csv").write_text("id,x\n1,a\n2,b\n")
    (tmp_path / "prompt").write_text("Rate {{ x }}.")
    done = support.quern("run", "-i", "in.jsonl", "-o", "out.jsonl", *ECHO, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in ("p", "p.csv"):
        os.mkfifo(tmp_path / name)
    return tmp_path


def command(arguments):
    return [support.BINARY, *(one.format(p="p") for one in arguments)]


def heed_interrupts():
    """A job in the background of a shell ignores SIGINT, and so would a command that it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(place, arguments):
    return subprocess.Popen(
        command(arguments), cwd=place, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=heed_interrupts,
        env={**os.environ, "LABEL_STUDIO_API_KEY": "x"})


def holds_a_fifo(process):
    folder = pathlib.Path(f"/proc/{process.pid}/fd")
    try:
        return any((place / name).samefile(fd) for fd in folder.iterdir()
                   for place in [pathlib.Path(os.readlink(f"/proc/{process.pid}/cwd"))]
                   for name in ("p", "p.csv"))
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("arguments", WAIT, ids=[f"{one[0]}-{i}" for i, one in enumerate(WAIT)])
def test_a_command_that_waits_for_a_writer_ends_by_one_signal(place, arguments, number):
    process = start(place, arguments)
    while not holds_a_fifo(process):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.002)
    process.send_signal(number)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130 or process.returncode == -number, said
    assert not (place / "new.jsonl").exists() and not (place / "new.csv").exists()


@pytest.mark.parametrize("arguments", REFUSE, ids=[f"{one[0]}-{i}" for i, one in enumerate(REFUSE)])
def test_a_file_that_is_read_twice_is_refused_if_it_is_a_pipe(place, arguments):
    process = start(place, arguments)
    said = process.communicate(timeout=120)[1]
    words = ("read twice", "plain file", "a FIFO, and no file")
    assert process.returncode == 3 and any(word in said for word in words), said


def through_bash(place, text):
    done = subprocess.run(["bash", "-c", text], cwd=place, capture_output=True, text=True,
                          env={**os.environ, "quern": str(support.BINARY)}, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_read_once_may_come_from_another_command(place):
    through_bash(place, "$quern run -i <(cat in.jsonl) -o new.jsonl --model m=echo")
    assert len((place / "new.jsonl").read_text().splitlines()) == 3
    said = through_bash(place, "$quern verify new.jsonl --input in.jsonl")
    assert "input    good     in.jsonl" in said
    through_bash(place, "$quern run -i rows.csv --prompt <(cat prompt) -o new.csv --model m=echo")
    assert "Rate a." in (place / "new.csv").read_text()


def test_a_table_is_taken_from_a_pipe_and_its_manifest_claims_no_sum_of_it(place):
    writer = threading.Thread(
        target=lambda: (place / "p.csv").write_text((place / "rows.csv").read_text()))
    writer.start()
    done = support.quern("run", "-i", "p.csv", "--prompt", "prompt", "-o", "new.csv", *ECHO,
                         cwd=place, timeout=120)
    writer.join()
    assert done.returncode == 0, done.stderr
    assert "Rate b." in (place / "new.csv").read_text()
    manifest = json.loads((place / "new.csv.manifest.json").read_text())
    assert manifest["input"]["lines_sha256"] is None
