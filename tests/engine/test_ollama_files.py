# SPDX-License-Identifier: Apache-2.0
"""The files of Ollama's converter: the same weights in its spelling have the logits of llama.cpp's
spelling, for every family.

Ollama names some numbers differently, leaves out numbers that are the same for a whole family, and
puts the encoder of pictures into the file of the text model. The functions below write the pairs
that its converter writes for a config.json."""
import json, math, pathlib

import pytest

import gguf_keys, gguf_of, support
from gguf_keys import ARRAY, BOOL, F32, I32, STRING, U32

HERE = pathlib.Path(__file__).resolve().parent / "families"
TINY = support.SHARED / "tiny"
needs_tiny = pytest.mark.skipif(not TINY.exists(), reason="shared/tiny is not here")
DECODERS = [
    "gemma2", "phi3", "phi3-long",
    *(pytest.param(family, marks=needs_tiny) for family in ("llama3", "mistral", "qwen2", "qwen3"))]


def config_of(family):
    return json.loads(((TINY if
                        (TINY / family).exists() else HERE) / family / "config.json").read_text())


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """family → (pairs, tensors) of llama.cpp's spelling."""
    folder, files = tmp_path_factory.mktemp("spellings"), {}

    def read(family):
        if family not in files:
            path = TINY / family / "model-bf16.gguf"
            if not path.exists():
                path = folder / f"{family}.gguf"
                gguf_of.convert(HERE / family, path)
            files[family] = gguf_keys.read(path)
        pairs, tensors = files[family]
        return dict(pairs), list(tensors)

    return read


def words_of(pairs):
    """The pairs of the tokenizer; Ollama's converter has no key for the space before a text."""
    words = {
        key: pair
        for key, pair in pairs.items()
        if key.startswith("tokenizer.") and not key.endswith("add_space_prefix")}
    return {"general.file_type": (U32, 1), "general.quantization_version": (U32, 2), **words}


def counts(architecture, **numbers):
    return {
        f"{architecture}.{key.replace('__', '.')}": (U32, number)
        for key, number in numbers.items()
        if number is not None}


def sizes(architecture, c):
    return {"general.architecture": (STRING, architecture)} | counts(
        architecture,
        block_count=c["num_hidden_layers"],
        context_length=c["max_position_embeddings"],
        embedding_length=c["hidden_size"],
        feed_forward_length=c["intermediate_size"],
        attention__head_count=c["num_attention_heads"],
        attention__head_count_kv=c.get("num_key_value_heads"))


def floats(architecture, **numbers):
    return {
        f"{architecture}.{key.replace('__', '.')}": (F32, number)
        for key, number in numbers.items()}


def llama(c):
    return sizes("llama", c) | floats(
        "llama",
        rope__freq_base=c["rope_theta"],
        attention__layer_norm_rms_epsilon=c["rms_norm_eps"]) | counts(
            "llama",
            vocab_size=c["vocab_size"],
            rope__dimension_count=c["hidden_size"] // c["num_attention_heads"],
            attention__head_dim=c["head_dim"],
            attention__key_length=c["head_dim"],
            attention__value_length=c["head_dim"])


def qwen(architecture, c):
    heads = {} if architecture == "qwen2" else counts(
        architecture, attention__key_length=c["head_dim"], attention__value_length=c["head_dim"])
    return sizes(architecture, c) | heads | floats(
        architecture,
        rope__freq_base=c["rope_theta"],
        attention__layer_norm_rms_epsilon=c["rms_norm_eps"])


def phi3(c):
    original, heads = c["original_max_position_embeddings"], c["num_attention_heads"]
    pairs = sizes("phi3", c) | floats("phi3",
                                      rope__freq_base=c["rope_theta"],
                                      attention__layer_norm_rms_epsilon=c["rms_norm_eps"]) | counts(
                                          "phi3",
                                          rope__dimension_count=c["hidden_size"] // heads,
                                          rope__scaling__original_context_length=original,
                                          attention__sliding_window=c["sliding_window"] or 0)
    if c["rope_scaling"]:
        scale = c["max_position_embeddings"] / original
        factor = (1 + math.log(scale) / math.log(original)) ** 0.5
        pairs |= floats("phi3", rope__scaling__attn_factor=max(factor, 1.0))
    return pairs


def gemma2(c):
    return sizes("gemma2", c) | counts("gemma2",
                                       attention__key_length=c["head_dim"],
                                       attention__value_length=c["head_dim"],
                                       attention__sliding_window=c["sliding_window"]) | floats(
                                           "gemma2",
                                           attention__layer_norm_rms_epsilon=c["rms_norm_eps"],
                                           attn_logit_softcapping=c["attn_logit_softcapping"],
                                           final_logit_softcapping=c["final_logit_softcapping"])


OLLAMA = {
    "llama3": llama, "mistral": llama, "qwen2": lambda c: qwen("qwen2", c),
    "qwen3": lambda c: qwen("qwen3", c), "gemma2": gemma2, "phi3": phi3, "phi3-long": phi3}


def logits_of(path, count):
    """Of the last position; `count` tokens, as many as the context has at most."""
    ids = [2] + [6 + i * 29 % 58 for i in range(count - 1)]
    done = support.quern("logits",
                         "--model",
                         path,
                         "--reference",
                         input=json.dumps({"ids": ids, "positions": [-1], "top": 64}))
    assert done.returncode == 0, done.stderr
    return dict(map(tuple, json.loads(done.stdout)["positions"][0]["top"]))


def assert_same(first, second, context):
    for count in (5, min(500, context)):
        expected, got = logits_of(first, count), logits_of(second, count)
        assert expected.keys() == got.keys() and max(abs(expected[i] - got[i])
                                                     for i in expected) <= 1e-3, count


def refusal_of(path):
    done = support.quern("logits", "--model", path, input=json.dumps({"ids": [2, 3, 4]}))
    assert done.returncode != 0
    return done.stderr


@pytest.mark.parametrize("family", DECODERS)
def test_a_family_has_the_same_logits_in_both_spellings(base, tmp_path, family):
    pairs, tensors = base(family)
    c = config_of(family)
    first = gguf_keys.write(tmp_path / "llama.cpp.gguf", pairs, tensors)
    if family == "phi3":  # its converter writes both factors, empty where the model has none
        tensors = [
            (f"rope_factors_{kind}.weight", [0], 0, b"") for kind in ("long", "short")] + tensors
    second = gguf_keys.write(tmp_path / "ollama.gguf", words_of(pairs) | OLLAMA[family](c), tensors)
    assert_same(first, second, 64 if family == "phi3-long" else c["max_position_embeddings"])


@pytest.mark.parametrize("family", ["bert", "nomic-bert"])
def test_an_encoder_has_the_same_vectors_in_both_spellings(base, tmp_path, family):
    pairs, tensors = base(family)
    c = config_of(family)
    words = {
        key: pair
        for key, pair in words_of(pairs).items()
        if key != "tokenizer.ggml.seperator_token_id"}
    if "tokenizer.ggml.seperator_token_id" in pairs:
        words["tokenizer.ggml.separator_token_id"] = pairs["tokenizer.ggml.seperator_token_id"]
    own = words | sizes(family, c) | floats(
        family, attention__layer_norm_epsilon=c["layer_norm_eps"]) | {
            f"{family}.attention.causal": (BOOL, False),
            f"{family}.pooling_type": pairs[f"{family}.pooling_type"],
            f"{family}.normalize_embeddings": (BOOL, True)}
    if family == "nomic-bert":
        own |= floats(family, rope__freq_base=c["rope_theta"])
    query, vectors = json.dumps({
        "ids": [[2, 7, 9, 11, 3], [2] + [5 + i % 40 for i in range(40)] + [3]]}), []
    for name, keys in (("llama.cpp", pairs), ("ollama", own)):
        done = support.quern("embed",
                             "--model",
                             gguf_keys.write(tmp_path / f"{name}.gguf", keys, tensors),
                             input=query)
        assert done.returncode == 0, done.stderr
        vectors.append(json.loads(done.stdout)["embeddings"])
    assert vectors[0] == vectors[1]


def of_gemma3(pairs):
    """The pairs of both forms of its converter: those for text, and those for text and pictures."""
    c = config_of("gemma3")
    common = words_of(pairs) | sizes("gemma3", c) | counts(
        "gemma3",
        attention__key_length=c["head_dim"],
        attention__value_length=c["head_dim"],
        attention__sliding_window=c["sliding_window"])
    text = common | floats("gemma3", attention__layer_norm_rms_epsilon=c["rms_norm_eps"])
    pictures = common | counts("gemma3",
                               context_length=131072,
                               vision__block_count=1,
                               vision__embedding_length=32,
                               vision__feed_forward_length=64,
                               vision__image_size=56,
                               vision__patch_size=14,
                               vision__num_channels=3,
                               vision__attention__head_count=2,
                               mm__tokens_per_image=256) | floats(
                                   "gemma3", vision__attention__layer_norm_epsilon=1e-6)
    return text, pictures


def without(pairs, *ends):
    return {key: pair for key, pair in pairs.items() if not key.endswith(ends)}


SCALING = ("rope.scaling.type", "rope.scaling.factor")


@needs_tiny
@pytest.mark.parametrize("bases", [
    pytest.param(floats("gemma3",
                        rope__global__freq_base=1e6,
                        rope__local__freq_base=1e4,
                        final_logit_softcapping=30.0),
                 id="first converter"),
    pytest.param(floats("gemma3", rope__freq_base=1e6, rope__local__freq_base=1e4),
                 id="second converter")])
def test_gemma3_for_text_has_the_same_logits_in_both_spellings(base, tmp_path, bases):
    pairs, tensors = base("gemma3")
    plain = without(pairs, *SCALING)
    assert_same(gguf_keys.write(tmp_path / "llama.cpp.gguf", plain, tensors),
                gguf_keys.write(tmp_path / "ollama.gguf",
                                of_gemma3(pairs)[0] | bases, tensors), 1024)


@needs_tiny
def test_gemma3_with_yarn_is_the_model_of_its_folder(base, tmp_path):
    """Rnj-1 in Ollama's spelling: YaRN on the layers without a window."""
    pairs, tensors = base("gemma3")
    numbers = {"factor": 4.0, "beta_fast": 64.0, "beta_slow": 1.0}
    config = config_of("gemma3") | {"rope_scaling": numbers | {
        "rope_type": "yarn", "original_max_position_embeddings": 64}}
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("model.safetensors", "tokenizer.json"):
        (folder / name).symlink_to(TINY / "gemma3" / name)
    (folder / "config.json").write_text(json.dumps(config))
    own = without(pairs, *SCALING) | {
        f"gemma3.rope.scaling.{key}": (F32, number) for key, number in numbers.items()} | {
            "gemma3.rope.scaling.type": (STRING, "yarn"),
            "gemma3.rope.scaling.original_context_length": (U32, 64),
            "gemma3.attention.scale": (F32, config["query_pre_attn_scalar"]**-0.5)}
    assert_same(folder, gguf_keys.write(tmp_path / "ollama.gguf", own, tensors), 1024)


@needs_tiny
def test_gemma3_with_pictures_is_served_as_a_text_model(base, tmp_path):
    pairs, tensors = base("gemma3")
    own = of_gemma3(pairs)[1]
    for key, extra in (("tokens", "<image_soft_token>"), ("scores", -1000.0), ("token_type", 4)):
        kind, (element, values) = own[f"tokenizer.ggml.{key}"]
        own[f"tokenizer.ggml.{key}"] = kind, (element, values + [extra])
    vision = [("v.patch_embedding.weight", [14, 14, 3, 32], 0, bytes(14 * 14 * 3 * 32 * 4)),
              ("v.blk.0.attn_q.weight", [32, 32], 0, bytes(4096)),
              ("mm.mm_input_projection.weight", [64, 32], 0, bytes(8192)),
              ("mm.mm_soft_emb_norm.weight", [32], 0, bytes(128))]
    assert_same(gguf_keys.write(tmp_path / "llama.cpp.gguf", pairs, tensors),
                gguf_keys.write(tmp_path / "ollama.gguf", own, vision + tensors), 1024)
    words = json.loads(
        support.quern("tokenize",
                      "--model",
                      tmp_path / "ollama.gguf",
                      "--special",
                      input="<image_soft_token>").stdout)
    assert 640 not in words, "a token without a row"


@needs_tiny
def test_the_layers_with_a_window_are_a_period_or_a_list(base, tmp_path):
    pairs, tensors = base("gemma3")
    layers, key = config_of(
        "gemma3")["num_hidden_layers"], "gemma3.attention.sliding_window_pattern"
    first = gguf_keys.write(tmp_path / "first.gguf", pairs, tensors)
    for pattern in ((U32, 6), (I32, 6), (ARRAY, (BOOL, [
        (i + 1) % 6 != 0 for i in range(layers)])), (ARRAY, (U32, [
            int(i != 5) for i in range(layers)]))):
        assert_same(first, gguf_keys.write(tmp_path / "second.gguf", pairs | {key: pattern},
                                           tensors), 1024)
    for pattern, same in (((U32, 3), [1, 1, 0, 1, 1, 0, 1]), ((U32, 1), [0] * 7),
                          ((U32, 0), [1] * 7)):  # no layer without the window: all have it
        second = gguf_keys.write(tmp_path / "second.gguf", pairs | {key: pattern}, tensors)
        assert_same(
            gguf_keys.write(tmp_path / "third.gguf",
                            pairs | {key: (ARRAY, (BOOL, list(map(bool, same))))}, tensors), second,
            1024)
        assert logits_of(first, 500) != logits_of(second, 500)
    for pattern, sentence in (((ARRAY, (BOOL, [True] * 3)), f"{key} has 3 elements for 7 layers"),
                              ((ARRAY, (STRING, ["a"] * 7)), f"{key} is no list of flags"),
                              ((U32, 513), f"{key} is 513"), ((STRING, "six"), key)):
        assert sentence in refusal_of(
            gguf_keys.write(tmp_path / "second.gguf", pairs | {key: pattern}, tensors))


@needs_tiny
@pytest.mark.parametrize("family,key", [("llama3", "attention.layer_norm_rms_epsilon"),
                                        ("qwen2", "rope.freq_base"), ("qwen3", "rope.freq_base"),
                                        ("nomic-bert", "rope.freq_base"),
                                        ("gemma3", "attention.sliding_window"),
                                        ("gemma2", "attention.sliding_window")])
def test_a_number_that_differs_within_a_family_must_be_there(base, tmp_path, family, key):
    pairs, tensors = base(family)
    assert f"{key} is missing" in refusal_of(
        gguf_keys.write(tmp_path / "m.gguf", without(pairs, "." + key), tensors))


@needs_tiny
@pytest.mark.parametrize("key", [
    "attention.layer_norm_rms_epsilon", "rope.freq_base", "rope.freq_base_swa",
    "attention.key_length"])
def test_a_number_of_all_models_of_a_family_may_be_missing(base, tmp_path, key):
    pairs, tensors = base("gemma3")
    assert_same(gguf_keys.write(tmp_path / "whole.gguf", pairs, tensors),
                gguf_keys.write(tmp_path / "m.gguf", without(pairs, "." + key), tensors), 1024)


@needs_tiny
def test_two_names_with_two_values_are_refused(base, tmp_path):
    pairs, tensors = base("gemma3")
    path = gguf_keys.write(tmp_path / "m.gguf",
                           pairs | {"gemma3.rope.global.freq_base": (F32, 1e4)}, tensors)
    assert "gemma3.rope.freq_base is 1e+06, but gemma3.rope.global.freq_base is 10000" in refusal_of(
        path)


@needs_tiny
@pytest.mark.parametrize("tokens,pre", [(["<|begin_of_text|>", "<|eot_id|>"], None),
                                        (["<|begin_of_text|>", "<|eot_id|>"], "default")])
def test_a_llama_3_without_a_pre_tokenizer_has_its_own(base, tmp_path, tokens, pre):
    pairs, tensors = base("llama3")
    assert set(tokens) <= set(pairs["tokenizer.ggml.tokens"][1][1])
    own = without(pairs, "tokenizer.ggml.pre",
                  "add_bos_token") | ({"tokenizer.ggml.pre": (STRING, pre)} if pre else {})
    text = "It's 12345 o'clock,\n\n  isn't IT? \u00e9t\u00e9"
    ids = [
        support.quern("tokenize",
                      "--bos",
                      "--model",
                      gguf_keys.write(tmp_path / f"{i}.gguf", keys, tensors),
                      input=text).stdout for i, keys in enumerate((pairs, own))]
    assert ids[0] == ids[1] and ids[0].startswith("[475,")


@needs_tiny
def test_gemma_without_a_template_has_that_of_its_family(base, tmp_path):
    pairs, tensors = base("gemma3")
    own = without(pairs, "chat_template")
    path = gguf_keys.write(tmp_path / "m.gguf", own, tensors)
    assert {"<start_of_turn>", "<end_of_turn>"} <= set(own["tokenizer.ggml.tokens"][1][1])

    def rendered(model, messages, **variables):
        done = support.quern(
            "render",
            "--model",
            model,
            input=json.dumps({"messages": [dict(zip(("role", "content"), m))
                                           for m in messages]} | variables))
        assert done.returncode == 0, done.stderr
        return done.stdout.rstrip("\n")

    chat = [("system", "Be terse."), ("user", " Hi. "), ("assistant", "Yes?"), ("user", "Bye.")]
    turns = [
        "<bos><start_of_turn>user\nBe terse.\n\nHi.", "<start_of_turn>model\nYes?",
        "<start_of_turn>user\nBye.", "<start_of_turn>model"]
    assert rendered(path, chat, add_generation_prompt=True) == "<end_of_turn>\n".join(turns)
    assert rendered(path, chat[1:2]) == "<bos><start_of_turn>user\nHi.<end_of_turn>"
    assert rendered(
        gguf_keys.write(tmp_path / "own.gguf", own | {"tokenizer.chat_template": (STRING, "mine")},
                        tensors), chat) == "mine"


@needs_tiny
@pytest.mark.parametrize("kinds", [1, 5, 0, None])
def test_a_file_that_lost_the_kinds_of_its_tokens_has_the_same_ids(base, tmp_path, kinds):
    """Ordinary, unused, not known, and no list: marks of turns are control tokens, and bytes are
    bytes."""
    pairs, tensors = base("gemma3")
    key = "tokenizer.ggml.token_type"
    texts, whole = pairs["tokenizer.ggml.tokens"][1][1], pairs[key][1][1]
    lost = [
        kinds if text.startswith(("<start_of", "<end_of", "<bos", "<eos")) or
        (kinds != 5 and text.startswith("<0x")) else kind
        for text, kind in zip(texts, whole, strict=True)]
    own = pairs | {key: (ARRAY, (I32, lost))} if kinds is not None else without(pairs, key)
    files = [
        gguf_keys.write(tmp_path / f"{i}.gguf", keys, tensors)
        for i, keys in enumerate((pairs, own))]
    for text in ("<bos><start_of_turn>user\n\u2603 h\u00e9<end_of_turn>\n<eos>", "a\tb\x01"):
        for flags in ((), ("--special",)):
            ids = [
                support.quern("tokenize", *flags, "--model", path, input=text).stdout
                for path in files]
            assert ids[0] == ids[1] and ids[0].startswith("["), flags
