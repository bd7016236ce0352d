# SPDX-License-Identifier: Apache-2.0
"""The common part of the tests' small servers: a free port of 127.0.0.1, calls one at a time,
answers as JSON or bytes."""
import http.server, json, threading


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.hand_over(b"")

    def do_POST(self):
        self.hand_over(self.rfile.read(int(self.headers["content-length"] or 0)))

    def hand_over(self, body):
        with self.server.owner.lock:
            self.server.owner.take(self, body)

    def answer(self, status, value=None, headers=()):
        data = b"" if value is None else value if isinstance(value,
                                                             bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in headers:
            self.send_header(name, text)
        if status != 204:
            self.send_header("content-length", str(len(data)))
        self.end_headers()
        try:
            self.wfile.write(data)
        except OSError:  # the client was killed
            self.close_connection = True

    def drop(self):
        """Closes the connection without an answer."""
        self.close_connection = True


class SmallServer:
    """A server in a `with`. Its take(handler, body), called under `lock`, answers a call or drops
    it."""

    def __init__(self):
        self.lock = threading.Lock()

    @property
    def site(self):
        return f"http://127.0.0.1:{self.httpd.server_port}"

    def __enter__(self):
        self.httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.httpd.owner, self.httpd.daemon_threads = self, True
        threading.Thread(target=self.httpd.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.httpd.shutdown()
        self.httpd.server_close()
