# SPDX-License-Identifier: Apache-2.0
"""An engine that hangs or crashes with work inside: it is restarted, its lines run again, and its
stacks are kept."""
import os, re, signal

import pytest

import support


def requests(count):
    """The first is answered at once, the others after a while."""
    return support.jsonl([
        support.request(f"line-{i}",
                        f"SECRET-{i} Write about rivers.",
                        temperature=0,
                        max_tokens=100 if i else 1,
                        ignore_eos=True) for i in range(count)])


def restarts(server):
    _, data = server.call("GET", "/metrics")
    return int(
        re.search(r'^quern_engine_restarts_total\{engine="0"\} (\d+)$', data.decode(), re.M)[1])


@pytest.fixture
def clock(tmp_path):
    return support.Clock(tmp_path)


@pytest.fixture
def server(tmp_path, clock):
    # Long enough that a slow machine's step is no hang.
    with support.serving(tmp_path / "state",
                         "--model",
                         "smollm2",
                         "--hang-seconds",
                         "60",
                         environment=clock.environment) as server:
        yield server
    support.fsck(tmp_path / "state")


def run_with(server, number, clock=None):
    batch = server.create(requests(12))
    support.until(lambda: server.batch(batch["id"])["request_counts"]["completed"] > 0)
    os.kill(server.engine_pid(), number)
    if clock:
        # In small steps: a server that sees seconds pass at once thinks that it was stopped itself.
        clock.until(lambda: "the engine made no progress for" in server.log_text(), 0.5)
    support.until(lambda: restarts(server) > 0)
    ended = server.wait(batch["id"])
    assert ended["request_counts"] == {"total": 12, "completed": 12, "failed": 0}


def test_an_engine_that_stands_still_is_killed_and_its_lines_run_again(server, clock):
    run_with(server, signal.SIGSTOP, clock)


def test_the_stacks_of_an_engine_that_crashed_are_kept_without_its_prompts(server):
    run_with(server, signal.SIGSEGV)
    dump, = (server.state / "dumps").iterdir()
    text = dump.read_text()
    assert text.startswith("signal 11\n") and text.endswith("end\n")
    assert "quern(+0x" in text and "SECRET" not in text
    assert oct(dump.stat().st_mode)[-3:] == "600"
