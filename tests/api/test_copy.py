# SPDX-License-Identifier: Apache-2.0
"""quern serve --copy-to: what clients are told is in object storage, and another machine goes on
from there. Failure 22 of docs/internals/service/cluster.md."""
import contextlib, json, os, re, signal, subprocess, threading

import pytest

import object_storage
import support
from object_storage import BUCKET, Hold, lost

PREFIX = "servers/one"
PLACE = f"s3://{BUCKET}/{PREFIX}"
ECHO = ("--model", "m=echo")
LINES = support.jsonl([support.request(f"r{i}", f"question {i}", "m") for i in range(60)])
LARGE = support.jsonl(
    [support.request(f"r{i}", f"question {i} " + "lorem ipsum " * 40, "m") for i in range(400)])


@pytest.fixture(scope="module")
def running():
    with object_storage.serving() as storage:
        yield storage


@pytest.fixture
def storage(running):
    running.is_away, running.ignores_conditions, running.answers = False, False, []
    running.check_signatures(1000)
    for key in running.keys():
        running.mine.delete_object(Bucket=BUCKET, Key=key)
    running.check_signatures(0)
    running.seen, running.wrong = [], 0
    yield running
    running.is_away = running.ignores_conditions = False


class Machine(support.Server):
    """A server with a copy, which may stand by, and a clock of its own."""

    def __init__(self, folder, name, storage, *arguments, model=ECHO):
        self.clock = support.Clock(folder.joinpath(name + "-clock").mkdir() or folder / (name + "-clock"))
        super().__init__(folder / name, *model, "--copy-to", PLACE, *arguments,
                         environment={**storage.environment, **self.clock.environment})

    def stand_by(self):
        self.stand_by_at_once()
        support.until(lambda: "event=standing_by" in self.log_text())
        return self

    def stand_by_at_once(self):
        self.log = open(self.state.parent / f"{self.state.name}.log", "a")
        self.led = self.log_text().count("event=copy_leads")
        self.process = subprocess.Popen(
            [support.BINARY, "serve", "--port", "0", "--state-dir",
             str(self.state), "--standby", *self.arguments],
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env={**os.environ, **self.environment})

    def take_over(self):
        """Waits until it serves; its clock moves until it leads, in steps that a look counts
        whole."""
        over = threading.Event()

        def move():
            while not over.wait(0.05):
                if self.log_text().count("event=copy_leads") > self.led:
                    return
                self.clock.move(2)

        mover = threading.Thread(target=move)
        mover.start()
        line = self.process.stdout.readline()
        over.set()
        mover.join()
        found = re.match(r"listening on https?://\S+:(\d+)$", line.strip())
        assert found, f"{line!r}; {self.log_text()[-2000:]}"
        self.port = int(found[1])
        return self


@pytest.fixture
def machine(storage, tmp_path):
    """Makes machines, and ends them."""
    with contextlib.ExitStack() as stack:
        def make(name, *arguments, **keywords):
            made = Machine(tmp_path, name, storage, *arguments, **keywords)
            stack.callback(end, made)
            return made
        yield make


def end(machine):
    if machine.process and machine.process.poll() is None:
        machine.process.kill()
        machine.process.wait()


def restored(storage, folder):
    done = support.quern("restore", PLACE, "--state-dir", folder, env=storage.environment)
    assert done.returncode == 0, done.stderr
    support.fsck(folder)
    return folder


def ids(results):
    return [line["custom_id"] for line in results[0]]


def held(machine):
    """A batch whose lines wait, so that it does not end before the test acts."""
    return machine.create(support.jsonl([
        support.request(f"h{i}", f"question {i}", "m") for i in range(3000)]))


def test_a_restored_copy_has_all_that_clients_were_told(storage, machine, tmp_path):
    one = machine("one").start()
    small, large = (one.create(lines)["id"] for lines in (LINES, LARGE))
    for batch in small, large:
        assert one.wait(batch)["status"] == "completed"
    told = {batch: one.results(one.batch(batch)) for batch in (small, large)}
    one.kill()
    assert storage.wrong == 0
    with support.serving(restored(storage, tmp_path / "two"), *ECHO) as two:
        for batch in small, large:
            assert two.results(two.batch(batch)) == told[batch]


def test_keys_that_were_told_are_in_the_copy(storage, machine, tmp_path):
    one = machine("one").start()
    key = one.json("POST", "/v1/keys", {"name": "team", "scopes": ["files"]})
    one.kill()
    text = (restored(storage, tmp_path / "two") / "keys.jsonl").read_text()
    assert key["id"] in text


@pytest.mark.parametrize("number", support.drawn(range(1, 13), least=3))
@pytest.mark.parametrize("how", ["before", "after"])
def test_a_kill_at_a_request_loses_nothing_that_was_told(storage, machine, tmp_path, number, how):
    one = machine("one").start()
    reached, told = threading.Event(), []

    def at_request(own, start):
        if how == "after":
            b"".join(own())
        one.process.send_signal(signal.SIGKILL)
        reached.set()
        raise object_storage.Breaks

    storage.answers = [("PUT", "", lambda own, start: own())] * (number - 1) + [("PUT", "", at_request)]

    def work():
        with contextlib.suppress(OSError, AssertionError, json.JSONDecodeError):
            told.append(one.upload(LARGE)["id"])
            told.append(one.json("POST", "/v1/batches", {
                "input_file_id": told[0], "endpoint": "/v1/chat/completions",
                "completion_window": "24h"})["id"])
            while one.batch(told[1])["status"] != "completed":
                told[2:] = [one.batch(told[1])["request_counts"]["completed"]]

    worker = threading.Thread(target=work)
    worker.start()
    assert reached.wait(120)
    one.process.wait()
    worker.join()
    storage.answers = []
    with support.serving(restored(storage, tmp_path / "two"), *ECHO) as two:
        if told:
            two.json("GET", f"/v1/files/{told[0]}")
        if len(told) > 1:
            batch = two.batch(told[1])
            assert len(told) < 3 or batch["request_counts"]["completed"] >= told[2]
            assert ids(two.results(two.wait(told[1]))) == [f"r{i}" for i in range(400)]


def test_an_answer_of_the_storage_that_is_lost_is_not_taken_for_another_server(storage, machine):
    one = machine("one").start()
    storage.answers = [("PUT", "", lost)] * 3
    one.upload(LINES)
    assert "copy_fenced" not in one.log_text()
    assert one.json("GET", "/v1/machine")["copy"]["state"] == "stored"


def test_while_the_storage_is_away_nothing_is_told_and_nothing_is_lost(storage, machine, tmp_path):
    one = machine("one").start()
    file = one.upload(LINES)
    storage.is_away = True
    answers = []
    body = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    first = threading.Thread(target=lambda: answers.append(one.call("POST", "/v1/batches", body)))
    first.start()
    support.until(lambda: one.json("GET", "/v1/machine")["copy"]["waiting_bytes"] > 0)
    one.clock.until(lambda: answers, step=1)
    first.join()
    status, data = answers[0]
    assert status == 503 and json.loads(data)["error"]["code"] == "copy_unavailable"
    # Later changes are refused before they are made, and what is shown is what is stored.
    assert one.call("POST", "/v1/batches", body)[0] == 503
    assert one.call("GET", "/v1/batches")[0] == 503
    copy = one.json("GET", "/v1/machine")["copy"]
    assert copy["state"] == "away" and copy["behind_ms"] > 10000 and "503" in copy["error"]
    assert b"\nquern_copy_up 0\n" in one.call("GET", "/metrics")[1]
    assert b"away" in subprocess.run([support.BINARY, "status", "--base-url", one.url],
                                     capture_output=True, check=True).stdout
    chat = one.json("POST", "/v1/chat/completions",
                    {"model": "m", "messages": [{"role": "user", "content": "hi"}]})
    assert chat["choices"]
    storage.is_away = False
    support.until(lambda: one.call("GET", "/v1/batches")[0] == 200)
    batch, = one.json("GET", "/v1/batches")["data"]
    assert ids(one.results(one.wait(batch["id"]))) == [f"r{i}" for i in range(60)]
    one.kill()
    restored(storage, tmp_path / "two")


def test_results_wait_while_the_storage_is_away(storage, machine):
    one = machine("one").start()
    batch = held(one)["id"]
    storage.is_away = True
    seen = one.call("GET", f"/v1/batches/{batch}")
    storage.is_away = False
    support.until(lambda: one.call("GET", "/v1/batches")[0] == 200)  # it tries again now and then
    assert one.wait(batch)["request_counts"]["completed"] == 3000 and seen[0] in (200, 503)


def test_a_standby_goes_on_where_a_killed_server_was(storage, machine):
    one, two = machine("one").start(), machine("two").stand_by()
    done = one.create(LINES)["id"]
    assert one.wait(done)["status"] == "completed"
    told = one.results(one.batch(done))
    running = held(one)["id"]
    one.kill()
    two.take_over()
    assert two.results(two.batch(done)) == told
    assert ids(two.results(two.wait(running))) == [f"h{i}" for i in range(3000)]
    two.upload(LINES)
    # The first one does not start again on what it has: two servers would go on.
    refused = support.quern("serve", "--port", "0", "--state-dir", one.state, "--copy-to", PLACE, *ECHO,
                            env={**storage.environment, **one.clock.environment})
    assert refused.returncode != 0 and "--standby" in refused.stderr


def test_a_paused_server_that_wakes_tells_nothing_more_and_ends(storage, machine, tmp_path):
    one, two = machine("one").start(), machine("two").stand_by()
    file = one.upload(LINES)["id"]
    one.process.send_signal(signal.SIGSTOP)
    answers = []

    def ask():
        with contextlib.suppress(OSError):
            answers.append(one.call("DELETE", f"/v1/files/{file}")[0])

    asker = threading.Thread(target=ask)
    asker.start()
    two.take_over()
    kept = two.upload(LINES)["id"]
    one.process.send_signal(signal.SIGCONT)
    assert one.process.wait(60) != 0
    asker.join()
    assert answers in ([], [503]) and "copy_fenced" in one.log_text()
    for name in file, kept:
        two.json("GET", f"/v1/files/{name}")
    two.kill()
    restored(storage, tmp_path / "three")


def test_a_clock_that_jumps_makes_no_standby_take_over(storage, machine):
    one, two = machine("one").start(), machine("two").stand_by()
    two.process.send_signal(signal.SIGSTOP)
    two.clock.move(3600)
    two.process.send_signal(signal.SIGCONT)
    one.clock.move(3600)
    looks = storage.count("GET")
    support.until(lambda: storage.count("GET") > looks + 2)
    one.upload(LINES)
    assert "copy_silent" not in two.log_text() and one.process.poll() is None


def test_of_two_standbys_one_takes_over(storage, machine):
    one = machine("one").start()
    file = one.upload(LINES)["id"]
    two, three = machine("two").stand_by(), machine("three").stand_by()
    one.kill()
    two.take_over()
    two.json("GET", f"/v1/files/{file}")
    two.upload(LINES)
    assert "copy_leads" not in three.log_text()
    two.kill()
    three.take_over()
    assert len(three.json("GET", "/v1/files")["data"]) == 2


def test_a_standby_that_is_killed_while_it_restores_begins_again(storage, machine):
    one = machine("one").start()
    file = one.upload(LARGE)["id"]
    one.kill()
    two, hold = machine("two").stand_by(), Hold()
    storage.answers = [("GET", "", lambda own, start: own())] * 20 + [("GET", "", hold)]
    over = threading.Event()

    def move():
        while not over.wait(0.05):
            two.clock.move(2)

    mover = threading.Thread(target=move)
    mover.start()
    support.until(lambda: "copy_leads" in two.log_text())
    two.kill()
    over.set()
    mover.join()
    hold.released.set()
    storage.answers = []
    two.stand_by().take_over()
    assert two.json("GET", f"/v1/files/{file}")["bytes"] == len(LARGE)


def test_a_storage_that_writes_over_what_exists_is_refused(storage, tmp_path):
    storage.ignores_conditions = True
    storage.check_signatures(1000)  # the condition was signed
    done = support.quern("serve", "--port", "0", "--state-dir", tmp_path / "one", *ECHO, "--copy-to",
                         PLACE, env=storage.environment, timeout=60)
    assert done.returncode == 3 and "'If-None-Match: *'" in done.stderr, done.stderr


@pytest.mark.parametrize("place, method, answer, status, words", [
    (PLACE, "GET", (403, "RequestTimeTooSkewed"), 5, ["403 RequestTimeTooSkewed"]),
    (PLACE, "PUT", (403, "AccessDenied"), 5, ["403 AccessDenied to the upload"]),
    (PLACE, "GET", (301, "PermanentRedirect"), 3, ["301 PermanentRedirect"]),
    (PLACE, "PUT", (301, "PermanentRedirect"), 3, ["301 PermanentRedirect"]),
    (PLACE, "GET", (400, "AuthorizationHeaderMalformed"), 3, ["400 AuthorizationHeaderMalformed"]),
    ("s3://nowhere/one", None, None, 4, ["s3://nowhere/one", "404 NoSuchBucket"]),
    (f"s3://{BUCKET}/", None, None, 3, [f"'s3://{BUCKET}/'", "s3://BUCKET/PREFIX"])])
@pytest.mark.parametrize("standby", [(), ("--standby", )])
def test_a_place_that_will_not_do_ends_the_start_and_is_named(storage, tmp_path, place, method,
                                                              answer, status, words, standby):
    if standby and method == "PUT":
        pytest.skip("a standby that finds no copy writes nothing")
    if method:
        error = f"<Error><Code>{answer[1]}</Code></Error>"
        storage.answers = [(method, "", (answer[0], error))] * 100
    done = support.quern("serve", "--port", "0", "--state-dir", tmp_path / "one", *ECHO, "--copy-to",
                         place, *standby, env=storage.environment, timeout=120)
    assert done.returncode == status, done.stderr
    for word in ["--copy-to", *words]:
        assert word in done.stderr, done.stderr


def test_a_slash_at_the_end_of_the_place_says_nothing(storage, machine, tmp_path):
    one = machine("one").start()
    key = one.json("POST", "/v1/keys", {"name": "team", "scopes": ["files"]})
    one.kill()
    done = support.quern("restore", PLACE + "//", "--state-dir", tmp_path / "two",
                         env=storage.environment)
    assert done.returncode == 0, done.stderr
    assert key["id"] in (tmp_path / "two/keys.jsonl").read_text()


def test_a_start_that_waits_for_its_storage_says_so(storage, machine):
    one, two = machine("one").start(), machine("two")
    storage.is_away = True
    two.stand_by_at_once()
    support.until(lambda: "event=copy_unread" in two.log_text() and "503" in two.log_text())
    storage.is_away = False
    support.until(lambda: "event=standing_by" in two.log_text())
    assert one.json("GET", "/v1/models")["data"]


def doctor(storage, folder, **environment):
    """What quern doctor finds of the copy and of a running server: verdict, text and remedy."""
    config = folder / "config"
    config.write_text(f"model = m=echo\nport = 0\nstate-dir = {folder}/one\ncopy-to = {PLACE}\n")
    done = support.quern("doctor",
                         "--config",
                         config,
                         "--json",
                         env={**storage.environment, **environment},
                         timeout=300)
    return [(f["verdict"], f["text"], f["remedy"] or "") for f in json.loads(done.stdout)["findings"]
            if f["area"] in ("copy", "settings")]


def test_the_doctor_names_what_the_storage_of_a_copy_lacks(storage, machine, tmp_path):
    assert any(f[0] == "good" and "has no copy yet" in f[1] for f in doctor(storage, tmp_path))
    storage.check_signatures(1000)
    one = machine("one").start()
    before = {key: storage.get(key) for key in storage.keys()}
    assert any(f[0] == "good" and "refuses to write over" in f[1]
               for f in doctor(storage, tmp_path))
    assert before.items() <= {key: storage.get(key) for key in storage.keys()}.items()
    storage.ignores_conditions = True
    one.stop()
    assert any(f[0] == "wrong" and "'If-None-Match: *'" in f[1] for f in doctor(storage, tmp_path))
    storage.ignores_conditions = False
    storage.is_away = True
    assert any(f[0] == "wrong" and "503" in f[1] for f in doctor(storage, tmp_path))
    storage.is_away = False
    for code, remedy in (("RequestTimeTooSkewed", "set the clock"), ("AccessDenied", "correct the account")):
        storage.answers = [("GET", "", (403, f"<Error><Code>{code}</Code></Error>"))]
        assert any(f[0] == "wrong" and code in f[1] and remedy in f[2]
                   for f in doctor(storage, tmp_path))
    found = doctor(storage, tmp_path, AWS_ENDPOINT_URL="http://127.0.0.1:9")
    assert any(f[0] == "wrong" and "look at the network" in f[2] for f in found)


def test_a_standby_without_a_copy_says_so(storage, tmp_path):
    done = support.quern("serve", "--port", "0", "--state-dir", tmp_path / "x", "--copy-to", PLACE,
                         "--standby", *ECHO, env=storage.environment)
    assert done.returncode != 0 and "no copy yet" in done.stderr
    done = support.quern("serve", "--standby", "--copy-to", PLACE, "--standby-seconds", "9", *ECHO,
                         "--state-dir", tmp_path / "new", env=storage.environment)
    assert done.returncode == 2 and "--standby-seconds: 9 is outside 10 to" in done.stderr
    done = support.quern("serve", "--port", "0", "--state-dir", tmp_path / "x", "--standby", *ECHO)
    assert done.returncode != 0 and "--copy-to" in done.stderr


def test_what_no_base_needs_is_removed(storage, machine):
    one = machine("one").start()
    batch = one.create(LARGE)["id"]
    one.wait(batch)
    one.json("DELETE", f"/v1/batches/{batch}")
    support.until(lambda: one.call("GET", f"/v1/batches/{batch}")[0] == 404)
    one.stop()
    before = names(storage)
    one.start()
    support.until(lambda: len(names(storage)) < len(before) and sum(
        "/data/" in key for key in names(storage)) <= 2)


def names(storage):
    storage.check_signatures(1000)
    found = set(storage.keys())
    storage.check_signatures(0)
    return found


def test_what_a_kill_left_is_removed_and_nothing_of_others(storage, machine):
    """The first server began to lead with entry 1, and a kill left the rest of its objects."""
    left = {f"{PREFIX}/log/{2:016}", f"{PREFIX}/data/{1:012}/{0:08}.{1:06}",
            f"{PREFIX}/data/{1:012}/{7:08}.{1:06}", f"{PREFIX}/data/{1:012}/{7:08}.{2:06}"}
    others = {f"{PREFIX}/data/readme.txt", f"{PREFIX}/log/notes", f"{PREFIX}/log/1",
              f"{PREFIX}/data/{1:012}/{7:08}.1", f"{PREFIX}-b/log/{2:016}", "data/x",
              # of a server that leads later, as one would see that was followed
              f"{PREFIX}/data/{999:012}/{0:08}.{1:06}"}
    one = machine("one").start()
    entry = f"{PREFIX}/log/{2:016}"
    support.until(lambda: entry in names(storage))
    storage.check_signatures(1000)
    second = storage.get(entry)
    storage.check_signatures(0)
    one.kill()
    one.start()
    support.until(lambda: entry not in names(storage))
    one.kill()
    storage.check_signatures(1000)
    for key in left | others:
        storage.put(key, second)
    storage.check_signatures(0)
    one.start()
    support.until(lambda: not left & names(storage))
    assert others | {f"{PREFIX}/log/{1:016}"} <= names(storage)
    one.kill()
    assert storage.wrong == 0
