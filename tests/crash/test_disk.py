# SPDX-License-Identifier: Apache-2.0
"""A full disk, for real: the state directory on a small tmpfs that a filler fills up to a chosen
byte. quern pauses and says so, refuses uploads in one clear sentence, loses nothing, and goes on
when there is room."""
import contextlib, json, os, signal, subprocess, time

import pytest

import life, support
from cluster import Node, Redis, needs_redis
from life import Client, Died, ECHO, Victim, metric, poll, scaled, spread

DISK_BYTES = 40 << 20
LINES = 3000


@pytest.fixture
def disk(tmp_path):
    """An empty tmpfs of DISK_BYTES."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs",
         str(folder)],
        capture_output=True,
        text=True)
    if done.returncode != 0:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def free_bytes(folder):
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def fill(folder, leave_bytes):
    """All of the disk but `leave_bytes`, at this moment."""
    with open(folder / "filler", "wb") as file:
        for _ in range(100):  # the server may be quicker
            wanted = free_bytes(folder) - leave_bytes
            if wanted <= 0:
                return
            with contextlib.suppress(OSError):
                os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, wanted)


def empty(folder):
    """Takes everything from the disk, for the next round."""
    subprocess.run(["find", str(folder), "-mindepth", "1", "-delete"], check=True)


def state_on(disk):
    """A state directory on the disk, by a name beside it: the server's log stands next to the name,
    not on the disk."""
    (disk / "state").mkdir()
    name = disk.parent / "state"
    if not name.is_symlink():
        name.symlink_to(disk / "state")
    return name


def upload(server, content):
    """The id of the file, or None when it was refused for want of space, with the envelope the
    contract wants."""
    boundary = "b0undary"
    body = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--{boundary}\r\nContent-Disposition: '
        f'form-data; name="file"; filename="a.jsonl"\r\n\r\n'
    ).encode() + content + f"\r\n--{boundary}--\r\n".encode()
    status, data = server.call("POST", "/v1/files", body,
                               f"multipart/form-data; boundary={boundary}")
    if status == 200:
        return json.loads(data)["id"]
    error = json.loads(data)["error"]
    assert status in (503, 507), data
    assert error["type"] == "server_error" and len(
        error["message"]) > 10 and "/" not in error["message"], error
    return None


def says_full(server):
    """The server tells everybody that it waits for space, and does not change its mind while
    nothing changes."""
    for _ in range(12):
        status, data = server.call("GET", "/ready")
        ready = json.loads(data)
        assert status == 503 and ready["checks"]["space"] is False and "disk is full" in ready[
            "text"], data
        assert metric(server, "quern_store_full") == 1
        time.sleep(0.02)
    assert server.log_text().count("event=disk_full") == 1, "it went back and forth"


def one_round(disk, requests, leave_bytes):
    """A batch on a disk that has only so much left. Returns what the disk was full for."""
    state, client = state_on(disk), Client(requests)
    server = support.Server(state, *ECHO)
    place = None
    server.start()
    try:
        fill(disk, leave_bytes)
        client.file = upload(server, client.content)
        if client.file is None:
            place = "upload"
            says_full(server)
            assert upload(server, b"{}") is None, "a refusal is for all who come"
        else:
            client.go(server, "created")
            poll(lambda: client.look(server)["status"] in support.TERMINAL or metric(
                server, "quern_store_full") == 1)
            batch = client.look(server)
            if batch["status"] not in support.TERMINAL:
                place = batch["status"]
                says_full(server)
                assert upload(server, b"{}") is None
                assert server.call("GET",
                                   f"/v1/files/{client.file}/content") == (200, client.content)
        (disk / "filler").unlink()
        poll(lambda: server.call("GET", "/ready")[0] == 200, what="being ready again")
        client.go(server)
        assert metric(server, "quern_store_full") == 0
        assert (state / "ballast").exists(), "the reserve was not made anew"
        assert metric(server, "quern_log_corrupt_records_total") == metric(
            server, "quern_duplicate_results_total") == 0
        assert server.stop() == 0
    finally:
        if server.process.poll() is None:
            server.kill()
    support.fsck(state)
    server.log.close()
    os.unlink(server.log.name)
    empty(disk)
    return place


def test_a_server_waits_for_space_wherever_the_disk_fills_and_then_ends_its_batch(disk):
    requests = life.echo_lines(LINES)
    # From nothing left to enough for all: input, index, log and output one after another.
    places = [
        one_round(disk, requests, leave) for leave in [*spread(0, 5 << 20, scaled(23)), 9 << 20]]
    print(places)
    assert None in places and set(places) - {None}, places
    if life.SCALE >= 1:
        assert {"upload", "in_progress", "finalizing"} <= set(places), places
        assert sum(place is not None for place in places) >= 20


def test_the_disk_fills_while_lines_are_running(disk, tmp_path):
    """Many rounds of full and empty under one running batch. Each fourth of it is there in a later
    round, however quick the server is."""
    state, clock, count = state_on(disk), support.Clock(tmp_path), 12000
    client = Client(life.held_lines(count, count // 4, count // 2, count * 3 // 4))
    with support.serving(state, *ECHO, environment=clock.environment) as server:
        client.go(server, "created")
        rounds = 0
        while client.look(server)["status"] not in support.TERMINAL:
            fill(disk, 0)
            clock.until(
                lambda: client.look(server)["status"] in support.TERMINAL or metric(
                    server, "quern_store_full") == 1, 5)
            rounds += 1
            before = client.seen
            (disk / "filler").unlink()
            poll(lambda: metric(server, "quern_store_full") == 0)
            poll(lambda: client.look(server)["status"] in support.TERMINAL or client.seen > before)
        assert rounds >= 2
        client.go(server)
        assert server.stop() == 0
    support.fsck(state)


@needs_redis
def test_the_disk_fills_while_nodes_have_lines(disk, tmp_path):
    """What nodes answer waits in the queue, or at the server, until there is room; also when a node
    and the queue die meanwhile."""
    lines, clock = life.held_lines(200, 100), support.Clock(tmp_path)
    with Redis(tmp_path) as redis, support.serving(state_on(disk), "--queue", redis.url) as server:
        node = lambda: Node(tmp_path, redis, *ECHO, environment=clock.environment)
        nodes = [node(), node()]
        batch_id = server.create(support.jsonl(lines))["id"]
        support.until(lambda: server.batch(batch_id)["request_counts"]["completed"] > 0)
        fill(disk, 0)
        clock.until(lambda: metric(server, "quern_store_full") == 1, 5)
        nodes[0].kill()
        redis.kill()
        redis.start()
        nodes.append(node())
        (disk / "filler").unlink()
        clock.until(lambda: server.batch(batch_id)["status"] in support.TERMINAL, 5)
        output, errors = server.results(server.wait(batch_id))
        life.judge(output, lines)
        assert errors == []
        for node in nodes[1:]:
            assert node.stop() == 0
    support.fsck(disk / "state")


def test_a_server_starts_on_a_full_disk_and_gives_out_what_is_finished(disk):
    client = Client(life.echo_lines(200))
    state = state_on(disk)
    with support.serving(state, *ECHO) as server:
        client.go(server)
        server.kill()
    for _ in range(2):  # with the ballast in place, and without it
        fill(disk, 0)
        with support.serving(state, *ECHO) as server:
            client.go(server)
            poll(lambda: metric(server, "quern_store_full") == 1 or upload(server, b"{}") is None)
            server.kill()
    with support.serving(state, *ECHO) as server:
        assert upload(server, client.content) is None
        (disk / "filler").unlink()
        poll(lambda: server.call("GET", "/ready")[0] == 200)
        Client(life.echo_lines(20)).go(server)
        assert server.stop() == 0
    support.fsck(state)


def test_the_reserve_fits_the_disk(disk):
    with support.serving(state_on(disk), *ECHO) as server:
        assert metric(server, "quern_store_reserve_bytes") == DISK_BYTES // 8 == (
            disk / "state/ballast").stat().st_size
        assert server.call("GET", "/ready")[0] == 200


def one_run(disk, requests, leave_bytes):
    """`quern run` on a disk with so much left. Returns how it met the full disk."""
    (disk / "in.jsonl").write_bytes(support.jsonl(requests))
    fill(disk, leave_bytes)
    command = life.run_command(disk)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    how, said = "enough", ""
    while process.poll() is None:
        line = process.stderr.readline()
        said += line
        if "event=disk_full" in line:
            how = "waited"
            if process.poll() is None:
                (disk / "filler").unlink(missing_ok=True)
    said += process.stderr.read()
    assert process.returncode in (0, 6), said
    if process.returncode == 6:
        how = "ended"
        last = said.strip().splitlines()[-1]
        assert last.startswith("quern run: ") and ("full" in last or "No space left" in last), said
        assert not (disk / "out.jsonl").exists()
        (disk / "filler").unlink(missing_ok=True)
        again = subprocess.run(command, capture_output=True, text=True)
        assert again.returncode == 0, again.stderr
    life.judge_file(disk / "out.jsonl", requests)
    assert not (disk / "out.jsonl.quern").exists()
    empty(disk)
    return how


def test_run_waits_for_space_or_ends_in_one_sentence_and_goes_on(disk):
    requests = life.echo_lines(LINES)
    ways = [one_run(disk, requests, leave) for leave in spread(0, 12 << 20, scaled(14))]
    print(ways)
    assert {"ended", "waited", "enough"} <= set(ways) or life.SCALE < 1, ways


def test_run_interrupted_while_it_waits_for_space_keeps_everything(disk, tmp_path):
    requests, clock, said = life.held_lines(2 * LINES,
                                            LINES), support.Clock(tmp_path), tmp_path / "said"
    (disk / "in.jsonl").write_bytes(support.jsonl(requests))
    environment = {**os.environ, **clock.environment}
    with open(said, "w") as file:
        process = subprocess.Popen(life.run_command(disk), stderr=file, env=environment)
    poll(lambda: (disk / "out.jsonl.quern/ballast").exists())
    fill(disk, 0)
    clock.until(lambda: process.poll() is not None or "event=disk_full" in said.read_text(), 5)
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    assert process.wait(60) in (130, 6)
    (disk / "filler").unlink()
    with open(said, "w") as file:
        process = subprocess.Popen(life.run_command(disk), stderr=file, env=environment)
    clock.until(lambda: process.poll() is not None, 5)
    assert process.returncode == 0, said.read_text()
    life.judge_file(disk / "out.jsonl", requests)


@pytest.mark.parametrize("call", ["write", "pwrite", "fallocate", "rename"])
def test_any_one_call_that_finds_no_space_costs_time_only(tmp_path, call):
    """The same by plan instead of by filler, so that no call is left out."""
    requests = life.echo_lines(60)
    met = 0
    for at in range(1, scaled(10) + 1):
        state, client = tmp_path / f"{at}", Client(requests)
        server = Victim(state, *ECHO, plan=f"{call}:{at}:ENOSPC", ends=(6,))
        try:
            server.start()
            refused = 0
            while (file := upload(server, client.content)) is None:
                refused += 1
                assert refused < 100
            client.file = file
            poll(lambda: create_when_there_is_room(server, client))
            client.go(server)
            # A note for manifests that finds no space is left out, with a warning.
            met += refused > 0 or any(
                word in server.log_text() for word in ("event=disk_full", "retrying", "No space"))
            assert server.stop() == 0
        except Died:  # a start that finds no space says so and ends
            assert server.log_text().strip().splitlines()[-1].startswith(
                "quern serve: "), server.log_text()
            met += 1
            life.finish(client, state)
        finally:
            if server.process.poll() is None:
                server.kill()
        support.fsck(state)
    assert met > 0


def create_when_there_is_room(server, client):
    try:
        client.go(server, "created")
        return True
    except AssertionError as refusal:
        assert "cannot take this now" in str(refusal), refusal
        return False
