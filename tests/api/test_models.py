# SPDX-License-Identifier: Apache-2.0
"""`quern models`: what is there and what it takes, whether it is whole, and what is added; `--pull`
of the commands that run models."""
import hashlib, json, os, pathlib

import pytest

import hub as fake
import support


@pytest.fixture(scope="module")
def hub():
    hub = fake.Hub()
    folder = pathlib.Path(os.environ.get("XDG_CACHE_HOME")
                          or pathlib.Path.home() / ".cache") / "quern/models"
    hub.repositories["org/smol-GGUF"] = {
        "smol-Q4_1.gguf": (folder / "SmolLM2-135M-Instruct.Q4_1.gguf").read_bytes()}
    yield hub
    hub.close()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def quern(hub, home):
    return fake.Puller(hub, home)


@pytest.fixture(scope="module")
def served(hub, quern, home):
    """A model that a server has pulled at its start, and what that server told."""
    arguments = ("--model", "smol=org/smol-GGUF:Q4_1", "--max-model-len", "512")
    refused = quern("serve", *arguments, "--port", "0", "--state-dir", home / "none")
    assert refused.returncode == 4 and "quern pull" in refused.stderr
    with support.serving(home / "state", *arguments, "--pull",
                         environment=quern.environment) as server:
        names = {m["id"] for m in server.json("GET", "/v1/models")["data"]}
        answer = server.json("POST", "/v1/completions",
                             {"model": "smol", "prompt": "Once", "max_tokens": 2, "temperature": 0})
    blob, = (home / "huggingface/hub/models--org--smol-GGUF/blobs").iterdir()
    return names, answer, blob


def listed(quern, *arguments):
    done = quern("models", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_server_pulls_what_is_missing_and_serves_it(served, hub, quern, tmp_path):
    names, answer, _ = served
    assert "smol" in names and answer["usage"]["completion_tokens"] == 2
    assert hub.sent["smol-Q4_1.gguf"] == len(hub.repositories["org/smol-GGUF"]["smol-Q4_1.gguf"])
    sent = hub.sent.total()
    done = quern("run", "-i", "/dev/null", "-o", tmp_path / "out", "--model", "org/nothing",
                 "--pull")
    assert done.returncode == 4 and "no model org/nothing" in done.stderr
    assert hub.sent.total() == sent


def test_the_list_tells_what_a_model_is_and_takes(served, quern):
    [model] = [model for model in listed(quern) if model["model"] == "org/smol-GGUF:Q4_1"]
    assert model["source"] == "huggingface" and model["servable"]
    assert (model["family"], model["context"], model["kv_bytes_per_token"]) == ("llama", 8192,
                                                                                2 * 2 * 30 * 3 * 64)
    assert model["fits"] == (model["sequences"] > 0)
    assert model["sequences"] == max(
        0, model["memory_free_bytes"] -
        model["memory_needed_bytes"]) // (8192 * model["kv_bytes_per_token"])
    text = quern("models").stdout
    assert "org/smol-GGUF:Q4_1" in text and "llama" in text and "23040" in text


def test_a_model_is_inspected_by_name_and_by_path(served, quern):
    [by_name] = listed(quern, "inspect", "org/smol-GGUF", "--max-model-len", "100")
    [by_path] = listed(quern, "inspect", str(served[2]), "--max-model-len", "1000000")
    assert by_name["sequence_tokens"] == 100 and by_path["sequence_tokens"] == 8192
    for key in ("parameters", "vocabulary", "layers", "types", "licence", "chat_template", "path",
                "bytes"):
        assert by_name[key] == by_path[key], key
    assert by_name["parameters"] == 134515008 and by_name["vocabulary"] == 49152 and by_name[
        "chat_template"]
    assert max(by_name["types"], key=by_name["types"].get) == "Q4_1"
    page = quern("models", "inspect", "org/smol-GGUF").stdout
    assert "134.5 M" in page and "apache-2.0" in page and "servable     yes" in page
    [card] = listed(quern, "inspect", "org/smol-GGUF", "--device-memory-mib", "1600",
                    "--max-model-len", "4096")
    forms = card["card"]["forms"]
    assert [f"{form['weights']}/{form['kv']}" for form in forms] == [
        "bfloat16/bfloat16", "int8/bfloat16", "file/bfloat16", "bfloat16/fp8", "int8/fp8",
        "fp8/fp8", "file/fp8"]
    plain, weights8, as_filed, kv8, both8, fp8, _ = forms
    assert as_filed["weight_bytes"] < weights8["weight_bytes"] == both8["weight_bytes"] == fp8[
        "weight_bytes"]
    assert weights8["kv_bytes_per_token"] == plain["kv_bytes_per_token"] and plain[
        "sequences"] < weights8["sequences"]
    assert plain["weight_bytes"] == pytest.approx(2 * 134515008,
                                                  rel=0.03) and plain["kv_bytes_per_token"] == 23040
    assert plain["fits"] and 0 < plain["sequences"] < kv8["sequences"] <= both8["sequences"]
    assert all(form["used_bytes"] <= 1600 << 20 for form in forms)
    assert card["card"]["auto"] == "bfloat16"  # a seventh of the memory is weights in bf16
    [unasked] = listed(quern, "inspect", "org/smol-GGUF", "--device-memory-mib", "1600")
    assert unasked["sequence_tokens"] == 8192 and unasked["card"][
        "forms"] == forms  # what an engine needs room for, not the whole context
    together = ["inspect", "org/smol-GGUF", "--device-memory-mib", "1600", "--tensor-parallel-size"]
    [three] = listed(quern, *together, "3")
    assert three["card"]["tensor_parallel_size"] == 3 and unasked["card"][
        "tensor_parallel_size"] == 1
    shared = three["card"]["forms"][0]
    # A third of each layer, and all of the embedding, 49,152 rows of 576.
    assert shared["fits"] and shared["weight_bytes"] == pytest.approx(
        (plain["weight_bytes"] - 49152 * 576 * 2) / 3 + 49152 * 576 * 2, rel=0.03)
    assert 3 * shared["kv_bytes_per_token"] == plain["kv_bytes_per_token"]
    page = quern("models", *together, "2").stdout
    assert "2  GPUs      1600 MiB each" in page
    assert "--tensor-parallel-size 2: the model's 9 heads do not divide by it" in page
    refused = quern("models", "list", "--tensor-parallel-size", "2")
    assert refused.returncode == 2 and "goes with inspect" in refused.stderr
    page = quern("models", "inspect", "org/smol-GGUF", "--device-memory-mib", "700").stdout
    assert "GPU          700 MiB, of which the driver takes 608" in page and "it does not fit" in page
    assert quern("models", "inspect", "nowhere").returncode == 4
    assert quern("models", "inspect", "/etc/hostname").returncode == 3


def test_a_list_tells_how_models_fit_the_card(served, quern, tmp_path):
    def row(*arguments, **variables):
        done = quern("models", "list", "--max-model-len", "4096", *arguments, **variables)
        assert done.returncode == 0, done.stderr
        head, *lines = done.stdout.splitlines()
        return head, next(line for line in lines if line.startswith("org/smol"))

    assert "on the GPU" not in row()[0]
    head, line = row("--device-memory-mib", "1600")
    [card] = [
        model["card"]
        for model in listed(quern, "list", "--device-memory-mib", "1600", "--max-model-len", "4096")
        if model["model"].startswith("org/smol")]
    assert line[head.index("on the GPU"):].startswith(
        f"bfloat16/bfloat16 {card['forms'][0]['sequences']} ")
    head, line = row("--device-memory-mib", "700")
    assert line[head.index("on the GPU"):].startswith("too large ")
    # A GPU of this machine, of which an engine takes nine tenths.
    (tmp_path / "nvml").write_text(f"memory_total {2000 << 20}\n")
    fake = {
        "LD_LIBRARY_PATH": str(pathlib.Path(support.BINARY).resolve().parent.parent / "tests/nvml"),
        "QUERN_FAKE_NVML": str(tmp_path / "nvml")}
    # Not the whole line: the memory that is free for the CPU, and so its sequences, may change from
    # call to call.
    told = [
        line[head.index("on the GPU"):]
        for head, line in (row(**fake), row("--device-memory-mib", "1800"))]
    assert told[0] == told[1]
    assert "GPU          1800 MiB" in quern("models", "inspect", "org/smol-GGUF", **fake).stdout


def test_a_model_of_no_known_family_is_shown_and_not_served(quern, home, tmp_path):
    def text(value):
        return len(value).to_bytes(8, "little") + value

    number = lambda key, value: text(b"mamba9." + key) + (4).to_bytes(4, "little") + value.to_bytes(
        4, "little")
    strange = tmp_path / "strange.gguf"
    strange.write_bytes(b"GGUF" + (3).to_bytes(4, "little") + (0).to_bytes(8, "little") +
                        (4).to_bytes(8, "little") + text(b"general.architecture") +
                        (8).to_bytes(4, "little") + text(b"mamba9") + number(b"block_count", 4) +
                        number(b"embedding_length", 64) + number(b"context_length", 2048) +
                        b"\0" * 64)
    [model] = listed(quern, "inspect", str(strange))
    assert (model["family"], model["layers"], model["context"], model["servable"]) == ("mamba9", 4,
                                                                                       2048, False)
    assert model["reason"]


def test_a_damaged_file_is_found(served, hub, quern):
    blob = served[2]
    good = blob.read_bytes()
    done = quern("models", "verify", "org/smol-GGUF:Q4_1")
    assert done.returncode == 0 and done.stdout.split() == ["good", str(blob)]
    try:
        with open(blob, "r+b") as file:
            file.seek(len(good) // 2)
            file.write(b"damage")
        done = quern("models", "verify", "org/smol-GGUF")
        assert done.returncode == 10 and "DAMAGED" in done.stdout and "1 of 1" in done.stderr
        blob.unlink()
        assert "UNREADABLE" in quern("models", "verify", "org/smol-GGUF").stdout
    finally:
        blob.write_bytes(good)


def test_small_files_are_verified_by_gits_sum(hub, quern, home):
    hub.repositories["org/folder"] = {
        "config.json": b"{}", "1_Pooling/config.json": b"[]", "modules.json": b"[1]",
        "model.safetensors": b"x" * 5000}
    quern.pull("org/folder")
    done = quern("models", "verify", "org/folder")
    assert done.returncode == 0 and done.stdout.count("good") == 4
    blob = home / "huggingface/hub/models--org--folder/blobs" / fake.digest(b"[]")
    blob.write_bytes(b"()")
    done = quern("models", "verify", "org/folder")
    assert done.returncode == 10 and done.stdout.count(
        "good") == 3 and f"DAMAGED    {blob}" in done.stdout


def test_a_blob_of_ollamas_store_tells_its_sum(quern, home):
    content = b"GGUF" + b"\0" * 60
    digest = hashlib.sha256(content).hexdigest()
    manifest = home / "ollama/manifests/registry/library/tiny/latest"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(
        json.dumps({
            "layers": [{
                "mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}",
                "size": len(content)}]}))
    (home / "ollama/blobs").mkdir()
    blob = home / "ollama/blobs" / f"sha256-{digest}"
    blob.write_bytes(content)
    assert quern("models", "verify", "tiny").returncode == 0
    blob.write_bytes(content[:-1] + b"x")
    assert quern("models", "verify", "tiny").returncode == 10


def test_a_file_is_added_under_a_name(served, quern, home, tmp_path):
    file = tmp_path / "My Model.gguf"
    file.symlink_to(served[2])
    assert "say one with --name" in quern("models", "add", str(file)).stderr
    assert quern("models", "add", str(file), "--name", "../up").returncode == 3
    assert quern("models", "add", str(file), "--name", "mine").returncode == 0
    again = quern("models", "add", str(file), "--name", "mine.gguf")
    assert again.returncode == 7 and "there already" in again.stderr
    assert "no GGUF" in quern("models", "add", "/etc/hostname", "--name", "other").stderr
    assert {"mine.gguf", "org/smol-GGUF:Q4_1"} <= {
        m["model"]
        for m in listed(quern)
        if m["servable"]}
    [model] = listed(quern, "inspect", "mine")
    assert model["parameters"] == 134515008
    os.unlink(home / "cache/quern/models/mine.gguf")


def test_a_folder_of_safetensors_is_pulled_added_and_run(hub, quern, home, tmp_path):
    tiny = support.SHARED / "tiny/llama3"
    names = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
             "model.safetensors")
    hub.repositories["org/toy-llama"] = {name: (tiny / name).read_bytes() for name in names}
    told = quern.pull("org/toy-llama")
    assert told["servable"] and told["files"] == len(names)
    [by_name] = listed(quern, "inspect", "org/toy-llama")
    [by_path] = listed(quern, "inspect", str(tiny))
    for model in (by_name, by_path):
        assert (model["family"], model["context"], model["layers"],
                model["servable"]) == ("llama", 1024, 4, True)
        assert model["types"] == {"BF16": model["weight_bytes"]
                                  } and model["parameters"] * 2 == model["weight_bytes"]
    [windows] = listed(quern, "inspect", str(support.SHARED / "tiny/gemma3"), "--max-model-len",
                       "116")
    assert (windows["window"], windows["layers"], windows["kv_bytes_per_token"],
            windows["kv_far_bytes_per_token"]) == (16, 7, 7 * 1024, 1024)
    assert windows["sequences"] == (windows["memory_free_bytes"] -
                                    windows["memory_needed_bytes"]) // (16 * 7 * 1024 + 100 * 1024)
    assert quern("models", "add", str(tiny) + "/", "--name", "little").returncode == 0
    (tmp_path / "in.jsonl").write_bytes(
        support.jsonl([support.request("1", "hello", "little", max_tokens=3)]))
    done = quern("run", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", "--model",
                 "little")
    assert done.returncode == 0, done.stderr
    os.unlink(home / "cache/quern/models/little")
