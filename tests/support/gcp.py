# SPDX-License-Identifier: Apache-2.0
"""Google Cloud for tests: a metadata server that gives tokens, and a Secret Manager that gives
versions of secrets for them.

Both answer on one port. `secrets` maps a resource's name to its bytes; `misdeeds["token"]` and
`misdeeds["secret"]` hold what the next answers do, one each, by the names of Handler's methods. """
import base64, collections, http.server, json, threading

from segments import crc32c

NAME = "projects/my-project/secrets/api-keys/versions/latest"
PLACE = "gcp-secret://" + NAME
PREFIX = "/computeMetadata/v1/instance/service-accounts/default/token"


class Cloud:
    def __init__(self):
        self.secrets = {}
        self.misdeeds = collections.defaultdict(list)
        self.tokens = []  # given so far
        self.asked = []  # ("token" or "secret", status)
        self.released = threading.Event()  # what slow answers wait for
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0),
                                                       type("Bound", (_Handler, ), {"cloud": self}))
        self._server.daemon_threads = True
        self._server.block_on_close = False
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def wrap(self, context):
        """HTTPS from now on."""
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    @property
    def address(self):
        return "127.0.0.1:%d" % self._server.server_port

    @property
    def environment(self):
        return {
            "GCE_METADATA_HOST": self.address,
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_SECRETMANAGER": f"http://{self.address}/"}

    def count(self, kind):
        return sum(1 for asked, _ in self.asked if asked == kind)

    def close(self):
        self.released.set()
        self._server.shutdown()
        self._server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    cloud = None
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        kind = "token" if self.path == PREFIX else "secret"
        misdeeds = self.cloud.misdeeds[kind]
        misdeed = misdeeds.pop(0) if misdeeds else None
        if isinstance(misdeed, int):
            return self.answer(kind, misdeed, b'{"error": {"message": "no <hidden-words>"}}',
                               **({"Retry-After": "0"} if misdeed == 429 else {}))
        if misdeed == "redirect":
            return self.answer(kind, 302, b"", Location=f"http://{self.cloud.address}/elsewhere")
        if kind == "token":
            return self.token(misdeed)
        return self.secret(misdeed)

    def answer(self, kind, status, body, **headers):
        self.cloud.asked.append((kind, status))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except ConnectionError:
            pass  # the asker had enough

    def token(self, misdeed):
        if self.headers["Metadata-Flavor"] != "Google":
            return self.answer("token", 403, b"{}")
        assert "Authorization" not in self.headers
        token = f"ya29.token-{len(self.cloud.tokens)}"
        self.cloud.tokens.append(token)
        body = {"access_token": token, "expires_in": 3599, "token_type": "Bearer"}
        flavor = {"Metadata-Flavor": "Google"}
        if misdeed == "expired":
            body["expires_in"] = 0
        elif misdeed == "no flavor":
            flavor = {}
        elif misdeed == "no token":
            del body["access_token"]
        elif misdeed == "split token":
            body["access_token"] = "a\r\nX-Evil: 1"
        body = json.dumps(body).encode()
        if misdeed == "huge":
            body = b'{"access_token": "' + b"a" * (1 << 20) + b'"}'
        elif misdeed == "not JSON":
            body = b"<html>it works</html>"
        elif misdeed == "slow":
            self.cloud.released.wait()
        self.answer("token", 200, body, **flavor)

    def secret(self, misdeed):
        name = self.path.removeprefix("/v1/").removesuffix(":access")
        if self.path != f"/v1/{name}:access" or name not in self.cloud.secrets:
            return self.answer("secret", 404, b'{"error": {"code": 404}}')
        if self.headers["Authorization"] not in [
                f"Bearer {token}" for token in self.cloud.tokens[-1:]]:
            return self.answer("secret", 401, b'{"error": {"code": 401}}')
        data = self.cloud.secrets[name]
        payload = {"data": base64.b64encode(data).decode(), "dataCrc32c": str(crc32c(data))}
        if misdeed == "wrong CRC":
            payload["dataCrc32c"] = str(crc32c(data) ^ 1)
        elif misdeed == "no CRC":
            del payload["dataCrc32c"]
        elif misdeed == "CRC as number":
            payload["dataCrc32c"] = crc32c(data)
        elif misdeed == "bad base64":
            payload["data"] = payload["data"][:-1] + "!"
        elif misdeed == "no data":
            del payload["data"]
        body = json.dumps({"name": name, "payload": payload}).encode()
        if misdeed == "huge":
            body = b'{"payload": {"data": "' + b"QUFB" * (1 << 20) + b'", "dataCrc32c": "0"}}'
        elif misdeed == "not JSON":
            body = b"<html>it works</html>"
        elif misdeed == "half":
            body = body[:-2]
        elif misdeed == "a list":
            body = b"[]"
        elif misdeed == "slow":
            self.cloud.released.wait()
        elif misdeed == "slow body":
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[:10])
            self.wfile.flush()
            self.cloud.released.wait()
            return self.cloud.asked.append(("secret", 200))
        self.answer("secret", 200, body)
