# SPDX-License-Identifier: Apache-2.0
"""Everything a server does at once, killed at random moments and with calls of the system that
fail: what was acknowledged stays, every line comes once, ends are told and told the same, and
nothing that was durable runs again (surface.py).

QUERN_KILLS scales the counts (1.0: 40 kills and 30 faults; 5: 200 and 150); QUERN_SEED chooses
other lives."""
import os, random, resource, shutil, signal, subprocess, time

import pytest

import life, support, surface

# The choices are the same each time, so that what `make test` says of a change is about the change;
# QUERN_SEED=random explores.
SEED = os.environ.get("QUERN_SEED", "7")
SEED = random.randrange(1 << 30) if SEED == "random" else int(SEED)
LIVES = 20  # kills of one state directory

# quern's own calls, by QUERN_FAULT; how often one is made in a life is not known, so the number is
# drawn low.
PLANNED = [(call, error)
           for call in ("write", "pwrite", "rename", "open", "unlink", "fallocate", "any")
           for error in ("EIO", "ENOSPC", "EINTR", "EMFILE")]
PLANNED += [("fdatasync", "EIO"), ("fsync", "EIO"), ("write", "TEAR"), ("pwrite", "TEAR")]
# Those of its libraries and sockets, by a tracer. A send or write that fails for good is not among
# them: threads are woken by one, over a socket pair or an eventfd where it cannot fail, and the
# tracer cannot tell them apart.
TRACED = [("pwrite64", "EIO"), ("pwrite64", "ENOSPC"), ("fdatasync", "EIO"), ("openat", "EMFILE"),
          ("openat", "EIO"), ("unlink", "EIO"), ("connect", "EINTR"), ("connect", "ECONNREFUSED"),
          ("socket", "EMFILE"), ("accept4", "EMFILE"), ("accept4", "EINTR"), ("sendto", "EINTR"),
          ("recvfrom", "EINTR"), ("recvfrom", "ECONNRESET"), ("epoll_wait", "EINTR"),
          ("writev", "ENOSPC")]


@pytest.fixture(scope="module", autouse=True)
def no_core_dumps():
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_CORE, before)


@pytest.fixture(scope="module", autouse=True)
def calls_are_the_servers():
    """A plan reaches the engines as well, and one that kills must not kill each of them where it
    writes packed weights."""
    os.environ["QUERN_PACKED_CACHE"] = "false"
    yield
    del os.environ["QUERN_PACKED_CACHE"]


def worlds(tmp_path, count, seed):
    """`count` lives, LIVES for each world; each world is settled behind its last one."""
    rng, number = random.Random(seed), 0
    while number < count:
        folder = tmp_path / f"world-{number}"
        world = surface.World(folder, rng.random())
        try:
            for number in range(number + 1, min(number + LIVES, count) + 1):
                yield world
            world.settle()
            print(f"after {number} lives: {dict(world.counts)}")
        finally:
            world.close()
        shutil.rmtree(folder)


def killed_while_it_starts(world):
    with open(world.state.parent / "state.log", "a") as log:
        process = subprocess.Popen([
            support.BINARY, "serve", "--port", "0", "--state-dir",
            str(world.state), *world.arguments],
                                   stdout=subprocess.DEVNULL,
                                   stderr=log)
        time.sleep(world.rng.random() * 0.08)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    support.fsck(world.state)


def test_a_server_killed_anywhere_in_a_mixed_life_keeps_what_it_said(tmp_path):
    print(f"seed {SEED}")
    for world in worlds(tmp_path, life.scaled(40), SEED):
        if (world.state / "meta.db").exists():
            if world.rng.random() < 0.2:
                killed_while_it_starts(world)
            if world.rng.random() < 0.3:
                world.expire_one()
        seconds = world.rng.choice((0.1, 0.5, 1.2)) * world.rng.random()
        world.server = support.Server(world.state, *world.arguments).start()
        world.run(lambda ended: ended.acquire(timeout=seconds))
        support.fsck(world.state)
        world.calm_upstream()
        world.counts["kills"] += 1


@pytest.fixture(scope="module")
def strace():
    done = shutil.which("strace") and subprocess.run([
        "strace", "-D", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync",
        "true"])
    return bool(done) and done.returncode == 0


def fault(world, strace):
    """What fails in this life: a plan for quern's own calls, or a tracer for those of its
    libraries."""
    rng = world.rng
    if strace and rng.random() < 0.5:
        call, error = rng.choice(TRACED)
        often = rng.choice(("", "+7"))
        return None, [
            "strace", "-D", "-f", "--seccomp-bpf", "-qq", "-o",
            str(world.state.parent / "injected"), "-e", f"trace={call}", "-e",
            f"inject={call}:error={error}:when={rng.randrange(1, 30)}{often}"]
    call, error = rng.choice(PLANNED)
    return f"{call}:{rng.randrange(1, 60)}:{error}", []


def failing_life(world, plan, prefix):
    """A server in which a call fails is told to stop after a while. It may also have ended itself:
    over a sync that failed, or at its start, with a sentence. It never dies of anything else."""
    print(f"{plan or prefix[-1]}", flush=True)
    world.faulty = world.was_faulty = True
    victim = world.server = life.Victim(world.state,
                                        *world.arguments,
                                        plan=plan,
                                        prefix=prefix,
                                        ends=(0, 1, 2, 3, 6, -signal.SIGABRT, -signal.SIGKILL))
    before = len((world.state.parent / "state.log").read_text()) if (world.state.parent /
                                                                     "state.log").exists() else 0
    try:
        victim.start()
        world.counts["starts"] += 1
        wanted = {tenant: tenant.steps + 25 for tenant in world.tenants}
        world.run(lambda ended: life.poll(
            lambda: victim.process.poll() is not None or ended.acquire(blocking=False) or all(
                t.steps >= wanted[t] for t in world.tenants), 300, "the end of a life"))
        if victim.process.poll() is None:
            victim.process.send_signal(signal.SIGTERM)
    except life.Died:
        pass
    code = victim.process.wait(120)
    text = (world.state.parent / "state.log").read_text()[before:]
    assert "Assertion" not in text and "Sanitizer" not in text, text[-3000:]
    assert code in (0, 1, 2, 3, 6, -signal.SIGABRT) or "TEAR" in (
        plan or "") and code == -signal.SIGKILL, f"ended with {code}: {text[-3000:]}"
    assert code != -signal.SIGABRT or "sync" in text, text[-3000:]
    assert code == 0 or code == -signal.SIGKILL or text.strip(), "it ended without a word"
    world.counts[f"ended {code}"] += 1


def test_a_server_whose_calls_fail_says_so_or_goes_on_and_keeps_what_it_said(tmp_path, strace):
    print(f"seed {SEED}")
    for world in worlds(tmp_path, life.scaled(30), SEED + 1):
        failing_life(world, *fault(world, strace))
        if world.counts["starts"]:  # there is nothing yet where the very first start failed
            support.fsck(world.state)
        world.calm_upstream()
        injected = world.state.parent / "injected"
        world.counts["injected"] += injected.read_text().count(
            "(INJECTED)") if injected.exists() else 0
        injected.unlink(missing_ok=True)
