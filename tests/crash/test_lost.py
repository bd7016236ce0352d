# SPDX-License-Identifier: Apache-2.0
"""Rows of meta.db that are lost: a bit of its log has rotted, or the whole database is gone. `quern
fsck` says what has no row any more, and a start moves it to lost/ and removes nothing. What was
never acknowledged is still removed."""
import hashlib, shutil, struct

import pytest

import life, support


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A state directory of a killed server with six batches, all in the log of its database."""
    state = tmp_path_factory.mktemp("lost") / "state"
    with support.serving(state, *life.ECHO) as server:
        batches = [
            server.wait(server.create(support.jsonl(life.echo_lines(20 + i)))["id"])
            for i in range(6)]
        server.kill()
    (state / "ballast").unlink()
    return state, batches


def all_bytes(state):
    """The sums of all files that hold bytes of clients."""
    return sorted(
        hashlib.sha256(p.read_bytes()).hexdigest()
        for folder in ("files", "lost")
        for p in (state / folder).rglob("*")
        if p.is_file())


def frames(wal):
    page = struct.unpack(">I", wal[8:12])[0]
    return [32 + i * (24 + page) for i in range((len(wal) - 32) // (24 + page))]


@pytest.mark.parametrize("place", ("page", "sum", "salt", "header"))
def test_a_rotten_bit_of_the_databases_log_removes_nothing(killed, tmp_path, place):
    origin, batches = killed
    state = tmp_path / "state"
    shutil.copytree(origin, state)
    wal = bytearray((state / "meta.db-wal").read_bytes())
    starts = frames(wal)
    at = {
        "page": starts[len(starts) // 2] + 24 + 100, "sum": starts[len(starts) // 2] + 17,
        "salt": starts[len(starts) // 2] + 9, "header": 17}[place]
    wal[at] ^= 4
    (state / "meta.db-wal").write_bytes(wal)
    before = all_bytes(state)
    done = support.quern("fsck", "--state-dir", state)
    assert done.returncode != 0, done.stdout + done.stderr
    if place != "header":  # without it SQLite sees no row at all, and fsck cannot begin
        assert done.returncode == 10 and "meta.db-wal: frame " in done.stdout and "no row of meta.db names it" in done.stdout, done.stdout
    with support.serving(state, *life.ECHO) as server:
        log = server.log_text()
        assert "event=database_log_damaged" in log and "event=moved_to_lost" in log, log
        kept = [b for b in batches if server.call("GET", f"/v1/batches/{b['id']}")[0] == 200]
        assert len(kept) < len(batches)
        assert server.stop() == 0
    assert [h for h in before if h not in all_bytes(state)] == [], "bytes of clients are gone"
    assert (state / "lost/meta.db-wal").read_bytes() == bytes(wal)
    support.fsck(state)


def test_a_lost_database_removes_nothing(killed, tmp_path):
    origin, batches = killed
    state = tmp_path / "state"
    shutil.copytree(origin, state)
    for path in state.glob("meta.db*"):
        path.unlink()
    before = all_bytes(state)
    with support.serving(state, *life.ECHO) as server:
        assert server.stop() == 0
        assert server.log_text().count("event=moved_to_lost") == len(before) + len(batches)
    assert [h for h in before if h not in all_bytes(state)] == [], "bytes of clients are gone"
    support.fsck(state)


def test_what_was_never_acknowledged_is_removed_and_no_fault(killed, tmp_path):
    """Bytes of an upload that was killed before its row, and of a file whose removal was."""
    state = tmp_path / "state"
    shutil.copytree(killed[0], state)
    for number, folder in enumerate(("files/zz", "parts")):
        (state / folder).mkdir(exist_ok=True)
        path = state / folder / f"file-{number:022d}zz"
        path.write_bytes(b"never told")
        path.chmod(0o600)
    support.fsck(state)
    with support.serving(state, *life.ECHO) as server:
        assert server.stop() == 0
    assert not list(state.glob("files/zz/*")) and not list(
        state.glob("parts/*")) and not (state / "lost").exists()
    support.fsck(state)


def test_removed_files_and_parts_are_not_kept(tmp_path):
    """A file is read-only once its row is there; one that a client removes, or that expires, leaves
    nothing in lost/."""
    state = tmp_path / "state"
    with support.serving(state, *life.ECHO) as server:
        file = server.upload(support.jsonl(life.echo_lines(2)))["id"]
        (path,) = state.glob(f"files/*/{file}")
        assert path.stat().st_mode & 0o777 == 0o400
        server.json("DELETE", f"/v1/files/{file}")
        assert not path.exists()
        assert server.stop() == 0
    with support.serving(state, *life.ECHO) as server:
        assert server.stop() == 0
    assert not (state / "lost").exists()
    support.fsck(state)
