# SPDX-License-Identifier: Apache-2.0
"""Manifests of runs: what they say, `quern verify` against every kind of damage, `quern replay` on
a tiny model, and the signature against OpenSSH's own program."""
import hashlib, json, os, pathlib, random, shutil, signal, sqlite3, subprocess, sys

import pytest

import gguf_of, support

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "crash"))
import life

SEED = support.SEED
FAMILY = pathlib.Path(__file__).parents[1] / "engine/families/granite"
LINES = 12


def sum_of(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def lines_of(count):
    """Requests of tokens, for a model without a tokenizer's merges; every third is sampled."""
    rng = random.Random(7)
    return [{
        "custom_id": f"c{i}", "method": "POST", "url": "/v1/completions", "body": {
            "model": "m", "prompt": [rng.randrange(3, 60) for _ in range(8)], "max_tokens": 12,
            "ignore_eos": True, "temperature": 1.5 if i % 3 == 2 else 0}} for i in range(count)]


class Home:
    """A machine of its own: its key, its notes, and a run of a tiny model."""

    def __init__(self, folder):
        self.folder = folder
        self.variables = os.environ | {
            "XDG_STATE_HOME": str(folder / "state"), "XDG_CACHE_HOME": str(folder / "cache")}

    def quern(self, *arguments):
        return support.quern(*arguments, env=self.variables)

    def run(self, folder, *arguments):
        """Runs in.jsonl of the folder; the manifest."""
        done = self.quern("run", "-q", "-i", folder / "in.jsonl", "-o", folder / "out.jsonl",
                          *arguments)
        assert done.returncode == 0, done.stderr
        return json.loads((folder / "out.jsonl.manifest.json").read_text())

    def verify(self, folder, *arguments):
        done = self.quern("verify", folder / "out.jsonl", "--json", *arguments)
        assert done.returncode in (0, 10), done.stderr
        said = json.loads(done.stdout) if done.stdout else None
        assert (done.returncode == 0) == bool(said and said["is_good"])
        return said, done.stderr

    def replay(self, folder, *arguments):
        done = self.quern("replay", folder / "out.jsonl", "--json", *arguments)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return Home(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def made(home):
    """The folder of a finished run: in.jsonl, m.gguf, out.jsonl and its manifest."""
    folder = home.folder / "run"
    folder.mkdir()
    gguf_of.convert(FAMILY, folder / "m.gguf")
    (folder / "in.jsonl").write_bytes(support.jsonl(lines_of(LINES)))
    home.run(folder, "--model", f"m={folder}/m.gguf", "--device", "cpu", "--max-num-seqs", "5")
    return folder


def test_a_manifest_names_all_that_made_the_run(home, made):
    is_ = json.loads((made / "out.jsonl.manifest.json").read_text())
    assert is_["version"] == 2 and is_["requests"]["are_input"] is True
    assert is_["input"]["lines"] == is_["output"]["lines"] == LINES
    assert sorted(is_["output"]) == ["lines", "lines_sha256", "name"]  # test_erase.py has the sums
    assert is_["requests"]["seeds"] == {"greedy_or_seeded": 8, "sampled": 4}
    assert is_["results"] == {"completed": LINES, "failed": 0}
    [by] = is_["computed_by"]
    assert by["quern"]["sha256"] == sum_of(support.BINARY)
    assert by["instructions"] in ("ref", "avx2", "avx512", "avx512-bf16") and by["gpus"] == []
    assert by["settings"] == ["--max-num-seqs", "5", "--device", "cpu"]
    [model] = by["models"]
    assert model["files"] == [{
        "name": "m.gguf", "bytes": (made / "m.gguf").stat().st_size,
        "sha256": sum_of(made / "m.gguf")}]


def test_openssh_checks_the_signature(home, made):
    is_ = json.loads((made / "out.jsonl.manifest.json").read_text())
    (home.folder / "signature").write_text(is_.pop("signature"))
    public = home.quern("key", "public", "--state-dir", home.folder / "state/quern").stdout.strip()
    (home.folder / "allowed").write_text(f"me {public}\n")
    key = home.folder / "state/quern/signing_key"
    assert key.stat().st_mode & 0o777 == 0o600
    if not shutil.which("ssh-keygen"):
        pytest.skip("ssh-keygen is not here; tests/unit/service/proof/test_ssh.c has its bytes")
    plain = json.dumps(is_, indent=2, ensure_ascii=False) + "\n"
    done = subprocess.run(["ssh-keygen", "-Y", "verify", "-f", home.folder / "allowed", "-I", "me",
                           "-n", "quern-manifest", "-s", home.folder / "signature"],
                          input=plain, capture_output=True, text=True)
    assert done.returncode == 0 and "Good" in done.stdout, done.stderr
    assert subprocess.run(["ssh-keygen", "-y", "-f", key], capture_output=True,
                          text=True).stdout.split()[:2] == public.split()


def damage(folder, model, name, rng):
    """Changes one byte of a file."""
    path = model if name == "m.gguf" else folder / name
    content = bytearray(path.read_bytes())
    at = rng.randrange(len(content))
    content[at] ^= rng.randrange(1, 256)
    path.write_bytes(content)
    return f"{name}, byte {at}"


@pytest.mark.parametrize("draw", support.drawn(range(20), least=2))
def test_a_changed_byte_of_any_file_is_found_and_named(home, copy, made, draw):
    """Twenty times ten changes."""
    rng = random.Random(f"{SEED} {draw}")
    print(f"seed {SEED}")
    model = made / "m.gguf"
    keep = {name: (copy / name).read_bytes() for name in (
        "in.jsonl", "out.jsonl", "out.jsonl.manifest.json", "out.jsonl.manifest.salts.json")} | {"m.gguf": model.read_bytes()}
    times = (model.stat().st_atime_ns, model.stat().st_mtime_ns)
    assert home.verify(copy, "--input", copy / "in.jsonl")[0]["is_good"]
    for _ in range(10):
        name = rng.choice(list(keep))
        what = damage(copy, model, name, rng)
        os.utime(model, ns=times)
        said, words = home.verify(copy, "--input", copy / "in.jsonl")
        if name.startswith("out.jsonl.manifest."):
            assert (said["signature_fault"] if said else "manifest" in words), what
        else:
            wrong = [file for file in said["files"] if file["state"] != "good"]
            assert [pathlib.Path(file["path"]).name for file in wrong] == [name], what
            assert wrong[0]["state"] == "differs" and "SHA-256" in wrong[0]["why"]
        (model if name == "m.gguf" else copy / name).write_bytes(keep[name])
        os.utime(model, ns=times)


def test_cut_swapped_and_missing_files_are_found(home, copy):
    arguments = ("--input", copy / "in.jsonl", "--skip-models")
    states = lambda: {
        file["what"]: file["state"] for file in home.verify(copy, *arguments)[0]["files"]}
    content = (copy / "out.jsonl").read_bytes()
    (copy / "out.jsonl").write_bytes(content[:-1])
    assert states() == {"input": "good", "output": "differs"}
    (copy / "out.jsonl").write_bytes(content)
    os.rename(copy / "in.jsonl", copy / "spare")
    assert states() == {"input": "missing", "output": "good"}
    os.rename(copy / "out.jsonl", copy / "in.jsonl")
    os.rename(copy / "spare", copy / "out.jsonl")
    assert states() == {"input": "differs", "output": "differs"}
    os.unlink(copy / "out.jsonl.manifest.json")
    assert home.quern("verify", copy / "out.jsonl").returncode == 4


def test_what_is_no_file_is_called_what_it_is(home, copy):
    """A FIFO in the place of each file, and of the manifest: nothing waits for its writer."""
    os.unlink(copy / "in.jsonl")
    os.mkfifo(copy / "in.jsonl")
    said, _ = home.verify(copy, "--input", copy / "in.jsonl", "--skip-models")
    assert {file["what"]: (file["state"], file["why"]) for file in said["files"]} == {
        "input": ("missing", "it is a FIFO, and no file"), "output": ("good", "")}
    os.mkfifo(copy / "b.jsonl.manifest.json")
    for name, of in (("in.jsonl", "in.jsonl"), ("b.jsonl", "b.jsonl.manifest.json"),
                     ("b.jsonl.manifest.json", "b.jsonl.manifest.json")):
        done = home.quern("verify", copy / name)
        assert done.returncode == 3 and f"{of}: it is a FIFO, and no file" in done.stderr, done
    done = home.quern("verify", copy)
    assert done.returncode == 3 and "it is a folder, and no file" in done.stderr, done


def test_only_a_trusted_signature_counts(home, copy, tmp_path):
    other = Home(tmp_path / "other")
    said, _ = other.verify(copy, "--skip-models")
    assert "no key" in said["signature_fault"] and all(f["state"] == "good" for f in said["files"])
    key = home.quern("key", "public", "--state-dir", home.folder / "state/quern").stdout.strip()
    assert other.verify(copy, "--skip-models", "--public-key", key)[0]["is_good"]
    (tmp_path / "key.pub").write_text(key + " me\n")
    assert other.verify(copy, "--skip-models", "--public-key", tmp_path / "key.pub")[0]["is_good"]
    mine = other.quern("key", "public", "--state-dir", tmp_path / "other/state/quern").stdout
    assert "not a trusted key" in other.verify(copy, "--skip-models")[0]["signature_fault"]
    path = copy / "out.jsonl.manifest.json"
    text = path.read_text()
    path.write_text(text[:text.index(',\n  "signature"')] + "\n}\n")
    assert "not signed" in home.verify(copy)[0]["signature_fault"]
    done = home.quern("replay", copy / "out.jsonl")
    assert done.returncode == 3 and "not signed" in done.stderr, done.stderr
    assert mine.startswith("ssh-ed25519 ") and "--public-key" in other.quern(
        "verify", copy / "out.jsonl", "--public-key", "nonsense").stderr


def test_every_greedy_line_computed_again_is_bit_equal(home, made):
    status, said = home.replay(made, "--lines", str(LINES))
    by_kind = {kind: [line["match"] for line in said["compared"] if line["is_sampled"] == kind]
               for kind in (False, True)}
    assert by_kind[False] == ["bit_equal"] * 8 and said["reasons"] == [], said
    assert said["unexplained"] == 0 and len(by_kind[True]) == 4
    assert status == (0 if said["bit_equal"] == LINES else 1)


def test_what_differs_is_the_reason_that_is_given(home, made, tmp_path):
    """Another model in the place of the run's, and other instructions."""
    gguf_of.convert(FAMILY.parent / "seed_oss", tmp_path / "other.gguf")
    _, said = home.replay(made, "--lines", "3", "--model", f"m={tmp_path}/other.gguf")
    assert said["different"] >= 2 and said["unexplained"] == 0
    assert any("another model: m" in reason for reason in said["reasons"]), said
    folder = tmp_path / "ref"
    folder.mkdir()
    shutil.copy(made / "in.jsonl", folder)
    by = home.run(folder, "--model", f"m={made}/m.gguf", "--reference")["computed_by"][0]
    assert (by["instructions"], by["settings"]) == ("ref", ["--reference"])
    status, said = home.replay(folder, "--lines", "4")
    assert (status, said["bit_equal"], said["reasons"]) == (0, 4, []), said


def test_a_run_that_goes_on_names_each_program_that_computed(home, tmp_path):
    (tmp_path / "in.jsonl").write_bytes(
        support.jsonl([line | {"body": line["body"] | {"echo": {"each_ms": 20}}}
                       for line in life.echo_lines(60)]))
    command = [support.BINARY, "run", "-q", "-i", tmp_path / "in.jsonl", "-o",
               tmp_path / "out.jsonl", "--model", "smollm2=echo"]
    process = subprocess.Popen([*command, "--max-num-seqs", "2"], env=home.variables,
                               stderr=subprocess.DEVNULL)
    notes = tmp_path / "out.jsonl.quern/computed_by.jsonl"
    support.until(lambda: notes.exists() and notes.stat().st_size > 0)
    process.send_signal(signal.SIGKILL)
    process.wait()
    is_ = home.run(tmp_path, "--model", "smollm2=echo")
    assert [by["settings"] for by in is_["computed_by"]] == [["--max-num-seqs", "2"], []]
    assert home.verify(tmp_path)[0]["is_good"]


def test_where_a_manifest_cannot_be_the_results_are_good_all_the_same(home, tmp_path):
    (tmp_path / "in.jsonl").write_bytes(support.jsonl(life.echo_lines(3)))
    (tmp_path / "out.jsonl.manifest.json").write_text("mine")
    arguments = ("run", "-q", "-i", tmp_path / "in.jsonl", "--model", "smollm2=echo", "-o")
    done = home.quern(*arguments, tmp_path / "out.jsonl")
    assert done.returncode == 0 and "no_manifest" in done.stderr
    assert (tmp_path / "out.jsonl.manifest.json").read_text() == "mine"
    done = home.quern(*arguments, tmp_path / "b.jsonl", "--signing-key", tmp_path / "in.jsonl")
    assert done.returncode == 0 and "manifest_not_signed" in done.stderr
    assert "signature" not in json.loads((tmp_path / "b.jsonl.manifest.json").read_text())
    assert home.quern(*arguments, tmp_path / "c.jsonl", "--manifest", "").returncode == 0
    assert not (tmp_path / "c.jsonl.manifest.json").exists()


def authorized(key):
    return {"Authorization": f"Bearer {key}"}


def fetched(server, batch, folder, headers=None):
    """The manifest, its salts and the files that it names, in a folder, as a client keeps them."""
    path = f"/v1/batches/{batch['id']}/manifest"
    status, text = server.call("GET", path, headers=headers)
    assert status == 200, text
    is_ = json.loads(text)
    folder.mkdir()
    (folder / "b.manifest.json").write_bytes(text)
    if is_["version"] == 2:
        (folder / "b.manifest.salts.json").write_bytes(
            server.call("GET", f"{path}/salts", headers=headers)[1])
    for name, id_ in (("input", batch["input_file_id"]), ("output", batch["output_file_id"]),
                      ("errors", batch["error_file_id"])):
        assert (name in is_) == bool(id_)
        if id_:
            content = server.call("GET", f"/v1/files/{id_}/content", headers=headers)[1]
            (folder / is_[name]["name"]).write_bytes(content)
    return is_


def verified(home, folder, public, *arguments):
    """What `quern verify` says of a batch that was fetched into the folder."""
    done = home.quern("verify", folder / "b.manifest.json", "--json", "--public-key", public,
                      *arguments)
    said = json.loads(done.stdout) if done.stdout else None
    assert (done.returncode == 0) == bool(said and said["is_good"]), done
    return said, done.stderr


def ended(server, lines, endpoint="/v1/completions"):
    """A batch of these lines that has ended and has a manifest."""
    file = server.upload(support.jsonl(lines))
    batch = server.wait(server.json("POST", "/v1/batches", {
        "input_file_id": file["id"], "endpoint": endpoint, "completion_window": "24h"})["id"])
    support.until(lambda: server.call("GET", f"/v1/batches/{batch['id']}/manifest")[0] == 200)
    return batch


def test_a_batch_has_a_manifest_that_verifies(home, made, tmp_path):
    lines = lines_of(4)
    lines[1]["body"]["max_tokens"] = 100000  # too many for the model: a failed line
    model = f"m={made}/m.gguf"
    with support.serving(tmp_path / "state", "--model", model, "--device", "cpu") as server:
        batch = ended(server, lines)
        is_ = fetched(server, batch, tmp_path / "kept")
        text = (tmp_path / "kept/b.manifest.json").read_bytes()
        salts = (tmp_path / "kept/b.manifest.salts.json").read_bytes()
    assert is_["results"] == {"completed": 3, "failed": 1} and is_["batch"]["id"] == batch["id"]
    assert is_["version"] == 2 and is_["requests"] == {"are_input": True}
    assert [(name, sorted(is_[name]), is_[name]["lines"]) for name in ("input", "output", "errors")
           ] == [(name, ["lines", "lines_sha256", "name"], count)
                 for name, count in (("input", 4), ("output", 3), ("errors", 1))]
    [by] = is_["computed_by"]
    assert by["settings"] == ["--device", "cpu"]
    assert by["models"][0]["files"][0] == {
        "name": "m.gguf", "bytes": (made / "m.gguf").stat().st_size, "sha256": sum_of(made / "m.gguf")}
    public = home.quern("key", "public", "--state-dir", tmp_path / "state").stdout.strip()
    said, _ = verified(home, tmp_path / "kept", public)
    assert [file["what"] for file in said["files"]] == ["input", "output", "errors", "model"]
    done = home.quern("replay", tmp_path / "kept/b.manifest.json", "--json", "--lines", "1",
                      "--public-key", public)
    assert json.loads(done.stdout)["bit_equal"] == 1, done.stdout
    for id_ in ("c0", "c1"):  # an answer, and a failed line
        done = home.quern("log", tmp_path / "kept/b.manifest.json", "--custom-id", id_,
                          "--public-key", public)
        assert done.returncode == 0 and "In short:\n  verified: " in done.stdout, done
    with support.serving(tmp_path / "state", "--model", model, "--device", "cpu") as server:
        path = f"/v1/batches/{batch['id']}/manifest"
        assert (server.call("GET", path), server.call("GET", f"{path}/salts")) == (
            (200, text), (200, salts)), "the same bytes after a restart"
        assert len((tmp_path / "state/computed_by.jsonl").read_text().split()) == 2, \
            "one record without its sums, one with them, and none of the same server again"


def leaves_of(root, content):
    """The leaves of a file by ADR 32, in Python: SHA-256(salt, line), with the salts of one root."""
    leaves = []
    for number, line in enumerate(content.splitlines(keepends=True)):
        salt = root
        for level in range(31, -1, -1):
            salt = hashlib.sha256(salt + bytes([number >> level & 1])).digest()
        leaves.append(hashlib.sha256(salt + line).hexdigest())
    return leaves


def test_a_batchs_sums_are_salted_anew_and_are_those_of_its_lines(tmp_path):
    """Two batches of one input: each file has a root of its own, with which its lines, empty ones
    as well, have the sum of the manifest; and no sum of a whole file is told."""
    content = b"\n" + support.jsonl(life.echo_lines(5)) + b" \n"
    roots, sums = set(), set()
    with support.serving(tmp_path / "state", "--model", "smollm2=echo") as server:
        file = server.upload(content)
        for name in "ab":
            batch = server.wait(server.json("POST", "/v1/batches", {
                "input_file_id": file["id"], "endpoint": "/v1/chat/completions",
                "completion_window": "24h"})["id"])
            support.until(
                lambda: server.call("GET", f"/v1/batches/{batch['id']}/manifest")[0] == 200)
            is_ = fetched(server, batch, tmp_path / name)
            salts = json.loads((tmp_path / name / "b.manifest.salts.json").read_text())
            assert salts["manifest_sha256"] == sum_of(tmp_path / name / "b.manifest.json")
            assert list(salts["salts"]) == ["input", "output"] and salts["erasures"] == []
            for what, [node] in salts["salts"].items():
                level, index, root = node.split()
                assert (level, index) == ("0", "0")
                bytes_ = (tmp_path / name / is_[what]["name"]).read_bytes()
                leaves = leaves_of(bytes.fromhex(root), bytes_)
                assert is_[what]["lines"] == len(leaves) == (7 if what == "input" else 5)
                assert is_[what]["lines_sha256"] == hashlib.sha256(
                    "".join(f"{leaf}\n" for leaf in leaves).encode()).hexdigest()
                assert hashlib.sha256(bytes_).hexdigest() not in json.dumps([is_, salts])
                roots.add(root)
                sums.add(is_[what]["lines_sha256"])
    assert len(roots) == len(sums) == 4


@pytest.mark.parametrize("draw", support.drawn(range(10), least=1))
def test_a_changed_byte_of_any_file_of_a_batch_is_found_and_named(home, tmp_path, draw):
    """Ten times ten changes of input, results, manifest and salts."""
    rng = random.Random(f"{SEED} {draw}")
    print(f"seed {SEED}")
    lines = life.echo_lines(rng.randrange(1, 30))
    lines[0]["body"]["echo"] = {"status": 400}
    with support.serving(tmp_path / "state", "--model", "smollm2=echo") as server:
        batch = ended(server, lines, "/v1/chat/completions")
        is_ = fetched(server, batch, tmp_path / "kept")
    public = home.quern("key", "public", "--state-dir", tmp_path / "state").stdout.strip()
    folder = tmp_path / "kept"
    keep = {path.name: path.read_bytes() for path in folder.iterdir()}
    what_of = {is_[what]["name"]: what for what in ("input", "output", "errors") if what in is_}
    assert set(keep) == {"b.manifest.json", "b.manifest.salts.json", *what_of}
    assert verified(home, folder, public)[0]["is_good"]
    for _ in range(10):
        name = rng.choice(sorted(keep))
        what = damage(folder, None, name, rng)
        said, words = verified(home, folder, public)
        if name.startswith("b.manifest."):
            assert (said["signature_fault"] if said else "manifest" in words), what
        else:
            wrong = [file for file in said["files"] if file["state"] != "good"]
            assert [(file["what"], file["state"]) for file in wrong] == [(what_of[name], "differs")]
        (folder / name).write_bytes(keep[name])


def test_a_batch_that_ended_before_sums_over_lines_keeps_its_manifest_of_version_1(
        home, tmp_path):
    """Its rows of sums are taken away, as they are missing in a state of an older quern."""
    state = tmp_path / "state"
    with support.serving(state, "--model", "smollm2=echo") as server:
        batch = ended(server, life.echo_lines(3), "/v1/chat/completions")
    with sqlite3.connect(state / "meta.db") as database:
        assert database.execute("DELETE FROM proofs").rowcount == 2
    database.close()
    public = home.quern("key", "public", "--state-dir", state).stdout.strip()
    with support.serving(state, "--model", "smollm2=echo") as server:
        is_ = fetched(server, batch, tmp_path / "kept")
        status, body = server.call("GET", f"/v1/batches/{batch['id']}/manifest/salts")
        assert status == 404 and b"version 1" in body, body
    assert is_["version"] == 1 and is_["requests"] == is_["input"]
    for what, id_ in (("input", batch["input_file_id"]), ("output", batch["output_file_id"])):
        content = (tmp_path / "kept" / is_[what]["name"]).read_bytes()
        assert is_[what] == {"name": is_[what]["name"], "id": id_, "bytes": len(content),
                             "sha256": hashlib.sha256(content).hexdigest()}
    assert verified(home, tmp_path / "kept", public)[0]["is_good"]
    (tmp_path / "kept" / is_["output"]["name"]).write_bytes(content[:-1] + b" ")
    said, _ = verified(home, tmp_path / "kept", public)
    assert {file["what"]: file["state"] for file in said["files"]} == {
        "input": "good", "output": "differs"}


def test_an_input_that_has_rotted_proves_nothing_anew(tmp_path):
    """A byte of a line that was answered already changes on the disk before the batch ends: the
    manifest says what was uploaded, as before there were sums over lines."""
    clock = support.Clock(tmp_path)
    content = support.jsonl(life.held_lines(3, 1))
    with support.serving(tmp_path / "state", "--model", "smollm2=echo",
                         environment=clock.environment) as server:
        batch = server.create(content)
        support.until(lambda: server.batch(batch["id"])["request_counts"]["completed"] == 1)
        (file,) = (tmp_path / "state").glob(f"files/*/{batch['input_file_id']}")
        file.chmod(0o600)
        file.write_bytes(b" " + content[1:])
        clock.until(lambda: server.batch(batch["id"])["status"] == "completed", 70)
        path = f"/v1/batches/{batch['id']}/manifest"
        support.until(lambda: server.call("GET", path)[0] == 200)
        is_ = json.loads(server.call("GET", path)[1])
        assert is_["version"] == 1
        assert is_["input"]["sha256"] == hashlib.sha256(content).hexdigest()
        assert server.call("GET", f"{path}/salts")[0] == 404
        assert "event=no_proofs" in server.log_text()


def test_a_deleted_files_salts_go_with_it_and_the_manifest_stays(home, tmp_path):
    state = tmp_path / "state"
    with support.serving(state, "--model", "smollm2=echo") as server:
        batch = ended(server, life.echo_lines(3), "/v1/chat/completions")
        is_ = fetched(server, batch, tmp_path / "kept")
        path = f"/v1/batches/{batch['id']}/manifest"
        status, body = server.call("DELETE", f"/v1/files/{batch['output_file_id']}")
        assert status == 200, body
    with support.serving(state, "--model", "smollm2=echo") as server:  # a start sweeps
        salts = lambda: json.loads(server.call("GET", f"{path}/salts")[1])["salts"]
        support.until(lambda: salts()["output"] == [])
        text = (tmp_path / "kept/b.manifest.json").read_bytes()
        assert len(salts()["input"]) == 1 and server.call("GET", path) == (200, text)
        (tmp_path / "kept/b.manifest.salts.json").write_bytes(
            server.call("GET", f"{path}/salts")[1])
    public = home.quern("key", "public", "--state-dir", state).stdout.strip()
    said, _ = verified(home, tmp_path / "kept", public)
    assert {file["what"]: (file["state"], file["why"]) for file in said["files"]} == {
        "input": ("good", ""),
        "output": ("unknown", "the server deleted the file, and its salts with it")}
    assert support.quern("fsck", "--state-dir", state).returncode == 0


def test_a_manifest_is_its_owners_and_of_a_batch_that_has_ended(tmp_path):
    state = tmp_path / "state"
    keys = {owner: support.make_key(state, "--owner", owner) for owner in "ab"}
    clock = support.Clock(tmp_path)
    with support.serving(state, "--model", "smollm2=echo",
                         environment=clock.environment) as server:
        mine, other = authorized(keys["a"]), authorized(keys["b"])
        form = (b'--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--x\r\n'
                b'Content-Disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n' +
                support.jsonl(life.held_lines(3, 1)) + b"\r\n--x--\r\n")
        file = json.loads(server.call("POST", "/v1/files", form, "multipart/form-data; boundary=x",
                                      headers=mine)[1])
        batch = json.loads(server.call("POST", "/v1/batches", {
            "input_file_id": file["id"], "endpoint": "/v1/chat/completions",
            "completion_window": "24h"}, headers=mine)[1])
        path = f"/v1/batches/{batch['id']}/manifest"
        status, body = server.call("GET", path, headers=mine)
        assert status == 409 and b"has not ended" in body, body
        assert server.call("GET", f"{path}/salts", headers=mine)[0] == 409
        for each in (path, f"{path}/salts"):
            assert server.call("GET", each)[0] == 401
            assert server.call("GET", each, headers=other)[0] == 404
        status, body = server.call("POST", f"/v1/batches/{batch['id']}/cancel", {}, headers=mine)
        assert status == 200, body
        support.until(lambda: server.call("GET", path, headers=mine)[0] == 200)
        for each in (path, f"{path}/salts"):
            assert server.call("GET", each, headers=other)[0] == 404
        status, body = server.call("GET", path, headers=mine)
        assert json.loads(body)["batch"]["status"] == "cancelled"


def test_a_batch_that_two_servers_computed_names_both(tmp_path):
    state, clock = tmp_path / "state", support.Clock(tmp_path)
    with support.serving(state, "--model", "smollm2=echo", "--max-num-seqs", "2",
                         environment=clock.environment) as server:
        batch = server.create(support.jsonl(life.held_lines(3, 1)))
        support.until(lambda: server.batch(batch["id"])["request_counts"]["completed"] == 1)
        server.kill()
    clock.move(5)
    with support.serving(state, "--model", "smollm2=echo", environment=clock.environment) as server:
        clock.until(lambda: server.batch(batch["id"])["status"] == "completed", 70)
        is_ = json.loads(server.call("GET", f"/v1/batches/{batch['id']}/manifest")[1])
        salts = json.loads(server.call("GET", f"/v1/batches/{batch['id']}/manifest/salts")[1])
        done = support.quern("backup", tmp_path / "kept", "--state-dir", state)
        assert done.returncode == 0, done.stderr
    assert [by["settings"] for by in is_["computed_by"]] == [["--max-num-seqs", "2"], []]
    done = support.quern("restore", tmp_path / "kept", "--state-dir", tmp_path / "restored")
    assert done.returncode == 0, done.stderr
    with support.serving(tmp_path / "restored", "--model", "smollm2=echo") as server:
        again = json.loads(server.call("GET", f"/v1/batches/{batch['id']}/manifest")[1])
        kept = json.loads(server.call("GET", f"/v1/batches/{batch['id']}/manifest/salts")[1])
    # The key is in no backup.
    assert again.pop("signature") != is_.pop("signature") and again == is_
    assert kept["manifest_sha256"] != salts["manifest_sha256"] and kept["salts"] == salts["salts"]
