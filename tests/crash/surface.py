# SPDX-License-Identifier: Apache-2.0
"""Clients that use all of a server at once, made to be interrupted: files whole and in parts,
batches with keys of idempotency, live readers, cancelling, retries, chats, API keys. Each remembers
what it was told and asks for it again in the next life; `World.settle` then takes everything to its
end and judges it."""
import collections, http.client, http.server, json, random, re, sqlite3, threading, time
import urllib.request, uuid

import life, support, upstream

SECRET = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
TINY = support.SHARED / "tiny/llama3"
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
LOST = {
    "upstream_unreachable", "upstream_timeout", "upstream_broken", "upstream_bad_answer",
    "worker_lost"}
UNKNOWN = (401, 429)  # a key that is not known, and one from an address that has tried many


class Gone(Exception):
    """The connection ended without an answer."""


class Refused(Exception):
    """A clear error was answered, in a life in which calls of the system fail."""


class Door:
    """A receiver of webhooks. It answers well, badly or not at all, as the number of the request
    says."""

    def __init__(self):
        self.lock, self.heard, self.count = threading.Lock(), collections.defaultdict(list), 0
        self.moody = True
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                event = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with outer.lock:
                    outer.count += 1
                    turn = outer.count % 5 if outer.moody else 0
                    outer.heard[event["data"]["id"]].append(
                        (self.headers["webhook-id"], event["id"], event["type"]))
                if turn == 3:
                    self.close_connection = True
                    return
                self.send_response(500 if turn == 1 else 204)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def of(self, batch):
        with self.lock:
            return list(self.heard[batch])

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Job:
    """One batch: what was asked for, and all that was ever heard of it."""

    def __init__(self, kind, requests, key, hook, retry_of=None):
        self.kind, self.requests, self.key = kind, requests, key
        self.hook, self.retry_of = hook, retry_of
        self.content, self.token = support.jsonl(requests), uuid.uuid4().hex
        self.endpoint = requests[0]["url"]
        self.file = self.batch = self.upload = self.object = self.output = None
        self.parts, self.asked, self.taken, self.after, self.more = [], False, [], 0, True
        self.seen, self.retry = 0, None
        self.cancel = self.cancelled = self.may_expire = False

    def wanted(self, request):
        """Status and text of the answer, None where the text is the model's affair."""
        if self.kind == "turns":
            return 200, None
        text = request["body"]["messages"][-1]["content"]
        if self.kind == "upstream":
            return (400, None) if "mode=400" in text else (200, f"re: {text} \u2028é😀")
        return (500, None) if "status" in request["body"].get("echo", {}) else (200, text)


class Tenant:
    """The client of one owner. One thread; `step` does something, chosen at random, that a client
    may do."""

    def __init__(self, world, name, seed):
        self.world, self.name, self.rng = world, name, random.Random(seed)
        self.key = world.key("create", "--name", name, "--owner", name).strip()
        self.jobs, self.files, self.deleted, self.keys, self.revoked, self.steps = [], {}, set(
        ), {}, [], 0

    # --- talking ---

    def ask(self,
            method,
            path,
            body=None,
            kind="application/json",
            headers=None,
            good=(200, ),
            key=None):
        """Status, headers and bytes. Anything but a good answer is an error of the test, unless
        calls fail on purpose."""
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.world.server.port, timeout=300)
        sent = {
            "Authorization": f"Bearer {key or self.key}",
            **({"Content-Type": kind} if body is not None else {}), **(headers or {})}
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException) as error:
            assert not isinstance(error, TimeoutError), f"{method} {path}: no answer in 300 s"
            raise Gone(f"{method} {path}: {error!r}") from None
        finally:
            connection.close()
        if answer.status not in good:
            assert self.world.faulty and answer.status >= 500, f"{method} {path}: {answer.status} {data[:600]!r}"
            error = json.loads(data)["error"]
            assert len(error["message"]) > 10 and str(
                self.world.state) not in error["message"], data
            self.world.counts["refused"] += 1
            raise Refused(f"{method} {path}: {data[:300]!r}")
        return answer.status, answer.headers, data

    def json(self, *arguments, **keywords):
        return json.loads(self.ask(*arguments, **keywords)[2])

    def form(self, path, content, name, filename, **fields):
        boundary = uuid.uuid4().hex
        body = b"".join(
            f'--{boundary}\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n'.encode()
            for k, v in fields.items())
        body += (
            f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="{filename}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        ).encode() + content + f"\r\n--{boundary}--\r\n".encode()
        return self.json("POST", path, body, f"multipart/form-data; boundary={boundary}")

    # --- what a client does ---

    def step(self):
        self.steps += 1
        actions = [(self.go_on, 6), (self.new_job, 2), (self.read_live, 6), (self.look, 3),
                   (self.cancel, 1), (self.retry, 2), (self.repeat, 1), (self.chat, 2),
                   (self.plain_file, 1), (self.check_file, 2), (self.lists, 1),
                   (self.other_key, 0.3)]
        action = self.rng.choices([a for a, _ in actions], [w for _, w in actions])[0]
        self.world.counts[action.__name__] += 1
        action()

    def pick(self, holds):
        found = [job for job in self.jobs if holds(job)]
        return self.rng.choice(found) if found else None

    def new_job(self):
        if sum(not job.object for job in self.jobs) >= 3:
            return self.go_on()
        kind = self.rng.choice(self.world.kinds)
        key = uuid.uuid4().hex if self.rng.random() < 0.7 else None
        self.jobs.append(Job(kind, self.requests(kind), key, self.rng.random() < 0.6))
        self.go_on()

    def requests(self, kind):
        rng, count, lines = self.rng, self.rng.randrange(3, 40), []
        for i in range(count):
            custom_id = f"{kind}-{i:03d} é"
            if kind == "turns":
                body = {
                    "model": rng.choice(("first", "second")), "prompt": f"Number {i}.",
                    "max_tokens": rng.randrange(1, 5), "temperature": 0}
                lines.append({"custom_id": custom_id, "method": "POST", "url": TEXT, "body": body})
            elif kind == "upstream":
                text = f"{uuid.uuid4().hex} ms={rng.choice((0, 0, 5, 20))}" + (
                    " mode=400" if rng.random() < 0.1 else "")
                lines.append(support.request(custom_id, text, model="fake"))
            else:  # few texts, so that many lines are equal; some slow, some that fail
                echo = rng.choices(({}, {"each_ms": 4}, {"status": 500}), (8, 2, 1))[0]
                lines.append(
                    support.request(custom_id,
                                    f"text {rng.randrange(30)}",
                                    temperature=0,
                                    **({"echo": echo} if echo else {})))
        return lines

    def go_on(self):
        """The next steps of a job whose batch is not made yet."""
        job = self.pick(lambda job: not job.batch and not (job.asked and not job.key))
        if not job:
            return
        if not job.file and not job.retry_of:
            self.put_file(job)
        self.make(job)

    def make(self, job):
        if job.retry_of:
            return self.ask_retry(job)
        job.asked = True
        body = {
            "input_file_id": job.file, "endpoint": job.endpoint, "completion_window": "24h",
            "metadata": {"token": job.token}, "retry": {"attempts": 1},
            **({"webhook_url": self.world.door.url} if job.hook else {})}
        job.batch = self.json("POST",
                              "/v1/batches",
                              body,
                              headers={"Idempotency-Key": job.key} if job.key else None)["id"]

    def put_file(self, job):
        if not job.upload and (not self.world.has_uploads or self.rng.random() < 0.6):
            job.file = self.form("/v1/files", job.content, "file", "in.jsonl",
                                 purpose="batch")["id"]
        else:
            self.put_parts(job)
        self.files[job.file] = job.content

    def put_parts(self, job):
        if not job.upload:
            job.upload = self.json(
                "POST", "/v1/uploads", {
                    "bytes": len(job.content), "filename": "in.jsonl",
                    "mime_type": "application/jsonl", "purpose": "batch"})["id"]
        seen = self.json("GET", f"/v1/uploads/{job.upload}")
        size = -(-len(job.content) // 3)
        while seen["status"] == "pending" and len(job.parts) < 3:
            at = len(job.parts) * size
            job.parts.append(
                self.form(f"/v1/uploads/{job.upload}/parts", job.content[at:at + size], "data",
                          "part")["id"])
        if seen["status"] == "pending":
            seen = self.json("POST", f"/v1/uploads/{job.upload}/complete", {"part_ids": job.parts})
        assert seen["status"] == "completed", seen
        job.file = seen["file"]["id"]

    def repeat(self):
        """The same creation again, under its key."""
        job = self.pick(lambda job: job.batch and job.key)
        if job:
            was, job.batch = job.batch, None
            try:
                self.make(job)
            finally:
                made, job.batch = job.batch or was, was
            assert made == was, f"one key, two batches: {was} and {made}"

    def look(self, job=None):
        """The batch as it is now, held against all that was seen of it before."""
        job = job or self.pick(lambda job: job.batch)
        if not job:
            return None
        heard = {kind for _, _, kind in self.world.door.of(job.batch)}
        batch = self.json("GET", f"/v1/batches/{job.batch}")
        ended = batch["status"] in support.TERMINAL
        assert not heard or heard == {f"batch.{batch['status']}"
                                      }, f"told of {heard} but it is {batch['status']}"
        assert job.object in (None, batch), f"an ended batch changed: {job.object} {batch}"
        counts = batch["request_counts"]
        # Between validation and the first look at the log the counts are not there yet.
        assert counts["completed"] + counts[
            "failed"] >= job.seen, f"{job.seen} lines were counted, now {counts}"
        job.seen = counts["completed"] + counts["failed"]
        if ended:
            job.object = batch
        return batch

    def read_live(self, job=None):
        job = job or self.pick(lambda job: job.batch and job.more)
        if not job:
            return
        limit = self.rng.choice((1, 7, 1000))
        _, headers, data = self.ask(
            "GET", f"/v1/batches/{job.batch}/results?after={job.after}&limit={limit}")
        assert data == b"" or data.endswith(b"\n")
        lines = data.split(b"\n")[:-1]
        for line in lines:
            self.world.is_durable(job, json.loads(line))
        job.taken += lines
        job.after, job.more = int(headers["X-Last-Line"]), headers["X-Incomplete"] == "true"

    def cancel(self):
        job = self.pick(lambda job: job.batch and not job.object and not job.cancel)
        if job and self.rng.random() < 0.5:
            job.cancel = True
            status, _, _ = self.ask("POST", f"/v1/batches/{job.batch}/cancel", {}, good=(200, 409))
            job.cancelled = status == 200

    def retry(self):
        job = self.pick(lambda job: job.object and job.object["error_file_id"] and not job.retry)
        if job:
            data = self.ask("GET", f"/v1/files/{job.object['error_file_id']}/content")[2]
            failed = {json.loads(line)["custom_id"] for line in data.split(b"\n")[:-1]}
            again = Job(job.kind, [r for r in job.requests if r["custom_id"] in failed],
                        uuid.uuid4().hex,
                        job.hook,
                        retry_of=job)
            job.retry = again
            self.jobs.append(again)
            self.ask_retry(again)

    def ask_retry(self, job):
        job.asked = True
        made = self.json("POST",
                         f"/v1/batches/{job.retry_of.batch}/retry",
                         {"metadata": {"token": job.token}},
                         headers={"Idempotency-Key": job.key})
        assert made["quern"]["retry_of"] == job.retry_of.batch
        job.batch, job.file = made["id"], made["input_file_id"]
        self.files[job.file] = job.content

    def chat(self):
        """Beside the batches. The upstream may be busy or away for a moment: then the answer says
        so."""
        model, text = self.rng.choice((("smollm2", "hello"), ("fake", f"hello {uuid.uuid4().hex}")))
        body = {
            "model": model, "messages": [{"role": "user", "content": text}],
            "stream": self.rng.random() < 0.3}
        status, _, data = self.ask("POST", CHAT, body, good=(200, 429, 502, 503))
        if status != 200:
            assert model == "fake" or self.world.faulty, data
        elif body["stream"]:
            assert data.endswith(b"data: [DONE]\n\n") or self.world.faulty, data[-300:]
        else:
            assert text in json.loads(data)["choices"][0]["message"]["content"]

    def plain_file(self):
        content = self.rng.randbytes(self.rng.randrange(1, 50000))
        made = self.form("/v1/files", content, "file", "a.bin", purpose="user_data")["id"]
        self.files[made] = content
        if self.rng.random() < 0.4:
            del self.files[made]  # until the answer nobody knows
            assert self.json("DELETE", f"/v1/files/{made}")["deleted"]
            self.deleted.add(made)

    def check_file(self):
        if self.files:
            file = self.rng.choice(list(self.files))
            assert self.ask(
                "GET", f"/v1/files/{file}/content")[2] == self.files[file], f"other bytes in {file}"
        if self.deleted:
            self.ask("GET", f"/v1/files/{self.rng.choice(list(self.deleted))}", good=(404,))

    def lists(self):
        known = {job.batch for job in self.jobs if job.batch}
        assert known <= {batch["id"] for batch in self.all("/v1/batches")}
        assert self.files.keys() <= {file["id"] for file in self.all("/v1/files")}

    def all(self, path):
        found, after = [], ""
        while True:
            page = self.json("GET", f"{path}?limit=100{after}")
            found += page["data"]
            if not page["has_more"]:
                assert len({one["id"] for one in found}) == len(found)
                return found
            after = f"&after={page['last_id']}"

    def other_key(self):
        """A key made beside the running server is good from then on; one taken away never is
        again."""
        if len(self.keys) >= 3:
            name = self.rng.choice(list(self.keys))
            key = self.keys.pop(name)
            self.world.key("revoke", name)
            self.revoked.append(key)
            self.until_known(key, False)
        else:
            name = f"{self.name}-{self.steps}"
            self.keys[name] = self.world.key("create", "--name", name, "--owner", self.name).strip()
            self.until_known(self.keys[name], True)

    def until_known(self, key, wanted):
        """Asks until the key is known, or is not. Askings with unknown keys are slowed: 429 is a
        refusal as 401 is."""
        life.poll(
            lambda: (self.ask("GET", "/v1/files?limit=1", good=(200, *UNKNOWN), key=key)[0] == 200)
            == wanted, 60, f"known: {wanted}")

    # --- the end ---

    def settle(self):
        while self.pick(lambda job: not job.batch and not (job.asked and not job.key)):
            self.go_on()
        batches = {batch["metadata"]["token"]: batch["id"] for batch in self.all("/v1/batches")}
        assert len(batches) == len(self.all("/v1/batches")), "one creation made two batches"
        for job in self.jobs:
            job.batch = job.batch or batches.get(
                job.token)  # asked for once, without a key: made or not
            assert batches.pop(job.token, None) == job.batch
        assert not batches, "batches nobody asked for"
        for job in self.jobs:
            if job.batch:
                life.poll(lambda: self.look(job)["status"] in support.TERMINAL, 300,
                          f"the end of {job.batch}")
                self.judge(job)
        for file, content in self.files.items():
            assert self.ask("GET",
                            f"/v1/files/{file}/content")[2] == content, f"other bytes in {file}"
        for file in self.deleted:
            self.ask("GET", f"/v1/files/{file}", good=(404,))
        for key in self.keys.values():
            self.ask("GET", "/v1/files?limit=1", key=key)
        for key in self.revoked:
            self.ask("GET", "/v1/files?limit=1", key=key, good=UNKNOWN)
        self.lists()

    def judge(self, job):
        batch, status = job.object, job.object["status"]
        allowed = {"cancelled"} if job.cancelled else {"completed", "cancelled"
                                                       } if job.cancel else {"completed"}
        assert status in allowed | ({"expired"} if job.may_expire else
                                    set()), f"{batch}; cancelled {job.cancelled}"
        self.world.counts[status] += 1
        files = [
            self.ask("GET", f"/v1/files/{batch[name]}/content")[2] if batch[name] else b""
            for name in ("output_file_id", "error_file_id")]
        assert job.output in (None, files), "published bytes changed"
        job.output = files
        raw = [line for data in files for line in data.split(b"\n")[:-1]]
        lines = {line["custom_id"]: line for line in map(json.loads, raw)}
        if batch["request_counts"]["total"] == 0:
            assert status == "cancelled" and not raw and not job.taken
            return
        assert len(raw) == len(lines) == len(job.requests) and lines.keys() == {
            r["custom_id"]
            for r in job.requests}
        for request in job.requests:
            self.judge_line(job, status, lines[request["custom_id"]], job.wanted(request))
        while job.more:
            self.read_live(job)
        assert len(set(job.taken)) == len(job.taken) and set(
            job.taken) <= set(raw), f"live lines of {job.batch} are not those of its files"

    def judge_line(self, job, status, line, wanted):
        response = line["response"]
        if not response or line["error"]:
            code = line["error"]["code"]
            assert code == f"batch_{status}" and status != "completed", f"{line} in a batch that is {status}"
            return
        if response["status_code"] >= 500 and self.world.was_faulty and job.kind != "echo":
            # The attempts a line has (here one) may all have met a call that failed; then its
            # record says which way it went.
            assert response["body"]["error"]["code"] in LOST, line
            self.world.counts["lost to a fault"] += 1
            return
        assert response["status_code"] == wanted[0], line
        if wanted[1] is not None:
            assert response["body"]["choices"][0]["message"]["content"] == wanted[1], line


class World:
    """One state directory, its receiver of webhooks, its upstream, its clients, and the server of
    the moment."""

    def __init__(self, tmp_path, seed, tenants=3):
        tmp_path.mkdir()
        self.state, self.rng, self.counts = tmp_path / "state", random.Random(
            seed), collections.Counter()
        self.door, self.upstream, self.faulty, self.server = Door(), upstream.Upstream(
            models=("fake", )), False, None
        self.was_faulty = False
        secret = tmp_path / "secret"
        secret.write_text(SECRET + "\n")
        secret.chmod(0o600)
        self.arguments = [
            *life.ECHO, "--upstream", f"up={self.upstream.url},connect-timeout=5",
            "--webhook-secret-file",
            str(secret), "--webhook-allow-private", "--webhook-retry-seconds", "1"]
        flags = support.quern("serve", "--help").stdout
        self.has_uploads = "--extended-windows" in flags
        self.kinds = ["echo", "echo", "upstream"]
        if "--max-loaded-models" in flags and (TINY / "model-q8_0.gguf").exists():
            self.kinds.append("turns")
            self.arguments += [
                "--max-loaded-models", "1", "--model-stay-seconds", "0", "--model",
                f"first={TINY}/model-q8_0.gguf", "--model", f"second={TINY}/model-bf16.gguf",
                "--threads", "1"]
        self.durable, self.lock = {}, threading.Lock()
        self.metrics_key = self.key("create", "--name", "watcher", "--scopes", "metrics").strip()
        self.tenants = [Tenant(self, f"owner{i}", self.rng.random()) for i in range(tenants)]

    def key(self, *arguments):
        done = support.quern("key", *arguments, "--state-dir", self.state)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def is_durable(self, job, line):
        """From now on this line must not be sent to the upstream any more; nor by a retry, when its
        answer is good."""
        if job.kind == "upstream" and line["response"] and line["response"]["status_code"] == 200:
            text = next(r for r in job.requests
                        if r["custom_id"] == line["custom_id"])["body"]["messages"][-1]["content"]
            with self.lock:
                self.durable.setdefault(text, self.upstream.behaviour.seen[text])

    def calm_upstream(self):
        """Nothing that a dead server has sent is still on its way."""
        for _ in range(
                2
        ):  # connections are taken in their order, so whatever came before these has been read
            urllib.request.urlopen(f"{self.upstream.url}/health", timeout=60).read()
        life.poll(lambda: self.upstream.behaviour.now == 0, 60, "the upstream's last answer")

    def run(self, enough):
        """All clients at work until enough() or the server is gone. What went wrong in one of them
        is raised here."""
        wrong, over = [], threading.Event()

        def work(tenant):
            try:
                while not over.is_set():
                    try:
                        tenant.step()
                    except Refused:
                        pass
                    except Gone:
                        if not self.faulty or self.server.process.poll() is not None:
                            raise
                        self.counts["no answer"] += 1
            except Gone as error:
                if not over.is_set() and not self.faulty:
                    wrong.append(
                        AssertionError(
                            f"nobody killed the server yet: {error}; {self.server.log_text()[-1500:]}"
                        ))
            except BaseException as error:
                wrong.append(error)
            finally:
                ended.release()

        ended = threading.Semaphore(0)
        threads = [threading.Thread(target=work, args=(tenant,)) for tenant in self.tenants]
        for thread in threads:
            thread.start()
        try:
            enough(ended)
        finally:
            over.set()
            if self.server.process.poll() is None and not self.faulty:
                self.server.kill()
            for thread in threads:
                thread.join()
        if wrong:
            raise wrong[0]

    def expire_one(self):
        """Between two lives: the window of an open batch ends now. Reading the database may merge
        its log; that is a life too."""
        open_jobs = [
            job for tenant in self.tenants for job in tenant.jobs
            if job.batch and not job.object and not job.cancel]
        if open_jobs:
            job = self.rng.choice(open_jobs)
            job.may_expire = True
            with sqlite3.connect(self.state / "meta.db") as database:
                database.execute(
                    "UPDATE batches SET expires = max(created, ?) WHERE id = ? AND status < 4",
                    (int(time.time()), job.batch))
            database.close()
            self.counts["windows ended"] += 1

    def settle(self):
        """A clean life in which everything comes to its end; then all that was ever acknowledged is
        checked."""
        self.faulty = self.door.moody = False
        with support.serving(self.state, *self.arguments) as self.server:
            for tenant in self.tenants:
                tenant.settle()
            life.poll(lambda: self.pending() == 0, 120, "the delivery of all events")
            self.judge_events()
            assert self.server.stop() == 0
        self.calm_upstream()
        seen = self.upstream.behaviour.seen
        again = {
            text: (count, seen[text])
            for text, count in self.durable.items()
            if seen[text] != count}
        assert not again, f"lines that were durable ran again: {again}"
        support.fsck(self.state)
        self.counts["durable at the upstream"] += len(self.durable)

    def pending(self):
        text = self.tenants[0].ask("GET", "/metrics", key=self.metrics_key)[2].decode()
        return float(re.search(r"^quern_webhook_pending (\S+)", text, re.M)[1])

    def judge_events(self):
        for job in (job for tenant in self.tenants for job in tenant.jobs if job.batch):
            heard = set(self.door.of(job.batch))
            assert len(heard) == job.hook, f"{heard} of {job.batch}"
            for header, event, kind in heard:
                assert header == event and kind == f"batch.{job.object['status']}"
                self.counts["events"] += 1
        assert sum(bool(events) for events in self.door.heard.values()) == sum(
            job.hook and bool(job.batch) for t in self.tenants for job in t.jobs)

    def close(self):
        if self.server and self.server.process.poll() is None:
            self.server.kill()
        self.door.close()
        self.upstream.stop()
