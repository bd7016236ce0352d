# SPDX-License-Identifier: Apache-2.0
"""A real Chromium with pages of two origins, one of them allowed, against a server without keys:
the foreign page reads nothing and changes nothing, the allowed one works, and a name that was made
to mean this machine gets an error. tests/api/test_pages.py has the rules one by one."""
import http.server, json, shutil, subprocess, threading

import pytest

import support

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which(
    "google-chrome")
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no Chromium is installed")
LINE = support.jsonl([support.request("a", "hello")]).decode()
PAGE = """<!doctype html><title>x</title><body><script>
const server = "%s", line = %s, fileId = "%s", seen = {};
async function attempt(name, path, options) {
  try {
    const answer = await fetch(server + path, options);
    seen[name] = answer.type === "opaque" ? "opaque" : answer.status;
  } catch (error) { seen[name] = "refused"; }
}
function form() {
  const data = new FormData();
  data.append("purpose", "batch");
  data.append("file", new Blob([line]), "planted.jsonl");
  return data;
}
async function all() {
  const batch = JSON.stringify({input_file_id: fileId, endpoint: "/v1/chat/completions", completion_window: "24h"});
  await attempt("list", "/v1/files", {});
  await attempt("list without cors", "/v1/files", {mode: "no-cors"});
  await attempt("upload", "/v1/files", {method: "POST", body: form()});
  await attempt("upload without cors", "/v1/files", {method: "POST", body: form(), mode: "no-cors"});
  await attempt("batch as text", "/v1/batches", {method: "POST", body: batch, headers: {"Content-Type": "text/plain"}, mode: "no-cors"});
  await attempt("batch as blob", "/v1/batches", {method: "POST", body: new Blob([batch]), mode: "no-cors"});
  await attempt("batch", "/v1/batches", {method: "POST", body: batch, headers: {"Content-Type": "application/json"}});
  await attempt("delete", "/v1/files/" + fileId, {method: "DELETE"});
  await new Promise(done => {
    const image = new Image();
    image.onload = image.onerror = done;
    image.src = server + "/v1/files";
  });
  await fetch("/report", {method: "POST", body: JSON.stringify(seen)});
}
all();
</script>"""


class Pages(http.server.ThreadingHTTPServer):
    """Serves the page, and keeps what it reports."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.page, self.report, self.reported = "", None, threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = self.server.page.encode() if self.path == "/" else b""
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        self.server.report = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()
        self.server.reported.set()

    def log_message(self, *_):
        pass


def chromium(folder, *arguments):
    return [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
        "--disable-component-update", f"--user-data-dir={folder}/profile", *arguments]


def visit(folder, pages, host):
    process = subprocess.Popen(chromium(folder, "--remote-debugging-port=0",
                                        f"http://{host}:{pages.server_port}/"),
                               stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    try:
        assert pages.reported.wait(120), "the page did not report"
        return pages.report
    finally:
        process.kill()
        process.wait()


def test_a_foreign_page_does_nothing_and_an_allowed_one_everything(tmp_path):
    foreign, allowed = Pages(), Pages()
    origin = f"http://127.0.0.1:{allowed.server_port}"
    with support.serving(tmp_path / "state", "--model", "smollm2=echo", "--allowed-origin",
                         origin) as server:
        mine = server.upload(LINE.encode())["id"]
        url = f"http://127.0.0.1:{server.port}"
        foreign.page = allowed.page = PAGE % (url, json.dumps(LINE), mine)
        (tmp_path / "one").mkdir(), (tmp_path / "two").mkdir()
        before = server.call("GET", "/v1/files")[1], server.call("GET", "/v1/batches")[1]
        seen = visit(tmp_path / "one", foreign, "localhost")
        assert set(seen.values()) <= {"refused", "opaque"}, seen
        assert (server.call("GET", "/v1/files")[1], server.call("GET", "/v1/batches")[1]) == before
        seen = visit(tmp_path / "two", allowed, "127.0.0.1")
        assert {seen[name] for name in ("list", "upload", "batch", "delete")} == {200}, seen
        assert len(server.json("GET", "/v1/batches")["data"]) == 1


def test_a_rebound_name_gets_an_error(tmp_path):
    with support.serving(tmp_path / "state", "--model", "smollm2=echo") as server:
        server.upload(LINE.encode())
        done = subprocess.run(chromium(tmp_path, "--dump-dom",
                                       "--host-resolver-rules=MAP evil.example 127.0.0.1",
                                       f"http://evil.example:{server.port}/v1/files"),
                              capture_output=True,
                              text=True,
                              timeout=120)
        assert "host_not_allowed" in done.stdout and "file-" not in done.stdout
        done = subprocess.run(chromium(tmp_path, "--dump-dom",
                                       f"http://localhost:{server.port}/v1/files"),
                              capture_output=True,
                              text=True,
                              timeout=120)
        assert "file-" in done.stdout, "a person who types the address may look"
