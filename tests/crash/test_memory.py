# SPDX-License-Identifier: Apache-2.0
"""The whole life of a batch while one allocation, or a run of them, fails: quern's own, and those
of SQLite, libmicrohttpd, jansson and libcurl. The server says so and ends, or it refuses the
call and lives; a start without the fault goes on from the disk, every line is there once, and fsck
is clean.

QUERN_KILLS scales the number of places (1.0: 240); QUERN_SEED chooses others."""
import concurrent.futures, http.client, pathlib, random, resource, signal, subprocess

import pytest

import life, support
from life import Client, Died, ECHO, Victim, scaled

SEED = support.SEED
REQUESTS = life.echo_lines(40)
SHIM = pathlib.Path(support.BINARY).resolve().parent.parent / "tests/crash/fail-malloc.so"
NO_MEMORY = "no memory"


@pytest.fixture(scope="module", autouse=True)
def no_core_dumps():
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_CORE, before)


class Refused(Exception):
    """The server had no room for the call, and said so; or libmicrohttpd had none, which closes the
    connection without an answer."""


class Starved(Victim):
    """A server whose allocations fail. It may end before it listens, with a sentence."""

    def __init__(self, state, **fault):
        super().__init__(state, *ECHO, ends=(-signal.SIGABRT, 1, 2, 3, 6))
        self.environment = {"LD_PRELOAD": str(SHIM)} | {
            f"QUERN_MALLOC_{name.upper()}": str(value) for name, value in fault.items()}

    def call(self, *arguments, **keywords):
        try:
            status, data = support.Server.call(self, *arguments, **keywords)
        except (ConnectionError, http.client.HTTPException):
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                raise Refused("a connection was closed") from None
            self.died()
            raise Died from None
        if status >= 500:
            raise Refused(data)
        return status, data


def life_of(folder, **fault):
    """One life under the fault, then one without. What the first one came to."""
    client, state = Client(REQUESTS), folder / "state"
    folder.mkdir()
    victim, came_to = Starved(state, **fault), "lived"
    try:
        victim.start()
        client.go(victim)
        victim.process.send_signal(signal.SIGTERM)
        code = victim.process.wait(60)
        assert code == 0 or code in victim.ends, code
        came_to = "lived" if code == 0 else "ended"
    except Died:
        came_to = "ended"
    except Refused:
        came_to = "refused"
    finally:
        if victim.process.poll() is None:
            victim.kill()
        victim.log.close()
    if victim.process.returncode == -signal.SIGABRT:
        said = (folder / "state.log").read_text()
        assert NO_MEMORY in said, f"it ended without a word: {said[-1500:]}"
    life.finish(client, state)
    return came_to


@pytest.mark.timeout(1800)
def test_wherever_an_allocation_fails_nothing_that_was_acknowledged_is_lost(tmp_path):
    if not SHIM.exists():
        pytest.skip("this build has no library whose allocations fail")
    print(f"seed {SEED}")
    said = tmp_path / "said"
    assert life_of(tmp_path / "whole", at=0, count=0, said=said) == "lived"
    calls, rng = int(said.read_text()), random.Random(SEED)
    assert calls > 1000
    places = [(rng.randrange(1, calls + 1), rng.choice([1, 1, 1, 20])) for _ in range(scaled(240))]

    def one(number):
        at, count = places[number]
        try:
            return life_of(tmp_path / str(number), at=at, count=count)
        except BaseException as why:
            raise AssertionError(f"allocation {at} of {calls}, {count} of them: {why}") from why

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        ends = list(pool.map(one, range(len(places))))
    print(f"{calls} allocations, {len(places)} places: "
          + ", ".join(f"{ends.count(end)} {end}" for end in ("ended", "refused", "lived")))
    assert "ended" in ends or len(places) < 20
