# SPDX-License-Identifier: Apache-2.0
"""A machine whose clock is wrong at the start, before 1970 or far in the future, and set right at
the next one; and signals that mean nothing."""
import base64, signal, struct, time

import pytest

import life, support

DAY = 86400


def clock(folder, name, wall_s):
    """The environment of a server whose Unix time is moved by so many seconds."""
    path = folder / name
    path.write_bytes(struct.pack("=qq", 0, wall_s))
    path.chmod(0o600)
    return {"QUERN_TEST_CLOCK": str(path)}


@pytest.mark.parametrize("wrong", (-100, 0, 5, 4102444800 + DAY, 300_000_000_000))
def test_a_wrong_clock_breaks_nothing_and_is_told(tmp_path, wrong):
    state, first, second = tmp_path / "state", life.Client(life.echo_lines(30)), life.Client(
        life.echo_lines(30))
    with support.serving(state,
                         *life.ECHO,
                         environment=clock(tmp_path, "wrong", wrong - int(time.time()))) as server:
        assert "event=clock_wrong" in server.log_text()
        first.go(server)
        batch = server.batch(first.batch)
        assert 0 < batch["created_at"] <= batch["in_progress_at"] <= batch["completed_at"] < batch[
            "expires_at"] < 253402300800
        assert server.stop() == 0
    support.fsck(state)
    before = len(server.log_text())
    with support.serving(state, *life.ECHO) as server:
        assert "event=clock_wrong" not in server.log_text()[before:]
        first.download(server)
        second.go(server)
        assert server.stop() == 0
    support.fsck(state)


def test_a_clock_that_is_set_back_while_a_batch_is_under_way_turns_no_times_around(tmp_path):
    state, client = tmp_path / "state", life.Client(life.held_lines(20, 10))
    with support.serving(state, *life.ECHO) as server:
        client.go(server, "created")
        life.wait_for_lines(server, client.batch, 5)
        server.kill()
    with support.serving(state, *life.ECHO, environment=clock(tmp_path, "back",
                                                              -400 * DAY)) as server:
        server.json("POST", f"/v1/batches/{client.batch}/cancel", {})
        batch = server.wait(client.batch)
        assert batch["status"] == "cancelled" and batch["created_at"] <= batch[
            "cancelling_at"] <= batch["cancelled_at"]
        assert server.stop() == 0
    support.fsck(state)


def test_a_webhook_that_a_far_clock_put_off_is_delivered(tmp_path):
    """Nobody listens at the first attempt, so the second is due in a far year; then the clock is
    right, and hours are enough."""
    state, client, moved = tmp_path / "state", life.Client(
        life.echo_lines(3)), support.Clock(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text("whsec_" + base64.b64encode(bytes(range(24))).decode() + "\n")
    secret.chmod(0o600)
    signed = ("--webhook-allow-private", "--webhook-secret-file", str(secret))
    with support.reserved_port() as port:
        hook = ("--webhook-url", f"http://127.0.0.1:{port}/", *signed)
        with support.serving(state,
                             *life.ECHO,
                             *hook,
                             environment=clock(tmp_path, "far", 4000 * 365 * DAY)) as server:
            client.go(server)
            life.poll(lambda: "event=failed" in server.log_text(), what="a failed attempt")
            assert server.stop() == 0
    with support.webhook_receiver() as url:
        with support.serving(state,
                             *life.ECHO,
                             "--webhook-url",
                             url,
                             *signed,
                             environment=moved.environment) as server:
            moved.until(
                lambda: life.metric(server, 'quern_webhook_deliveries_total{outcome="succeeded"}')
                == 1, 600)
            assert server.stop() == 0
    support.fsck(state)


STRAYS = ("SIGUSR1", "SIGUSR2", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGPIPE", "SIGPOLL", "SIGPWR",
          "SIGSTKFLT", "SIGXFSZ", "SIGHUP", "SIGCHLD", "SIGURG", "SIGWINCH", "SIGRTMIN", "SIGRTMAX")


def test_signals_that_mean_nothing_end_nothing(tmp_path):
    client = life.Client(life.echo_lines(300))
    with support.serving(tmp_path / "state", *life.ECHO) as server:
        client.go(server, "created")
        for name in STRAYS:
            server.process.send_signal(getattr(signal, name))
            assert server.call("GET", "/health")[0] == 200, name
        client.go(server)
        assert server.stop() == 0
    support.fsck(tmp_path / "state")
