# SPDX-License-Identifier: Apache-2.0
"""What `quern models inspect` says a model takes, and what an engine takes with it: a dense model,
one with experts, and one with states, each with matrices of several huge pages."""
import json, math, pathlib, re, shutil, struct

import pytest

import support

TOKENIZER = pathlib.Path(__file__).resolve().parent / "rankers/modernbert-cross/tokenizer.json"
OTHER_BYTES = 256 << 20  # which inspect adds to the weights
SHARE = 0.03
# Keys, values, states and steps are not the weights: as few of them as an answer needs.
CACHE_BYTES = 4 << 20
LITTLE = ["--kv-cache-memory-bytes", str(CACHE_BYTES), "--mamba-cache-memory-bytes", str(CACHE_BYTES),
          "--max-num-batched-tokens", "16", "--max-num-seqs", "1"]
BASE = {
    "hidden_size": 768, "intermediate_size": 2304, "vocab_size": 2048, "num_attention_heads": 12,
    "num_key_value_heads": 4, "head_dim": 64, "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6, "tie_word_embeddings": False}
MODELS = {
    "dense": BASE | {"model_type": "qwen3", "num_hidden_layers": 6},
    "experts": BASE | {
        "model_type": "qwen3_moe", "num_hidden_layers": 3, "num_experts": 8,
        "num_experts_per_tok": 2, "moe_intermediate_size": 512, "norm_topk_prob": True},
    "states": BASE | {
        "model_type": "granitemoehybrid", "num_hidden_layers": 4, "layer_types": [
            "mamba", "mamba", "attention", "mamba"],
        "num_local_experts": 0, "num_experts_per_tok": 0, "shared_intermediate_size": 2304,
        "mamba_expand": 2, "mamba_n_heads": 24, "mamba_n_groups": 1, "mamba_d_state": 64,
        "mamba_d_conv": 4, "position_embedding_type": "nope", "attention_multiplier": 0.1,
        "embedding_multiplier": 1.0, "residual_multiplier": 1.0, "logits_scaling": 1.0}}
SMALL = MODELS["dense"] | {
    "num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 1,
    "num_key_value_heads": 1}


def mixer_of(config, kind):
    width, dim = config["hidden_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    if kind == "mamba":
        inner, heads = config["mamba_expand"] * width, config["mamba_n_heads"]
        channels = inner + 2 * config["mamba_n_groups"] * config["mamba_d_state"]
        return {
            "mamba.in_proj.weight": (inner + channels + heads, width),
            "mamba.conv1d.weight": (channels, 1, config["mamba_d_conv"]),
            "mamba.conv1d.bias": (channels, ), "mamba.A_log": (heads, ), "mamba.D": (heads, ),
            "mamba.dt_bias": (heads, ), "mamba.norm.weight": (inner, ),
            "mamba.out_proj.weight": (width, inner)}
    rows = {
        "self_attn.q_proj.weight": (q, width), "self_attn.k_proj.weight": (kv, width),
        "self_attn.v_proj.weight": (kv, width), "self_attn.o_proj.weight": (width, q)}
    has_norms = config["model_type"].startswith("qwen3")
    return rows | ({f"self_attn.{part}_norm.weight": (dim, ) for part in "qk"} if has_norms else {})


def ffn_of(config):
    width = config["hidden_size"]
    if shared := config.get("shared_intermediate_size"):
        return {"shared_mlp.input_linear.weight": (2 * shared, width),
                "shared_mlp.output_linear.weight": (width, shared)}
    rows, befores = {}, {"mlp.": config["intermediate_size"]}
    if experts := config.get("num_experts"):
        rows["mlp.gate.weight"] = (experts, width)
        befores = {f"mlp.experts.{i}.": config["moe_intermediate_size"] for i in range(experts)}
    for before, ffn in befores.items():
        rows |= {before + "gate_proj.weight": (ffn, width), before + "up_proj.weight": (ffn, width),
                 before + "down_proj.weight": (width, ffn)}
    return rows


def write(folder, config):
    """A folder whose weights are all the same number."""
    width, vocab = config["hidden_size"], config["vocab_size"]
    shapes = {"model.embed_tokens.weight": (vocab, width), "lm_head.weight": (vocab, width),
              "model.norm.weight": (width, )}
    for i in range(config["num_hidden_layers"]):
        kind = config.get("layer_types", {i: ""})[i] if "layer_types" in config else ""
        norms = {f"{name}_layernorm.weight": (width, ) for name in ("input", "post_attention")}
        for name, shape in (mixer_of(config, kind) | ffn_of(config) | norms).items():
            shapes[f"model.layers.{i}.{name}"] = shape
    header, at = {}, 0
    for name, shape in shapes.items():
        end = at + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder.mkdir()
    with open(folder / "model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for shape in shapes.values():
            out.write(b"\x80\x3c" * math.prod(shape))
    (folder / "config.json").write_text(json.dumps(config))
    shutil.copy(TOKENIZER, folder / "tokenizer.json")
    return folder


def taken(folder, state):
    """The engine's own memory after an answer; the file's pages are not its own."""
    with support.serving(state, "--model", f"m={folder}", "--device", "cpu", *LITTLE) as server:
        server.json("POST", "/v1/completions", {"model": "m", "prompt": [5, 6, 7], "max_tokens": 1})
        status = pathlib.Path(f"/proc/{server.engine_pid()}/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+) kB", status)[1]) * 1024


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    return taken(write(folder / "model", SMALL), folder / "state")


@pytest.mark.alone
@pytest.mark.parametrize("kind", MODELS)
def test_the_memory_that_inspect_tells_is_what_an_engine_takes(tmp_path, alone, kind):
    folder = write(tmp_path / "model", MODELS[kind])
    done = support.quern("models", "inspect", "--json", folder)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)["memory_needed_bytes"] - OTHER_BYTES
    took = taken(folder, tmp_path / "state") - alone
    print(f"{kind}: told {told / 1e6:.1f} MB, took {took / 1e6:.1f} MB, {took / told - 1:+.2%}")
    assert -SHARE * told <= took - told <= SHARE * told + CACHE_BYTES
