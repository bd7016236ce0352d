# SPDX-License-Identifier: Apache-2.0
"""Bytes of a state directory that rot: one bit, a range of zeros, an end that is cut off, in each
kind of file. `quern fsck`, a start and `quern backup` live through all of it: they say what is
wrong, or find nothing; none ends by a signal or without a word.

QUERN_KILLS scales the number of damages; QUERN_SEED chooses others."""
import contextlib, http.client, json, os, random, re, shutil, signal, sqlite3, subprocess
import urllib.parse, uuid

import pytest

import life, support

SEED = os.environ.get("QUERN_SEED", "11")
SEED = random.randrange(1 << 30) if SEED == "random" else int(SEED)
SECONDS = 120


def upload_a_part(server):
    made = server.json("POST", "/v1/uploads",
                       {"bytes": 5000, "filename": "x", "mime_type": "x/x", "purpose": "user_data"})
    boundary = uuid.uuid4().hex
    body = f'--{boundary}\r\nContent-Disposition: form-data; name="data"; filename="upload"\r\n\r\n'.encode(
    ) + b"p" * 3000
    status, data = server.call("POST", f"/v1/uploads/{made['id']}/parts",
                               body + f"\r\n--{boundary}--\r\n".encode(),
                               f"multipart/form-data; boundary={boundary}")
    assert status == 200, data


@pytest.fixture(scope="module")
def rotting(tmp_path_factory):
    """A state directory with every kind of file, of a server that was killed with one batch under
    way, and a copy of its database without a log."""
    state = tmp_path_factory.mktemp("damage") / "state"
    with support.serving(state, *life.ECHO, "--result-cache-bytes", str(1 << 20)) as server:
        same = [support.request(f"id-{i}", f"text {i}", temperature=0)
                for i in range(40)]  # answers that are kept
        ended = [
            server.wait(server.create(support.jsonl(lines))["id"])
            for lines in (life.echo_lines(40), same)]
        server.json(
            "POST", f"/v1/batches/{ended[0]['id']}/judgements", {
                "custom_id": life.echo_lines(1)[0]["custom_id"], "id": "judgement-1",
                "curator": "a", "version": 0, "verdict": "accepted"})
        upload_a_part(server)
        running = server.create(support.jsonl(life.held_lines(40, 30)))
        life.wait_for_lines(server, running["id"], 20)
        server.kill()
    (state / "ballast").unlink()
    return state


def kinds(state):
    """The files of a state directory by what they are."""
    found = {}
    for path in sorted(p for p in state.rglob("*") if p.is_file() and p.stat().st_size > 0):
        relative = path.relative_to(state)
        kind = {"batches": relative.name, "files": "files", "parts": "parts", "cache": "cache"}.get(
            relative.parts[0], relative.parts[0])
        found.setdefault(kind, []).append(path)
    return found


def damage(path, rng):
    """Damages a file, and says how."""
    data = bytearray(path.read_bytes())
    path.chmod(0o600)
    kind, at = rng.choice(("bit", "bit", "zeros", "cut", "noise")), rng.randrange(len(data))
    if kind == "bit":
        data[at] ^= 1 << rng.randrange(8)
    elif kind == "zeros":
        data[at:at + 512] = bytes(len(data[at:at + 512]))
    elif kind == "noise":
        data[at:at + 16] = rng.randbytes(len(data[at:at + 16]))
    else:
        del data[at:]
    path.write_bytes(data)
    return f"{kind} at {at} of {path.name}"


def check(state, said):
    """An fsck that lives: it finds nothing, or says what it found."""
    done = support.quern("fsck", "--state-dir", state, timeout=SECONDS)
    assert done.returncode >= 0 and "Assertion" not in done.stderr, f"{said}: fsck ended with {done.returncode}: {done.stdout}{done.stderr}"
    assert done.returncode == 0 or done.stdout.strip() or done.stderr.strip(
    ), f"{said}: fsck ended with {done.returncode} without a word"
    return done


def start(state, said):
    """A start that lives: it serves, or ends with a sentence."""
    log = state.parent / "log"
    with open(log, "w") as file:
        process = subprocess.Popen([
            support.BINARY, "serve", "--port", "0", "--state-dir",
            str(state), *life.ECHO, "--result-cache-bytes",
            str(1 << 20), "--drain-seconds", "0"],
                                   stdout=subprocess.PIPE,
                                   stderr=file,
                                   text=True)
    try:
        line = process.stdout.readline()
        if line:
            port = int(re.search(r":(\d+)$", line.strip())[1])
            server = support.Server(state)
            server.port = port
            for batch in server.json(
                    "GET", "/v1/batches")["data"]:  # each can be looked at, whatever became of it
                with contextlib.suppress(
                        http.client.IncompleteRead):  # for damaged results the rest is not sent
                    server.call("GET",
                                f"/v1/batches/{urllib.parse.quote(batch['id'], safe='')}/results")
            process.send_signal(signal.SIGTERM)
        code = process.wait(SECONDS)
    finally:
        process.kill()
        process.stdout.close()
    text = log.read_text()
    assert code >= 0 and "Assertion" not in text, f"{said}: the server ended with {code}: {text[-2000:]}"
    assert code == 0 if line else text.strip(), f"{said}: {code} {text[-2000:]}"


@pytest.mark.parametrize("kind", ("meta.db", "meta.db-wal", "meta.db-shm", "files", "parts",
                                  "cache", "seg-000001.log", "lines.idx", "order.idx"))
def test_fsck_and_a_start_live_through_damage(rotting, tmp_path, kind):
    rng = random.Random(f"{SEED} {kind}")
    for number in range(life.scaled(120)):
        state = tmp_path / "state"
        shutil.copytree(rotting, state)
        if kind == "meta.db":  # the log of the database would hide what is under it
            checkpoint(state)
        said = f"seed {SEED}, {kind}, damage {number}: {damage(rng.choice(kinds(state)[kind]), rng)}"
        check(state, said)
        if number % 3 == 0:  # another reader of it
            done = support.quern("backup",
                                 tmp_path / "backup",
                                 "--state-dir",
                                 state,
                                 timeout=SECONDS)
            assert done.returncode >= 0 and "Assertion" not in done.stderr and (
                done.returncode == 0 or done.stderr.strip()), f"{said}: {done.stdout}{done.stderr}"
            shutil.rmtree(tmp_path / "backup", ignore_errors=True)
        start(state, said)
        check(state, said)
        shutil.rmtree(state)


def checkpoint(state):
    connection = sqlite3.connect(state / "meta.db")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def test_a_damaged_line_of_an_input_is_told_and_ends_nothing(rotting, tmp_path):
    """A flipped bit anywhere in an input of a batch that ended, and none of them ends the check."""
    state = tmp_path / "state"
    shutil.copytree(rotting, state)
    line = json.dumps(life.echo_lines(1)[0]).encode()
    path = next(p for p in (state / "files").rglob("file-*") if p.read_bytes().startswith(line))
    whole = path.read_bytes()
    path.chmod(0o600)
    rng = random.Random(SEED)
    for at in life.spread(0, len(line) - 1, 60):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        done = check(state, f"a bit of byte {at}")
        assert done.returncode == 10 and f"{path.name}: its bytes are not what was stored" in done.stdout, done.stdout + done.stderr
