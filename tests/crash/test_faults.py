# SPDX-License-Identifier: Apache-2.0
"""The whole life of a batch, killed at the n-th call to the disk: quern's own calls by QUERN_FAULT,
SQLite's by strace. After each death the same client goes on; afterwards every line is there once,
with its own text, and fsck is clean."""
import concurrent.futures, itertools, os, resource, shutil, signal, subprocess

import pytest

import life, support
from life import Client, Died, ECHO, Victim, scaled, spread

REQUESTS = life.echo_lines(40)
SYNC_FAILED = -signal.SIGABRT
# SQLite's calls, the file they touch, and how often one thread makes them in a life; none are
# renames.
DATABASE = ("meta.db", "meta.db-wal", "meta.db-shm")
TRACED = [("pwrite64", DATABASE, 20),
          ("pwrite64", DATABASE[:1], 6), ("pwrite64", DATABASE[1:2], 14),
          ("pwrite64", DATABASE[2:], 8), ("fdatasync", DATABASE, 8), ("fdatasync", DATABASE[:1], 3),
          ("fdatasync", DATABASE[1:2], 5), ("ftruncate", DATABASE, 3), ("unlink", DATABASE, 3),
          ("openat", DATABASE, 4), ("openat", DATABASE[1:2], 2), ("fsync", DATABASE, 1)]


@pytest.fixture(scope="module", autouse=True)
def no_core_dumps():
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_CORE, before)


def side_by_side(work, points):
    """Most of a round is waiting for the disk, so two rounds run at a time. The results in the
    order of the points."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return list(pool.map(work, points))


def serve_with(state, plan=None, prefix=(), ends=(-signal.SIGKILL,), recovery_plan=None):
    """One life under a plan. True when the plan came due: the server died and was started again."""
    client, died = Client(REQUESTS), 0
    for victim in (Victim(state, *ECHO, plan=plan, prefix=prefix, ends=ends),
                   Victim(state, *ECHO, plan=recovery_plan) if recovery_plan else None):
        if not victim:
            continue
        try:
            victim.start()
            client.go(victim)
            # The end of the process touches the disk too.
            victim.process.send_signal(signal.SIGTERM)
            code = victim.process.wait(60)
            assert code == 0 or code in ends, code
            died += code != 0
        except Died:
            died += 1
        finally:
            if victim.process.poll() is None:
                victim.kill()
            victim.log.close()
    life.finish(client, state)
    shutil.rmtree(state)
    return died > 0


def last_call(dies_at):
    """The number of calls in one life: the first at which nothing dies any more is one behind."""
    low, high = 1, 2
    while dies_at(high):
        low, high = high, 2 * high
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if dies_at(middle) else (low, middle)
    return low


def test_a_server_killed_at_any_call_to_the_disk_goes_on(tmp_path):
    last = last_call(lambda n: serve_with(tmp_path / f"find-{n}", f"any:{n}:KILL"))
    points = spread(1, last, scaled(200))
    # The start after it is killed as well, somewhere else.
    died = side_by_side(
        lambda n: serve_with(
            tmp_path / f"{n}", f"any:{n}:KILL", recovery_plan=f"any:{1 + n * 7 % 23}:KILL"), points)
    print(f"{len(points)} of {last} calls")
    assert sum(died) >= 0.9 * len(points)


@pytest.mark.parametrize("call", ["write", "pwrite"])
def test_a_write_torn_in_half_is_taken_for_what_it_is(tmp_path, call):
    died = side_by_side(lambda n: serve_with(tmp_path / f"{n}", f"{call}:{n}:TEAR"),
                        range(1,
                              scaled(6) + 1))
    assert died[0]


@pytest.mark.parametrize("call", ["fsync", "fdatasync"])
def test_a_sync_that_fails_ends_the_process_and_the_next_start_resumes(tmp_path, call):
    died = side_by_side(
        lambda n: serve_with(tmp_path / f"{n}", f"{call}:{n}:EIO", ends=(SYNC_FAILED, 1, 3)),
        range(1,
              scaled(10) + 1))
    assert any(died) or life.SCALE < 1


# --- quern run ---

def run_with(folder, plan=None, prefix=(), ends=(-signal.SIGKILL,)):
    """`quern run` under a plan, and the same command again until it is through. True when the plan
    came due."""
    folder.mkdir()
    (folder / "in.jsonl").write_bytes(support.jsonl(REQUESTS))
    done = subprocess.run([*prefix, *life.run_command(folder)], capture_output=True, text=True,
                          env={**os.environ, **({"QUERN_FAULT": plan} if plan else {})})
    assert done.returncode == 0 or done.returncode in ends, (done.returncode, done.stderr)
    if done.returncode != 0:
        again = subprocess.run(life.run_command(folder), capture_output=True, text=True)
        assert again.returncode == 0, again.stderr
    life.judge_file(folder / "out.jsonl", REQUESTS)
    assert not (folder / "out.jsonl.quern").exists()
    shutil.rmtree(folder)
    return done.returncode != 0


def test_run_killed_at_any_call_to_the_disk_goes_on(tmp_path):
    last = last_call(lambda n: run_with(tmp_path / f"find-{n}", f"any:{n}:KILL"))
    points = spread(1, last, scaled(80))

    def die(point):
        n = point  # how many calls a run has depends on how many records go out together
        while not run_with(tmp_path / f"{point}-{n}", f"any:{n}:KILL"):
            n = n * 3 // 4

    side_by_side(die, points)
    print(f"{len(points)} of {last} calls")


def test_run_whose_disk_fails_says_so_and_goes_on_later(tmp_path):
    points = [(call, n)
              for call in ("fsync", "fdatasync", "pwrite", "write", "pread")
              for n in range(1,
                             scaled(4) + 1)]
    died = side_by_side(
        lambda p: run_with(
            tmp_path / f"{p[0]}-{p[1]}", f"{p[0]}:{p[1]}:EIO", ends=(SYNC_FAILED, 1, 3)), points)
    assert sum(died) >= len(points) // 3


# --- SQLite's own calls, which QUERN_FAULT does not count ---

@pytest.fixture(scope="module")
def strace():
    """Checks once that a tracer works here."""
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    done = subprocess.run(
        ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync", "true"],
        capture_output=True,
        text=True)
    if done.returncode != 0:
        pytest.skip(f"ptrace is refused here: {done.stderr.strip()}")


def tracer(state, call, fault, n, files):
    """strace as a grandchild, so that quern keeps its place; only calls that touch SQLite's files
    count."""
    paths = itertools.chain.from_iterable(("-P", str(state / name)) for name in files)
    return [
        "strace", "-D", "-f", "-qq", "-o", "/dev/null", *paths, "-e", f"trace={call}", "-e",
        f"inject={call}:{fault}:when={n}"]


def traced_points(wanted):
    """(call, files, n), as many as wanted, all calls in their turn."""
    turns = itertools.zip_longest(*([(call, files, n + 1)
                                     for n in range(count)]
                                    for call, files, count in TRACED))
    return list(itertools.islice((point for turn in turns for point in turn if point), wanted))


def test_a_server_killed_within_its_database_goes_on(tmp_path, strace):
    points = traced_points(scaled(77))

    def one(point):
        call, files, n = point
        state = tmp_path / f"{call}-{len(files)}-{files[-1]}-{n}"
        state.mkdir()
        return serve_with(state, prefix=tracer(state, call, "signal=KILL", n, files))

    died = side_by_side(one, points)
    print(
        f"{sum(died)} of {len(points)} points came due; not {[(p[0], p[1][-1], p[2]) for p, d in zip(points, died) if not d]}"
    )
    assert sum(died) >= (40 if life.SCALE >= 1 else 1)


def test_run_killed_within_its_database_goes_on(tmp_path, strace):
    points = traced_points(scaled(50))

    def one(point):
        call, files, n = point
        folder = tmp_path / f"{call}-{len(files)}-{files[-1]}-{n}"
        return run_with(folder,
                        prefix=tracer(folder / "out.jsonl.quern", call, "signal=KILL", n, files))

    died = side_by_side(one, points)
    print(f"{sum(died)} of {len(points)} points came due")
    assert sum(died) >= (20 if life.SCALE >= 1 else 1)


@pytest.mark.parametrize("call", ["fdatasync", "fsync"])
def test_a_sync_of_the_database_that_fails_ends_the_process(tmp_path, strace, call):
    def one(n):
        state = tmp_path / f"{n}"
        state.mkdir()
        return serve_with(state,
                          prefix=tracer(state, call, "error=EIO", n, ("meta.db-wal", )),
                          ends=(SYNC_FAILED, 1, 3))

    died = side_by_side(one, range(1, scaled(5) + 1))
    assert any(
        died) or life.SCALE < 1 or call == "fsync"  # which of the two SQLite uses is its own affair
