# SPDX-License-Identifier: Apache-2.0
"""What a start finds: how much runs again (I6), an orderly end and an impatient one, a directory
that is in use, and bytes that have changed on the disk."""
import json, os, random, signal, sqlite3, subprocess, time

import pytest

import life, support
from life import Client, ECHO, metric, poll, scaled
from segments import records

SEED = support.SEED


def stop_while_it_runs(server, client, at_least):
    """kill -9 once so many lines are counted; returns what was counted then."""
    poll(lambda: client.look(server) and client.seen >= at_least)
    server.kill()
    return client.seen


def test_after_a_kill_only_lines_without_a_counted_result_run_again(tmp_path):
    print(f"seed {SEED}")
    rng, total, clock = random.Random(SEED), 12000, support.Clock(tmp_path)
    requests = life.held_lines(total, total - 1)
    for round_number in range(scaled(5)):
        state, client = tmp_path / f"{round_number}", Client(requests, clock)
        with support.serving(state, *ECHO) as server:
            client.go(server, "created")
            counted = stop_while_it_runs(server, client, rng.randrange(1, total * 3 // 4))
            assert 0 < counted < total
        with support.serving(state, *ECHO, environment=clock.environment) as server:
            client.wait(server)
            ran, recovered = metric(server, "quern_lines_total"), metric(
                server, "quern_recovered_requests_total")
            print(f"{counted} counted, {recovered:.0f} recovered, {ran:.0f} ran again")
            assert ran <= total - counted, "a counted line ran again (I6)"
            assert recovered >= counted, "a counted line was not found again (I5)"
            assert ran + recovered == total
            assert metric(server, "quern_lines_lost_total") == metric(
                server, "quern_lines_retried_total") == 0
            assert metric(server, "quern_duplicate_results_total") == 0
            client.download(server)
            assert server.stop() == 0
        support.fsck(state)


# --- SIGTERM and SIGINT ---

def slow_requests(count, tokens=24, **more):
    return [
        support.request(f"slow-{i:02d}",
                        f"Tell a story about number {i}.",
                        temperature=0,
                        max_tokens=tokens,
                        **more) for i in range(count)]


def ids_of(server, batch):
    output, errors = server.results(batch)
    assert errors == []
    return [line["custom_id"] for line in output]


def test_sigterm_lets_lines_in_flight_finish_and_a_restart_goes_on(tmp_path):
    requests, state = slow_requests(24, tokens=60, ignore_eos=True), tmp_path / "state"
    arguments = ("--model", "smollm2", "--lookahead-lines", "4", "--drain-seconds", "60")
    with support.serving(state, *arguments) as server:
        batch = server.create(support.jsonl(requests))["id"]
        poll(lambda: server.batch(batch)["request_counts"]["completed"] >= 2)
        counted = server.batch(batch)["request_counts"]["completed"]
        assert server.stop() == 0
        assert "drained left=nothing" in server.log_text()
    support.fsck(state)
    with support.serving(state, *arguments) as server:
        ended = server.wait(batch)
        ran, recovered = metric(server, "quern_lines_total"), metric(
            server, "quern_recovered_requests_total")
        print(f"{counted} counted before, {recovered:.0f} recovered, {ran:.0f} ran")
        assert counted <= recovered < 24 and ran == 24 - recovered, "nothing in flight was thrown away, and nothing ran twice"
        assert ids_of(server, ended) == [r["custom_id"] for r in requests]
        assert server.stop() == 0
    support.fsck(state)


def test_a_second_sigterm_ends_at_once_and_loses_nothing(tmp_path):
    requests, state = slow_requests(8, ignore_eos=True), tmp_path / "state"
    with support.serving(state, "--model", "smollm2", "--drain-seconds", "600") as server:
        engine = server.engine_pid()
        os.kill(engine, signal.SIGSTOP)  # so that the lines are with it when the signals come
        batch = server.create(support.jsonl(requests))["id"]
        poll(lambda: metric(server, "quern_requests_inflight") == 8)
        server.process.send_signal(signal.SIGTERM)
        poll(lambda: "draining" in server.log_text())
        assert server.process.poll() is None, "the first one drains"
        server.process.send_signal(signal.SIGTERM)
        os.kill(engine, signal.SIGCONT)
        assert server.process.wait(60) == 130
        poll(lambda: not os.path.exists(f"/proc/{engine}"), what="the end of the engine")
    support.fsck(state)
    with support.serving(state, "--model", "smollm2") as server:
        ended = server.wait(batch)
        assert ids_of(server, ended) == [r["custom_id"] for r in requests]
    support.fsck(state)


def test_ctrl_c_of_run_keeps_what_is_done_and_exits_130(tmp_path):
    requests = slow_requests(90, tokens=40, ignore_eos=True)  # more than are done while it ends
    (tmp_path / "in.jsonl").write_bytes(support.jsonl(requests))
    command = life.run_command(tmp_path, "--model", "smollm2", "--max-num-seqs", "2")
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    segment = poll(lambda: next(
        (tmp_path / "out.jsonl.quern").glob("batches/*/seg-000001.log"), None))
    poll(lambda: segment.read_bytes().count(b"QREC") >= 3)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the engine gets it too
    assert process.wait(60) == 130
    assert "the same command goes on from here" in process.stderr.read()
    assert not (tmp_path / "out.jsonl").exists()
    kept = segment.read_bytes().count(b"QREC")
    # More at a time, for the rest to take seconds only.
    again = subprocess.run([*command, "--max-num-seqs", "32", "--json"],
                           capture_output=True,
                           text=True)
    assert again.returncode == 0, again.stderr
    assert kept >= 3 and json.loads(again.stdout)["completed"] == 90
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["custom_id"] for line in lines] == [r["custom_id"] for r in requests]


def test_runs_of_one_output_at_the_same_time_end_and_leave_its_results(tmp_path):
    """The first one removes its directory while the next ones begin."""
    print(f"seed {SEED}")
    rng, lines = random.Random(SEED), life.echo_lines(5)
    (tmp_path / "in.jsonl").write_bytes(support.jsonl(lines))
    for number in range(10):
        output = tmp_path / f"out-{number}.jsonl"
        runs = []
        for _ in range(4):
            runs.append(
                subprocess.Popen([
                    support.BINARY, "run", "-q", "-i", tmp_path / "in.jsonl", "-o", output, *ECHO],
                                 stderr=subprocess.PIPE,
                                 text=True))
            time.sleep(rng.random() * 0.1)  # any moment of the one before
        for run in runs:
            said = run.communicate(timeout=120)[1]
            assert run.returncode == 0 or (run.returncode == 7 and "another quern" in said), said
        life.judge([json.loads(line) for line in output.read_text().splitlines()], lines)
        assert not (tmp_path / f"out-{number}.jsonl.quern").exists()


# --- a directory in use, or damaged ---

def refused(state, *words, status=3):
    """`quern serve` ends with this status and one sentence that has these words."""
    done = support.quern("serve", "--port", "0", "--state-dir", state, *ECHO, timeout=120)
    assert done.returncode == status and done.stdout == "", done
    sentence = done.stderr.strip().splitlines()[-1]
    assert sentence.startswith("quern serve: ") and all(word in sentence
                                                        for word in words), done.stderr
    return done.stderr


def test_a_second_server_on_the_directory_ends_with_one_sentence(tmp_path):
    state = tmp_path / "state"
    with support.serving(state, *ECHO) as server:
        assert refused(state, "in use by another quern process", status=7).count("\n") == 1
        Client(life.echo_lines(5)).go(server)  # the first one was not disturbed
        done = support.quern("fsck", "--state-dir", state)
        assert done.returncode == 7 and "in use" in done.stderr, done


@pytest.mark.parametrize("damage", ["header", "page", "truncated", "foreign", "newer"])
def test_a_damaged_database_is_named_and_not_touched(tmp_path, damage):
    state = tmp_path / "state"
    with support.serving(state, *ECHO) as server:
        Client(life.echo_lines(5)).go(server)
        assert server.stop() == 0
    database = state / "meta.db"
    data = bytearray(database.read_bytes())
    if damage == "header":
        data[:16] = b"not a database.."
    elif damage == "page":
        data[4096:8192] = random.Random(3).randbytes(4096)
    elif damage == "truncated":
        del data[4096 + 100:]
    if damage in ("foreign", "newer"):
        if damage == "foreign":
            database.unlink()
        connection = sqlite3.connect(database)
        connection.execute("CREATE TABLE other (x)" if damage ==
                           "foreign" else "PRAGMA user_version = 99")
        connection.commit()
        connection.close()
        data = database.read_bytes()
    else:
        database.write_bytes(data)
    files = sorted(str(path) for path in (state / "files").rglob("*"))
    refused(state, "meta.db", {"foreign": "something else", "newer": "version 99"}.get(
        damage, "damaged"))
    assert bytes(data) == database.read_bytes(), "the evidence stays as it is"
    assert files == sorted(str(path) for path in (state / "files").rglob("*"))
    done = support.quern("fsck", "--state-dir", state)
    assert done.returncode in (3, 10) and "meta.db" in done.stderr, done


def half_done(tmp_path, lines=12000):
    """A killed server's directory with a batch in the middle, and its client."""
    state, client = tmp_path / "state", Client(life.held_lines(lines, lines - 1),
                                               support.Clock(tmp_path))
    with support.serving(state, *ECHO) as server:
        client.go(server, "created")
        stop_while_it_runs(server, client, lines // 4)
    return state, client, state / "batches" / client.batch


def test_a_flipped_bit_in_a_segment_is_named_and_only_its_line_runs_again(tmp_path):
    state, client, batch = half_done(tmp_path)
    segment = batch / "seg-000001.log"
    data = bytearray(segment.read_bytes())
    found = list(records(data))
    at, length, line = found[len(found) // 2]
    data[at + 60] ^= 0x10
    segment.write_bytes(data)
    done = support.quern("fsck", "--state-dir", state)
    assert done.returncode == 10 and client.batch in done.stdout and f"{length} bytes at {at} are damaged" in done.stdout, done
    with support.serving(state, *ECHO, environment=client.clock.environment) as server:
        assert metric(server, "quern_log_corrupt_records_total") == 1
        assert "event=log_corrupt" in server.log_text() and client.batch in server.log_text()
        client.seen -= 1  # the damaged one is not counted until it has run again
        client.go(server)
        ran, recovered = metric(server, "quern_lines_total"), metric(
            server, "quern_recovered_requests_total")
        assert recovered == len(found) - 1 and ran == len(client.requests) - recovered
        assert server.stop() == 0
    support.fsck(state)


def test_a_torn_tail_is_cut_without_a_word_about_damage(tmp_path):
    state, client, batch = half_done(tmp_path)
    segment = batch / "seg-000001.log"
    data = segment.read_bytes()
    at, length, line = list(records(data))[-1]
    segment.write_bytes(data[:at + length // 2])
    support.fsck(state)
    with support.serving(state, *ECHO, environment=client.clock.environment) as server:
        client.seen = 0  # what was counted has been taken from the disk by hand
        client.go(server)
        assert metric(server, "quern_log_corrupt_records_total") == 0
        assert server.stop() == 0
    support.fsck(state)


@pytest.mark.parametrize("damage", ["truncated", "gone", "flipped"])
def test_a_damaged_index_is_made_again_from_the_input(tmp_path, damage):
    state, client, batch = half_done(tmp_path)
    index = batch / "lines.idx"
    data = bytearray(index.read_bytes())
    if damage == "truncated":
        index.write_bytes(data[:len(data) // 2])
    elif damage == "gone":
        index.unlink()
    else:
        data[len(data) // 3] ^= 4
        index.write_bytes(data)
    with support.serving(state, *ECHO, environment=client.clock.environment) as server:
        assert "event=index_rebuilt" in server.log_text()
        client.go(server)
        assert server.stop() == 0
    support.fsck(state)


def test_a_published_byte_that_changes_is_named_by_fsck(tmp_path):
    state, client = tmp_path / "state", Client(life.echo_lines(50))
    with support.serving(state, *ECHO) as server:
        client.go(server)
        output = server.batch(client.batch)["output_file_id"]
        assert server.stop() == 0
    path = next((state / "files").rglob(output))
    os.chmod(path, 0o600)
    data = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([
        *data[:20], data[20].replace(b"line-00020", b"line-99999"), *data[21:]]))
    done = support.quern("fsck", "--state-dir", state)
    assert done.returncode == 10 and f"{output}: its bytes are not what was stored" in done.stdout, done
    assert f"{client.batch}: line 21 of the input has no record" in done.stdout, done.stdout


def test_a_damaged_input_ends_its_batch_and_says_why(tmp_path):
    state, client, batch = half_done(tmp_path)
    path = next((state / "files").rglob(client.file))
    os.chmod(path, 0o600)
    data = path.read_bytes()
    path.write_bytes(data[:len(data) // 2])
    done = support.quern("fsck", "--state-dir", state)
    assert done.returncode == 10 and client.file in done.stdout, done
    with support.serving(state, *ECHO, environment=client.clock.environment) as server:
        ended = server.wait(client.batch, 60)
        assert ended["status"] == "failed" and ended["errors"]["data"], ended
        assert server.stop() == 0
