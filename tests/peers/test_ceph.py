# SPDX-License-Identifier: Apache-2.0
"""s3:// against the S3 gateway of Ceph, a real server beside the imitation of test_object_storage:
Debian's packages ceph-mon, ceph-osd, ceph-common and radosgw."""
import json, os, random, subprocess

import pytest

import ceph
import support

BUCKET = "batches"
SEED = int(os.environ.get("QUERN_SEED") or random.randrange(1 << 32))

pytestmark = pytest.mark.skipif(not ceph.is_installed(), reason="Ceph is not installed")


def lines(count, words):
    return support.jsonl(
        [support.request(f"r{i}", f"question {i} " + "lorem ipsum " * words) for i in range(count)])


def ids(data):
    return [json.loads(line)["custom_id"] for line in data.splitlines()]


@pytest.fixture(scope="module")
def storage(tmp_path_factory):
    with ceph.serving(tmp_path_factory.mktemp("ceph")) as gateway:
        gateway.mine = gateway.client()
        gateway.mine.create_bucket(Bucket=BUCKET)
        yield gateway


def name(key):
    return f"s3://{BUCKET}/{key}"


def put(storage, key, data):
    storage.mine.put_object(Bucket=BUCKET, Key=key, Body=data)


def get(storage, key):
    return storage.mine.get_object(Bucket=BUCKET, Key=key)["Body"].read()


def arguments(folder, source, target, *extra):
    return ["run", "-i", source, "-o", target, "--model", "smollm2=echo", "--output-tmp-dir",
            folder, *extra]


def run(storage, folder, source, target, *extra, **environment):
    return support.quern(*arguments(folder, source, target, *extra),
                         env={**storage.environment, **environment})


@pytest.mark.parametrize("key", ["in.jsonl", "a folder//in +%2B&='ä*(b):;,@$!?#~.jsonl"])
def test_a_run_from_a_bucket_to_a_bucket_under_any_name(storage, tmp_path, key):
    put(storage, key, lines(5, 1))
    done = run(storage, tmp_path, name(key), name("out/" + key))
    assert done.returncode == 0, done.stderr
    assert ids(get(storage, "out/" + key)) == [f"r{i}" for i in range(5)]
    again = run(storage, tmp_path, name(key), name("out/" + key))
    assert again.returncode == 7 and "exists" in again.stderr, again.stderr
    assert run(storage, tmp_path, name(key), name("out/" + key), "--overwrite").returncode == 0


def test_a_run_killed_at_random_moments_leaves_one_whole_object(storage, tmp_path):
    draw = random.Random(SEED)
    put(storage, "large.jsonl", lines(4000, 400))
    words = arguments(tmp_path, name("large.jsonl"), name("killed.jsonl"))
    kills = 0
    while kills < 12:
        with subprocess.Popen([support.BINARY, *map(str, words)],
                              env=storage.environment,
                              stderr=subprocess.PIPE,
                              text=True) as process:
            try:
                process.communicate(timeout=draw.uniform(0.02, 2.5))
                break
            except subprocess.TimeoutExpired:
                process.kill()
                kills += 1
    done = run(storage, tmp_path, name("large.jsonl"), name("killed.jsonl"))
    assert done.returncode in (0, 7), f"seed {SEED}: {done.stderr}"
    assert ids(get(storage, "killed.jsonl")) == [f"r{i}" for i in range(4000)], f"seed {SEED}"
    # A kill between the begin of an upload and the note of its id leaves it to the lifecycle rule.
    left = storage.mine.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
    assert len(left) <= kills, f"seed {SEED}"
    assert not list(tmp_path.iterdir()), f"seed {SEED}"


@pytest.mark.parametrize("source,environment,status,words", [
    (name("no.jsonl"), {}, 4, "404 NoSuchKey"),
    ("s3://nowhere/x", {}, 4, "404 NoSuchBucket"),
    (name("no.jsonl"), {
        "AWS_SECRET_ACCESS_KEY": "wrong"}, 5, "403 SignatureDoesNotMatch"),
    (name("no.jsonl"), {
        "AWS_ACCESS_KEY_ID": "nobody"}, 5, "403 InvalidAccessKeyId"),
])
def test_what_cannot_be_had_is_named_with_the_reason(storage, tmp_path, source, environment,
                                                     status, words):
    done = run(storage, tmp_path, source, tmp_path / "out.jsonl", **environment)
    assert done.returncode == status and words in done.stderr, done.stderr


def test_submit_from_a_bucket_and_its_results_to_a_bucket(storage, tmp_path, tmp_path_factory):
    put(storage, "in.jsonl", lines(5, 1))
    for server in support.server_of_session(tmp_path_factory, "ceph", "--model", "smollm2=echo"):
        environment = {
            **storage.environment, "OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": ""}
        done = support.quern("submit", name("in.jsonl"), "-o", name("results.jsonl"), "--tmp-dir",
                             tmp_path, env=environment)
        assert done.returncode == 0, done.stderr
    assert sorted(ids(get(storage, "results.jsonl"))) == [f"r{i}" for i in range(5)]


def test_a_standby_goes_on_from_the_copy_of_a_killed_server(storage, tmp_path):
    copied = ("--model", "m=echo", "--copy-to", name("copy/one"))
    one = support.Server(tmp_path / "one", *copied, environment=storage.environment).start()
    batch = one.create(support.jsonl(
        [support.request(f"r{i}", f"question {i}", "m") for i in range(200)]))["id"]
    one.wait(batch)
    one.kill()
    two = support.Server(tmp_path / "two", *copied, "--standby", "--standby-seconds", "10",
                         environment=storage.environment).start()
    try:
        lines, errors = two.results(two.batch(batch))
        assert sorted(line["custom_id"] for line in lines) == sorted(f"r{i}" for i in range(200))
        assert not errors
    finally:
        two.kill()
    support.fsck(tmp_path / "two")
