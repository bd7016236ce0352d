# SPDX-License-Identifier: Apache-2.0
"""`quern serve` without a model serves what lies on the machine: each model is listed with what its
file says, loads at its first request, makes room for others, and leaves after a time."""
import hashlib, json, os, pathlib, shutil

import pytest

import hub as fake
import support

MODELS = pathlib.Path(os.environ.get("XDG_CACHE_HOME",
                                     pathlib.Path.home() / ".cache")) / "quern/models"
SYSTEM = 'You are "Redbeard", a pirate.\nAnswer in rhymes.'
QUESTION = [{"role": "user", "content": "Name a river of Europe."}]


def put_into_ollamas_store(store, name, file):
    """Writes the model as Ollama's own pull leaves it: a blob by its sum, and a manifest."""
    model, tag = name.split(":")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    (store / "blobs").mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, store / "blobs" / f"sha256-{digest}")
    put_manifest(store, model, tag, [{"mediaType": "application/vnd.ollama.image.model",
                                      "digest": f"sha256:{digest}", "size": file.stat().st_size}])


def put_manifest(store, model, tag, layers):
    manifest = store / "manifests/registry.ollama.ai/library" / model / tag
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": layers}))
    return layers


def create_in_ollamas_store(store, name, origin, params, system):
    """Writes what `ollama create` leaves of a Modelfile with FROM, PARAMETER and SYSTEM."""
    model, tag = origin.split(":")
    layers = json.loads((store / "manifests/registry.ollama.ai/library" / model /
                         tag).read_text())["layers"]
    for kind, text in (("params", json.dumps(params)), ("system", system)):
        digest = hashlib.sha256(text.encode()).hexdigest()
        (store / "blobs" / f"sha256-{digest}").write_text(text)
        layers.append({"mediaType": f"application/vnd.ollama.image.{kind}",
                       "digest": f"sha256:{digest}", "size": len(text.encode())})
    put_manifest(store, name, "latest", layers)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A machine with one model in Ollama's store and one in quern's folder."""
    home = tmp_path_factory.mktemp("on-demand")
    put_into_ollamas_store(home / "ollama", "smollm2:135m",
                           MODELS / "SmolLM2-135M-Instruct.Q4_1.gguf")
    create_in_ollamas_store(home / "ollama", "pirate", "smollm2:135m", {
        "temperature": 0, "num_predict": 6, "stop": ["<a>", "<b>"], "num_ctx": 4096}, SYSTEM)
    (home / "cache/quern/models").mkdir(parents=True)
    os.symlink(MODELS / "all-MiniLM-L6-v2", home / "cache/quern/models/all-MiniLM-L6-v2")
    return home


def serving(home, state, *arguments, **variables):
    environment = {**os.environ, "XDG_CACHE_HOME": str(home / "cache"), "HOME": str(home),
                   "HF_HOME": str(home / "hf"), "OLLAMA_MODELS": str(home / "ollama"), **variables}
    return support.serving(state, *arguments, environment=environment)


def ask(server, path, body, status=200):
    got, answer = server.call("POST", path, {"stream": False, **body})
    assert got == status, (path, got, answer)
    return json.loads(answer)


def chat(server, model, **more):
    return ask(server, "/api/chat", {"model": model, "messages": QUESTION, "options": {
        "temperature": 0, "num_predict": 8}, **more})


def loaded(server):
    return {model["name"] for model in server.json("GET", "/api/ps")["models"]}


def states(server):
    return {model["id"]: model["status"]["value"]
            for model in server.json("GET", "/v1/models")["data"]}


def test_every_model_of_the_machine_is_listed_and_loads_when_it_is_asked_for(home, tmp_path):
    with serving(home, tmp_path / "state") as server:
        tags = {model["name"]: model for model in server.json("GET", "/api/tags")["models"]}
        assert {"smollm2:135m", "all-minilm:latest"} <= set(tags)
        told = tags["smollm2:135m"]
        assert told["details"]["family"] == "llama" and told["size"] > 9 * 10**7
        assert told["capabilities"] == ["completion"]
        assert tags["all-minilm:latest"]["capabilities"] == ["embedding"]
        assert loaded(server) == set() and set(states(server).values()) == {"unloaded"}
        shown = ask(server, "/api/show", {"model": "smollm2:135m"})
        assert shown["model_info"]["llama.context_length"] == 8192
        assert "<|im_start|>" in shown["template"]
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
        assert "does not support tools" in ask(
            server, "/api/chat", {"model": "smollm2:135m", "messages": QUESTION, "tools": [tool]},
            400)["error"]
        assert loaded(server) == set()
        answer = chat(server, "smollm2:135m")
        assert answer["message"]["content"] and answer["load_duration"] > 10**6
        assert "smollm2:135m" in loaded(server)
        again = chat(server, "smollm2:135m")
        assert again["message"] == answer["message"]
        assert again["load_duration"] < answer["load_duration"]
        check_modelfile(server)
        vectors = ask(server, "/api/embed", {"model": "all-minilm", "input": ["a", "b"]})
        assert len(vectors["embeddings"]) == 2
        assert {"smollm2:135m", "all-minilm:latest"} <= loaded(server)
        assert "nobody" in ask(server, "/api/chat", {"model": "nobody", "messages": QUESTION},
                               404)["error"]


def check_modelfile(server):
    """A Modelfile's parameters and system text count for a request that has none of its own, under
    every name that stands for that model; what a request says counts before them."""
    shown = ask(server, "/api/show", {"model": "pirate"})
    assert shown["system"] == SYSTEM and f'SYSTEM """{SYSTEM}"""' in shown["modelfile"]
    lines = [line.split(None, 1) for line in shown["parameters"].splitlines()]
    assert lines == [["temperature", "0"], ["num_predict", "6"], ["stop", '"<a>"'],
                     ["stop", '"<b>"'], ["num_ctx", "4096"]]
    assert ask(server, "/api/show", {"model": "smollm2:135m"})["parameters"] == ""
    options = {"temperature": 0, "num_predict": 6}
    told = lambda answer: (answer["message"]["content"], answer["prompt_eval_count"], answer[
        "eval_count"])
    by_hand = ask(server, "/api/chat", {"model": "smollm2:135m", "options": options, "messages": [
        {"role": "system", "content": SYSTEM}, *QUESTION]})
    assert by_hand["eval_count"] == 6
    assert server.call("POST", "/api/copy", {"source": "pirate", "destination": "captain"})[0] == 200
    for name in ("pirate", "pirate:latest", "captain"):
        assert told(ask(server, "/api/chat", {"model": name, "messages": QUESTION})) == told(
            by_hand), name
    generated = ask(server, "/api/generate", {"model": "pirate", "prompt": QUESTION[0]["content"]})
    assert generated["response"] == by_hand["message"]["content"]
    own = [{"role": "system", "content": "Answer in one word."}, *QUESTION]
    mine = {"model": "pirate", "messages": own, "options": {"num_predict": 3}}
    assert told(ask(server, "/api/chat", mine)) == told(ask(
        server, "/api/chat", {**mine, "model": "smollm2:135m", "options": {
            "num_predict": 3, "temperature": 0}}))


@pytest.mark.parametrize("layout", ("jinja", "named", "old"))
def test_a_model_is_shown_before_its_first_load_as_after_it(tmp_path, layout):
    """Templates of a folder stand in three places; all but the first are members of JSON."""
    tiny = support.SHARED / "tiny/qwen3"
    if not tiny.exists():
        pytest.skip("shared/tiny is not here")
    template = (support.SHARED / "templates/Qwen-Qwen3-0.6B.jinja").read_text()
    folder = tmp_path / "cache/quern/models/mine"
    folder.mkdir(parents=True)
    for file in tiny.iterdir():
        if file.suffix != ".gguf" and file.name != "tokenizer_config.json":
            os.symlink(file, folder / file.name)
    if layout == "jinja":
        (folder / "chat_template.jinja").write_text(template)
    elif layout == "named":
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": [
            {"name": "default", "template": template}]}))
    else:
        (folder / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    with serving(tmp_path, tmp_path / "state") as server:
        before = ask(server, "/api/show", {"model": "mine"})
        assert loaded(server) == set()
        assert before["template"].strip() == template.strip()
        assert before["capabilities"] == ["completion", "tools", "thinking"]
        chat(server, "mine")
        assert loaded(server) == {"mine:latest"}
        after = ask(server, "/api/show", {"model": "mine"})
        assert before == after


def test_models_take_turns_where_only_one_may_be_loaded_and_batches_wait(home, tmp_path):
    lines = [{"custom_id": f"{url}{i}", "method": "POST", "url": url, "body": body}
             for i in range(4) for url, body in (
                 ("/v1/embeddings", {"model": "all-minilm", "input": f"text {i}"}), )]
    with serving(home, tmp_path / "state", "--max-loaded-models", "1") as server:
        chat(server, "smollm2:135m")
        batch = server.create(support.jsonl(lines), endpoint="/v1/embeddings")
        assert server.wait(batch["id"])["request_counts"]["completed"] == 4
        assert not any(name.startswith("smollm2") for name in loaded(server))
        chat(server, "smollm2:135m")
        assert not any(name.startswith("all-minilm") for name in loaded(server))


def test_idle_models_leave_and_come_back(home, tmp_path):
    with serving(home, tmp_path / "state", "--keep-alive", "1s") as server:
        text = chat(server, "smollm2:135m")["message"]["content"]
        support.until(lambda: not loaded(server))
        assert chat(server, "smollm2:135m", keep_alive=-1)["message"]["content"] == text
        assert loaded(server)
        ask(server, "/api/generate", {"model": "smollm2:135m", "keep_alive": 0})
        support.until(lambda: not loaded(server))  # it is answered before the model has left


def test_a_machine_without_models_has_an_empty_list(tmp_path):
    with serving(tmp_path / "nowhere", tmp_path / "state") as server:
        assert server.json("GET", "/api/tags") == {"models": []}
        assert ask(server, "/api/chat", {"model": "smollm2", "messages": QUESTION}, 404)["error"]


@pytest.fixture
def hub():
    hub = fake.Hub()
    hub.repositories["org/small"] = {
        "small-Q4_1.gguf": (MODELS / "SmolLM2-135M-Instruct.Q4_1.gguf").read_bytes()}
    hub.repositories["org/broken"] = {"broken-Q4_0.gguf": b"GGUF\3\0\0\0" + bytes(100)}
    yield hub
    hub.close()


def pull(server, body):
    status, answer = server.call("POST", "/api/pull", body)
    assert status == 200, answer
    return [json.loads(line) for line in answer.splitlines()]


def test_a_model_is_pulled_and_served_at_once(tmp_path, hub):
    with serving(tmp_path / "home", tmp_path / "state", HF_ENDPOINT=hub.url()) as server:
        lines = pull(server, {"model": "org/small"})
        assert lines[0] == {"status": "pulling manifest"} and lines[-1] == {"status": "success"}
        steps = [line for line in lines if "digest" in line]
        size = len(hub.repositories["org/small"]["small-Q4_1.gguf"])
        assert steps and all(step["total"] == size >= step["completed"] for step in steps)
        assert [step["completed"] for step in steps] == sorted(
            step["completed"] for step in steps)
        assert chat(server, "org/small")["message"]["content"]
        before = len(hub.seen)
        assert pull(server, {"model": "org/small"})[-1] == {"status": "success"}
        assert ask(server, "/api/pull", {"name": "org/small"}) == {"status": "success"}
        assert len(hub.seen) == before
        entries = server.json("GET", "/v1/audit")["data"]
        assert any(entry["action"] == "model.pull" for entry in entries)


def test_what_cannot_be_pulled_is_an_error_in_the_stream_or_a_status(tmp_path, hub):
    with serving(tmp_path / "home", tmp_path / "state", HF_ENDPOINT=hub.url()) as server:
        lines = pull(server, {"model": "org/nothing"})
        assert list(lines[-1]) == ["error"] and "org/nothing" in lines[-1]["error"]
        assert "org/nothing" in ask(server, "/api/pull", {"model": "org/nothing"}, 500)["error"]
        assert "error" in pull(server, {"model": "org/broken"})[-1]
        for name in ("--json", "-x", "a b", "a\n"):
            assert ask(server, "/api/pull", {"model": name}, 400)["error"] == "invalid model name"
        assert ask(server, "/api/pull", {"model": ""}, 400)["error"] == "model is required"


def test_a_server_of_chosen_models_fetches_none(tmp_path):
    with support.serving(tmp_path / "state", "--model", "smollm2=echo") as server:
        assert pull(server, {"model": "smollm2"})[-1] == {"status": "success"}
        assert "quern pull" in ask(server, "/api/pull", {"model": "org/other"}, 501)["error"]


def remove(server, name, status=200):
    got, answer = server.call("DELETE", "/api/delete", {"model": name})
    assert got == status, (name, got, answer)
    return json.loads(answer)["error"] if answer else ""


def names(server):
    return {model["name"] for model in server.json("GET", "/api/tags")["models"]}


def copy(server, source, destination, status=200):
    got, answer = server.call("POST", "/api/copy", {"source": source, "destination": destination})
    assert got == status, (got, answer)
    return json.loads(answer)["error"] if answer else ""


def test_a_copy_is_a_further_name_that_outlives_the_server(home, tmp_path):
    with serving(home, tmp_path / "state", "--alias", "gpt-4=smollm2:135m") as server:
        assert copy(server, "smollm2:135m", "mine") == ""
        assert copy(server, "mine:latest", "mine:second") == ""
        assert {"mine:latest", "mine:second"} <= names(server)
        assert chat(server, "mine")["model"] == "mine"
        assert "not found" in copy(server, "nobody", "x", 404)
        assert "is a model" in copy(server, "mine", "all-minilm", 400)
        assert "--alias" in copy(server, "mine", "gpt-4", 400)
        assert copy(server, "mine", "smollm2:135m") == "" # it has that name
        for bad in ("", "a b", "../x", "-x", "x" * 300):
            assert "destination" in copy(server, "mine", bad, 400)
        assert server.stop() == 0
    with serving(home, tmp_path / "state") as server:
        assert {"mine:latest", "mine:second"} <= names(server)
        # A name does not depend on the one that it was made from.
        remove(server, "mine:latest")
        assert "mine:latest" not in names(server) and "mine:second" in names(server)
        assert "not found" in remove(server, "mine", 404)
        ask(server, "/api/show", {"model": "mine"}, 404)
        ask(server, "/api/show", {"model": "mine:second"})
        # The last copy may be given another model.
        assert copy(server, "all-minilm", "mine:second") == ""
        assert ask(server, "/api/show", {"model": "mine:second"})["capabilities"] == ["embedding"]
        remove(server, "mine:second")
        assert server.stop() == 0
    with serving(home, tmp_path / "state") as server:
        assert not {name for name in names(server) if name.startswith("mine")}


def test_only_models_of_querns_own_folder_are_deleted(home, tmp_path):
    folder = home / "cache/quern/models"
    shutil.copyfile(MODELS / "SmolLM2-135M-Instruct.Q4_1.gguf", folder / "own.gguf")
    with serving(home, tmp_path / "state", "--alias", "gpt-4=smollm2:135m") as server:
        assert "ollama rm" in remove(server, "smollm2:135m", 400)
        assert "--alias" in remove(server, "gpt-4", 400)
        assert "own folder" in remove(server, "all-minilm", 400) # a link to elsewhere
        assert "not found" in remove(server, "nobody", 404)
        text = chat(server, "own")["message"]["content"]
        copy(server, "own", "again")
        assert "'again' is a copy" in remove(server, "own", 400)
        remove(server, "again")
        remove(server, "own")
        assert not (folder / "own.gguf").exists()
        assert "own:latest" not in names(server) and "own:latest" not in loaded(server)
        ask(server, "/api/chat", {"model": "own", "messages": QUESTION}, 404)
        # It comes back with its files, on the engine that it had.
        shutil.copyfile(MODELS / "SmolLM2-135M-Instruct.Q4_1.gguf", folder / "own.gguf")
        assert chat(server, "own")["message"]["content"] == text
        remove(server, "own")


def test_a_model_that_comes_while_the_server_runs_is_found(home, tmp_path):
    folder = home / "cache/quern/models"
    with serving(home, tmp_path / "state") as server:
        ask(server, "/api/chat", {"model": "late", "messages": QUESTION}, 404)
        shutil.copyfile(MODELS / "SmolLM2-135M-Instruct.Q4_1.gguf", folder / "late.gguf")
        assert chat(server, "late")["message"]["content"]
        put_into_ollamas_store(home / "ollama", "late2:1b",
                               MODELS / "SmolLM2-135M-Instruct.Q4_1.gguf")
        lines = support.jsonl([support.request("a", "Hi", "late2:1b", max_tokens=4)])
        assert server.wait(server.create(lines)["id"])["request_counts"]["completed"] == 1
        # What no server can serve is read once, and told nobody.
        (folder / "broken.gguf").write_bytes(b"GGUF")
        assert "late:latest" in names(server) and "broken:latest" not in names(server)
        ask(server, "/api/show", {"model": "broken"}, 404)
        ask(server, "/api/show", {"model": str(folder / "late.gguf")}, 404)
    (folder / "broken.gguf").unlink()
    (folder / "late.gguf").unlink()
