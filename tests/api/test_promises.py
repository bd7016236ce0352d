# SPDX-License-Identifier: Apache-2.0
"""Promises of SECURITY.md that no other suite holds: who may look into the server, and variables
that exist for tests only."""
import ctypes, os, pathlib, re, subprocess

import pytest

import support

ECHO = ("--model", "smollm2=echo")
PR_CAPBSET_DROP, CAP_SYS_PTRACE, CAP_SYS_ADMIN, CAP_PERFMON = 24, 19, 21, 38


def drop():
    """Takes the rights away with which root looks into every process."""
    for right in (CAP_SYS_PTRACE, CAP_SYS_ADMIN, CAP_PERFMON):
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, right, 0, 0, 0)


def may_look_into(process):
    """Whether a program of the same user can read the environment of a process."""
    return subprocess.run(["cat", f"/proc/{process.pid}/environ"],
                          capture_output=True,
                          preexec_fn=drop).returncode == 0


def test_the_server_is_closed_to_debuggers_of_its_own_user(tmp_path):
    if b"__asan_init" in pathlib.Path(support.BINARY).read_bytes():
        pytest.skip("the leak check of a sanitizer is a debugger")
    serve = [support.BINARY, "serve", "--port", "0", "--state-dir", tmp_path / "state", *ECHO]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(["sleep", "600"], preexec_fn=drop) as open_one, \
            subprocess.Popen(serve, preexec_fn=drop, **pipes) as server:
        try:
            assert server.stdout.readline().startswith(b"listening on")
            if not may_look_into(open_one):
                pytest.skip("nobody looks into another process here")
            assert not may_look_into(server)
            limits = pathlib.Path(f"/proc/{server.pid}/limits").read_text()
            assert re.search(r"^Max core file size +0 +0 ", limits, re.M)
        finally:
            open_one.kill()
            server.kill()


def test_a_clock_that_moves_is_said_and_must_be_ones_own(tmp_path):
    clock = support.Clock(tmp_path)
    with support.serving(tmp_path / "state", *ECHO, environment=clock.environment) as server:
        support.until(lambda: "event=test_clock file=" in server.log_text())
    path = pathlib.Path(clock.environment["QUERN_TEST_CLOCK"])
    for spoil in (lambda: path.chmod(0o620), lambda:
                  (path.chmod(0o600), path.write_bytes(b"1234567")), path.unlink):
        spoil()
        done = support.quern("models", "list", env={**os.environ, **clock.environment})
        assert done.returncode == 2 and "QUERN_TEST_CLOCK" in done.stderr
    done = support.quern("models", "list", env={**os.environ, "QUERN_FAULT": "nonsense"})
    assert done.returncode == 2
