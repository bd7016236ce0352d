# SPDX-License-Identifier: Apache-2.0
"""quern run, submit and results with files in object storage: s3://BUCKET/KEY."""
import json, os, signal, subprocess

import pytest

import object_storage
import support
from certificate import make_certificate
from object_storage import BUCKET, Hold, half, lost, name
from test_run_parquet import STAND_IN
from test_table_rest import BODIES, Upstream

LINES = support.jsonl([support.request(f"r{i}", f"question {i}") for i in range(5)])
# More than two parts of 8 MiB, there and back.
LARGE = support.jsonl(
    [support.request(f"r{i}", f"question {i} " + "lorem ipsum " * 400) for i in range(4000)])


@pytest.fixture(scope="module")
def running():
    with object_storage.serving() as storage:
        yield storage


@pytest.fixture
def storage(running):
    running.check_signatures(1000)
    for key in running.keys():
        running.mine.delete_object(Bucket=BUCKET, Key=key)
    for upload in running.mine.list_multipart_uploads(Bucket=BUCKET).get("Uploads", []):
        running.mine.abort_multipart_upload(Bucket=BUCKET,
                                            Key=upload["Key"],
                                            UploadId=upload["UploadId"])
    running.check_signatures(0)
    running.answers, running.seen, running.wrong = [], [], 0
    yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    yield from support.server_of_session(tmp_path_factory, "storage", "--model", "smollm2=echo")


def arguments(folder, source, target, *extra):
    return ["run", "-i", source, "-o", target, "--model", "smollm2=echo", "--output-tmp-dir",
            folder, *extra]


def run(storage, folder, source, target, *extra, **environment):
    return support.quern(*arguments(folder, source, target, *extra),
                         env={**storage.environment, **environment})


def ids(data):
    return [json.loads(line)["custom_id"] for line in data.splitlines()]


def kill_at(storage, hold, *words):
    """Runs quern until the hold is reached, and kills it there."""
    binary = os.environ.get("QUERN_BINARY", "quern")
    with subprocess.Popen([binary, *map(str, words)],
                          env=storage.environment,
                          stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE,
                          text=True) as process:
        reached = hold.reached.wait(120)
        process.send_signal(signal.SIGKILL)
        process.wait()
        hold.released.set()
        assert reached, process.stderr.read()


def test_a_run_from_a_bucket_to_a_bucket(storage, tmp_path):
    storage.put("in.jsonl", LINES)
    done = run(storage, tmp_path, name("in.jsonl"), name("out/x.jsonl"), "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["completed"] == 5, done.stderr
    assert ids(storage.get("out/x.jsonl")) == [f"r{i}" for i in range(5)]
    assert not list(tmp_path.iterdir()) and storage.wrong == 0
    again = run(storage, tmp_path, name("in.jsonl"), name("out/x.jsonl"))
    assert again.returncode == 7 and "exists" in again.stderr and "--overwrite" in again.stderr
    assert run(storage, tmp_path, name("in.jsonl"), name("out/x.jsonl"),
               "--overwrite").returncode == 0


def test_a_key_may_have_any_characters(storage, tmp_path):
    key = "a folder//in +%2B&='ä*(b):;,@$!?#~.jsonl"
    storage.check_signatures(1000)  # moto's own check knows none of them
    storage.put(key, LINES)
    done = run(storage, tmp_path, name(key), name("out " + key))
    assert done.returncode == 0 and storage.wrong == 0, done.stderr
    assert ids(storage.get("out " + key)) == [f"r{i}" for i in range(5)]
    assert run(storage, tmp_path, name(key), name("x"),
               AWS_SECRET_ACCESS_KEY="wrong").returncode == 0 and storage.wrong > 0


def test_a_large_file_goes_in_parts_and_is_the_same(storage, tmp_path):
    storage.put("in.jsonl", LARGE)
    done = run(storage, tmp_path, name("in.jsonl"), name("out.jsonl"))
    assert done.returncode == 0, done.stderr
    assert storage.count("PUT", "partNumber=") == 3 and storage.count("POST", "uploads") == 1
    local = tmp_path / "local.jsonl"
    (tmp_path / "in.jsonl").write_bytes(LARGE)
    assert run(storage, tmp_path, tmp_path / "in.jsonl", local).returncode == 0
    there, here = (data.splitlines() for data in (storage.get("out.jsonl"), local.read_bytes()))
    assert ids(b"\n".join(there)) == ids(b"\n".join(here)) == [f"r{i}" for i in range(4000)]


def test_a_killed_upload_sends_the_other_parts_only(storage, tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_bytes(LARGE)
    hold = Hold()
    storage.answers = [("PUT", "partNumber=2", hold)]
    kill_at(storage, hold, *arguments(tmp_path, source, name("out.jsonl")))
    local, = (path for path in tmp_path.glob("quern-*.jsonl"))
    content = local.read_bytes()
    assert local.with_name(local.name + ".upload").exists() and not storage.keys()
    storage.seen = []
    done = run(storage, tmp_path, source, name("out.jsonl"))
    assert done.returncode == 0, done.stderr
    assert storage.get("out.jsonl") == content
    assert [storage.count("PUT", f"partNumber={n}") for n in (1, 2, 3)] == [0, 1, 1]
    assert storage.count("POST", "uploads") == 0
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_a_killed_download_goes_on_where_it_was(storage, tmp_path):
    storage.put("in.jsonl", LARGE)
    hold = Hold(in_answer=True)
    storage.answers = [("GET", "", hold)]
    out = tmp_path / "out.jsonl"
    kill_at(storage, hold, *arguments(tmp_path, name("in.jsonl"), out))
    part, = tmp_path.glob("*.part")
    have = part.stat().st_size
    assert 0 < have < len(LARGE)
    storage.seen = []
    done = run(storage, tmp_path, name("in.jsonl"), out)
    assert done.returncode == 0 and ids(out.read_bytes()) == [f"r{i}"
                                                              for i in range(4000)], done.stderr
    (_, _, headers), = storage.seen
    assert headers["range"] == f"bytes={have - 1}-" and headers["if_match"].startswith('"')
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "out.jsonl", "out.jsonl.manifest.json", "out.jsonl.manifest.salts.json"]


def test_an_object_that_changes_while_it_is_fetched_is_fetched_anew(storage, tmp_path):
    storage.put("in.jsonl", LARGE)
    hold = Hold(in_answer=True)
    storage.answers = [("GET", "", hold)]
    out = tmp_path / "out.jsonl"
    kill_at(storage, hold, *arguments(tmp_path, name("in.jsonl"), out))
    storage.put("in.jsonl", LINES)
    done = run(storage, tmp_path, name("in.jsonl"), out)
    assert done.returncode == 0 and "has changed" in done.stderr, done.stderr
    assert ids(out.read_bytes()) == [f"r{i}" for i in range(5)]


@pytest.mark.slow
def test_passing_troubles_are_asked_again(storage, tmp_path):
    storage.put("in.jsonl", LARGE)
    slow = "<Error><Code>SlowDown</Code><Message>Reduce your rate</Message></Error>"
    inner = "<Error><Code>InternalError</Code><Message>in a good answer</Message></Error>"
    storage.answers = [("GET", "", half), ("PUT", "partNumber=1", (503, slow)),
                       ("PUT", "partNumber=2", lost), ("POST", "uploadId", (200, inner))]
    done = run(storage, tmp_path, name("in.jsonl"), name("out.jsonl"))
    assert done.returncode == 0 and "503 SlowDown" in done.stderr, done.stderr
    assert ids(storage.get("out.jsonl")) == [f"r{i}" for i in range(4000)]
    assert not storage.answers and not list(tmp_path.iterdir())


@pytest.mark.slow
def test_an_end_whose_answer_was_lost_is_found_to_be_done(storage, tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_bytes(LARGE)
    gone = "<Error><Code>NoSuchUpload</Code><Message>no upload</Message></Error>"
    storage.answers = [("POST", "uploadId", lost), ("POST", "uploadId", (404, gone))]
    done = run(storage, tmp_path, source, name("out.jsonl"))
    assert done.returncode == 0, done.stderr
    assert storage.count("PUT", "partNumber=") == 3
    assert ids(storage.get("out.jsonl")) == [f"r{i}" for i in range(4000)]


def test_an_upload_that_the_storage_has_dropped_is_made_anew(storage, tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_bytes(LARGE)
    hold = Hold()
    storage.answers = [("PUT", "partNumber=2", hold)]
    kill_at(storage, hold, *arguments(tmp_path, source, name("out.jsonl")))
    upload, = storage.mine.list_multipart_uploads(Bucket=BUCKET)["Uploads"]
    storage.mine.abort_multipart_upload(Bucket=BUCKET,
                                        Key="out.jsonl",
                                        UploadId=upload["UploadId"])
    storage.seen = []
    done = run(storage, tmp_path, source, name("out.jsonl"))
    assert done.returncode == 0, done.stderr
    assert storage.count("PUT", "partNumber=") == 3
    assert ids(storage.get("out.jsonl")) == [f"r{i}" for i in range(4000)]


@pytest.mark.parametrize("source,environment,status,words", [
    (name("no.jsonl"), {}, 4, ["s3://batches/no.jsonl", "404 NoSuchKey"]),
    ("s3://nowhere/x", {}, 4, ["s3://nowhere/x", "404 NoSuchBucket"]),
    (name("in.jsonl"), {
        "AWS_SECRET_ACCESS_KEY": "wrong"}, 5, ["s3://batches/in.jsonl",
                                               "403 SignatureDoesNotMatch"]),
    (name("in.jsonl"), {
        "AWS_ACCESS_KEY_ID": ""}, 5, ["no credentials", "AWS_ACCESS_KEY_ID"]),
    (name("in.jsonl"), {
        "AWS_ENDPOINT_URL": "ftp://x"}, 3, ["endpoint", "ftp://x"]),
    ("s3://batches/", {}, 2, ["-i", "names no object"]),
    ("s3://batches/a/../b", {}, 2, ["-i", "'..'"]),
])
def test_an_object_that_cannot_be_had_is_named_with_the_reason(storage, tmp_path, source,
                                                               environment, status, words):
    done = run(storage, tmp_path, source, tmp_path / "out.jsonl", **environment)
    assert done.returncode == status, done.stderr
    assert [word for word in words if word not in done.stderr] == [], done.stderr
    assert not list(tmp_path.iterdir())


def test_a_profile_gives_credentials_and_endpoint(storage, tmp_path):
    storage.put("in.jsonl", LINES)
    credentials, config = tmp_path / "credentials", tmp_path / "config"
    credentials.write_text(f"[work]\naws_access_key_id = {storage.key[0]}\n"
                           f"aws_secret_access_key = {storage.key[1]}\n")
    config.write_text(f"[profile work]\nendpoint_url = {storage.url}/\nregion = us-east-1\n")
    out = tmp_path / "out.jsonl"
    done = support.quern(
        *arguments(tmp_path, name("in.jsonl"), out),
        env={
            **{key: value for key, value in os.environ.items() if not key.startswith("AWS_")},
            "AWS_SHARED_CREDENTIALS_FILE": str(credentials), "AWS_CONFIG_FILE": str(config),
            "AWS_PROFILE": "work", "no_proxy": "*"})
    assert done.returncode == 0 and ids(out.read_bytes()) == [f"r{i}"
                                                              for i in range(5)], done.stderr


def test_a_session_token_is_sent_and_signed(storage, tmp_path):
    storage.put("in.jsonl", LINES)
    storage.check_signatures(1000)  # moto knows no such token
    done = run(storage, tmp_path, name("in.jsonl"), tmp_path / "out", AWS_SESSION_TOKEN="t/o+k=n")
    assert done.returncode == 0 and storage.wrong == 0, done.stderr
    assert storage.seen[-1][2]["x_amz_security_token"] == "t/o+k=n"


def test_an_endpoint_is_trusted_by_its_certificate(running, tmp_path):
    certificate, key = make_certificate(tmp_path, "storage")
    with object_storage.Storage((str(certificate), str(key))) as secure:
        secure.key = running.key
        running.check_signatures(1000)  # both are in this process
        running.put("in.jsonl", LINES)
        done = run(secure, tmp_path, name("in.jsonl"), tmp_path / "out")
        assert done.returncode == 6 and "certificate" in done.stderr, done.stderr
        done = run(secure, tmp_path, name("in.jsonl"), tmp_path / "out",
                   AWS_CA_BUNDLE=str(certificate))
        assert done.returncode == 0 and secure.wrong == 0, done.stderr


def test_overwrite_sends_what_could_not_be_sent_and_runs_nothing(storage, tmp_path):
    storage.put("out.jsonl", b"older")
    source = tmp_path / "in.jsonl"
    source.write_bytes(LINES)
    denied = "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
    storage.answers = [("PUT", "", (403, denied))]
    assert run(storage, tmp_path, source, name("out.jsonl"), "--overwrite").returncode == 5
    local, = tmp_path.glob("quern-*.jsonl")
    made = local.stat().st_ino, local.read_bytes()
    storage.answers = [("PUT", "", (403, denied))]
    assert run(storage, tmp_path, source, name("out.jsonl"), "--overwrite").returncode == 5
    assert made == (local.stat().st_ino, local.read_bytes())
    assert run(storage, tmp_path, source, name("out.jsonl"), "--overwrite").returncode == 0
    assert storage.get("out.jsonl") == made[1]


class Kill:
    """The request number `wanted` stops before or in the middle of its answer."""

    def __init__(self, wanted, in_answer):
        self.left, self.hold = wanted, Hold(in_answer)

    def __call__(self, own, start):
        self.left -= 1
        return self.hold(own, start) if self.left == 0 else own()


# A look, a download, the begin of an upload, three parts, and its end.
@pytest.mark.slow
@pytest.mark.parametrize("number,in_answer",
                         support.drawn([(n, half) for n in range(1, 8) for half in (0, 1)], 2))
def test_a_kill_at_any_request_loses_nothing(storage, tmp_path, number, in_answer):
    storage.put("in.jsonl", LARGE)
    kill = Kill(number, in_answer)
    storage.answers = [(method, "", kill) for method in ("GET", "POST", "PUT") for _ in range(9)]
    kill_at(storage, kill.hold, *arguments(tmp_path, name("in.jsonl"), name("out.jsonl")))
    storage.answers = []
    done = run(storage, tmp_path, name("in.jsonl"), name("out.jsonl"))
    assert done.returncode == 0, done.stderr
    assert ids(storage.get("out.jsonl")) == [f"r{i}" for i in range(4000)]
    assert not list(tmp_path.iterdir())


# --- the client's commands ---

def command(storage, server, *words):
    environment = {**storage.environment, "OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": ""}
    return support.quern(*words, env=environment)


def test_submit_from_a_bucket_and_its_results_to_a_bucket(storage, server, tmp_path):
    storage.put("in.jsonl", LINES)
    done = command(storage, server, "submit", name("in.jsonl"), "-o", name("out.jsonl"),
                   "--tmp-dir", tmp_path)
    assert done.returncode == 0 and "sent to s3://batches/out.jsonl" in done.stderr, done.stderr
    assert sorted(ids(storage.get("out.jsonl"))) == [f"r{i}" for i in range(5)]
    assert not list(tmp_path.iterdir())
    again = command(storage, server, "submit", name("in.jsonl"), "-o", name("out.jsonl"),
                    "--tmp-dir", tmp_path)
    assert again.returncode == 7 and again.stdout == "" and "exists" in again.stderr
    table = command(storage, server, "results", done.stdout.strip(), "-o", name("out.csv"))
    assert table.returncode == 3 and "a table" in table.stderr


def test_results_whose_upload_fails_are_sent_by_the_same_command(storage, server, tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_bytes(LINES)
    batch = command(storage, server, "submit", source, "--watch").stdout.strip()
    denied = "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
    storage.answers = [("PUT", "", (403, denied))]
    words = ["results", batch, "-o", name("out.jsonl"), "--tmp-dir", tmp_path]
    done = command(storage, server, *words)
    assert done.returncode == 5 and "403 AccessDenied" in done.stderr, done.stderr
    local, = tmp_path.glob("quern-*.jsonl")
    content = local.read_bytes()
    done = command(storage, server, *words)
    assert done.returncode == 0 and storage.get("out.jsonl") == content, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_a_table_in_a_bucket_is_refused_by_its_own_name(storage, server, tmp_path):
    storage.put("in.csv", b"a,b\n1,2\n")
    done = command(storage, server, "submit", name("in.csv"), "--tmp-dir", tmp_path)
    assert done.returncode == 3 and "s3://batches/in.csv is a table" in done.stderr, done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("source, target", [("in.csv", "out.csv"), ("in.tsv", "out.parquet"),
                                            ("in.parquet", "out.tsv"), ("in.csv", "out.jsonl")])
def test_a_run_from_a_table_to_a_table_in_buckets(storage, tmp_path, source, target):
    """The bytes are those of the same run on local files."""
    rows = [{"id": i, "text": f"row {i}\tä"} for i in range(5)]
    cells = {"csv": "id,text\n" + "".join(f"{row['id']},{row['text']}\n" for row in rows),
             "tsv": "id\ttext\n" + "".join(f"{row['id']}\t\"{row['text']}\"\n" for row in rows),
             "parquet": support.jsonl(rows).decode()}[source.split(".")[1]]
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/quern-parquet").write_text(STAND_IN)
    (tmp_path / "bin/quern-parquet").chmod(0o755)
    (tmp_path / "p.jinja").write_text("{{ id }} {{ text }}")
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    (tmp_path / "here" / source).write_text(cells)
    storage.put(source, cells.encode())
    words = ["--prompt", tmp_path / "p.jinja", "--id", "id"]
    path = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    here = run(storage, tmp_path, tmp_path / "here" / source, tmp_path / "here" / target, *words, **path)
    assert here.returncode == 0, here.stderr
    done = run(storage, tmp_path / "there", name(source), name(target), *words, **path)
    assert done.returncode == 0 and not list((tmp_path / "there").iterdir()), done.stderr
    there, here = storage.get(target), (tmp_path / "here" / target).read_bytes()
    if target.endswith("jsonl"):  # lines have ids of their own
        there, here = ids(there), ids(here)
    assert there == here and b"row 4" in storage.get(target)


def test_what_a_table_in_a_bucket_does_not_show_stands_next_to_it(storage, tmp_path):
    storage.put("in.csv", b"name\nAnn\nBob\n")
    (tmp_path / "p.jinja").write_text("{{ name }}")
    with Upstream(BODIES) as up:
        words = ["run", "-i", name("in.csv"), "-o", name("out.csv"), "--prompt", tmp_path / "p.jinja",
                 "--upstream", f"up={up.site},models=fake", "--output-tmp-dir", tmp_path]
        storage.put("out.csv.rest.jsonl", b"of another\n")
        done = support.quern(*words, env=storage.environment)
        assert done.returncode == 7 and f"{name('out.csv.rest.jsonl')} exists" in done.stderr
        storage.mine.delete_object(Bucket=BUCKET, Key="out.csv.rest.jsonl")
        denied = "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
        storage.answers = [("PUT", "", lambda own, start: own()), ("PUT", "", (403, denied))]
        done = support.quern(*words, env=storage.environment)
        assert done.returncode == 5 and storage.keys() == ["in.csv", "out.csv.rest.jsonl"]
        done = support.quern(*words, env=storage.environment)
        assert done.returncode == 0, done.stderr
    assert b"FIRST" in storage.get("out.csv") and b"SECOND" not in storage.get("out.csv")
    assert ids(storage.get("out.csv.rest.jsonl")) == ["1"]
    assert [path.name for path in tmp_path.iterdir()] == ["p.jinja"]
