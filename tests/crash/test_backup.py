# SPDX-License-Identifier: Apache-2.0
"""`quern backup` and `quern restore`: the drills of docs/guides/runbook.md, and backups under load
with kills of the server and of the backup itself. Every generation must restore to a directory that
fsck accepts and that has everything acknowledged before it began.

QUERN_BACKUP_SECONDS=600 makes the last test take a backup per second for so long, restores each of
them (10 minutes more on an idle machine; with QUERN_TIMEOUT=3 there is time for that on a busy
one), and prints its figures."""
import hashlib, json, os, pathlib, random, re, shutil, socket, sqlite3, subprocess, threading, time

import pytest

import life, support
from segments import records

SEED = support.SEED
SECONDS = float(os.environ.get("QUERN_BACKUP_SECONDS", "0"))
RESTORES = pathlib.Path(os.environ["QUERN_BACKUP_RESTORES"]
                        ) if "QUERN_BACKUP_RESTORES" in os.environ else None  # on a quick disk


def backup(folder, state, *arguments, status=0, environment=None):
    done = support.quern("backup",
                         folder,
                         "--state-dir",
                         state,
                         *arguments,
                         env={**os.environ, **(environment or {})})
    assert done.returncode == status, f"{done.returncode}: {done.stdout}{done.stderr}"
    return done


def restore(folder, state, *arguments, status=0):
    done = support.quern("restore", folder, "--state-dir", state, *arguments)
    assert done.returncode == status, f"{done.returncode}: {done.stdout}{done.stderr}"
    return done


def check(folder, status=0):
    done = support.quern("backup", folder, "--check")
    assert done.returncode == status, f"{done.returncode}: {done.stdout}{done.stderr}"
    return done


def objects(folder):
    """Every object of a backup folder with its size."""
    data = folder / "data"
    return {
        str(path.relative_to(data)): path.stat().st_size
        for path in data.rglob("*")
        if path.is_file()}


def held_lines(count, *places):
    """life.held_lines with ten minutes for each, so that no slow machine reaches them."""
    lines = life.held_lines(count, *places)
    for number, place in enumerate(places):
        lines[place]["body"]["echo"] = {"delay_ms": 600000 * (number + 1)}
    return lines


def half_done(server, clock, lines=300):
    """A batch of which half of the lines are counted and the rest waits for the clock."""
    client = life.Client(held_lines(lines, lines // 2), clock)
    client.go(server, "created")
    life.wait_for_lines(server, client.batch, lines // 2)
    client.look(server)
    assert client.seen == lines // 2
    return client


def go_on(client, state, clock, counted):
    """A server on the restored directory takes the batch to its end, from the lines that were
    counted."""
    support.fsck(state)
    with support.serving(state, *life.ECHO, environment=clock.environment) as server:
        client.go(server)
        assert life.metric(server, "quern_recovered_requests_total") >= counted
        assert life.metric(server, "quern_duplicate_results_total") == 0
        assert server.stop() == 0
    support.fsck(state)


def finished(folder):
    """A state directory with one ended batch and a stopped server."""
    state = folder / "state"
    client = life.Client(life.echo_lines(40))
    with support.serving(state, *life.ECHO) as server:
        client.go(server)
        assert server.stop() == 0
    return state, client


# --- the drills of the runbook ---

def test_a_lost_disk_costs_nothing_that_was_counted_before_the_backup(tmp_path):
    state, clock = tmp_path / "state", support.Clock(tmp_path)
    with support.serving(state, *life.ECHO, environment=clock.environment) as server:
        client = half_done(server, clock)
        said = backup(tmp_path / "backups", state).stdout
        assert re.match(r"generation 1: 1 batch \(1 not ended\), 5 files, ", said), said
        server.kill()
    shutil.rmtree(state)
    said = restore(tmp_path / "backups", state).stdout
    assert "restored generation 1 of " in said and "1 batch, of which 1 goes on at the next start" in said
    assert state.stat().st_mode & 0o777 == 0o700
    modes = {
        path.name.split("-")[0].split(".")[0]: path.stat().st_mode & 0o777
        for path in state.rglob("*")
        if path.is_file()}
    assert modes == {
        "LOCK": 0o600, "audit": 0o600, "computed_by": 0o600, "meta": 0o600, "file": 0o400,
        "lines": 0o600, "seg": 0o600}
    go_on(client, state, clock, 150)


def test_a_running_batch_moves_to_another_host_and_runs_nowhere_else(tmp_path):
    old, new, folder, clock = tmp_path / "old", tmp_path / "new", tmp_path / "backups", support.Clock(
        tmp_path)
    with support.serving(old, *life.ECHO, "--drain-seconds", "1",
                         environment=clock.environment) as server:
        client = half_done(server, clock)
        backup(folder, old)
        refused = backup(folder, old, "--move", status=7)
        assert "in use by another quern process" in refused.stderr
        server.kill()
    said = backup(folder, old, "--move").stdout
    assert "is closed: its batches go on where the backup is restored, and only there" in said
    # The old host does not go on, not even by a backup that is taken of it later; fsck reads it.
    done = support.quern("serve", "--port", "0", "--state-dir", old, *life.ECHO, timeout=120)
    assert done.returncode == 7 and "were moved to another state directory" in done.stderr
    assert "were moved" in backup(folder, old, status=7).stderr
    support.fsck(old)
    restore(folder, new)
    go_on(client, new, clock, 150)
    # Repeated, it is the same move, not a second one that could be restored elsewhere.
    assert backup(folder, old, "--move").stdout.startswith("generation 2: ")
    assert not (folder / "manifests/00000003").exists()
    backup(tmp_path / "elsewhere", old, "--move")


def moved(folder):
    """A state directory with an ended batch, and a folder into which it was moved."""
    state, client = finished(folder)
    backup(folder / "backups", state)
    backup(folder / "backups", state, "--move")
    return folder / "backups", client


def test_a_move_is_restored_once(tmp_path):
    folder, client = moved(tmp_path)
    restore(folder, tmp_path / "new")
    for generation in ("0", "1", "2"):  # and nothing that was taken before it
        refused = restore(folder, tmp_path / "second", "--generation", generation, status=7).stderr
        assert re.search(r"generation 2 was restored 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC on host ",
                         refused), refused
        assert f"on host {socket.gethostname()} into {tmp_path / 'new'}. " in refused and refused.endswith(
            "add --again\n")
    shutil.rmtree(tmp_path / "new")
    assert "would run twice" in restore(folder, tmp_path / "new", status=7).stderr
    assert not (tmp_path / "second").exists() and not (tmp_path / "new").exists()
    restore(folder, tmp_path / "second", "--again")
    assert f"into {tmp_path / 'second'}. " in restore(folder, tmp_path / "third", status=7).stderr
    # Backups of the server in its new place are restored as any others.
    life.finish(client, tmp_path / "second")
    backup(folder, tmp_path / "second")
    restore(folder, tmp_path / "third")
    # A mark that lost its bytes is a mark.
    (folder / "manifests/00000002.restored").write_text("?")
    assert "does not say where" in restore(folder,
                                           tmp_path / "fourth",
                                           "--generation",
                                           "2",
                                           status=3).stderr
    restore(folder, tmp_path / "fourth", "--generation", "2", "--again")
    assert f"into {tmp_path / 'fourth'}. " in restore(folder,
                                                      tmp_path / "fifth",
                                                      "--generation",
                                                      "2",
                                                      status=7).stderr


def test_a_restore_of_a_move_killed_anywhere_is_repeated_there_and_nowhere_else(tmp_path):
    folder, client = moved(tmp_path)
    pristine, ends, number = tmp_path / "pristine", {}, 0
    shutil.copytree(folder, pristine)
    while True:
        number += 1
        assert number < 4000
        shutil.rmtree(folder)
        shutil.copytree(pristine, folder)
        target, other = tmp_path / f"target-{number}", tmp_path / f"other-{number}"
        done = support.quern("restore",
                             folder,
                             "--state-dir",
                             target,
                             env={**os.environ, "QUERN_FAULT": f"any:{number}:KILL"})
        if done.returncode == 0:
            break
        is_marked, can_start = (folder / "manifests/00000002.restored").exists(), (
            target / "meta.db").exists() and not (target / "restoring").exists()
        ends[is_marked, can_start] = ends.get((is_marked, can_start), 0) + 1
        if not is_marked:
            shutil.rmtree(target, ignore_errors=True)
            restore(folder, target)
        elif not can_start:
            restore(folder, target)
        support.fsck(target)
        assert "would run twice" in restore(folder, other, status=7).stderr
        assert not other.exists()
        shutil.rmtree(target)
    assert ends.keys() == {(False, False), (True, False), (True, True)}, ends
    life.finish(client, target)


def test_of_two_restores_at_once_of_a_move_one_can_start(tmp_path):
    folder, client = moved(tmp_path)
    for number in range(life.scaled(10)):
        targets = [tmp_path / f"{number}-{name}" for name in "ab"]
        commands = [
            subprocess.Popen([support.BINARY, "restore", folder, "--state-dir", target],
                             stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE,
                             text=True) for target in targets]
        said = [command.communicate()[1] for command in commands]
        assert sorted(command.returncode for command in commands) == [0, 7], said
        assert sum(not (target / "restoring").exists() and (target / "meta.db").exists()
                   for target in targets) == 1
        (folder / "manifests/00000002.restored").unlink()


def test_a_move_in_a_folder_that_cannot_be_written_is_restored_with_again_only(tmp_path):
    folder, client = moved(tmp_path)
    # As root nothing but the file system itself forbids to write.
    frozen = "mount --bind {0} {0} && mount -o remount,bind,ro {0} && exec \"$@\"".format(folder)
    shut = ["unshare", "-m", "sh", "-c", frozen, "sh"] if os.geteuid() == 0 else [
        "sh", "-c", f"chmod 500 {folder}/manifests && exec \"$@\"", "sh"]
    if subprocess.run([*shut, "true"], capture_output=True).returncode != 0:
        pytest.skip("this container lets root mount nothing")
    again = lambda *more: subprocess.run([
        *shut, support.BINARY, "restore", folder, "--state-dir", tmp_path / "new", *more],
                                         capture_output=True,
                                         text=True)
    refused = again()
    assert refused.returncode == 7 and "a second restore of this move could not be refused" in refused.stderr
    assert not (tmp_path / "new").exists()
    done = again("--again")
    assert done.returncode == 0 and "the folder cannot be written" in done.stdout, done.stderr
    life.finish(client, tmp_path / "new")


def test_lost_keys_come_back_with_the_backup(tmp_path):
    state, folder = tmp_path / "state", tmp_path / "backups"
    key = support.quern("key", "create", "--state-dir", state, "--name", "a").stdout.strip()
    with support.serving(state, *life.ECHO) as server:
        backup(folder, state)
        assert server.stop() == 0
    (state / "keys.jsonl").unlink()
    done = support.quern("serve", "--port", "0", "--state-dir", state, *life.ECHO, timeout=120)
    assert done.returncode != 0 and "put it back" in done.stderr
    restore(folder, tmp_path / "restored")
    shutil.copy(tmp_path / "restored/keys.jsonl", state / "keys.jsonl")
    with support.serving(state, *life.ECHO) as server:
        assert server.call("GET", "/v1/batches",
                           headers={"Authorization": f"Bearer {key}"})[0] == 200
        assert server.call("GET", "/v1/batches")[0] == 401


def test_a_backup_killed_anywhere_leaves_the_generation_before_it_or_is_refused(tmp_path):
    state, client = finished(tmp_path)
    numbers, killed = life.spread(1, 100, life.scaled(100)), 0
    for number in numbers:
        folder = tmp_path / f"first-{number}"
        done = support.quern("backup",
                             folder,
                             "--state-dir",
                             state,
                             env={**os.environ, "QUERN_FAULT": f"any:{number}:KILL"})
        if done.returncode == 0:
            break
        killed += 1
        if not (folder / "manifests/00000001").exists():
            refused = restore(folder, tmp_path / "none", status=4)
            assert "no folder of backups" in refused.stderr or "has no complete backup" in refused.stderr
            assert not (tmp_path / "none").exists()
            backup(folder, state)
        assert check(folder).stdout.count(": good") == 1
    assert killed > len(numbers) // 3, f"{killed} of {len(numbers)} deaths were died"
    folder = tmp_path / "later"
    backup(folder, state)
    for number in numbers[:killed]:
        support.quern("backup",
                      folder,
                      "--state-dir",
                      state,
                      env={**os.environ, "QUERN_FAULT": f"any:{number}:KILL"})
        said = check(folder).stdout
        assert ": good" in said and "damaged" not in said
        newest = max(int(path.name) for path in (folder / "manifests").glob("0*"))
        mark = folder / "unfinished"
        begun = int(mark.read_text() or newest + 1) if mark.exists() else 0
        assert ("did not end" in said) == (begun > newest)
        said = restore(folder, tmp_path / f"again-{number}").stdout
        assert f"generation {newest} of" in said and ("did not end" in said) == (begun > newest)
        support.fsck(tmp_path / f"again-{number}")
    backup(folder, state, "--keep", "1")
    named = {line.split()[5] + "." + line.split()[1] for path in (folder / "manifests").iterdir()
             for line in path.read_text().splitlines() if line.startswith("object ")}
    assert set(objects(folder)) == named, "objects that no generation names are left"


def test_a_restore_that_was_killed_is_no_state_directory(tmp_path):
    state, client = finished(tmp_path)
    backup(tmp_path / "backups", state)
    for number in (*life.spread(1, 60, life.scaled(60)), 4000):
        target = tmp_path / f"target-{number}"
        done = support.quern("restore", tmp_path / "backups", "--state-dir", target,
                             env={**os.environ, "QUERN_FAULT": f"any:{number}:KILL"})
        if done.returncode == 0:
            break
        if (target / "restoring").exists():
            done = support.quern("serve",
                                 "--port",
                                 "0",
                                 "--state-dir",
                                 target,
                                 *life.ECHO,
                                 timeout=120)
            assert done.returncode == 7 and "did not end: repeat the command" in done.stderr
            assert "is not empty" in restore(tmp_path / "backups", target, status=7).stderr
        elif (target / "meta.db").exists():
            support.fsck(target)
    assert done.returncode == 0
    life.finish(client, target)


def rewrite(folder, generation, change):
    """Changes the database of a generation, as another version of quern would have written it."""
    manifest = folder / f"manifests/{generation:08d}"
    lines = manifest.read_text().splitlines()[:-1]
    at = next(i for i, line in enumerate(lines) if line.endswith(" meta.db"))
    database = folder / f"data/meta.db.{lines[at].split()[1]}"
    with sqlite3.connect(database) as connection:
        connection.executescript(change)
    connection.close()
    data = database.read_bytes()
    words = lines[at].split()
    words[2], words[4] = str(len(data)), hashlib.sha256(data).hexdigest()
    lines[at] = " ".join(words)
    version = sqlite3.connect(database).execute("PRAGMA user_version").fetchone()[0]
    lines[3] = f"schema {version}"
    text = "".join(line + "\n" for line in lines)
    count = sum(line.startswith("object ") for line in lines)
    manifest.write_text(f"{text}end {count} {hashlib.sha256(text.encode()).hexdigest()}\n")


def test_a_newer_version_takes_a_backup_of_an_older_one_and_not_the_reverse(tmp_path):
    state, client = finished(tmp_path)
    backup(tmp_path / "backups", state)
    shutil.copytree(tmp_path / "backups", tmp_path / "newer")
    # The database as it was before uploads in parts.
    rewrite(
        tmp_path / "backups", 1,
        "DROP TABLE uploads; DROP TABLE upload_parts; DROP TABLE judgements; DROP TABLE judgement_sums;"
        "DROP TABLE judgement_curators; DROP INDEX files_sum; DROP INDEX files_list; DROP INDEX files_purposes; DROP INDEX files_of_purpose;"
        "DROP INDEX batches_of; DROP INDEX batches_ended; DROP INDEX batches_leaving;"
        "DROP INDEX batches_input; DROP INDEX batches_output; DROP INDEX batches_errors;"
        "DROP INDEX batches_messages; ALTER TABLE batches DROP COLUMN inline_requests; DROP TABLE model_names;"
        "DROP TABLE proofs; DROP TABLE erasures; DROP TABLE erased_lines;"
        "ALTER TABLE batches DROP COLUMN deleted; PRAGMA user_version = 5;")
    check(tmp_path / "backups")
    said = restore(tmp_path / "backups", tmp_path / "restored").stdout
    assert "the next start brings its database to this version" in said
    life.finish(client, tmp_path / "restored")
    rewrite(tmp_path / "newer", 1, "PRAGMA user_version = 99;")
    refused = restore(tmp_path / "newer", tmp_path / "refused", status=7)
    assert "whose database has version 99" in refused.stderr and "as new as that" in refused.stderr
    assert not (tmp_path / "refused").exists()


# --- folders that others had in their hands ---

PLANTED = {
    "trigger": ("CREATE TRIGGER planted AFTER INSERT ON batches BEGIN DELETE FROM files; END;",
                "has the trigger planted, which quern did not make"),
    "view": ("CREATE VIEW planted AS SELECT * FROM files;",
             "has the view planted, which quern did not make"),
    "table": ("CREATE TABLE planted (x);", "has the table planted, which quern did not make"),
    "a table's place": ("DROP TABLE outbox; CREATE VIEW outbox AS SELECT * FROM files;",
                        "lacks the index outbox_open"),
    "column": ("ALTER TABLE files ADD COLUMN planted TEXT;",
               "has another table files than quern makes"),
    "lack": ("DROP TRIGGER judgements_kept;", "lacks the trigger judgements_kept"),
    "index": ("DROP INDEX outbox_open; CREATE UNIQUE INDEX outbox_open ON outbox (state);",
              "has another index outbox_open than quern makes")}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_database_of_another_schema_is_not_used(tmp_path, planted):
    """A trigger or a view would run with the statements of the server. The sums of the manifest are
    those of the planted bytes."""
    state, client = finished(tmp_path)
    backup(tmp_path / "backups", state)
    change, said = PLANTED[planted]
    rewrite(tmp_path / "backups", 1, change)
    refused = restore(tmp_path / "backups", tmp_path / "target", status=3)
    assert said in refused.stderr, refused.stderr
    assert not (tmp_path / "target").exists()
    check(tmp_path / "backups", status=10)
    with sqlite3.connect(state / "meta.db") as connection:  # the same in the state directory itself
        connection.executescript(change)
    connection.close()
    started = support.quern("serve", "--state-dir", state, *life.ECHO, "--port", "0")
    assert started.returncode == 3 and said in started.stderr, started


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "link in the way", "manifest"])
def test_only_regular_files_are_restored(tmp_path, kind):
    """A link would bring a file of this machine into the state directory, and a pipe would stop the
    reader."""
    state, client = finished(tmp_path)
    folder = tmp_path / "backups"
    backup(folder, state)
    input_file = next(path for path in (folder / "data/files").rglob("*")
                      if path.is_file() and path.read_bytes() == support.jsonl(client.requests))
    away = tmp_path / "away"
    if kind == "link in the way":
        input_file.parent.rename(away)
        input_file.parent.symlink_to(away)
    elif kind == "manifest":
        manifest = folder / "manifests/00000001"
        manifest.rename(away)
        manifest.symlink_to(away)
    else:
        input_file.rename(away)
        {
            "link": lambda: input_file.symlink_to(away), "pipe": lambda: os.mkfifo(input_file),
            "folder": lambda: input_file.mkdir()}[kind]()
    refused = restore(folder, tmp_path / "target", status=3)
    assert any(word in refused.stderr
               for word in ("is missing or too short", "is not followed in a backup",
                            "is no regular file")), refused.stderr
    assert not (tmp_path / "target").exists() or "restoring" in os.listdir(tmp_path / "target")
    if (tmp_path / "target").exists():
        assert support.quern("serve", "--state-dir", tmp_path / "target", *life.ECHO, "--port",
                             "0").returncode != 0
    check(folder, status=10)


# --- what a folder of backups holds ---

def test_a_backup_copies_what_is_new_and_keeps_so_many_generations(tmp_path):
    state, folder, clock = tmp_path / "state", tmp_path / "backups", support.Clock(tmp_path)
    with support.serving(state, *life.ECHO, environment=clock.environment) as server:
        client = half_done(server, clock)
        backup(folder, state)
        before = objects(folder)
        clock.move(601)
        life.wait_for_lines(server, client.batch, len(client.requests))
        client.wait(server)
        for _ in range(3):
            backup(folder, state, "--keep", "2")
        after = objects(folder)
        generations = sorted(path.name for path in (folder / "manifests").iterdir())
        assert generations == ["00000003", "00000004"]
        # The input and the notes are the objects of the first generation; the log is gone with the
        # last one that named it.
        shared = sorted(set(before) & set(after))
        assert shared == ["computed_by.jsonl.1", *shared[1:]] and len(shared) == 2, shared
        assert shared[1].startswith("files/"), shared
        check(folder)
        assert server.stop() == 0
    restore(folder, tmp_path / "old", "--generation", "3")
    restore(folder, tmp_path / "gone", "--generation", "1", status=4)
    life.finish(client, tmp_path / "old")


def test_a_growing_segment_is_one_object_and_each_generation_has_its_part_of_it(tmp_path):
    state, folder, clock = tmp_path / "state", tmp_path / "backups", support.Clock(tmp_path)
    with support.serving(state, *life.ECHO, environment=clock.environment) as server:
        client = life.Client(held_lines(300, 100, 200), clock)
        client.go(server, "created")
        sizes = []
        for lines in (100, 200):
            life.wait_for_lines(server, client.batch, lines)
            backup(folder, state)
            segments = [
                size for name, size in objects(folder).items() if name.endswith("seg-000001.log.1")]
            assert len(segments) == 1
            sizes += segments
            clock.move(601)
        assert sizes[1] > 1.5 * sizes[0]
        server.kill()
    assert check(folder).stdout.count(": good") == 2
    for generation, lines in ((1, 100), (2, 200)):
        target = tmp_path / f"{generation}"
        restore(folder, target, "--generation", generation)
        segment = next(target.rglob("seg-000001.log")).read_bytes()
        assert len(segment) == sizes[generation - 1] and segment.count(b"QREC") == lines
        client.seen, client.output = 0, None
        go_on(client, target, clock, lines)


def test_damage_is_found_named_and_not_restored(tmp_path):
    state, client = finished(tmp_path)
    folder = tmp_path / "backups"
    backup(folder, state)
    name = next(name for name in objects(folder) if name.startswith("files/"))
    path = folder / "data" / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    found = check(folder, status=10)
    assert name in found.stderr and "1 damaged" in found.stdout
    refused = restore(folder, tmp_path / "target", status=3)
    assert "not those of the manifest" in refused.stderr
    path.unlink()
    assert "missing or too short" in restore(folder, tmp_path / "other", status=3).stderr
    assert not (tmp_path / "other").exists()
    # The next backup has the file again, as a new object.
    backup(folder, state)
    restore(folder, tmp_path / "third")
    life.finish(client, tmp_path / "third")


def test_a_file_that_the_state_directory_lost_is_told_and_the_earlier_copy_kept(tmp_path):
    state, client = finished(tmp_path)
    folder = tmp_path / "backups"
    backup(folder, state)
    path = next(path for path in (state / "files").rglob("file-*"))
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)
    told = backup(folder, state, status=10)
    assert "keeps those of generation 1" in told.stderr
    restore(folder, tmp_path / "restored")
    life.finish(client, tmp_path / "restored")


def test_what_cannot_be_a_backup_is_refused(tmp_path):
    state, client = finished(tmp_path)
    assert "not apart" in backup(state / "backups", state, status=3).stderr
    assert not (state / "backups").exists()
    assert "not apart" in backup(tmp_path, state, status=3).stderr
    (tmp_path / "other").mkdir()
    (tmp_path / "other/letter.txt").write_text("x")
    assert "neither empty nor a folder of backups" in backup(tmp_path / "other", state,
                                                             status=7).stderr
    assert "not a state directory" in backup(tmp_path / "backups", tmp_path / "nothing",
                                             status=4).stderr
    assert "no folder of backups" in check(tmp_path / "other", status=4).stderr
    backup(tmp_path / "backups", state)
    assert "is not empty" in restore(tmp_path / "backups", state, status=7).stderr


# --- under load, with kills ---

class Ledger:
    """What the server acknowledged. Entries only grow, so that a copy is what was known at a
    moment."""

    def __init__(self):
        self.lock, self.files, self.given_up, self.batches = threading.Lock(), {}, set(), {}

    def known(self):
        with self.lock:
            return dict(self.files), {name: dict(batch) for name, batch in self.batches.items()}

    def note(self, name, **facts):
        with self.lock:
            self.batches.setdefault(name, {"counted": 0}).update(facts)


class Load(threading.Thread):
    """Clients that upload, run, download and delete without a pause, across restarts of the
    server."""

    def __init__(self, server, ledger, number, lines):
        super().__init__(daemon=True)
        self.server, self.ledger, self.lines = server, ledger, lines
        self.rng, self.stopping, self.failure, self.rounds = random.Random(SEED +
                                                                           number), False, None, 0

    def run(self):
        while not self.stopping:
            try:
                self.one_batch()
                self.rounds += 1
            except (OSError, life.http.client.HTTPException):
                time.sleep(0.02)  # the server was killed
            except Exception as failure:
                self.failure = failure
                return

    def one_batch(self):
        content = support.jsonl(life.echo_lines(self.rng.randrange(self.lines // 2, self.lines)))
        file = self.server.upload(content)["id"]
        with self.ledger.lock:
            self.ledger.files[file] = hashlib.sha256(content).hexdigest()
        batch = self.server.json(
            "POST", "/v1/batches",
            {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"
             })["id"]
        self.ledger.note(batch, input=file)
        while not self.stopping:
            seen = self.server.batch(batch)
            self.ledger.note(batch, counted=seen["request_counts"]["completed"])
            if seen["status"] in support.TERMINAL:
                break
            time.sleep(0.005)
        else:
            return
        assert seen["status"] == "completed", seen
        status, data = self.server.call("GET", f"/v1/files/{seen['output_file_id']}/content")
        assert status == 200
        with self.ledger.lock:
            self.ledger.files[seen["output_file_id"]] = hashlib.sha256(data).hexdigest()
        self.ledger.note(batch, ended=True)
        for name in (file, seen["output_file_id"]) if self.rng.random() < 0.97 else ():
            with self.ledger.lock:
                self.ledger.given_up.add(name)
            self.server.call("DELETE", f"/v1/files/{name}")


def lines_in_log(folder):
    """The distinct lines of a restored batch's log, read without quern's code."""
    lines = set()
    for path in sorted(folder.glob("seg-*.log")):
        lines.update(line for at, length, line in records(path.read_bytes()))
    return lines


def judge(state, files, batches, given_up):
    """The restored directory has all that was acknowledged; returns how many facts were
    compared."""
    support.fsck(state)
    connection, facts = sqlite3.connect(state / "meta.db"), 0
    rows = dict((row[0], row[1:])
                for row in connection.execute("SELECT id, status, total, completed FROM batches"))
    stored = {row[0] for row in connection.execute("SELECT id FROM files")}
    connection.close()
    for name, digest in files.items():
        if name in given_up:
            continue
        assert name in stored, f"{name} was acknowledged and is not in the backup"
        assert hashlib.sha256(
            (state / "files" / name[-2:] / name).read_bytes()).hexdigest() == digest
        facts += 1
    for name, batch in batches.items():
        assert name in rows, f"{name} was acknowledged and is not in the backup"
        status, total, completed = rows[name]
        assert not batch.get("ended") or status == 4, f"{name} had ended"
        count = completed if status == 4 else len(lines_in_log(state / "batches" / name))
        assert count >= batch[
            "counted"], f"{name}: {batch['counted']} lines were counted, the backup has {count}"
        facts += 1 + batch["counted"]
    return facts


def pinned(folder, to):
    """The folder as it is now, without a copy of its bytes; objects may grow later, as they may in
    a folder of backups."""
    shutil.copytree(folder, to, copy_function=os.link, ignore=shutil.ignore_patterns("LOCK"))
    (to / "LOCK").touch(0o600)


class Judge(threading.Thread):
    """Restores generation after generation while the load goes on."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self.folder, self.waiting, self.condition, self.failure = folder, [], threading.Condition(
        ), None
        self.judged = self.facts = 0

    def put(self, case):
        with self.condition:
            self.waiting.append(case)
            self.condition.notify()

    def run(self):
        while True:
            with self.condition:
                while not self.waiting:
                    self.condition.wait()
                case = self.waiting.pop(0)
            if case is None:
                return
            pin, files, batches, given_up = case
            target = RESTORES / f"{pin.name}-restored" if RESTORES else self.folder / f"{pin.name}-restored"
            try:
                restore(pin, target)
                self.facts += judge(target, files, batches, given_up)
                self.judged += 1
            except BaseException as failure:
                self.failure = self.failure or failure
                return
            shutil.rmtree(target)
            shutil.rmtree(pin)


def test_backups_under_load_with_kills_restore_to_all_that_was_acknowledged(tmp_path):
    print(f"seed {SEED}")
    rng, state, folder, ledger = random.Random(
        SEED), tmp_path / "state", tmp_path / "backups", Ledger()
    server = support.Server(state, *life.ECHO).start()
    loads = [Load(server, ledger, number, 400) for number in range(3)]
    judge_thread = Judge(tmp_path)
    for thread in (*loads, judge_thread):
        thread.start()
    taken = killed = server_kills = repeated = number = 0
    begun, times = time.monotonic(), []
    while time.monotonic() < begun + SECONDS if SECONDS else taken < life.scaled(20) + 4:
        number += 1
        started, known = time.monotonic(), ledger.known()
        plan = {"QUERN_FAULT": f"any:{rng.randrange(1, 200)}:KILL"} if number % 4 == 0 else {}
        victim = None
        if number % 5 == 0:  # the server dies while the backup is taken
            victim = threading.Timer(rng.random() * 0.1, server.kill)
            victim.start()
        done = support.quern("backup",
                             folder,
                             "--state-dir",
                             state,
                             "--keep",
                             "10",
                             env={**os.environ, **plan})
        assert done.returncode in ((0, -9) if plan else (0,)), f"{done.returncode}: {done.stderr}"
        if victim:
            victim.join()
            server_kills += 1
            server.start()
        if done.returncode == 0:
            taken += 1
            times.append(time.monotonic() - started)
            repeated += "times, since the server removed files" in done.stdout
            pinned(folder, tmp_path / f"pin-{number}")
            with ledger.lock:
                given_up = set(ledger.given_up)
            judge_thread.put((tmp_path / f"pin-{number}", *known, given_up))
        else:
            killed += 1
        for thread in (*loads, judge_thread):
            assert thread.failure is None, repr(thread.failure)
        if SECONDS:
            time.sleep(max(0, started + 1 - time.monotonic()))
    loaded = time.monotonic() - begun
    for load in loads:
        load.stopping = True
    for load in loads:
        load.join()
    assert server.stop() == 0
    judge_thread.put(None)
    judge_thread.join()
    assert judge_thread.failure is None, repr(judge_thread.failure)
    assert judge_thread.judged == taken and all(load.failure is None for load in loads)
    support.fsck(state)
    check(folder)
    times.sort()
    print(
        f"{taken} backups in {loaded:.0f} s, each restored, fsck clean; {judge_thread.facts} facts compared; {killed} "
        f"backups and {server_kills} servers killed; {repeated} taken again for removed files; {sum(l.rounds for l in loads)} batches; "
        f"median {times[len(times) // 2]:.2f} s, longest {times[-1]:.2f} s")


def test_the_runbook_names_only_commands_and_options_that_exist():
    text = re.sub(r"<!--.*?-->", "",
                  (support.ROOT /
                   "docs/guides/runbook.md").read_text())  # marks are of tests/api/test_guides.py
    commands = re.findall(r"\bquern (backup|restore|fsck|key create)([^\n`]*)", text)
    assert len(commands) > 8
    for command, rest in commands:
        told = support.quern("help", command.split()[0]).stdout
        for option in re.findall(r"--[a-z-]+", rest):
            assert option in told, f"{command} {option}"
