# SPDX-License-Identifier: Apache-2.0
"""Two curators, each with several clients, judge a batch while its server is killed and started
again. After each kill every judgement that was acknowledged is in the trail once, with the same
bytes, and those of a client in the order in which it gave them. QUERN_JUDGEMENT_KILLS is the number
of kills (default 8)."""
import http.client, json, os, random, threading, time

import life, support

KILLS = int(os.environ.get("QUERN_JUDGEMENT_KILLS") or 8)
LINES = 24
CLIENTS = 3  # per curator; each has lines of its own, so that it knows the next version
VERDICTS = [{"verdict": "accepted"}, {"verdict": "corrected", "fields": {"score": 3, "why": "é"}}, {
    "verdict": "skipped", "comment": "later"}, {
        "verdict": "accepted", "flagged": True, "rating": 5}]


class Curation:
    """What the clients share: the server as it is now, and the news for the test, which kills
    it."""

    def __init__(self, server, batch):
        self.server, self.batch, self.path = server, batch, f"/v1/batches/{batch}/judgements"
        self.changed, self.kept, self.is_over, self.failures = threading.Condition(), 0, False, []
        self.is_up = threading.Event()  # while it is down, its port may be another server's
        self.is_up.set()

    def wait_for(self, kept):
        with self.changed:
            assert self.changed.wait_for(lambda: self.kept >= kept or self.failures,
                                         120), f"{self.kept} judgements, not {kept}"
        assert not self.failures, self.failures

    def trail(self):
        return self.server.judgements(self.batch)


class Client(threading.Thread):
    """Judges its lines again and again. A judgement without an answer is sent again as it was."""

    def __init__(self, curation, curator, number, rng):
        super().__init__(daemon=True)
        self.curation, self.curator, self.number, self.rng = curation, curator, number, rng
        self.lines = range(number, LINES, CLIENTS)
        self.versions = dict.fromkeys(self.lines, 0)
        self.kept = []  # as the server answered
        self.repeated = 0

    def run(self):
        try:
            self.judge(
                self.lines[0]
            )  # so that both curators judge the first line, however few judgements there are
            while not self.curation.is_over:
                self.judge(self.rng.choice(self.lines))
        except Exception as error:  # noqa: BLE001 - told by the main thread
            with self.curation.changed:
                self.curation.failures.append(f"{self.curator} {self.number}: {error!r}")
                self.curation.changed.notify_all()

    def judge(self, line):
        record = {
            "custom_id": f"line-{line}", "id": f"{self.curator}-{self.number}-{len(self.kept):06d}",
            "curator": self.curator, "version": self.versions[line], **self.rng.choice(VERDICTS)}
        answer = self.send(record)
        assert (answer["id"], answer["version"],
                answer["verdict"]) == (record["id"], record["version"] + 1, record["verdict"])
        self.versions[line] += 1
        with self.curation.changed:
            self.kept.append(answer)
            self.curation.kept += 1
            self.curation.changed.notify_all()

    def send(self, record):
        server = self.curation.server
        while True:
            self.curation.is_up.wait()
            port = server.port
            try:
                status, data = server.call("POST", self.curation.path, record)
            except (OSError, http.client.HTTPException):
                self.repeated += 1
                time.sleep(0.001)
                continue
            if status == 200:
                return json.loads(data)
            # Another server may have got the port of one that was killed.
            is_of_now = self.curation.is_up.is_set() and server.port == port
            assert status == 503 or not is_of_now, data


def check(curation, clients, acknowledged):
    """`acknowledged`: per client, what it had been told before the kill."""
    rows = curation.trail()
    place = {(row["curator"], row["id"]): number for number, row in enumerate(rows)}
    assert len(place) == len(rows), "a judgement is there twice"
    assert [row["seq"] for row in rows] == sorted({row["seq"] for row in rows})
    for client, kept in zip(clients, acknowledged, strict=True):
        places = [place.get((client.curator, row["id"])) for row in kept]
        assert None not in places, f"{client.curator} {client.number}: {kept[places.index(None)]} was acknowledged and is gone"
        assert places == sorted(places), "not in the order in which they were given"
        assert [rows[at] for at in places] == kept, "not as they were acknowledged"
        mine = [row for row in rows if row["id"].startswith(f"{client.curator}-{client.number}-")]
        # Those that the client sent meanwhile are there, too; nothing else is.
        assert [row["id"] for row in mine] == [
            f"{client.curator}-{client.number}-{i:06d}" for i in range(len(mine))]
    versions = {}
    for row in rows:
        key = (row["line"], row["curator"])
        assert row["version"] == versions.get(key, 0) + 1, "a version is missing or there twice"
        versions[key] = row["version"]
    return len(rows)


def test_killed_while_curators_judge_every_acknowledged_judgement_is_there_once(tmp_path):
    rng, state = random.Random(support.SEED), tmp_path / "state"
    server = support.Server(state, *life.ECHO).start()
    try:
        batch = server.wait(
            server.create(
                support.jsonl([
                    support.request(f"line-{i}", f"answer {i}") for i in range(LINES)]))["id"])
        curation = Curation(server, batch["id"])
        clients = [
            Client(curation, curator, number, random.Random(rng.random()))
            for curator in ("Ana", "Ben")
            for number in range(CLIENTS)]
        for client in clients:
            client.start()
        for _ in range(KILLS):
            curation.wait_for(curation.kept + rng.randint(1, 20))
            time.sleep(rng.random() * 0.01)  # into the midst of a call; whatever it meets must hold
            curation.is_up.clear()  # calls that are under way meet the kill, others wait
            server.kill()
            acknowledged = [list(client.kept) for client in clients]
            server.start()
            check(curation, clients, acknowledged)
            curation.is_up.set()
        curation.wait_for(curation.kept + 1)
        curation.is_over = True
        for client in clients:
            client.join(120)
            assert not client.is_alive()
        assert not curation.failures, curation.failures
        count = check(curation, clients, [client.kept for client in clients])
        assert count == sum(len(client.kept) for client in clients)
        assert {row["curator"] for row in curation.trail() if row["line"] == 1} == {"Ana", "Ben"}
        assert server.stop() == 0
    except BaseException:
        print(f"seed {support.SEED}; {server.log_text()[-2000:]}")
        raise
    finally:
        if server.process.poll() is None:
            server.kill()
    print(
        f"{KILLS} kills, {count} judgements, {sum(client.repeated for client in clients)} calls without an answer"
    )
    done = support.quern("fsck", "--state-dir", state)
    assert done.returncode == 0 and f"{count} judgements of curators checked" in done.stdout, done
