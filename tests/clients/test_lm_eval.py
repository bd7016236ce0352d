# SPDX-License-Identifier: Apache-2.0
"""EleutherAI's lm-evaluation-harness against the CPU engine: with the server's tokenizer and with
one on the client's side, by text and by tokens.

Its figures are compared with log probabilities that another implementation computed in float32
(../shared/tiny)."""
import json, os, pathlib, subprocess, sys

import pytest

import support
from conftest import TINY_FOLDER

TASK = """task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
metric_list:
"""
KINDS = {
    "known": 'output_type: loglikelihood\ndoc_to_text: "{{begin}}"\ndoc_to_target: "{{end}}"\ntarget_delimiter: ""\n',
    "choice": 'output_type: multiple_choice\ndoc_to_text: "{{begin}}"\ndoc_to_choice: "{{choices}}"\ndoc_to_target: 0\n',
    "rolling": 'output_type: loglikelihood_rolling\ndoc_to_text: ""\ndoc_to_target: "{{begin}}{{end}}"\n',
    "generated": 'output_type: generate_until\ndoc_to_text: "{{begin}}{{end}}"\ndoc_to_target: "{{end}}"\n'
    'generation_kwargs:\n  until: ["\\n\\n"]\n  max_gen_toks: 12\n', }
METRICS = {
    "known": ["acc"], "choice": ["acc", "acc_norm"], "rolling": ["byte_perplexity"], "generated": [
        "exact_match"]}


def cut(server, model, path):
    """Prompts whose log probabilities another implementation computed in float32, each cut after
    its first token."""
    found = []
    for case in json.loads(path.read_text())["cases"]:
        ids = case.get("ids") or case["prompt_ids"]
        begin = server.json("POST", "/detokenize", {"model": model, "tokens": ids[:1]})["prompt"]
        assert case["prompt"].startswith(begin)
        end = case["prompt"][len(begin):]
        found.append({
            "begin": begin, "end": end, "known": sum(case["prompt_logprobs"]),
            "count": len(ids) - 1, "choices": [end, " of flour", " and a stone"]})
    return found


def check_known(cases, samples, offset, each):
    """The scores are the known ones; a token's log probability is -12 on average in the model of
    random weights, so that a slip of one token would show."""
    for case, sample in zip(cases,
                            sorted(samples, key=lambda sample: sample["doc_id"]),
                            strict=True):
        assert float(sample["filtered_resps"][0][0]) == pytest.approx(
            case["known"], abs=offset + each * case["count"])


@pytest.fixture(scope="module")
def cases(tiny):
    return cut(tiny, "tiny", TINY_FOLDER / "reference.json")


def evaluate(folder, cases, tasks, kind, route, **model):
    """Results and samples of a run of the program: ({task: metrics}, {task: [sample]})."""
    (folder / "tasks").mkdir()
    data = folder / "tasks/data.jsonl"
    data.write_text("".join(json.dumps(case) + "\n" for case in cases))
    for name in tasks:
        metrics = "".join(f"  - metric: {metric}\n" for metric in METRICS[name])
        (folder / f"tasks/{name}.yaml"
         ).write_text(TASK.format(name=f"quern_{name}", data=data) + metrics + KINDS[name])
    arguments = ",".join(f"{name}={value}" for name, value in {
        "model": "tiny", "base_url": route, "max_length": 1024, **model}.items())
    done = subprocess.run([
        pathlib.Path(sys.executable).with_name("lm_eval"), "run", "--model", kind, "--model_args",
        arguments, "--tasks", ",".join(
            f"quern_{name}" for name in tasks), "--include_path", "tasks", "--output_path", "out",
        "--log_samples", *(["--apply_chat_template"] if kind == "local-chat-completions" else [])],
                          cwd=folder,
                          capture_output=True,
                          text=True,
                          timeout=900,
                          env={
                              **os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1",
                              "HF_HOME": str(folder / "hf")})
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-4000:]
    results = json.loads(next((folder / "out").rglob("results_*.json")).read_text())["results"]
    samples = {
        name: [
            json.loads(text)
            for text in next((
                folder / "out").rglob(f"samples_quern_{name}_*.jsonl")).read_text().splitlines()]
        for name in tasks}
    return {name: results[f"quern_{name}"] for name in tasks}, samples


TOKENIZERS = {
    "remote": {"tokenizer_backend": "remote"}, "found": {},
    "local": {"tokenizer_backend": "huggingface", "tokenizer": TINY_FOLDER}, "text": {
        "tokenizer_backend": "huggingface", "tokenizer": TINY_FOLDER, "tokenized_requests": False}}


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_the_scores_of_a_text_are_the_known_ones(tiny, cases, tmp_path, tokenizer):
    """`found`: the program finds by itself that the server has the routes for its tokenizer."""
    results, samples = evaluate(tmp_path,
                                cases,
                                list(KINDS),
                                "local-completions",
                                f"{tiny.url}/completions",
                                num_concurrent=4,
                                **TOKENIZERS[tokenizer])
    check_known(cases, samples["known"], 0.3, 0.01)
    for sample in samples["choice"]:
        assert len({float(entry[0]) for entry in sample["filtered_resps"]}) == 3
    assert all(isinstance(sample["filtered_resps"][0], str) for sample in samples["generated"])
    assert results["rolling"]["byte_perplexity,none"] > 1 and results["generated"][
        "exact_match,none"] == 0


def test_the_scores_of_a_real_model_are_the_known_ones(real, tmp_path):
    vectors = support.SHARED / "vectors/smollm2.json"
    if not vectors.exists():
        pytest.skip("the known numbers of ../shared are not there")
    cases = cut(real, "smollm2", vectors)
    _, samples = evaluate(tmp_path,
                          cases, ["known"],
                          "local-completions",
                          f"{real.url}/completions",
                          model="smollm2",
                          tokenizer_backend="remote")
    check_known(cases, samples["known"], 0.3, 0.02)


def test_the_tokenizers_of_both_sides_give_the_same_figures(tiny, cases, tmp_path):
    figures = {}
    for name in ("remote", "local"):
        (tmp_path / name).mkdir()
        results, samples = evaluate(tmp_path / name, cases, ["known", "generated"],
                                    "local-completions", f"{tiny.url}/completions",
                                    **TOKENIZERS[name])
        figures[name] = [
            results, {
                task: [sample["filtered_resps"]
                       for sample in found]
                for task, found in samples.items()}]
    assert figures["remote"] == figures["local"]


def test_chats_are_generated_as_a_plain_request_gets_them(tiny, cases, tmp_path):
    _, samples = evaluate(tmp_path,
                          cases, ["generated"],
                          "local-chat-completions",
                          f"{tiny.url}/chat/completions",
                          num_concurrent=4)
    for sample in samples["generated"]:
        body = {
            "model": "tiny", "messages": [{
                "role": "user", "content": sample["doc"]["begin"] + sample["doc"]["end"]}],
            "temperature": 0, "max_tokens": 12, "stop": ["\n\n"], "seed": 1234}
        answer = tiny.json("POST", "/v1/chat/completions", body)
        assert sample["filtered_resps"] == [answer["choices"][0]["message"]["content"]]


def test_a_model_that_is_not_served_ends_the_run(tiny, cases, tmp_path):
    with pytest.raises(AssertionError, match="404"):
        evaluate(tmp_path,
                 cases, ["generated"],
                 "local-chat-completions",
                 f"{tiny.url}/chat/completions",
                 model="absent",
                 max_retries=1)


def test_a_key_reaches_the_server(keyed, cases, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-right")
    _, samples = evaluate(tmp_path,
                          cases, ["generated"],
                          "local-chat-completions",
                          f"{keyed.url}/chat/completions",
                          model="gpt-4")
    assert [sample["filtered_resps"][0] for sample in samples["generated"]] == [
        sample["doc"]["begin"] + sample["doc"]["end"] for sample in samples["generated"]]
