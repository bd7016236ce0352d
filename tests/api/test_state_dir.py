# SPDX-License-Identifier: Apache-2.0
"""The state directory against other users of the machine, and the keys against their own loss:
links planted under names that quern writes, modes, owners, a lost file of keys, and an address of
other machines without any key."""
import os, stat

import pytest

import support

ECHO = ("--model", "smollm2=echo")
OTHER = 54321  # a user that nobody is
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


@pytest.fixture
def state(tmp_path):
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def victim(tmp_path):
    path = tmp_path / "victim"
    path.write_text("a file of root\n")
    path.chmod(0o640)
    return path


def mode(path):
    return stat.S_IMODE(path.lstat().st_mode)


def unharmed(victim):
    return victim.read_text() == "a file of root\n" and mode(
        victim) == 0o640 and victim.stat().st_uid == os.geteuid()


def refused(state, *arguments, status):
    done = support.quern("serve",
                         "--port",
                         "0",
                         "--state-dir",
                         state,
                         *ECHO,
                         *arguments,
                         timeout=60)
    assert done.returncode == status, done.stderr
    return done.stderr


def make_key(state, **keywords):
    return support.quern("key", "create", "--state-dir", state, "--name", "test", **keywords)


# --- links ---

@pytest.mark.parametrize("owner", [None, pytest.param(OTHER, marks=as_root)])
@pytest.mark.parametrize("name", ["keys.jsonl", "keys.jsonl.new", "keys.jsonl.lock", "keys.made"])
def test_a_planted_link_gets_nothing_from_the_key_command(state, victim, name, owner):
    (state / name).symlink_to(victim)
    if owner:
        os.chown(state, owner, owner)
    done = make_key(state)
    assert unharmed(victim)
    if name in ("keys.jsonl", "keys.jsonl.lock"):
        assert done.returncode == 3 and done.stdout == ""
        assert name in done.stderr and "link" in done.stderr
    else:
        assert done.returncode == 0, done.stderr
        assert not (state / "keys.jsonl").is_symlink() and not (
            state / "keys.made").is_symlink() or name == "keys.made"
        assert (state / "keys.jsonl").stat().st_uid == (owner or os.geteuid())


@as_root
def test_a_pipe_in_the_place_of_the_keys_does_not_stop_root(state):
    os.mkfifo(state / "keys.jsonl", 0o600)
    done = make_key(state, timeout=60)
    assert done.returncode == 3 and "no file" in done.stderr


@pytest.mark.parametrize("name", ["LOCK", "meta.db", "ballast"])
def test_a_planted_link_gets_nothing_from_the_server(state, victim, name):
    (state / name).symlink_to(victim)
    if name == "ballast":
        with support.serving(state, *ECHO) as server:
            assert server.call("GET", "/v1/files")[0] == 200
    else:
        assert "link" in refused(state, status=3)
    assert unharmed(victim)


@pytest.mark.parametrize("name", ["files", "parts", "batches", "tmp", "cache", "dumps"])
def test_a_link_in_the_place_of_a_folder_is_not_followed(state, victim, name):
    """quern removes what it does not know from its folders."""
    victim.unlink()
    victim.mkdir()
    (victim / "kept").write_text("a file of the user\n")
    (state / name).symlink_to(victim)
    said = refused(state, status=3)
    assert name in said and "link" in said
    assert [path.name for path in victim.iterdir()] == ["kept"]


def test_a_link_in_the_place_of_the_folder_of_a_run_is_not_followed(tmp_path):
    """Its files were removed at the end of the run."""
    (tmp_path / "victim").mkdir(mode=0o700)
    (tmp_path / "victim/kept").write_text("a file of the user\n")
    (tmp_path / "out.jsonl.quern").symlink_to(tmp_path / "victim")
    (tmp_path / "in.jsonl").write_bytes(support.jsonl([support.request("a", "x")]))
    done = support.quern("run", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", *ECHO)
    assert done.returncode == 3 and "link" in done.stderr, done.stderr
    assert [path.name for path in (tmp_path / "victim").iterdir()] == ["kept"]


@as_root
@pytest.mark.parametrize("name", ["LOCK", "meta.db", "files", "keys.jsonl", "keys.made"])
def test_what_another_user_has_put_there_is_refused(state, name):
    """Keys, for example, while others could write to the directory."""
    assert make_key(state).returncode == 0
    with support.serving(state, *ECHO) as server:
        assert server.stop() == 0
    os.chown(state / name, OTHER, OTHER)
    assert f"user {OTHER}" in refused(state, status=3)


@as_root
def test_root_makes_and_lists_the_keys_of_another_user(state):
    os.chown(state, OTHER, OTHER)
    assert make_key(state).returncode == 0
    done = support.quern("key", "list", "--state-dir", state)
    assert done.returncode == 0 and "test" in done.stdout, done.stderr


# --- modes and owners ---

def test_nothing_in_the_state_directory_can_be_read_by_others(state):
    state.rmdir()
    old = os.umask(0)
    try:
        with support.serving(state, *ECHO) as server:
            assert make_key(state).returncode == 0
            for path in [state, *state.rglob("*")]:
                assert mode(path) & 0o077 == 0, f"{path} has mode {mode(path):04o}"
            assert (state / "meta.db").exists() and server.stop() == 0
    finally:
        os.umask(old)


def test_an_open_state_directory_of_before_is_closed_and_that_is_said(state):
    with support.serving(state, *ECHO) as server:
        assert server.stop() == 0
    state.chmod(0o755)
    (state / "meta.db").chmod(0o644)
    with support.serving(state, *ECHO) as server:
        assert mode(state) == 0o700 and all(mode(path) == 0o600 for path in state.glob("meta.db*"))
        assert "event=state_dir_closed" in server.log_text()


def test_a_directory_that_others_may_write_to_is_refused(state):
    state.chmod(0o770)
    assert "chmod 700" in refused(state, status=3)
    assert list(state.iterdir()) == []


@as_root
def test_a_directory_of_another_user_is_refused(state):
    os.chown(state, OTHER, OTHER)
    said = refused(state, status=3)
    assert f"user {OTHER}" in said and "chown" in said and list(state.iterdir()) == []


# --- keys that are lost ---

@pytest.mark.parametrize("loss", ["removed", "emptied"])
def test_lost_keys_do_not_open_the_server(state, loss):
    assert make_key(state).returncode == 0
    rows = (state / "keys.jsonl").read_text()
    (state / "keys.jsonl").unlink() if loss == "removed" else (state / "keys.jsonl").write_text("")
    said = refused(state, status=3)
    assert "backup" in said and "quern key create" in said and "keys.made" in said
    (state / "keys.jsonl").touch(mode=0o600)
    (state / "keys.jsonl").write_text(rows)
    with support.serving(state, *ECHO) as server:
        assert server.call("GET", "/v1/files")[0] == 401
    (state / "keys.jsonl").unlink()
    assert make_key(state).returncode == 0, "a new key is a way out"
    with support.serving(state, *ECHO) as server:
        assert server.call("GET", "/v1/files")[0] == 401
    (state / "keys.jsonl").unlink()
    (state / "keys.made").unlink()
    with support.serving(state, *ECHO) as server:
        assert server.call("GET", "/v1/files")[0] == 200


def test_keys_of_a_version_without_the_mark_get_it(state):
    assert make_key(state).returncode == 0
    (state / "keys.made").unlink()
    with support.serving(state, *ECHO) as server:
        assert server.call("GET", "/v1/files")[0] == 401
    assert (state / "keys.made").exists()


# --- an address of other machines ---

@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_other_machines_need_a_key_or_a_word(state, host):
    said = refused(state, "--host", host, status=3)
    assert "--insecure-no-keys" in said and "quern key create" in said and host in said
    with support.serving(state, *ECHO, "--host", host, "--insecure-no-keys") as server:
        assert "event=open_to_everyone" in server.log_text()
        assert server.call("GET", "/v1/files")[0] == 200
    assert make_key(state).returncode == 0
    with support.serving(state, *ECHO, "--host", host) as server:
        assert server.log_text().count("event=open_to_everyone") == 1
        assert server.call("GET", "/v1/files")[0] == 401
