# SPDX-License-Identifier: Apache-2.0
"""Cross-encoders and Qwen3-Reranker behind /v1/score and /v1/rerank, live and as lines of batches,
against transformers' numbers for tiny random models (rankers/make.py)."""
import base64, itertools, json, math, pathlib, random, shutil, struct

import pytest

import folders, gguf_keys, gguf_of, support

HERE = pathlib.Path(__file__).resolve().parent / "rankers"
CROSS = ["bert-cross", "xlmr-cross", "modernbert-cross", "qwen3-reranker"]
FAST = {"avx2": 2e-2, "avx512": 2e-2, "avx512-bf16": 4e-2}


def cases_of(name):
    return json.loads((HERE / name / "reference.json").read_text())["cases"]


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


@pytest.fixture(scope="module", params=CROSS)
def ranker(request, tmp_path_factory):
    state = tmp_path_factory.mktemp(request.param) / "state"
    with support.serving(state, "--model", HERE / request.param, "--reference") as server:
        server.name, server.cases = request.param, cases_of(request.param)
        yield server


def labels_of(model, cases, *flags):
    done = support.quern("embed", "--model", model, *flags, input=json.dumps({
        "ids": [case["ids"] for case in cases],
        "second_first": [case["second_first"] for case in cases]}))
    if "has no kernels" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["embeddings"]


@pytest.mark.parametrize("name", [
    "bert-cross", "bert-sorts", "xlmr-cross", "modernbert-cross", "modernbert-cls"])
def test_labels_are_the_references(name):
    for case, labels in zip(cases_of(name), labels_of(HERE / name, cases_of(name), "--reference"),
                            strict=True):
        for got, expected in zip(labels, case["labels"], strict=True):
            assert abs(got - expected) <= 2e-3


def test_labels_of_mpnet_are_those_of_its_hidden_state(tmp_path):
    """Its head on the numbers of transformers for the first row. These have length 1 there; what
    the last LayerNorm leaves has the mean 0 before its weights, which tells the length."""
    source, folder, drawn = HERE.parent / "families/mpnet", tmp_path / "model", random.Random(4)
    folder.mkdir()
    config = json.loads((source / "config.json").read_text())
    width, entries = config["hidden_size"], gguf_of.entries_of(source)
    shapes = {"dense": (width, width), "out_proj": (2, width)}
    head = {name: [[drawn.gauss(0, 0.3) for _ in range(cols)] for _ in range(rows)]
            for name, (rows, cols) in shapes.items()}
    biases = {name: [drawn.gauss(0, 0.3) for _ in range(rows)]
              for name, (rows, _) in shapes.items()}
    own = {f"mpnet.{name}": entry for name, entry in entries.items()}
    for name, (rows, cols) in shapes.items():
        own[f"classifier.{name}.weight"] = "F32", [rows, cols], struct.pack(
            f"<{rows * cols}f", *itertools.chain(*head[name]))
        own[f"classifier.{name}.bias"] = "F32", [rows], struct.pack(f"<{rows}f", *biases[name])
    folders.write_safetensors(folder / "model.safetensors", own)
    (folder / "config.json").write_text(json.dumps(config | {
        "architectures": ["MPNetForSequenceClassification"], "id2label": {"0": "a", "1": "b"}}))
    last = f"encoder.layer.{config['num_hidden_layers'] - 1}.output.LayerNorm."
    weight, bias = (struct.unpack(f"<{width}f", entries[last + part][2])
                    for part in ("weight", "bias"))
    cases = json.loads((source / "reference.json").read_text())["cases"]
    given = [{"ids": case["ids"], "second_first": len(case["ids"])} for case in cases]
    for case, labels in zip(cases, labels_of(folder, given, "--reference"), strict=True):
        length = sum(b / w for b, w in zip(bias, weight)) / sum(
            v / w for v, w in zip(case["cls"], weight))
        state = [length * v for v in case["cls"]]
        for name in ("dense", "out_proj"):
            state = [sum(a * x for a, x in zip(row, state)) + b
                     for row, b in zip(head[name], biases[name])]
            if name == "dense":
                state = list(map(math.tanh, state))
        assert max(abs(a - b) for a, b in zip(state, labels)) <= 2e-3


@pytest.mark.parametrize("name", ["xlmr-cross", "modernbert-cross"])
def test_a_ranker_as_a_gguf_file_gives_the_same_labels(tmp_path, name):
    gguf_of.convert(HERE / name, tmp_path / "ranker.gguf")
    got = labels_of(tmp_path / "ranker.gguf", cases_of(name), "--reference")
    assert got == labels_of(HERE / name, cases_of(name), "--reference")


def test_a_gguf_says_that_the_labels_of_a_modernbert_read_the_first_row(tmp_path):
    """pooling_type 4 is the mean there, as llama.cpp computes it; 2 is the first row."""
    gguf_of.convert(HERE / "modernbert-cls", tmp_path / "mean.gguf")
    pairs, tensors = gguf_keys.read(tmp_path / "mean.gguf")
    kind, ranks = pairs["modern-bert.pooling_type"]
    assert ranks == 4
    gguf_keys.write(tmp_path / "cls.gguf", pairs | {"modern-bert.pooling_type": (kind, 2)}, tensors)
    expected = labels_of(HERE / "modernbert-cls", cases_of("modernbert-cls"), "--reference")
    for name, is_equal in (("cls", True), ("mean", False)):
        got = labels_of(tmp_path / f"{name}.gguf", cases_of("modernbert-cls"), "--reference")
        assert (got == expected) is is_equal


def test_a_ranker_as_a_gguf_file_scores_pairs_as_its_folder_does(tmp_path):
    gguf_of.convert(HERE / "xlmr-cross", tmp_path / "ranker.gguf")
    scores = []
    for model in (tmp_path / "ranker.gguf", HERE / "xlmr-cross"):
        with support.serving(tmp_path / f"state{len(scores)}", "--model", f"m={model}",
                             "--reference") as server:
            scores.append(server.json("POST", "/v1/score", {
                "model": "m", "text_1": "what is a dog?", "text_2": ["the mat", "a dog"]}))
    assert [each["score"] for each in scores[0]["data"]] == [
        each["score"] for each in scores[1]["data"]]
    assert scores[0]["usage"] == scores[1]["usage"]


@pytest.mark.parametrize("kernels", FAST)
def test_the_fast_paths_stay_close(kernels):
    cases = cases_of("bert-sorts")
    for case, labels in zip(cases, labels_of(HERE / "bert-sorts", cases, "--kernels", kernels)):
        assert max(abs(a - b) for a, b in zip(labels, case["labels"])) <= FAST[kernels]


def score(server, **body):
    return server.json("POST", "/v1/score", {"model": server.name, **body})


def refused(server, path, body, status=400):
    got, answer = server.call("POST", path, {"model": server.name, **body})
    assert got == status, answer
    error = json.loads(answer)["error"]
    return error["param"], error["message"]


def test_a_pair_has_the_references_score(ranker):
    for case in ranker.cases:
        first, second = case["texts"]
        raw = score(ranker, text_1=first, text_2=second, use_activation=False)
        assert abs(raw["data"][0]["score"] - case["labels"][0]) <= 2e-3
        answer = score(ranker, text_1=first, text_2=second)
        assert abs(answer["data"][0]["score"] - sigmoid(case["labels"][0])) <= 2e-3
        assert answer["usage"] == {"prompt_tokens": len(case["ids"]),
                                   "total_tokens": len(case["ids"])}
        assert answer["object"] == "list" and answer["id"].startswith("score-")
        assert answer["data"][0]["index"] == 0 and answer["data"][0]["object"] == "score"


def test_one_text_goes_with_many_and_lists_go_in_step(ranker):
    texts = [case["texts"] for case in ranker.cases]
    each = [score(ranker, text_1=a, text_2=b)["data"][0]["score"] for a, b in texts]
    for first, second in (("text_1", "text_2"), ("queries", "documents"), ("queries", "items"),
                          ("data_1", "data_2")):
        answer = score(ranker, **{first: [a for a, _ in texts], second: [b for _, b in texts]})
        assert [row["score"] for row in answer["data"]] == each
    answer = score(ranker, text_1=texts[0][0], text_2=[b for _, b in texts[:2]])
    assert [row["score"] for row in answer["data"]] == each[:2]
    assert "go with" in refused(ranker, "/v1/score", {"text_1": ["a", "b"],
                                                      "text_2": ["a", "b", "c"]})[1]


def test_documents_are_ranked_in_every_form(ranker):
    query, documents = "the cat", [case["texts"][1] for case in ranker.cases]
    scores = [row["score"] for row in score(ranker, text_1=query, text_2=documents)["data"]]
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    body = {"model": ranker.name, "query": query, "documents": documents}
    answers = [ranker.json("POST", path, body) for path in (
        "/v1/rerank", "/v2/rerank", "/rerank", "/v1/score", "/score")]
    for answer in answers:
        assert [(row["index"], row["relevance_score"]) for row in answer["results"]] == [
            (i, scores[i]) for i in order]
        assert [row["document"] for row in answer["results"]] == [
            {"text": documents[i]} for i in order]
    assert answers[0]["id"].startswith("rerank-") and answers[0]["usage"]["prompt_tokens"] > 0
    short = ranker.json("POST", "/v1/rerank", body | {
        "documents": [{"text": text} for text in documents], "top_n": 2,
        "return_documents": False})
    assert short["results"] == [
        {"index": i, "relevance_score": scores[i]} for i in order[:2]]


def test_what_is_wrong_is_named(ranker):
    good = {"query": "a", "documents": ["b"]}
    for change, param in [
        ({"query": None}, "query"), ({"documents": []}, "documents"),
        ({"documents": ["a", 7]}, "documents[1]"), ({"query": ["a"]}, "query"),
        ({"top_n": -1}, "top_n"), ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": 3}, "truncate_prompt_tokens"),
        ({"return_documents": 1}, "return_documents"), ({"documents": ["b", "cat " * 3000]},
                                                        "documents[1]")]:
        assert refused(ranker, "/v1/rerank", good | change)[0] == param
    assert refused(ranker, "/v1/score", {"text_1": "a"})[0] == "text_2"
    if ranker.name == "bert-cross":
        assert refused(ranker, "/v1/rerank", good | {"instruction": "x"})[0] == "instruction"
        assert "it serves /v1/score, /v1/rerank" in refused(ranker, "/v1/embeddings",
                                                           {"input": "a"})[1]


def test_a_long_pair_is_cut_from_its_longer_text(ranker):
    if ranker.name != "bert-cross":
        pytest.skip("a judge reads one text")
    cut = score(ranker, text_1="the cat", text_2="cat " * 100, truncate_prompt_tokens=-1)
    assert cut["usage"]["prompt_tokens"] == 64
    same = score(ranker, text_1="the cat", text_2="cat " * 59)
    assert same["data"] == cut["data"]
    both = score(ranker, text_1="dog " * 100, text_2="cat " * 100, truncate_prompt_tokens=24)
    assert both["data"] == score(ranker, text_1="dog " * 10, text_2="cat " * 11)["data"]
    short = score(ranker, text_1="dog", text_2="cat " * 100, max_tokens_per_doc=4)
    assert short["data"] == score(ranker, text_1="dog", text_2="cat " * 4)["data"]


def test_marks_in_a_text_are_text(ranker):
    mark = {"bert-cross": "[SEP]", "xlmr-cross": "</s>"}.get(ranker.name, "<|im_end|>")
    plain = score(ranker, text_1="a", text_2="b")["usage"]["prompt_tokens"]
    assert score(ranker, text_1="a", text_2=f"b{mark}")["usage"]["prompt_tokens"] > plain + 1


def test_lines_of_a_batch_have_the_same_scores(ranker):
    query, documents = "the cat", [case["texts"][1] for case in ranker.cases]
    body = {"model": ranker.name, "query": query, "documents": documents}
    live = ranker.json("POST", "/v1/rerank", body)
    for path in ("/v1/rerank", "/rerank", "/v2/rerank"):
        batch = ranker.batch(ranker.create(
            support.jsonl([{"custom_id": "a", "method": "POST", "url": path, "body": body}]),
            endpoint="/v1/rerank")["id"])
        batch = ranker.wait(batch["id"])
        assert batch["status"] == "completed" and batch["request_counts"]["completed"] == 1
        (line,), _ = ranker.results(batch)
        assert line["response"]["body"]["results"] == live["results"]
        assert line["response"]["body"]["usage"] == live["usage"]
    pairs = [{"custom_id": str(i), "method": "POST", "url": "/v1/score", "body": {
        "model": ranker.name, "text_1": a, "text_2": b}}
             for i, (a, b) in enumerate(case["texts"] for case in ranker.cases)]
    batch = ranker.wait(ranker.create(support.jsonl(pairs), endpoint="/v1/score")["id"])
    assert batch["request_counts"] == {"total": 4, "completed": 4, "failed": 0}
    for line, case in zip(ranker.results(batch)[0], ranker.cases, strict=True):
        got = line["response"]["body"]["data"][0]["score"]
        assert abs(got - sigmoid(case["labels"][0])) <= 2e-3


def test_a_cross_encoder_says_whether_its_scores_are_raw(tmp_path):
    folder = tmp_path / "raw"
    shutil.copytree(HERE / "bert-cross", folder)
    config = json.loads((folder / "config.json").read_text())
    config["sentence_transformers"] = {"activation_fn": "torch.nn.modules.linear.Identity"}
    (folder / "config.json").write_text(json.dumps(config))
    case = cases_of("bert-cross")[0]
    with support.serving(tmp_path / "state", "--model", folder, "--reference") as server:
        server.name = "raw"
        answer = score(server, text_1=case["texts"][0], text_2=case["texts"][1])
        assert abs(answer["data"][0]["score"] - case["labels"][0]) <= 2e-3
    config["sentence_transformers"] = {"activation_fn": "torch.nn.ReLU"}
    (folder / "config.json").write_text(json.dumps(config))
    done = support.quern("embed", "--model", folder, input='{"ids":[[2]]}')
    assert "only Identity and Sigmoid are supported" in done.stderr


def test_a_model_with_several_labels_scores_no_pairs(tmp_path):
    with support.serving(tmp_path / "state", "--model", HERE / "bert-sorts") as server:
        server.name = "bert-sorts"
        assert "This model gives texts labels" in refused(server, "/v1/score", {
            "text_1": "a", "text_2": "b"})[1]


def test_a_classifier_gives_probabilities_and_names(tmp_path):
    texts = ["the cat sat", "what is a dog?"]
    with support.serving(tmp_path / "state", "--model", HERE / "bert-sorts",
                         "--reference") as server:
        answer = server.json("POST", "/classify", {"model": "bert-sorts", "input": texts})
        raw = server.json("POST", "/pooling", {"model": "bert-sorts", "input": texts})
        one = server.json("POST", "/classify", {"model": "bert-sorts", "input": texts[1]})
        batch = server.wait(server.create(support.jsonl([
            {"custom_id": "a", "method": "POST", "url": "/classify", "body": {
                "model": "bert-sorts", "input": texts}}]), endpoint="/v1/classify")["id"])
        (line,), _ = server.results(batch)
    assert answer["id"].startswith("classify-") and answer["object"] == "list"
    assert line["response"]["body"]["data"] == answer["data"]
    assert one["data"] == [{**answer["data"][1], "index": 0}]
    for row, numbers in zip(answer["data"], raw["data"], strict=True):
        powers = [math.exp(x) for x in numbers["data"]]
        assert row["num_classes"] == 3 and abs(sum(row["probs"]) - 1) <= 1e-6
        for got, power in zip(row["probs"], powers, strict=True):
            assert abs(got - power / sum(powers)) <= 1e-6
        assert row["label"] == ["bad", "so so", "good"][powers.index(max(powers))]


def test_a_model_that_makes_vectors_scores_by_their_cosine(tmp_path):
    folder = tmp_path / "vectors"
    shutil.copytree(HERE / "bert-cross", folder)
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["BertModel"]
    (folder / "config.json").write_text(json.dumps(config))
    rewrite_without(folder / "model.safetensors", ["classifier.weight", "classifier.bias"])
    with support.serving(tmp_path / "state", "--model", folder, "--reference") as server:
        server.name = "vectors"
        vectors = [row["embedding"] for row in server.json("POST", "/v1/embeddings", {
            "model": "vectors", "input": ["the cat", "a dog", "the mat"]})["data"]]
        answer = score(server, text_1="the cat", text_2=["a dog", "the mat"])
        for row, vector in zip(answer["data"], vectors[1:], strict=True):
            assert abs(row["score"] - sum(a * b for a, b in zip(vectors[0], vector))) <= 1e-6
        pooled = server.json("POST", "/pooling", {"model": "vectors", "input": "the cat"})
        assert pooled["data"] == [{"object": "pooling", "index": 0, "data": vectors[0]}]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """The same encoder without its head, as bge-m3 and multilingual-e5 are."""
    folder = tmp_path_factory.mktemp("vectors") / "xlmr"
    shutil.copytree(HERE / "xlmr-cross", folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["XLMRobertaModel"]}))
    rewrite_without(folder / "model.safetensors", [
        f"classifier.{part}.{kind}" for part in ("dense", "out_proj")
        for kind in ("weight", "bias")])
    return folder


def test_unigram_gives_the_ids_of_tokenizers(encoder, tmp_path):
    reference = json.loads((HERE / "xlmr-cross/reference.json").read_text())
    with support.serving(tmp_path / "state", "--model", encoder, "--reference") as server:
        for text, ids in reference["words"]:
            assert server.json("POST", "/tokenize", {
                "model": "xlmr", "prompt": text, "add_special_tokens": True})["tokens"] == ids, text
        answer = server.json("POST", "/v1/embeddings", {
            "model": "xlmr", "input": [text for text, _ in reference["words"]]})
        for row, expected in zip(answer["data"], reference["vectors"], strict=True):
            cosine = sum(a * b for a, b in zip(row["embedding"], expected["mean"], strict=True))
            assert cosine >= 0.999999


def test_positions_begin_behind_those_of_padding(encoder):
    reference = json.loads((HERE / "xlmr-cross/reference.json").read_text())
    for pooling in ("mean", "cls"):
        done = support.quern("embed", "--model", encoder, "--pooling", pooling, "--reference",
                             input=json.dumps({"ids": [ids for _, ids in reference["words"]]}))
        assert done.returncode == 0, done.stderr
        for got, expected in zip(json.loads(done.stdout)["embeddings"], reference["vectors"]):
            assert sum(a * b for a, b in zip(got, expected[pooling])) >= 0.999999
    done = support.quern("embed", "--model", encoder, input=json.dumps({"ids": [[5] * 65]}))
    assert "65 tokens, more than the 64" in done.stderr


def test_a_gguf_of_the_encoder_is_the_same_model(encoder, tmp_path):
    reference = json.loads((HERE / "xlmr-cross/reference.json").read_text())
    gguf_of.convert(encoder, tmp_path / "xlmr.gguf")
    done = support.quern("tokenize", "--model", tmp_path / "xlmr.gguf", "--batch", "--bos",
                         "--special",
                         input="".join(json.dumps(text) + "\n" for text, _ in reference["words"]))
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        ids for _, ids in reference["words"]]
    query = json.dumps({"ids": [ids for _, ids in reference["words"]]})
    vectors = [support.quern("embed", "--model", model, "--reference", input=query).stdout
               for model in (tmp_path / "xlmr.gguf", encoder)]
    assert vectors[0] == vectors[1] and vectors[0]


def test_a_charsmap_in_letters_is_that_in_bytes(encoder, tmp_path):
    """Published files of Ollama have its base64, a letter in each text of a list."""
    key, texts = "tokenizer.ggml.precompiled_charsmap", ["\uff21\uff22 \u2460 \ufb01", "abc"]
    gguf_of.convert(encoder, tmp_path / "bytes.gguf")
    pairs, tensors = gguf_keys.read(tmp_path / "bytes.gguf")
    letters = base64.b64encode(bytes(pairs[key][1][1])).decode()
    said = []
    for name, value in (("bytes", None), ("letters", list(letters)), ("broken", list(letters[:-1])),
                        ("words", [letters])):
        own = pairs | ({key: (gguf_keys.ARRAY, (gguf_keys.STRING, value))} if value else {})
        path = gguf_keys.write(tmp_path / f"{name}.gguf", own, tensors)
        said.append(
            support.quern("tokenize", "--model", path, "--batch",
                          input="".join(json.dumps(text) + "\n" for text in texts)))
    assert said[0].returncode == 0 and said[0].stdout == said[1].stdout and said[0].stdout
    for broken in said[2:]:
        assert broken.returncode != 0 and f"{key} is no base64" in broken.stderr


@pytest.mark.parametrize("change,sentence", [
    ({"unk_id": None}, "unk_id is none of the"), ({"unk_id": 1000}, "unk_id is none of the"),
    ({"byte_fallback": True}, "Unigram with byte_fallback"), ({"vocab": {}}, "no vocab"),
    ({"vocab": [["a", "b"]]}, "unk_id"), ({"vocab": [["a", 0]] * 4}, "two tokens"),
    ({"vocab": [["a", 1e99], ["b", 0], ["c", 0], ["d", 0]]}, "token 0 is not a text")])
def test_damaged_unigram_vocabularies_are_refused(encoder, tmp_path, change, sentence):
    folder = tmp_path / "damaged"
    shutil.copytree(encoder, folder)
    value = json.loads((folder / "tokenizer.json").read_text())
    value["model"] |= change
    (folder / "tokenizer.json").write_text(json.dumps(value))
    done = support.quern("tokenize", "--model", folder, input="a")
    assert done.returncode and done.stderr.count("\n") == 1, done.stderr
    assert sentence in done.stderr or sentence == "two tokens", done.stderr


@pytest.mark.parametrize("charsmap,sentence", [
    ("", "is no base64"), ("AAAA!", "is no base64"), ("AAAA", "0 bytes of units"),
    ("CAAAAAAAAAAAAAAA", "do not fit"), ("BAAAAAAAAABh", "its last text has no end")])
def test_damaged_charsmaps_are_refused(encoder, tmp_path, charsmap, sentence):
    folder = tmp_path / "damaged"
    shutil.copytree(encoder, folder)
    value = json.loads((folder / "tokenizer.json").read_text())
    value["normalizer"]["normalizers"][0]["precompiled_charsmap"] = charsmap
    (folder / "tokenizer.json").write_text(json.dumps(value))
    done = support.quern("tokenize", "--model", folder, input="a")
    assert done.returncode and sentence in done.stderr, done.stderr


def test_jinas_own_code_is_refused_by_name(encoder, tmp_path):
    folder = tmp_path / "jina"
    shutil.copytree(encoder, folder)
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoModel": "jinaai/xlm-roberta-flash-implementation--modeling.X"}
    (folder / "config.json").write_text(json.dumps(config))
    done = support.quern("embed", "--model", folder, input='{"ids":[[5]]}')
    assert "jina's own encoder is not supported" in done.stderr


def rewrite_without(path, names):
    data = path.read_bytes()
    count = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + count])
    folders.write_safetensors(path, {
        name: (entry["dtype"], entry["shape"],
               data[8 + count:][slice(*entry["data_offsets"])])
        for name, entry in header.items() if name not in ("__metadata__", *names)})


def test_a_preflight_counts_pairs(tmp_path):
    cases = cases_of("bert-cross")
    (tmp_path / "in.jsonl").write_bytes(support.jsonl([
        {"custom_id": str(i), "method": "POST", "url": "/v1/rerank", "body": {
            "model": "bert-cross", "query": case["texts"][0], "documents": [case["texts"][1]]}}
        for i, case in enumerate(cases)]))
    done = support.quern("preflight", tmp_path / "in.jsonl", "--model", HERE / "bert-cross",
                         "--pilot", "0", "--json")
    assert done.returncode == 0, done.stderr
    counted = json.loads(done.stdout)
    assert f"{sum(len(case['ids']) for case in cases)}" in json.dumps(counted)
