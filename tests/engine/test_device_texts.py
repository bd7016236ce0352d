# SPDX-License-Identifier: Apache-2.0
"""Embeddings, scores and reranking on the device of the tests and over the CUDA plugin's own host
code, beside the CPU in float32: from lines of a batch to their answers. tests/unit has the vectors
of each family (gpu/text_runner)."""
import json, math, shutil

import pytest

import gguf_of, support
from test_families import HERE
from test_rerank import HERE as RANKERS

PLAIN = support.plain_device()
HOST = PLAIN.parent / "cuda/libquern-cuda-host.so"
DOCUMENTS = ["a dog is an animal", "the mat", "cats", "a dog on the mat is a dog on a mat"]
RERANK = [("/v1/rerank", {"query": "what is a dog?", "documents": DOCUMENTS}),
          ("/v1/score", {"text_1": "the mat", "text_2": DOCUMENTS[:2]})]


def answers_of(folder, model, requests, *arguments, status=0):
    lines = [{"custom_id": str(i), "method": "POST", "url": url, "body": {"model": "m", **body}}
             for i, (url, body) in enumerate(requests)]
    (folder / "in.jsonl").write_bytes(support.jsonl(lines))
    done = support.quern("run", "-q", "-i", folder / "in.jsonl", "-o", folder / "out.jsonl",
                         "--overwrite", "--no-packed-cache", "--model", f"m={model}", *arguments)
    assert done.returncode == status, done.stderr
    answers = map(json.loads, (folder / "out.jsonl").read_text().splitlines())
    return [answer["response"]["body"]
            for answer in sorted(answers, key=lambda answer: int(answer["custom_id"]))]


def on(plugin):
    """Kernels in plain C are slow, and warming up runs the largest step."""
    small = ("--max-num-batched-tokens", 64, "--max-model-len", 64) if plugin == HOST else ()
    return "--device", "cuda", "--device-plugin", plugin, *small


def scores_of(answer):
    if "data" in answer:
        return [entry["score"] for entry in answer["data"]]
    ranked = sorted(answer["results"], key=lambda entry: entry["index"])
    return [entry["relevance_score"] for entry in ranked]


@pytest.mark.parametrize("name, plugin, limit", [
    ("qwen3-reranker", PLAIN, 1e-4), ("xlmr-cross", HOST, 2e-2)])
def test_rerankers_score_as_on_the_cpu(tmp_path, name, plugin, limit):
    """A judge by its rows of yes and no, and a cross-encoder by its head."""
    cpu = answers_of(tmp_path, RANKERS / name, RERANK, "--device", "cpu", "--reference")
    device = answers_of(tmp_path, RANKERS / name, RERANK, *on(plugin))
    for expected, got in zip(cpu, device, strict=True):
        assert got["usage"] == expected["usage"]
        for one, other in zip(scores_of(expected), scores_of(got), strict=True):
            assert math.isclose(one, other, abs_tol=limit)


@pytest.mark.parametrize("plugin, limit", [(PLAIN, 1e-6), (HOST, 1e-3)])
def test_an_encoder_with_rotary_positions_gives_the_references_vectors(tmp_path, plugin, limit):
    model = tmp_path / "model.gguf"
    gguf_of.convert(HERE / "nomic-bert", model)
    cases = json.loads((HERE / "nomic-bert/reference.json").read_text())["cases"]
    [answer] = answers_of(tmp_path, model, [("/v1/embeddings", {
        "input": [case["ids"] for case in cases]})], *on(plugin))
    for case, entry in zip(cases, answer["data"], strict=True):
        vector = entry["embedding"]
        dot = sum(a * b for a, b in zip(vector, case["mean"], strict=True))
        assert 1 - dot / math.hypot(*case["mean"]) <= limit


def test_a_decoder_whose_files_name_a_pooling_embeds_alone_on_a_device(tmp_path):
    """On the CPU it generates as well."""
    if not (support.SHARED / "tiny/qwen3").exists():
        pytest.skip("shared/tiny is not here")
    model = shutil.copytree(support.SHARED / "tiny/qwen3", tmp_path / "model",
                            ignore=shutil.ignore_patterns("*.gguf"))
    (model / "modules.json").write_text(
        json.dumps([{"idx": i, "name": str(i), "path": path,
                     "type": f"sentence_transformers.models.{kind}"}
                    for i, (path, kind) in enumerate((("", "Transformer"),
                                                      ("1_Pooling", "Pooling")))]))
    (model / "1_Pooling").mkdir()
    (model / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode_lasttoken": True}))
    requests = [("/v1/embeddings", {"input": ["Hello", "a longer text about a dog"]}),
                ("/v1/completions", {"prompt": "Hello", "max_tokens": 1})]
    cpu = answers_of(tmp_path, model, requests, "--device", "cpu", "--reference")
    device = answers_of(tmp_path, model, requests, *on(HOST), status=1)
    assert cpu[1]["object"] == "text_completion"
    assert "makes embeddings; it serves /v1/embeddings" in device[1]["error"]["message"]
    for one, other in zip(cpu[0]["data"], device[0]["data"], strict=True):
        assert sum(a * b for a, b in zip(one["embedding"], other["embedding"])) >= 0.999
