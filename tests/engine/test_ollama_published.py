# SPDX-License-Identifier: Apache-2.0
"""Files that Ollama's registry has for families of today, as its converters of some months wrote
them: other keys and names, parts for pictures and sound inside, pre-tokenizers left out. The same
weights in llama.cpp's spelling have the same logits.

Source of the differences: llama/compat/llama-ollama-compat.cpp of Ollama, which tells llama.cpp
what such files lack."""
import json, math, pathlib, random, struct

import pytest

import gguf_keys, gguf_of, support
from gguf_keys import ARRAY, BOOL, F32, I32, STRING, U32

HERE = pathlib.Path(__file__).resolve().parent / "families"
TINY = support.SHARED / "tiny_next"
PICTURES = [("v.patch_embd.weight", [14, 14, 3, 32], 0, bytes(14 * 14 * 3 * 32 * 4)),
            ("v.blk.0.attn_q.weight", [32, 32], 0, bytes(4096)),
            ("mm.input_projection.weight", [64, 32], 0, bytes(8192))]
SOUND = [("a.blk.0.conv_dw.weight", [5, 32], 0, bytes(5 * 32 * 4))]
DRAFTS = [("mtp.fc.weight", [128, 64], 0, bytes(128 * 64 * 4)),
          ("mtp.norm.weight", [64], 0, bytes(256)),
          ("mtp.layers.0.mlp.up_proj.weight", [64, 128], 0, bytes(64 * 128 * 4))]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """family → (pairs, tensors) of llama.cpp's spelling."""
    folder, files = tmp_path_factory.mktemp("published"), {}

    def read(family):
        name, left_out = FOLDERS.get(family, (family, ()))
        if name not in files:
            source = TINY / name if (TINY / name).exists() else HERE / name
            if not source.exists():
                pytest.skip(f"{name} is not here")
            gguf_of.convert(source, folder / f"{name}.gguf")
            files[name] = gguf_keys.read(folder / f"{name}.gguf")
        pairs, tensors = files[name]
        return {
            key: pair
            for key, pair in pairs.items() if not any(part in key for part in left_out)
        }, list(tensors)

    return read


def renamed(pairs, tensors, architecture):
    """All of a model under another architecture's name."""
    old = pairs["general.architecture"][1] + "."
    own = {
        architecture + "." + key[len(old):] if key.startswith(old) else key: pair
        for key, pair in pairs.items()}
    return own | {"general.architecture": (STRING, architecture)}, tensors


def moved(pairs, names):
    """Keys under other names; None takes a key away."""
    for key, name in names.items():
        if key in pairs:
            pair = pairs.pop(key)
            if name:
                pairs[name] = pair
    return pairs


def tensors_named(tensors, *names):
    """Tensors whose names have other ends."""
    for old, new in names:
        tensors = [(name[:-len(old)] + new if name.endswith(old) else name, *rest)
                   for name, *rest in tensors]
    return tensors


def gemma4(pairs, tensors):
    return pairs | {
        "gemma4.vision.block_count": (U32, 1),
        "gemma4.audio.block_count": (U32, 1)}, PICTURES + SOUND + [
            ("model.vision_tower.std_bias", [32], 0, bytes(128))] + tensors


def qwen35(pairs, tensors):
    architecture = pairs["general.architecture"][1]
    layers = pairs[f"{architecture}.block_count"][1] - pairs[
        f"{architecture}.nextn_predict_layers"][1]
    every, heads = pairs[f"{architecture}.full_attention_interval"][1], pairs[
        f"{architecture}.attention.head_count_kv"][1]
    pairs = moved(pairs, {f"{architecture}.nextn_predict_layers": None})
    own = {
        "block_count": (U32, layers),
        "attention.head_count_kv":
            (ARRAY, (U32, [heads if (i + 1) % every == 0 else 0 for i in range(layers)])),
        "rope.dimension_sections": (ARRAY, (I32, [11, 11, 10])),
        "rope.mrope_section": (ARRAY, (I32, [11, 11, 10])), "rope.mrope_interleaved": (BOOL, True),
        "ssm.v_head_reordered": (BOOL, True), "vision.block_count": (U32, 1),
        "image_token_id": (U32, 7), "norm_top_k_prob": (BOOL, True)}
    pairs |= {f"{architecture}.{key}": pair for key, pair in own.items()}
    text = [tensor for tensor in tensors if not tensor[0].startswith(f"blk.{layers}.")]
    return pairs, PICTURES + DRAFTS + tensors_named(text, (".ssm_dt.bias", ".ssm_dt"))


def qwen3_next(pairs, tensors):
    every, layers = pairs["qwen3next.full_attention_interval"][1], pairs["qwen3next.block_count"][1]
    heads = pairs["qwen3next.attention.head_count_kv"][1]
    return pairs | {
        "qwen3next.attention.head_count_kv":
            (ARRAY, (U32, [heads if (i + 1) % every == 0 else 0 for i in range(layers)]))
    }, tensors_named(tensors, (".ssm_dt.bias", ".ssm_dt"))


def gpt_oss(pairs, tensors):
    pairs, tensors = renamed(pairs, tensors, "gptoss")
    pairs = moved(
        pairs, {
            "gptoss.expert_feed_forward_length": None, "gptoss.rope.scaling.type": None,
            "tokenizer.ggml.pre": None})
    return pairs, tensors_named(tensors, (".attn_output.weight", ".attn_out.weight"),
                                (".attn_output.bias", ".attn_out.bias"),
                                (".attn_sinks.weight", ".attn_sinks"),
                                (".post_attention_norm.weight", ".ffn_norm.weight"))


def lfm2(pairs, tensors):
    return moved(pairs, {"lfm2.rope.freq_base": None}) | {
        "lfm2.feed_forward_length": (U32, 2 * pairs["lfm2.feed_forward_length"][1])
    }, tensors_named(tensors, ("token_embd_norm.weight", "output_norm.weight"))


def olmo3(pairs, tensors):
    return renamed(pairs, tensors, "olmo3")


def mistral3(pairs, tensors):
    return moved(
        pairs, {
            "mistral3.rope.scaling.yarn_beta_fast": "mistral3.rope.scaling.beta_fast",
            "mistral3.rope.scaling.yarn_beta_slow": "mistral3.rope.scaling.beta_slow",
            "mistral3.rope.scaling.yarn_log_multiplier": "mistral3.rope.scaling.mscale_all_dim",
            "mistral3.attention.temperature_scale": "mistral3.rope.scaling_beta"}) | {
                "mistral3.vision.block_count": (U32, 1)}, PICTURES + tensors


def qwen25vl(pairs, tensors):
    pairs, tensors = renamed(pairs, tensors, "qwen25vl")
    return moved(pairs, {"qwen25vl.rope.dimension_sections": "qwen25vl.rope.mrope_section"
                         }), PICTURES + tensors


def mistral_small(pairs, tensors):
    """Without a scaling: an empty type, and 0 for each of its numbers."""
    own = {"type": (STRING, "")} | dict.fromkeys(("factor", "yarn_beta_fast", "yarn_beta_slow"),
                                                 (F32, 0.0))
    return pairs | {f"mistral3.rope.scaling.{key}": pair for key, pair in own.items()}, tensors


def ministral_first(pairs, tensors):
    """The original context is all that the first files of Ministral 3 say of its scaling."""
    pairs, tensors = mistral3(pairs, tensors)
    return {
        key: pair
        for key, pair in pairs.items()
        if ".rope.scaling." not in key or key.endswith("original_context_length")}, tensors


def gemma4_first(pairs, tensors):
    return pairs, tensors_named(tensors, ("ffn_down_exps.scale", "ffn_gate_inp.per_expert_scale"))


def deepseek(pairs, tensors):
    """One whose config states no scaling, no scores and no rank of q."""
    own = {
        "rope.scaling.type": (STRING, ""), "rope.scaling.factor": (F32, 0.0),
        "rope.scaling.original_context_length": (U32, 0),
        "rope.scaling.yarn_log_multiplier": (F32, 0.0), "expert_gating_func": (U32, 0),
        "attention.q_lora_rank": (U32, 0)}
    return pairs | {f"deepseek2.{key}": pair for key, pair in own.items()}, tensors_named(
        tensors, (".attn_output.weight", ".attn_out.weight"))


def glm4moelite(pairs, tensors):
    """The sizes of a head and those of a line of the cache have each other's names."""
    pairs, tensors = renamed(pairs, tensors, "glm4moelite")
    for kind in ("key", "value"):
        one, other = (f"glm4moelite.attention.{kind}_length{end}" for end in ("", "_mla"))
        pairs[one], pairs[other] = pairs[other], pairs[one]
    return moved(pairs, {
        "glm4moelite.expert_group_count": None,
        "glm4moelite.expert_group_used_count": None}), tensors_named(
            tensors, (".exp_probs_b.bias", ".exp_probs_b"))


def qwen3vlmoe(pairs, tensors):
    pairs, tensors = renamed(pairs, tensors, "qwen3vlmoe")
    return moved(pairs, {"qwen3vlmoe.expert_feed_forward_length": None}) | {
        "qwen3vlmoe.norm_top_k_prob": (BOOL, True)}, PICTURES + tensors


def nemotron_omni(pairs, tensors):
    pairs, tensors = renamed(pairs, tensors, "nemotron_h_omni")
    return pairs | {"nemotron_h_omni.vision.block_count": (U32, 1)}, PICTURES + SOUND + tensors


def olmo3_now(pairs, tensors):
    """As the converter of today: the factor of cosines and sines is stated."""
    return pairs | {"olmo2.rope.scaling.attn_factor": (F32, 0.1 * math.log(
        pairs["olmo2.rope.scaling.factor"][1]) + 1)}, tensors


def qwen3vl(pairs, tensors):
    return moved(pairs, {"qwen3vl.rope.dimension_sections": None,
                         "qwen3vl.n_deepstack_layers": None}), PICTURES + tensors


PUBLISHED = {
    "gemma4_e": gemma4, "gemma4_moe": gemma4, "qwen3_5": qwen35, "qwen3_5_moe": qwen35,
    "qwen3_next": qwen3_next, "gpt_oss": gpt_oss, "lfm2": lfm2, "olmo3": olmo3,
    "ministral3": mistral3, "qwen2_5_vl": qwen25vl, "qwen3_vl": qwen3vl,
    "glm4_moe_lite": glm4moelite, "qwen3_moe": qwen3vlmoe, "nemotron_h": nemotron_omni,
    "nemotron_h-experts": nemotron_omni, "deepseek_plain": deepseek,
    "gemma4_first": gemma4_first, "mistral_small": mistral_small,
    "ministral_first": ministral_first, "olmo3_now": olmo3_now}
# The folder of a model that has another name here, and keys that its config does without.
FOLDERS = {
    "deepseek_plain": ("deepseek_v2", ("rope.scaling", )), "gemma4_first": ("gemma4_moe", ()),
    "mistral_small": ("ministral3", ("rope.scaling", "temperature_scale")),
    "ministral_first": ("ministral3", ()), "olmo3_now": ("olmo3", ())}


def logits_of(path, *counts):
    """Of the last position of a text of each length, by token."""
    texts = [[2] + [6 + i * 29 % 58 for i in range(count - 1)] for count in counts]
    done = support.quern("logits",
                         "--model",
                         path,
                         "--batch",
                         "--reference",
                         input="".join(
                             json.dumps({"ids": ids, "positions": [-1], "top": 64}) + "\n"
                             for ids in texts))
    assert done.returncode == 0, done.stderr
    return [dict(map(tuple, json.loads(line)["positions"][0]["top"]))
            for line in done.stdout.splitlines()]


def are_same(first, second, counts):
    return all(expected.keys() == got.keys() and
               max(abs(expected[i] - got[i]) for i in expected) <= 1e-3
               for expected, got in zip(logits_of(first, *counts), logits_of(second, *counts),
                                        strict=True))


@pytest.mark.parametrize("family", PUBLISHED)
def test_a_published_file_has_the_logits_of_the_other_spelling(base, tmp_path, family):
    pairs, tensors = base(family)
    context = next(pair[1] for key, pair in pairs.items() if key.endswith(".context_length"))
    first = gguf_keys.write(tmp_path / "llama.cpp.gguf", pairs, tensors)
    second = gguf_keys.write(tmp_path / "ollama.gguf", *PUBLISHED[family](*base(family)))
    assert are_same(first, second, (5, min(500, context)))


def with_experts(pairs, tensors, count):
    """The model with more experts, copies of its own, whose router tells them apart."""
    drawn, grown = random.Random(5), []
    own = pairs["deepseek2.expert_count"][1]
    for name, axes, kind, content in tensors:
        if "_exps." in name or "exp_probs_b" in name:
            axes, content = [*axes[:-1], count], content * (count // own)
        if "ffn_gate_inp." in name:
            numbers = [drawn.gauss(0, 0.4) for _ in range(axes[0] * count)]
            axes, kind, content = [axes[0], count], 0, struct.pack(f"<{len(numbers)}f", *numbers)
        grown.append((name, axes, kind, content))
    return pairs | {
        "deepseek2.expert_count": (U32, count), "deepseek2.expert_used_count": (U32, 8)}, grown


@pytest.mark.parametrize("family,experts,used", [("deepseek_v2-groups", 160, 3),
                                                 ("glm4_moe_lite", 256, 4)])
def test_groups_of_experts_are_the_familys_where_the_file_names_none(base, tmp_path, family,
                                                                     experts, used):
    """DeepSeek V2 and V3."""
    pairs, tensors = with_experts(*base(family), experts)
    keys = "deepseek2.expert_group_count", "deepseek2.expert_group_used_count"
    files = [gguf_keys.write(tmp_path / f"{i}.gguf", moved(pairs | change, names), tensors)
             for i, (change, names) in enumerate((
                 (dict(zip(keys, ((U32, 8), (U32, used)))), {}),
                 (dict(zip(keys, ((U32, 1), (U32, 1)))), {}), ({}, dict.fromkeys(keys))))]
    assert are_same(files[0], files[2], (5, 60)) and not are_same(files[0], files[1], (60, ))


def test_embedding_gemma_under_the_name_of_the_chat_model(base, tmp_path):
    pairs, tensors = base("embeddinggemma")
    own, renamed_tensors = renamed(pairs, tensors, "gemma3")
    own = moved(own, {"gemma3.rope.freq_base_swa": "gemma3.rope.local.freq_base"})
    renamed_tensors = tensors_named(renamed_tensors, ("dense_2.weight", "dense.0.weight"),
                                    ("dense_3.weight", "dense.1.weight"))
    query, said = json.dumps({"ids": [[1, 7, 9], [1] + [5 + i % 40 for i in range(40)]]}), []
    for name, keys, parts in (("llama.cpp", pairs, tensors), ("ollama", own, renamed_tensors)):
        path = gguf_keys.write(tmp_path / f"{name}.gguf", keys, parts)
        done = support.quern("embed", "--model", path, input=query)
        assert done.returncode == 0, done.stderr
        said.append(json.loads(done.stdout)["embeddings"])
    assert said[0] == said[1] and len(said[0][0]) == 24


@pytest.mark.parametrize("family", ["gptoss", "mistral3", "lfm2", "qwen35", "olmo2"])
def test_a_pre_tokenizer_of_a_family_is_taken_where_the_file_names_none(base, tmp_path, family):
    pairs, tensors = base({"gptoss": "gpt_oss", "mistral3": "ministral3", "lfm2": "lfm2",
                           "qwen35": "qwen3_5", "olmo2": "olmo3"}[family])
    if family == "gptoss":
        pairs, tensors = gpt_oss(pairs, tensors)
    own = {"gptoss": "gpt-4o", "mistral3": "tekken", "olmo2": "dbrx"}.get(family, family)
    # Digits in ones, twos, threes, and words in capitals tell the pre-tokenizers apart.
    words = list(dict.fromkeys([*map(chr, range(33, 127)), "\u0120", "12", "34", "123", "1234", "aB",
                                "aBC", "'S", "X'S"]))
    merges = ["1 2", "3 4", "12 3", "12 34", "a B", "aB C", "' S", "X 'S"]
    count = len(pairs["tokenizer.ggml.tokens"][1][1])
    tokens = words + [f"<{i}>" for i in range(count - len(words))]
    pairs |= {
        "tokenizer.ggml.model": (STRING, "gpt2"), "tokenizer.ggml.tokens": (ARRAY, (STRING, tokens)),
        "tokenizer.ggml.merges": (ARRAY, (STRING, merges))}
    said = []
    for pre in (own, None, "default"):
        changed = dict(pairs)
        changed.pop("tokenizer.ggml.pre", None)
        if pre:
            changed["tokenizer.ggml.pre"] = (STRING, pre)
        path = gguf_keys.write(tmp_path / "m.gguf", changed, tensors)
        done = support.quern("tokenize", "--model", path, input="1234 aBC X'S a12B 123")
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert said[0] == said[1] == said[2]


def test_gemma_4_whose_vocabulary_is_called_llama_is_split_by_merges(base, tmp_path):
    pairs, tensors = base("gemma4_e")
    words = ["<pad>", "<eos>", "<bos>", "<unk>", "\u2581", *"abc", "ab", "\u2581a", "bc", "\u2581ab"]
    count = len(pairs["tokenizer.ggml.tokens"][1][1])
    pairs |= {
        "tokenizer.ggml.tokens":
            (ARRAY, (STRING, words + [f"<{i}>" for i in range(count - len(words))])),
        "tokenizer.ggml.token_type": (ARRAY, (I32, [3, 3, 3, 2] + [1] * (count - 4))),
        "tokenizer.ggml.merges":
            (ARRAY, (STRING, ["b c", "\u2581 a", "a b", "\u2581a b"]))}
    said = []
    for model, scores in (("gemma4", None), ("llama", None), ("llama", [0.0] * count)):
        changed = pairs | {"tokenizer.ggml.model": (STRING, model)}
        if scores:
            changed["tokenizer.ggml.scores"] = (ARRAY, (F32, scores))
        path = gguf_keys.write(tmp_path / "m.gguf", changed, tensors)
        done = support.quern("tokenize", "--model", path, input="abc abc ab c")
        assert done.returncode == 0, done.stderr
        said.append(json.loads(done.stdout))
    assert said[0] == said[1] == said[2] and words.index("bc") in said[0]


def test_a_file_with_parts_that_the_family_does_not_have_is_refused(base, tmp_path):
    pairs, tensors = base("gemma4_e")
    path = gguf_keys.write(tmp_path / "m.gguf", pairs,
                           [("dense.0.weight", [64, 128], 0, bytes(64 * 128 * 4))] + tensors)
    done = support.quern("logits", "--model", path, input=json.dumps({"ids": [2, 3]}))
    assert done.returncode != 0 and "dense.0.weight" in done.stderr
