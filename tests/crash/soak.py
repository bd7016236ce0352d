#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One large batch on the echo worker with all that goes on beside it: curators judge its lines, and
backups are taken one after another.

  tests/crash/soak.py [--lines 1000000] [--curators 2] [--state DIR]

At the end each line has one result with its own answer, each judgement that was acknowledged is in
the trail once, the latest backup restores to a directory that fsck accepts and that has every
judgement acknowledged before it began, and fsck accepts the server's own. Prints the figures, and
ends with 1 if anything is wrong."""
import argparse, http.client, json, pathlib, shutil, sys, tempfile, threading, time

sys.path[:0] = [str(pathlib.Path(__file__).parents[1] / "support"), str(pathlib.Path(__file__).parent)]
import support

parser = argparse.ArgumentParser(description=__doc__,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--lines", type=int, default=1000000)
parser.add_argument("--curators", type=int, default=2)
parser.add_argument("--state", help="a folder on the disk that is tried (default: a temporary one)")
options = parser.parse_args()
PAUSE_S = 1  # between two backups, and at least so many judgements per second are possible
BATCH_MAX = 200000  # lines of one batch; a soak has several, so that files stay below 2 GiB
VERDICTS = [{"verdict": "accepted"}, {"verdict": "corrected", "fields": {".text": "another"}},
            {"verdict": "skipped"}, {"verdict": "accepted", "rating": 4, "comment": "é"}]


class Curator(threading.Thread):
    """Judges lines that have results, from the first on; keeps what was acknowledged."""

    def __init__(self, server, name):
        super().__init__(daemon=True)
        self.server, self.name, self.kept, self.batches = server, name, [], []
        self.stopping, self.failure, self.lock = False, None, threading.Lock()

    def run(self):
        try:
            line = 0
            while not self.stopping:
                if not self.batches:
                    time.sleep(0.05)
                    continue
                batch, count = self.batches[-1]
                line = self.judge(batch, line % count)
        except Exception as failure:  # noqa: BLE001 - told by the main thread
            self.failure = failure

    def judge(self, batch, line):
        """Returns the next line to judge."""
        record = {"id": f"{self.name}-{batch[-12:]}-{line}", "custom_id": f"line-{line}",
                  "curator": self.name, "version": 0, **VERDICTS[line % len(VERDICTS)]}
        status, said = self.server.call("POST", f"/v1/batches/{batch}/judgements", record)
        if status == 200:
            with self.lock:
                self.kept.append((batch, record["id"]))
            return line + 1
        code = json.loads(said)["error"]["code"]
        if code in ("line_not_done", "version_conflict") or status == 503:
            time.sleep(0.02)  # it is not done yet, or this curator has been here
            return line + (code == "version_conflict")
        raise AssertionError(f"{status}: {said}")

    def known(self):
        with self.lock:
            return list(self.kept)


class Backups(threading.Thread):
    """Backups of the state directory, one after another."""

    def __init__(self, state, folder, curators):
        super().__init__(daemon=True)
        self.state, self.folder, self.curators = state, folder, curators
        self.taken, self.before, self.stopping, self.failure = 0, [], threading.Event(), None

    def run(self):
        while not self.stopping.is_set():
            known = [one for curator in self.curators for one in curator.known()]
            done = support.quern("backup", self.folder, "--state-dir", self.state, "--keep", "3")
            if done.returncode != 0:
                self.failure = done.stderr
                return
            self.taken, self.before = self.taken + 1, known
            self.stopping.wait(PAUSE_S)


def content_of(number, count):
    """The lines of a batch, as bytes."""
    return b"".join(
        json.dumps(support.request(f"line-{i}", f"batch {number} says {i}", "m")).encode() + b"\n"
        for i in range(count))


def check_results(server, batch, number, count):
    """Each line once, with its own answer."""
    seen = bytearray(count)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    connection.request("GET", f"/v1/files/{batch['output_file_id']}/content")
    for text in connection.getresponse():
        line = json.loads(text)
        place = int(line["custom_id"].removeprefix("line-"))
        said = line["response"]["body"]["choices"][0]["message"]["content"]
        assert said == f"batch {number} says {place}", text
        seen[place] += 1
    connection.close()
    assert seen == b"\1" * count, f"batch {number}: a line is missing or twice"


def check_trail(server, kept):
    ids = {}
    for batch, own in kept:
        ids.setdefault(batch, []).append(own)
    for batch, own in ids.items():
        trail = [row["id"] for row in server.judgements(batch)]
        assert len(trail) == len(set(trail)) and set(own) <= set(trail), batch


def soak(folder):
    state, backups = folder / "state", folder / "backups"
    began, left, number, running = time.monotonic(), options.lines, 0, []
    with support.serving(state, "--model", "m=echo") as server:
        curators = [Curator(server, f"curator{i}") for i in range(options.curators)]
        keeper = Backups(state, backups, curators)
        for thread in (*curators, keeper):
            thread.start()
        while left > 0:
            count = min(left, BATCH_MAX)
            batch = server.create(content_of(number, count))["id"]
            for curator in curators:
                curator.batches = curator.batches + [(batch, count)]
            ended = server.wait(batch, seconds=3600)
            assert ended["request_counts"] == {"total": count, "completed": count, "failed": 0}
            check_results(server, ended, number, count)
            left, number = left - count, number + 1
            for thread in (*curators, keeper):
                assert thread.failure is None, repr(thread.failure)
        wanted = max(10, options.lines // 100)
        support.until(lambda: keeper.failure or keeper.before and sum(
            len(curator.known()) for curator in curators) >= wanted, seconds=3600)
        for curator in curators:
            curator.stopping = True
        keeper.stopping.set()
        for thread in (*curators, keeper):
            thread.join()
            assert thread.failure is None, repr(thread.failure)
        kept = [one for curator in curators for one in curator.kept]
        check_trail(server, kept)
        assert server.stop() == 0
    support.fsck(state)
    restored = folder / "restored"
    done = support.quern("restore", backups, "--state-dir", restored)
    assert done.returncode == 0, done.stderr
    support.fsck(restored)
    with support.serving(restored, "--model", "m=echo") as server:
        check_trail(server, keeper.before)
    print(f"{options.lines} lines in {number} batches, {keeper.taken} backups, {len(kept)} judgements, "
          f"{len(keeper.before)} of them in the backup that was restored, "
          f"{time.monotonic() - began:.0f} s")


place = pathlib.Path(options.state) if options.state else pathlib.Path(tempfile.mkdtemp(prefix="quern-soak-"))
try:
    soak(place)
except AssertionError as wrong:
    print(f"wrong: {wrong}")
    sys.exit(1)
finally:
    if not options.state:
        shutil.rmtree(place, ignore_errors=True)
