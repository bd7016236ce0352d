# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face hub for tests, and the other host that its large files lie on: two servers on two
ports.

What it answers follows the hub's own API: /api/models/REPO/revision/REV,
/api/models/REPO/tree/COMMIT in pages, /REPO/resolve/COMMIT/PATH with a redirect for what lies in
LFS, errors with X-Error-Code. `misdeeds` makes it behave badly. """
import collections, hashlib, http.server, json, os, subprocess, threading, time, urllib.parse

import support

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LFS_FROM = 4096
BLOCK = 64 << 10


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


class Hub:
    def __init__(self):
        self.repositories = {}  # name -> {path: bytes}
        self.revisions = {"main": COMMIT}
        self.gated = set()
        self.tokens = {"hf_good"}
        self.page = 1000
        self.extra_entries = []  # part of every list
        self.sums = {}  # path -> a sum that the list tells instead
        self.knows_ranges = True
        self.misdeeds = collections.defaultdict(list)  # path -> what its next answers do, one each
        self.seen = []  # (host, method, path, range, authorization, when)
        self.sent = collections.Counter()  # bytes of bodies by path
        self.hold_at = None  # bytes in all after which answers wait for `released`
        self.released = threading.Event()
        self.changed = threading.Condition()
        self._servers = {}
        for host in ("hub", "store"):
            server = _Server(("127.0.0.1", 0),
                             type("Handler", (_Handler, ), {"hub": self, "host": host}))
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
            self._servers[host] = server

    def url(self, host="hub"):
        return f"http://127.0.0.1:{self._servers[host].server_address[1]}"

    def close(self):
        self.released.set()
        for server in self._servers.values():
            server.shutdown()
            server.server_close()

    def count(self, host, part=""):
        return sum(1 for seen in self.seen if seen[0] == host and part in seen[2])

    def wait_sent(self, bytes, seconds=60):
        with self.changed:
            assert self.changed.wait_for(lambda: self.sent.total() >= bytes, seconds), self.sent


def digest(content):
    if len(content) >= LFS_FROM:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def handle(self):
        try:
            super().handle()
        except (ConnectionError, TimeoutError):
            pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status, code, message=""):
        self.answer(status,
                    json.dumps({"error": message}).encode(),
                    X_Error_Code=code,
                    X_Error_Message=message or code)

    def do_GET(self):
        path = urllib.parse.unquote(self.path.split("?")[0])
        with self.hub.changed:
            self.hub.seen.append((self.host, self.command, self.path, self.headers["Range"],
                                  self.headers["Authorization"], time.monotonic()))
        if self.host == "store":
            return self.get_stored(path)
        if path.startswith("/api/models/"):
            return self.get_api(path.removeprefix("/api/models/"))
        repository, _, rest = path[1:].partition("/resolve/")
        commit, _, name = rest.partition("/")
        files = self.hub.repositories.get(repository)
        if files is None:
            return self.refuse(401, "RepoNotFound", "Invalid username or password.")
        if not self.may_read(repository):
            return
        if name not in files:
            return self.refuse(404, "EntryNotFound")
        if len(files[name]) >= LFS_FROM:
            return self.answer(
                302,
                b"Found",
                Location=
                f"{self.hub.url('store')}/{repository}/{urllib.parse.quote(name)}?signature=x",
                X_Linked_Etag=f'"{digest(files[name])}"',
                X_Linked_Size=str(len(files[name])),
                X_Repo_Commit=COMMIT)
        self.send_bytes(name, files[name])

    def may_read(self, repository):
        authorization = self.headers["Authorization"]
        token = authorization and authorization.removeprefix("Bearer ")
        if token and token not in self.hub.tokens | {"hf_stranger"}:
            self.refuse(401, "", "Invalid credentials in Authorization header")
        elif repository in self.hub.gated and token not in self.hub.tokens:
            self.refuse(403 if token else 401, "GatedRepo",
                        f"Access to model {repository} is restricted.")
        else:
            return True

    def get_api(self, path):
        for act in ("/revision/", "/tree/"):
            repository, found, rest = path.partition(act)
            if found:
                break
        if repository not in self.hub.repositories:
            return self.refuse(401, "RepoNotFound", "Invalid username or password.")
        authorization = self.headers["Authorization"]
        if authorization and authorization.removeprefix("Bearer ") not in self.hub.tokens | {
                "hf_stranger"}:
            return self.refuse(401, "", "Invalid credentials in Authorization header")
        if self.misbehave("list" if act == "/tree/" else "revision", b""):
            return
        commit = self.hub.revisions.get(rest, rest if rest in self.hub.revisions.values() else None)
        if not commit:
            return self.refuse(404, "RevisionNotFound", f"Invalid rev id: {rest}")
        if act == "/revision/":
            return self.answer(
                200,
                json.dumps({"id": repository, "sha": commit, "gated": False,
                            "siblings": []}).encode())
        entries = [
            self.entry(name, content)
            for name, content in sorted(self.hub.repositories[repository].items())
        ] + self.hub.extra_entries
        at = int(dict(urllib.parse.parse_qsl(self.path.partition("?")[2])).get("cursor", 0))
        link = {}
        if at + self.hub.page < len(entries):
            link[
                "Link"] = f'<{self.hub.url()}/api/models/{path}?recursive=true&cursor={at + self.hub.page}>; rel="next"'
        self.answer(200, json.dumps(entries[at:at + self.hub.page]).encode(), **link)

    def entry(self, name, content):
        entry = {"type": "file", "path": name, "size": len(content), "oid": digest(content)[:40]}
        if len(content) >= LFS_FROM:
            entry["lfs"] = {
                "oid": self.hub.sums.get(name, digest(content)), "size": len(content),
                "pointerSize": 130}
        return entry

    def get_stored(self, path):
        repository = "/".join(path[1:].split("/")[:2])
        name = path[len(repository) + 2:]
        self.send_bytes(name, self.hub.repositories[repository][name])

    def misbehave(self, name, content):
        """Does what is on the list for this answer; true when it is all that is done."""
        with self.hub.changed:
            deed = self.hub.misdeeds[name].pop(0) if self.hub.misdeeds[name] else None
        if isinstance(deed, tuple) and deed[0] == "status":
            self.answer(deed[1], b"", **(deed[2] if len(deed) > 2 else {}))
        elif isinstance(deed, tuple) and deed[0] == "to":
            self.answer(302, b"", Location=deed[1])
        elif isinstance(deed, tuple):
            self.deed = deed  # done while the body is sent
            return False
        else:
            self.deed = None
            return False
        return True

    def send_bytes(self, name, content):
        if self.misbehave(name, content):
            return
        from_, to, range_ = 0, len(content), self.headers["Range"]
        if range_ and self.hub.knows_ranges:
            first, _, last = range_.removeprefix("bytes=").partition("-")
            from_, to = int(first), int(last) + 1
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {from_}-{to - 1}/{len(content)}")
        else:
            self.send_response(200)
        body, end = content[from_:to], None
        if self.deed:
            kind, value = self.deed
            if kind == "break" or kind == "stall":
                end = value
            elif kind == "wrong":
                body = bytes([body[0] ^ 1]) + body[1:]
            elif kind == "longer":
                body += b"x" * value
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.send_body(name, body, end)

    def send_body(self, name, body, end):
        for at in range(0, len(body), BLOCK):
            piece = body[at:at + BLOCK]
            if end is not None and at + len(piece) > end:
                piece = piece[:end - at]
            self.wfile.write(piece)
            with self.hub.changed:
                self.hub.sent[name] += len(piece)
                self.hub.changed.notify_all()
                is_held = self.hub.hold_at is not None and self.hub.sent.total() >= self.hub.hold_at
            if is_held:
                self.hub.released.wait()
            if end is not None and at + len(piece) >= end:
                if self.deed[0] == "stall":
                    self.hub.released.wait()
                self.close_connection = True
                return


class Puller:
    """quern with a home of its own and this hub."""

    def __init__(self, hub, home):
        names = ("HF_", "XDG_", "OLLAMA_", "HUGGING", "TRANSFORMERS_")
        self.environment = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(names) and "proxy" not in k.lower()}
        self.environment.update(HF_ENDPOINT=hub.url(),
                                HF_HOME=str(home / "huggingface"),
                                XDG_CACHE_HOME=str(home / "cache"),
                                OLLAMA_MODELS=str(home / "ollama"),
                                HF_HUB_DOWNLOAD_TIMEOUT="100")

    def __call__(self, *arguments, **variables):
        return support.quern(*arguments, env={**self.environment, **variables}, timeout=120)

    def pull(self, name, *arguments, status=0, **variables):
        done = self("pull", name, "--json", *arguments, **variables)
        assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
        return json.loads(done.stdout) if status == 0 else done.stderr

    def start(self, *arguments, **variables):
        return subprocess.Popen([support.BINARY, *arguments],
                                env={**self.environment, **variables},
                                stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE,
                                text=True)
