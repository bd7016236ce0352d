# SPDX-License-Identifier: Apache-2.0
"""submit, list, status, watch, results, cancel and retry: against quern, and against a server of
another make that loses answers."""
import json, os, signal, subprocess, urllib.parse

import pytest

import support
from openai_server import OpenAIServer

ECHO = ["--model", "m=echo"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    yield from support.server_of_session(tmp_path_factory, "client", *ECHO)


def run(url, *arguments, key="", **keywords):
    environment = {
        **os.environ, "OPENAI_BASE_URL": url, "OPENAI_API_KEY": key, **keywords.pop(
            "environment", {})}
    return support.quern(*arguments, env=environment, timeout=300, **keywords)


def requests(count, **body):
    return [support.request(f"c{i}", f"hello {i}", "m", **body) for i in range(count)]


def ids_of(text):
    return [json.loads(line)["custom_id"] for line in text.splitlines()]


def write(path, lines):
    path.write_bytes(support.jsonl(lines))
    return path


def submitted(url, file, *arguments, **keywords):
    done = run(url, "submit", file, *arguments, **keywords)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# --- against quern ---

def test_from_a_file_to_its_results(server, tmp_path):
    file, out = write(tmp_path / "in.jsonl", requests(40)), tmp_path / "out.jsonl"
    batch = submitted(server.url, file, "--metadata", "run=a b=c")
    assert server.batch(batch)["metadata"]["run"] == "a b=c"
    watched = run(server.url, "watch", batch, "--seconds", "1")
    assert watched.returncode == 0 and watched.stdout == "" and "40 of 40 requests completed" in watched.stderr, watched.stderr
    assert "\x1b" not in watched.stderr
    done = run(server.url, "results", batch, "-o", out)
    assert done.returncode == 0 and done.stdout == "", done.stderr
    assert ids_of(out.read_text()) == [f"c{i}" for i in range(40)]
    assert out.read_text() == run(server.url, "results", batch).stdout
    again = run(server.url, "results", batch, "-o", out)
    assert again.returncode == 0 and "nothing is left to do" in again.stderr
    refused = run(server.url, "results", batch, "-o", file)
    assert refused.returncode == 7 and "--overwrite" in refused.stderr and len(
        file.read_text().splitlines()) == 40
    assert run(server.url, "results", batch, "-o", file,
               "--overwrite").returncode == 0 and file.read_text() == out.read_text()
    assert [path.name for path in tmp_path.iterdir() if "part" in path.name] == []


def test_the_first_lines_and_standard_input(server, tmp_path):
    file = write(tmp_path / "in.jsonl", requests(9))
    batch = submitted(server.url, file, "--limit", 4, "--watch")
    assert server.batch(batch)["request_counts"] == {"total": 4, "completed": 4, "failed": 0}
    batch = submitted(server.url, "-", "--limit", 100, "--watch", input=file.read_text())
    assert server.batch(batch)["request_counts"]["total"] == 9
    done = run(server.url, "submit", file, "-o", tmp_path / "out.jsonl", "--json")
    assert done.returncode == 0, done.stderr
    objects = [json.loads(line) for line in done.stdout.splitlines()]
    assert {o["object"] for o in objects} == {"batch"} and objects[-1]["status"] == "completed"
    assert len(ids_of((tmp_path / "out.jsonl").read_text())) == 9


def test_failed_lines_are_told_and_tried_again(server, tmp_path):
    lines = requests(6)
    for line in lines[2:4]:
        line["body"]["echo"] = {"status": 400}
    file = write(tmp_path / "in.jsonl", lines)
    done = run(server.url, "submit", file, "-o", tmp_path / "out.jsonl")
    assert done.returncode == 1, done.stderr
    assert ids_of((tmp_path / "out.jsonl").read_text()) == ["c0", "c1", "c4", "c5", "c2",
                                                            "c3"]  # the errors come behind
    batch = done.stdout.strip()
    again = run(server.url, "retry", batch, "--watch")
    assert again.returncode == 1 and server.batch(
        again.stdout.strip())["quern"]["retry_of"] == batch
    assert server.batch(again.stdout.strip())["request_counts"]["total"] == 2
    refused = write(tmp_path / "bad.jsonl", [{
        "custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m"}}])
    done = run(server.url, "submit", refused, "--watch")
    assert done.returncode == 3 and "line 1" in done.stderr, done.stderr
    assert run(server.url, "results", done.stdout.strip()).returncode == 3


def test_a_batch_that_runs(server, tmp_path):
    lines = requests(5)
    lines[3]["body"]["echo"] = {"hang": True}
    file, out = write(tmp_path / "in.jsonl", lines), tmp_path / "out.jsonl"
    batch = submitted(server.url, file)
    support.until(lambda: server.batch(batch)["request_counts"]["completed"] == 4)
    done = run(server.url, "results", batch, "-o", out)
    assert done.returncode == 0 and "4 results of 5" in done.stderr, done.stderr
    assert sorted(ids_of(out.read_text())) == ["c0", "c1", "c2", "c4"]
    assert run(server.url, "retry", batch).returncode == 7
    assert "in_progress" in run(server.url, "status", batch).stdout
    with subprocess.Popen(
        [support.BINARY, "watch", batch, "--seconds", "1", "--base-url", server.url],
            stderr=subprocess.PIPE,
            text=True) as watch:
        assert "in_progress" in watch.stderr.readline()
        watch.send_signal(signal.SIGINT)
        rest = watch.stderr.read()
        assert watch.wait() == 130 and f"quern watch {batch}" in rest
    assert run(server.url, "cancel", batch).returncode == 0
    ended = run(server.url, "watch", batch)
    assert ended.returncode == 1 and "cancelled" in ended.stderr
    assert run(server.url, "cancel", batch).returncode == 0
    assert run(server.url, "results", batch, "-o", out, "--overwrite").returncode == 1
    assert sorted(ids_of(out.read_text())) == [f"c{i}" for i in range(5)]


def test_lists_and_what_is_not_there(server, tmp_path):
    batch = submitted(server.url, write(tmp_path / "in.jsonl", requests(1)), "--watch")
    listed = run(server.url, "list")
    assert listed.stdout.splitlines()[1].split()[:3] == [batch, "completed", "1"]
    assert [
        json.loads(line)["id"]
        for line in run(server.url, "list", "--json", "--limit", "1").stdout.splitlines()] == [
            batch]
    assert json.loads(run(server.url, "status", batch, "--json").stdout)["id"] == batch
    for command in ("status", "watch", "results", "cancel", "retry"):
        missing = run(server.url, command, "batch_none")
        assert missing.returncode == 4 and "batch_none" in missing.stderr and missing.stdout == "", (
            command, missing.stderr)
        assert run(server.url, command).returncode == (0 if command == "status" else 2)
        assert run(server.url, command, "../x").returncode == 2
    for arguments in (["submit"], ["submit", "x", "--metadata", "novalue"], [
            "submit", "x", "--max-cost", "1"], ["submit", "x", "--idempotency-key", "a b"]):
        assert run(server.url, *arguments).returncode == 2, arguments
    assert run(server.url, "submit", tmp_path / "none").returncode == 4
    (tmp_path / "empty").write_text("\n\n")
    assert run(server.url, "submit", tmp_path / "empty").returncode == 3
    (tmp_path / "text").write_text("hello\n")
    assert "no JSON object" in run(server.url, "submit", tmp_path / "text").stderr


def test_one_key_makes_one_batch(server, tmp_path):
    file = write(tmp_path / "in.jsonl", requests(2))
    first = submitted(server.url, file, "--idempotency-key", "nightly-1")
    assert submitted(server.url, file, "--idempotency-key", "nightly-1") == first
    assert submitted(server.url, file, "--idempotency-key", "nightly-2") != first


def test_a_large_file_goes_in_parts(server, tmp_path):
    lines = requests(70)
    for line in lines:
        line["body"]["user"] = "x" * (1 << 20)
    batch = submitted(server.url, write(tmp_path / "in.jsonl", lines), "--watch")
    file = server.batch(batch)["input_file_id"]
    assert server.json(
        "GET", f"/v1/files/{file}")["bytes"] == (tmp_path / "in.jsonl").stat().st_size > 64 << 20
    assert server.batch(batch)["request_counts"]["completed"] == 70


def test_a_price_limit(server, tmp_path):
    file = write(tmp_path / "in.jsonl", requests(3, max_tokens=10))
    before = len(run(server.url, "list", "--json").stdout.splitlines())
    done = run(server.url, "submit", file, "--max-cost", "0.000000001", "--input-price", "5",
               "--output-price", "5")
    assert done.returncode == 3 and "nothing is submitted" in done.stderr, done.stderr
    assert len(run(server.url, "list", "--json").stdout.splitlines()) == before
    done = run(server.url, "submit", file, "--max-cost", "1000", "--input-price", "5",
               "--output-price", "5")
    assert done.returncode == 0 and "will cost up to" in done.stderr, done.stderr


def test_a_watch_outlives_its_server(tmp_path):
    lines = requests(3)
    lines[1]["body"]["echo"] = {
        "hang": True}  # so that the batch ends when it is cancelled, and not before
    with support.reserved_port() as port:
        server = support.Server(tmp_path / "state", "--port", str(port), *ECHO).start()
        url = f"http://127.0.0.1:{port}/v1"
        batch = submitted(url, write(tmp_path / "in.jsonl", lines))
        with subprocess.Popen([support.BINARY, "watch", batch, "--seconds", "1", "--base-url", url],
                              stderr=subprocess.PIPE,
                              text=True) as watch:
            assert any("/3" in line for line in watch.stderr)  # once its lines are counted
            server.kill()
            assert any("trying again" in line for line in watch.stderr)
            server = support.Server(tmp_path / "state", "--port", str(port), *ECHO).start()
            assert any("answers again" in line for line in watch.stderr)
            assert run(url, "cancel", batch).returncode == 0
            rest = watch.stderr.read()
            assert watch.wait() == 1 and f"{batch} cancelled: " in rest, rest
        assert server.stop() == 0
    support.fsck(tmp_path / "state")


def test_an_upload_outlives_its_server(tmp_path):
    lines = requests(70)
    for line in lines:
        line["body"]["user"] = "x" * (1 << 20)
    file = write(tmp_path / "in.jsonl", lines)  # two parts
    with support.reserved_port() as port:
        server = support.Server(tmp_path / "state", "--port", str(port), *ECHO).start()
        url = f"http://127.0.0.1:{port}/v1"
        with subprocess.Popen(
            [support.BINARY, "submit", file, "--base-url", url, "--retry-seconds", "600"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True) as submit:
            # Wherever the kill comes, in a part, between two or after all: the command goes on.
            support.until(lambda: any(
                (tmp_path / "state/parts").glob("*")) or submit.poll() is not None)
            server.kill()
            server = support.Server(tmp_path / "state", "--port", str(port), *ECHO).start()
            out, told = submit.communicate()
            assert submit.returncode == 0, told
        [batch] = server.json("GET", "/v1/batches")["data"]
        assert batch["id"] == out.strip() and server.wait(
            batch["id"])["request_counts"]["completed"] == 70
        status, content = server.call("GET", f"/v1/files/{batch['input_file_id']}/content")
        assert status == 200 and content == file.read_bytes()
        assert server.stop() == 0
    support.fsck(tmp_path / "state")


# --- against a server of another make ---

def test_no_answer_that_is_lost_makes_a_second_batch(tmp_path):
    file = write(tmp_path / "in.jsonl", requests(3))
    with OpenAIServer() as other:
        other.lose = ["/v1/batches", "/v1/files"]
        batch = submitted(other.url, file)
        assert list(other.batches) == [
            batch] and other.files[other.batches[batch][0]["input_file_id"]] == file.read_bytes()
        other.refuse = [503, 503, 429]
        assert submitted(other.url, file, "--idempotency-key", "k") == "batch_2"
        assert submitted(other.url, file, "--idempotency-key", "k") == "batch_2" and len(
            other.batches) == 2


@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_download_goes_on(tmp_path, ranges):
    file, out = write(
        tmp_path / "in.jsonl",
        requests(50) + [support.request("b1", "bad", "m"),
                        support.request("b2", "bad", "m")]), tmp_path / "out.jsonl"
    with OpenAIServer(ranges=ranges) as other:
        batch = submitted(other.url, file)
        other.cut = [2000, 700]
        done = run(other.url, "results", batch, "-o", out)
        assert done.returncode == 1 and done.stderr.count(
            "trying again") >= 1, done.stderr  # two lines failed
        whole = out.read_bytes()
        assert ids_of(whole.decode()) == [f"c{i}" for i in range(50)] + ["b1", "b2"]
        out.unlink()
        other.cut = [3000]
        done = run(other.url, "results", batch, "-o", out, "--retry-seconds", "0")
        assert done.returncode == 6 and not out.exists(
        ) and "same command goes on" in done.stderr, done.stderr
        [part] = tmp_path.glob("out.jsonl.*.part")
        assert 0 < part.stat().st_size <= 3000 and whole.startswith(part.read_bytes())
        done = run(other.url, "results", batch, "-o", out)
        assert done.returncode == 1 and "going on after" in done.stderr and out.read_bytes(
        ) == whole
        assert not list(tmp_path.glob("*.part"))
        errors = other.files[other.batches[batch][0]["error_file_id"]]
        part.write_bytes(whole[:-len(errors) // 2])  # broken in the error file
        out.unlink()
        assert run(other.url, "results", batch, "-o",
                   out).returncode == 1 and out.read_bytes() == whole


def test_failed_lines_go_into_a_new_file(tmp_path):
    lines = [support.request(f"c{i}", "bad" if i % 3 == 0 else "good", "m") for i in range(9)]
    file = write(tmp_path / "in.jsonl", lines)
    with OpenAIServer() as other:
        batch = submitted(other.url, file)
        done = run(other.url, "retry", batch)
        assert done.returncode == 0 and done.stdout == "batch_2\n", done.stderr
        assert other.files[other.batches["batch_2"][0]["input_file_id"]].decode().splitlines() == [
            json.dumps(line) for line in lines if line in lines[::3]]
    with OpenAIServer(keeps_inputs=False) as other:
        batch = submitted(other.url, file)
        done = run(other.url, "retry", batch)
        assert done.returncode == 4 and "-i" in done.stderr, done.stderr
        assert run(other.url, "retry", batch, "-i", file).returncode == 0
        wrong = write(tmp_path / "wrong.jsonl", lines[:4])
        done = run(other.url, "retry", batch, "-i", wrong)
        assert done.returncode == 4 and "2 of the 3 failed lines" in done.stderr, done.stderr


def test_what_another_server_cannot_do_is_said(tmp_path):
    file = write(tmp_path / "in.jsonl", requests(2))
    with OpenAIServer() as other:
        other.running = True
        batch = submitted(other.url, file)
        done = run(other.url, "results", batch)
        assert done.returncode == 7 and "when a batch has ended only" in done.stderr
        done = run(other.url, "submit", file, "--max-cost", "1", "--watts", "90", "--price-per-kwh",
                   "1")
        assert done.returncode == 3 and "no preflight" in done.stderr and len(other.batches) == 1
        done = run(other.url, "submit", file, "--max-cost", "1", "--output-price", "1")
        assert done.returncode == 3 and "2 of 2 requests set no max_tokens" in done.stderr and len(
            other.batches) == 1
        bounded = write(tmp_path / "bounded.jsonl", requests(2, max_tokens=1000,
                                                             n=2))  # 4,000 tokens of answers
        done = run(other.url, "submit", bounded, "--max-cost", "0.0039", "--output-price", "1")
        assert done.returncode == 3 and "up to 0.004," in done.stderr and len(
            other.batches) == 1, done.stderr
        done = run(other.url, "submit", bounded, "--max-cost", "0.0039", "--output-price", "1",
                   "--batch-discount", "0.5")
        assert done.returncode == 0 and "ESTIMATE" in done.stderr and len(
            other.batches) == 2, done.stderr
        other.running = False
        assert run(other.url, "retry", batch).returncode == 3


def test_keys_and_where_they_go(tmp_path):
    file = write(tmp_path / "in.jsonl", requests(1))
    key = tmp_path / "key"
    key.write_text("sk-1\n")
    key.chmod(0o600)
    with OpenAIServer(key="sk-1") as other, OpenAIServer() as elsewhere:
        done = run(other.url, "list")
        assert done.returncode == 5 and "OPENAI_API_KEY" in done.stderr
        assert run(other.url, "list", key="sk-1").returncode == 0
        assert run(other.url, "list", "--api-key-file", key).returncode == 0
        key.chmod(0o644)
        assert run(other.url, "list", "--api-key-file", key).returncode != 0
        other.instead = lambda handler, path: handler.answer(307, b"", [
            ("location", elsewhere.url + path.removeprefix("/v1"))])
        for arguments in (["list"], ["submit", file], ["results", "batch_1"]):
            done = run(other.url, *arguments, key="sk-1")
            assert done.returncode == 3 and "redirects" in done.stderr and "sk-1" not in done.stderr
        assert elsewhere.seen == []


def test_a_hostile_server_gets_a_sentence(tmp_path):
    bodies = {
        b"<html>\x1b[2J": "base URL", b"[]": "base URL", b'{"id":"b","status":7}': "base URL",
        b"[" * 100000: "base URL",
        b'{"id":"b","status":"\\u001b[2J\\u009bx","model":"\\u0007","errors":{"data":[{"message":"\\u001b]0;x"}]}}': ""
    }
    with OpenAIServer() as other:
        for body, words in bodies.items():
            other.instead = lambda handler, path, body=body: handler.answer(200, body)
            done = run(other.url, "status", "b")
            assert done.returncode == (3 if words else 0) and words in done.stderr, (body[:40],
                                                                                     done.stderr)
            assert not any(
                ord(letter) < 32 and letter != "\n" or 0x7f <= ord(letter) < 0xa0
                for letter in done.stdout + done.stderr), (done.stdout, done.stderr)
        other.instead = lambda handler, path: handler.answer(400, {
            "error": {"message": "no \x1b[2J\n\r\x07" + "y" * 9000}})
        done = run(other.url, "status", "b")
        assert done.returncode == 3 and "\x1b" not in done.stderr and len(done.stderr) < 1000

        def endless(handler, path):
            handler.send_response(200)
            handler.end_headers()
            with pytest.raises(OSError):
                while True:
                    handler.wfile.write(b"[" * (1 << 20))
            handler.close_connection = True
        other.instead = endless
        done = run(other.url, "status", "b")
        assert done.returncode == 6 and "too long" in done.stderr, done.stderr


def test_where_no_server_listens_the_address_is_named_at_once(tmp_path):
    file = write(tmp_path / "in.jsonl", requests(1))
    with support.reserved_port() as port:
        url = f"http://127.0.0.1:{port}/v1"
        for words in (["list"], ["watch", "batch_1"], ["submit", file], ["submit", file,
                                                                         "--watch"], [
                                                                             "status", "batch_1"]):
            done = run(url, *words)
            assert done.returncode == 6 and "trying again" not in done.stderr, done.stderr
            assert f"{url} cannot be reached" in done.stderr and "--base-url or OPENAI_BASE_URL" in done.stderr
        done = run(url, "list", "--retry-seconds", "1")
        assert done.returncode == 6 and f"the server {url} cannot be reached" in done.stderr and "trying again for up to 1 s" in done.stderr


def test_top_takes_the_server_of_the_environment(tmp_path):
    with support.serving(tmp_path / "state", *ECHO) as server:
        for url, words in ((server.url, []), ("http://127.0.0.1:9/v1", [
                server.site]), ("http://127.0.0.1:9/v1", ["--base-url", server.url])):
            done = run(url, "top", *words, "--once", "--seconds", "1")
            assert done.returncode == 0, done.stderr
        assert run("", "top", server.url, "--base-url", server.url, "--once").returncode == 2
        assert run("nonsense", "top", "--once").returncode == 2


def test_a_table_is_not_submitted(tmp_path):
    for name in ("people.csv", "people.tsv"):
        (tmp_path / name).write_text("name\nAda\n")
        done = run("", "submit", tmp_path / name)
        assert done.returncode == 3 and f"quern table {tmp_path / name} --prompt" in done.stderr, done.stderr
    (tmp_path / "people").write_text("name\nAda\n")
    assert "no JSON object" in run("", "submit", tmp_path / "people").stderr


def test_a_server_that_is_away(tmp_path):
    with support.reserved_port() as port:
        done = run(f"http://127.0.0.1:{port}", "list", "--retry-seconds", "0")
        assert done.returncode == 6 and "cannot be reached" in done.stderr, done.stderr
    for url in ("ftp://x", "http://u:p@x", "nonsense"):
        for arguments in (["list"], ["status", "b"], ["submit", tmp_path]):
            assert run(url, *arguments).returncode == 2
            done = run("", *arguments, "--base-url", url)
            assert done.returncode == 2 and "--base-url" in done.stderr and url not in done.stderr


# --- what is missing is said ---

def finished(server, tmp_path, count=6):
    """A batch of a server of another make that has ended; the test changes its object or files."""
    submitted(server.url, write(tmp_path / "in.jsonl", requests(count)))
    batch = server.finish("batch_1")
    return batch, server.files[batch["output_file_id"]].splitlines(keepends=True)


@pytest.mark.parametrize("damage,said", [
    ("last line is cut", "1 of 6 lines cannot be read as a result; the first is line 6"),
    ("last line is gone",
     "1 result is missing: request_counts of batch_1 says 6 completed and 0 failed of 6, and 5 came"
     ), ("a line came twice", "1 line has the custom_id of an earlier one"),
    ("no file is named",
     "6 results are missing: request_counts of batch_1 says 6 completed and 0 failed of 6, and 0 came; the server names no file"
     ),
    ("counts do not add up",
     "2 results are missing: request_counts of batch_1 says 6 completed and 0 failed of 8, and 6 came"
     ), ])
def test_results_that_are_missing_are_said(tmp_path, damage, said):
    with OpenAIServer() as server:
        batch, lines = finished(server, tmp_path)
        if damage == "last line is cut":
            lines[-1] = lines[-1][:40]
        elif damage == "last line is gone":
            lines.pop()
        elif damage == "a line came twice":
            lines[-1] = lines[0]
        elif damage == "no file is named":
            batch["output_file_id"] = None
        else:
            batch["request_counts"]["total"] = 8
        if batch["output_file_id"]:
            server.files[batch["output_file_id"]] = b"".join(lines)
        done = run(server.url, "results", "batch_1")
        assert done.returncode == 1 and said in done.stderr, done.stderr
        done = run(server.url, "results", "batch_1", "-o", tmp_path / "out.jsonl")
        assert done.returncode == 1 and said in done.stderr and "has all results" not in done.stderr, done.stderr
        assert run(server.url, "results", "batch_1", "-o",
                   tmp_path / "out.jsonl").returncode == 7  # it is not known as whole


def test_a_server_without_counts_is_not_checked(tmp_path):
    with OpenAIServer() as server:
        batch, _ = finished(server, tmp_path)
        batch["request_counts"] = None
        assert run(server.url, "results", "batch_1").returncode == 0


@pytest.mark.parametrize(
    "file_id",
    ["s3://bucket/a b/out+1.jsonl?x=1#y", "files/abc=", "../v1/models", "größe", "f" * 900, 12345])
def test_a_file_id_of_any_form_is_fetched(tmp_path, file_id):
    with OpenAIServer() as server:
        batch, lines = finished(server, tmp_path)
        paths = []

        def instead(handler, path):
            paths.append(path)
            encoded = "/v1/files/" + urllib.parse.quote(str(file_id), safe="")
            if path == encoded:
                return handler.answer(
                    200, {"id": file_id, "object": "file", "bytes": sum(map(len, lines))})
            if path == encoded + "/content":
                return server.download(handler, b"".join(lines))
            return handler.answer(200, batch)

        batch["output_file_id"] = file_id
        server.instead = instead
        done = run(server.url, "results", "batch_1")
        assert done.returncode == 0 and len(done.stdout.splitlines()) == 6, (done.stderr, paths)


@pytest.mark.parametrize("file_id", [["file-1"], {"id": "file-1"}, True, "a\nb", "..", "f" * 5000])
def test_a_file_id_that_is_none_is_refused(tmp_path, file_id):
    with OpenAIServer() as server:
        batch, _ = finished(server, tmp_path)
        batch["output_file_id"] = file_id
        done = run(server.url, "results", "batch_1")
        assert done.returncode != 0 and "output_file_id of batch_1" in done.stderr and done.stdout == "", done.stderr


def test_a_name_of_a_table_gets_a_table_from_each_command(server, tmp_path):
    file = write(tmp_path / "in.jsonl", requests(3))
    assert run(server.url, "submit", file, "-o", tmp_path / "s.csv").returncode == 0
    batch = submitted(server.url, file, "--watch")
    assert run(server.url, "results", batch, "-o", tmp_path / "r.csv").returncode == 0
    table = (tmp_path / "r.csv").read_text()
    assert (tmp_path / "s.csv").read_text() == table and table.startswith(
        "custom_id,answer,error,finish_reason\nc0,hello 0,,stop\n")
    assert run(server.url, "submit", file, "-o", tmp_path / "s.csv").returncode == 7


EVIL = "m\x1b]0;title\x07\x1b[2J\u009b2J\u202e"


def test_names_of_others_command_no_terminal(tmp_path, server):
    """What a client wrote into a batch, and what a server of another make answers, is printed with
    its control characters escaped."""
    file = write(tmp_path / "in.jsonl", [
        support.request("c0", "hello", EVIL),
        support.request("c\x1b[2J", "hello", "m"),
        support.request("c\x1b[2J", "hello", "m")])
    (tmp_path / "evil\x1b[2J.jsonl").write_bytes(file.read_bytes())
    url = f"http://127.0.0.1:{server.port}/v1"
    batch = submitted(url, file)
    run(url, "watch", batch)
    told = [
        run(url, "status", batch),
        run(url, "list"),
        run(url, "watch", batch),
        support.quern("run", "-i", tmp_path / "evil\x1b[2J.jsonl", "-o",
                      tmp_path / "out\x1b[2J.jsonl", *ECHO),
        support.quern("preflight", tmp_path / "evil\x1b[2J.jsonl", *ECHO)]
    for done in told:
        text = done.stdout + done.stderr
        assert text.strip() and not set(text) & set("\x1b\x07\u009b\u202e"), text
    assert "Duplicate custom_id" in told[0].stdout and "Duplicate custom_id" in told[3].stderr
    assert "evil\\x1b[2J.jsonl" in told[4].stdout
    with OpenAIServer() as other:
        batch = submitted(other.url, write(tmp_path / "good.jsonl", requests(2)))
        other.running = True
        other.batches[batch][0].update({
            "model": EVIL, "endpoint": EVIL, "input_file_id": EVIL, "output_file_id": EVIL})
        for done in (run(other.url, "status", batch), run(other.url, "list")):
            text = done.stdout + done.stderr
            assert "title" in text and not set(text) & set("\x1b\x07\u009b\u202e"), text
