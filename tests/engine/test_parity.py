# SPDX-License-Identifier: Apache-2.0
"""The default model against the reference numbers of shared/vectors, folders of every family
against those of shared/tiny, and the engine against itself: through the command line."""
import json, math

import pytest

import support

VECTORS = support.SHARED / "vectors" / "smollm2.json"
TINY = support.SHARED / "tiny"
NEXT = support.SHARED / "tiny_next"
pytestmark = pytest.mark.skipif(not VECTORS.exists(), reason="shared/vectors is not here")

# The largest |logit difference| allowed over the reference's top 20. The reference path is float32
# throughout; the fast path rounds activations to steps that groups of 32 share and keeps keys and
# values in half precision.
TOLERANCE = {"reference": 1e-3, "fast": 0.35}
# Where the two best logits are closer than this, either may come first: engine.md 7.2's near-tie.
MARGIN = {"reference": 2e-3, "fast": 0.15}


@pytest.fixture(scope="module")
def cases():
    return json.loads(VECTORS.read_text())["cases"]


def flags(path):
    return ["--reference"] if path == "reference" else []


def taken(cases, path):
    """The slow path takes the short prompts; model/quality has it for all, in one process."""
    return [case for case in cases if path == "fast" or len(case["prompt_ids"]) < 10]


def test_the_ids_of_the_prompts_are_exact(cases):
    lines = "".join(json.dumps(case["prompt"]) + "\n" for case in cases)
    done = support.quern("tokenize", "--model", "smollm2", "--special", "--batch", input=lines)
    assert done.returncode == 0, done.stderr
    for case, line in zip(cases, done.stdout.splitlines(), strict=True):
        assert json.loads(line) == case["prompt_ids"]


@pytest.mark.parametrize("path", ["reference", "fast"])
def test_the_logits_are_within_tolerance_and_the_first_is_the_first(cases, path):
    cases = taken(cases, path)
    lines = "".join(
        json.dumps({"ids": case["prompt_ids"], "positions": [-1], "top": 64}) + "\n"
        for case in cases)
    done = support.quern("logits", "--model", "smollm2", "--batch", *flags(path), input=lines)
    assert done.returncode == 0, done.stderr
    worst = 0.0
    for case, line in zip(cases, done.stdout.splitlines(), strict=True):
        top = json.loads(line)["positions"][0]["top"]
        if case["top20"][0]["logit"] - case["top20"][1]["logit"] >= MARGIN[path]:
            assert top[0][0] == case["top20"][0]["id"]
        got = dict(map(tuple, top))
        for entry in case["top20"]:
            assert entry["id"] in got
            worst = max(worst, abs(got[entry["id"]] - entry["logit"]))
    print(f"{path}: largest difference {worst:.2e}")
    assert worst <= TOLERANCE[path]


@pytest.mark.parametrize("path", ["reference", "fast"])
def test_the_greedy_continuation_is_exact_up_to_the_first_near_tie(cases, path):
    queries, cases = "", taken(cases, path)
    for case in cases:  # one pass per case: the logits before each token of the continuation
        ids, expected = case["prompt_ids"], case["greedy_ids"]
        asked = list(range(len(ids) - 1, len(ids) + len(expected) - 1))
        queries += json.dumps({"ids": ids + expected[:-1], "positions": asked, "top": 1}) + "\n"
    done = support.quern("logits", "--model", "smollm2", "--batch", *flags(path), input=queries)
    assert done.returncode == 0, done.stderr
    for case, line in zip(cases, done.stdout.splitlines(), strict=True):
        compared = 0
        positions = json.loads(line)["positions"]
        for token, margin, position in zip(case["greedy_ids"],
                                           case["greedy_margin"],
                                           positions,
                                           strict=True):
            if margin >= MARGIN[path]:
                assert position["top"][0][0] == token
                compared += 1
        assert compared > 0


def run(tmp_path, name, content, *arguments):
    (tmp_path / "in.jsonl").write_bytes(content)
    out = tmp_path / f"{name}.jsonl"
    done = support.quern("run", "-i", tmp_path / "in.jsonl", "-o", out, "--overwrite", "--model",
                         "smollm2", *arguments)
    assert done.returncode == 0, done.stderr
    return [support.masked(json.loads(line)) for line in out.read_text().splitlines()]


def test_greedy_text_is_the_same_at_any_batch_size_thread_count_and_chunking(tmp_path):
    content = support.jsonl([
        support.request(f"c{i}",
                        f"Write about number {i}. " + "Keep it short and plain. " * (i % 7),
                        temperature=0,
                        max_tokens=16) for i in range(12)])
    first = run(tmp_path, "alone", content, "--max-num-seqs", 1, "--threads", 1)
    for name, arguments in {
            "many": ("--max-num-seqs", 64), "three": ("--max-num-seqs", 3, "--threads", 2),
            "small-steps": ("--max-num-batched-tokens", 48, "--max-num-seqs", 16),
            "no-sharing": ("--no-enable-prefix-caching", )}.items():
        assert run(tmp_path, name, content, *arguments) == first, name


def test_guessed_tokens_change_no_text(tmp_path):
    quoted = "The northern pier needs repair before winter; the ferry runs twice a day."
    shape = {"type": "json_schema", "json_schema": {"name": "copy", "schema": {
        "type": "object", "properties": {"text": {"type": "string", "maxLength": 90}},
        "required": ["text"], "additionalProperties": False}}}
    wanted = {
        "greedy": {}, "drawn": {"temperature": 0.7, "seed": 3},
        "penalised": {"frequency_penalty": 0.4, "repetition_penalty": 1.1},
        "shaped": {"response_format": shape}, "stopped": {"stop": ["winter"]},
        "scored": {"logprobs": True, "top_logprobs": 2}}
    content = support.jsonl([
        support.request(name, f"Repeat word for word: {quoted} {quoted}",
                        **{"temperature": 0, "max_tokens": 32, **fields})
        for name, fields in wanted.items()])
    first = run(tmp_path, "one-by-one", content, "--num-speculative-tokens", 0)
    assert run(tmp_path, "guessed", content, "--max-num-seqs", 2, "--num-speculative-tokens",
               16) == first


# The model itself is the draft: it is nearly always right, and shares the threads.
DRAFT = "--speculative-model", "smollm2", "--num-speculative-tokens", "5"


def test_guesses_of_a_draft_model_change_no_text_and_are_counted(tmp_path):
    wanted = {
        "greedy": {}, "drawn": {"temperature": 0.7, "seed": 3}, "stopped": {"stop": ["the"]},
        "shaped": {"response_format": {"type": "json_object"}}, "scored": {"logprobs": True}}
    chats = [
        support.request(name, f"Tell me about lighthouses, number {i}.",
                        **{"temperature": 0, "max_tokens": 40, **fields})["body"]
        for i, (name, fields) in enumerate(wanted.items())]

    def answers(state, *arguments):
        with support.serving(state, "--model", "smollm2", "--result-cache-bytes", "0",
                             *arguments) as server:
            bodies = [server.json("POST", "/v1/chat/completions", chat) for chat in chats]
            if arguments[0] == DRAFT[0]:
                support.until(lambda: guessed(server) > 0)
            return [body["choices"] for body in bodies]

    def guessed(server):
        """Tokens that were guessed rightly and do not stand in the texts."""
        text = server.call("GET", "/metrics")[1].decode()
        return sum(float(line.split()[-1]) for line in text.splitlines()
                   if line.startswith("quern_engine_spec_decode_accepted_tokens_total{"))

    alone = answers(tmp_path / "alone", "--num-speculative-tokens", "0")
    assert answers(tmp_path / "guessed", *DRAFT) == alone


@pytest.mark.parametrize("model,draft,more,sentence", [
    ("smollm2", TINY / "llama3/model-q8_0.gguf", (), "the model that it guesses for"),
    (TINY / "llama3/model-q8_0.gguf", TINY / "gemma3/model-q8_0.gguf", (), "vocabulary"),
    ("smollm2", "smollm2", ("--num-speculative-tokens", 0), "allows no guess"),
    ("smollm2", "echo", (), "echo is no model that can guess"),
    ("smollm2", "/nowhere.gguf", (), "/nowhere.gguf"),
    ("all-minilm", "smollm2", (), "does not generate"),
    ("smollm2", "all-minilm", (), "--speculative-model"),
    (NEXT / "qwen3_5", NEXT / "qwen3_5", (), "recurrent layers"),
])
def test_a_draft_model_that_cannot_guess_is_refused(tmp_path, model, draft, more, sentence):
    (tmp_path / "in.jsonl").write_bytes(support.jsonl([support.request("a", "Hi")]))
    done = support.quern("run", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl",
                         "--device", "cpu", "--model", model, "--speculative-model", draft, *more)
    assert done.returncode != 0
    assert "--speculative-model" in done.stderr and sentence in done.stderr


def test_guessed_tokens_are_counted(model_server):
    def count(name):
        _, text = model_server.call("GET", "/metrics")
        return sum(float(line.split()[-1]) for line in text.decode().splitlines()
                   if line.startswith(f"quern_engine_spec_decode_{name}_total{{"))

    def has_more():
        # Where other work makes steps of several rows look slow, the next texts have guesses.
        model_server.json("POST", "/v1/completions", {
            "model": "smollm2", "prompt": "red green blue " * 12, "temperature": 0,
            "max_tokens": 60})
        return count("accepted_tokens") > accepted

    accepted = count("accepted_tokens")
    support.until(has_more)
    assert 0 < count("accepted_tokens") <= count("draft_tokens") and 0 < count("drafts")


def test_the_same_seed_gives_the_same_text_whatever_else_is_in_the_batch(tmp_path):
    seeded = [
        support.request(f"s{i}",
                        "Tell me a story about a fox.",
                        temperature=0.9,
                        top_p=0.95,
                        seed=40 + i,
                        max_tokens=20) for i in range(4)]
    others = [
        support.request(f"o{i}",
                        f"Describe the number {i} at length.",
                        temperature=1,
                        max_tokens=30) for i in range(20)]
    alone = run(tmp_path, "alone", support.jsonl(seeded))
    beside = run(tmp_path, "beside", support.jsonl(others[:10] + seeded + others[10:]))
    assert beside[10:14] == alone
    assert len(set(alone)) == 4


def test_shared_prompts_are_computed_once_and_counted(model_server):
    body = {
        "model": "smollm2", "temperature": 0, "max_tokens": 4, "messages": [{
            "role": "system", "content": "One careful rule after another. " * 30}, {
                "role": "user", "content": "Begin."}]}
    first = model_server.json("POST", "/v1/chat/completions", body)["usage"]
    second = model_server.json("POST", "/v1/chat/completions", body)["usage"]
    # Other chats of this server may have begun with the template's first tokens, too.
    assert first["prompt_tokens_details"]["cached_tokens"] < 16
    assert 0 < second["prompt_tokens_details"]["cached_tokens"] < second["prompt_tokens"] == first[
        "prompt_tokens"]


@pytest.mark.parametrize("shared", [1, 43, 48, 63])
def test_a_prefix_that_ends_inside_a_block_is_counted_to_its_last_token(model_server, shared):
    """A block has 16 tokens. The second prompt begins with `shared` tokens of the first; its answer
    is that of a prompt computed whole."""
    first, second = [1000 + i for i in range(64)], [
        1000 + i if i < shared else 2000 + i for i in range(60 + shared % 16)]

    def ask(prompt, salt):
        answer = model_server.json("POST", "/v1/completions", {
            "model": "smollm2", "prompt": prompt, "temperature": 0, "max_tokens": 8,
            "cache_salt": salt})
        return answer["choices"][0]["text"], answer["usage"]["prompt_tokens_details"][
            "cached_tokens"]

    salt = f"part {shared}"
    assert ask(first, salt)[1] == 0
    text, cached = ask(second, salt)
    assert cached == min(shared, len(second) - 1)
    assert ask(second, salt + " alone") == (text, 0)


def whole_rows(model, prompts, positions, *arguments):
    """The logits of each prompt at its positions, all of the vocabulary, by token."""
    vocab = json.loads((TINY / family_of(model) / "config.json").read_text())["vocab_size"]
    lines = "".join(
        json.dumps({"ids": ids, "positions": at, "top": vocab}) + "\n"
        for ids, at in zip(prompts, positions))
    done = support.quern("logits",
                         "--model",
                         model,
                         "--batch",
                         "--reference",
                         *arguments,
                         input=lines)
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        yield [dict(map(tuple, row["top"])) for row in json.loads(line)["positions"]]


def family_of(model):
    """The family of a tiny model's path."""
    return next(part for part in reversed(model.parts) if (TINY / part).is_dir())


def tiny_folder(tmp_path, family, config):
    """The folder with one of its two configs as config.json, the rest linked as the Hugging Face
    cache does."""
    folder = tmp_path / family
    folder.mkdir()
    for file in (TINY / family).iterdir():
        if file.suffix != ".gguf" and not file.name.startswith("config"):
            (folder / file.name).symlink_to(file)
    (folder / "config.json").symlink_to(TINY / family / config)
    return folder


@pytest.mark.parametrize("config", ["config.json", "config.v5.json"])
@pytest.mark.parametrize("family", ["llama3", "mistral", "qwen2", "qwen3", "gemma3"])
def test_a_folder_of_every_family_gives_the_reference_s_numbers(tmp_path, family, config):
    cases = json.loads((TINY / family / "reference.json").read_text())["cases"]
    folder = tiny_folder(tmp_path, family, config)
    prompts = [case["ids"] + case["greedy_ids"][:-1] for case in cases]
    positions = [list(range(len(ids))) for ids in prompts]
    worst = 0.0
    for case, rows in zip(cases, whole_rows(folder, prompts, positions), strict=True):
        last = len(case["ids"]) - 1
        worst = max(
            worst, max(abs(rows[last][id] - logit) for id, logit in enumerate(case["last_logits"])))
        for at, logprob in enumerate(case["prompt_logprobs"]):
            top = max(rows[at].values())
            sum_exp = math.log(sum(math.exp(logit - top) for logit in rows[at].values())) + top
            worst = max(worst, abs(rows[at][case["ids"][at + 1]] - sum_exp - logprob))
        for i, (token, margin) in enumerate(zip(case["greedy_ids"], case["greedy_margin"])):
            if margin < MARGIN["reference"]:
                break
            assert max(rows[last + i], key=rows[last + i].get) == token
    print(f"{family}, {config}: largest difference {worst:.2e}")
    assert worst <= TOLERANCE["reference"]


@pytest.mark.parametrize("family", ["llama3", "qwen2", "qwen3"])
def test_a_folder_and_the_gguf_made_of_it_are_one_model(family):
    cases = json.loads((TINY / family / "reference.json").read_text())["cases"]
    prompts = [case["ids"] for case in cases]
    positions = [list(range(len(ids))) for ids in prompts]
    ours = whole_rows(TINY / family, prompts, positions)
    theirs = whole_rows(TINY / family / "model-bf16.gguf", prompts, positions)
    for mine, other in zip(ours, theirs, strict=True):
        for row, expected in zip(mine, other, strict=True):
            assert max(row, key=row.get) == max(expected, key=expected.get)
            assert max(abs(row[id] - logit) for id, logit in expected.items()) <= 1e-4
