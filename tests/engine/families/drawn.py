#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws configurations of the families, makes each model with transformers' class, and compares
the logits with quern's reference mode: a field that transformers obeys and quern passes over is a
wrong result.

  drawn.py each [FAMILY…]            each field of each family is changed by itself
  drawn.py draw COUNT SEED [FAMILY…] COUNT configurations per family, two to seven fields changed
  drawn.py gguf [FAMILY…]            sizes only: the same weights as GGUF, within 1e-3 of the
                                     folder; fields without a key in GGUF, and experts of gpt-oss
                                     and Qwen3-VL in bf16, make no model

Needs torch and transformers 5; $QUERN_BINARY names the binary. A line of JSON per configuration,
verdict: same, refused (with the sentence), or DIFFERS. The rest are configurations of which
transformers makes no model. The exit status is 1 if any differs. A config.json is read by
transformers as it is read by quern: one file, old and new spellings alike. So is the one that
transformers saves of it."""
import json, os, pathlib, random, shutil, subprocess, sys, tempfile, zlib

os.environ |= {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
import torch, transformers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import gguf_of
from bases import BASES

BINARY = os.environ.get("QUERN_BINARY", "build/src/quern")
TOLERANCE = 2e-3
LENGTHS = (5, 23, 70)
# Fields that say nothing of the logits of a text, or that only training reads.
PASSED = {
    "model_type", "architectures", "use_cache", "dtype", "torch_dtype", "transformers_version",
    "initializer_range", "id2label", "label2id", "problem_type", "chunk_size_feed_forward",
    "is_encoder_decoder", "pretraining_tp", "router_jitter_noise", "router_aux_loss_coef",
    "_name_or_path", "return_dict", "mamba_chunk_size", "chunk_size", "use_mamba_kernels",
    "vision_config", "audio_config", "text_config", "per_layer_config", "tie_encoder_decoder",
    "residual_dropout", "embd_pdrop", "resid_pdrop", "num_logits_to_keep", "rescale_prenorm_residual",
    "vocab_size", "vocab_size_per_layer_input", "quantization_config", "base_model_tp_plan"}
WORDS = {
    "hidden_act": ["gelu", "relu", "gelu_pytorch_tanh", "relu2"],
    "hidden_activation": ["gelu", "relu", "silu"], "mlp_hidden_act": ["silu", "gelu"],
    "mamba_hidden_act": ["gelu"], "position_embedding_type": ["rope", "nope"],
    "topk_method": ["greedy", "group_limited_greedy", "noaux_tc"],
    "scoring_func": ["sigmoid", "softmax"], "normalization_function": ["layernorm"]}
ABSENT = {
    "sliding_window": [9, 30], "final_logit_softcapping": [5.0], "attn_logit_softcapping": [2.0],
    "q_lora_rank": [24], "head_dim": [24], "num_key_value_heads": [1, 2], "rope_scaling": [],
    "layer_types": [], "attention_chunk_size": [8], "no_rope_layers": [],
    "num_nextn_predict_layers": [1], "use_bidirectional_attention": [True, "all"]}
YARN = {"factor": 4.0, "original_max_position_embeddings": 32}
ROPE = {"rope_parameters": None, "rope_scaling": None, "rope_theta": None}
LLAMA3 = {
    "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64}


def rope_changes(config):
    """Old and new spellings of how positions turn; lists of divisors fit heads of any width."""
    dim = config.get("qk_rope_head_dim") or config.get("head_dim") or (
        config["hidden_size"] // config["num_attention_heads"])
    pairs = int(dim * config.get("partial_rotary_factor", 1.0)) // 2
    long = {
        "short_factor": [1.0 + 0.1 * i for i in range(pairs)],
        "long_factor": [1.0 + 0.7 * i for i in range(pairs)]}
    scalings = [
        ("linear", {"factor": 4.0}), ("llama3", LLAMA3), ("yarn", YARN),
        ("yarn", YARN | {"attention_factor": 0.8}), ("yarn", YARN | {"truncate": False}),
        ("yarn", YARN | {"mscale": 0.7, "mscale_all_dim": 1.3}), ("yarn", YARN | {"mscale": 0.7}),
        ("yarn", YARN | {"mscale_all_dim": 0.7}),
        ("yarn", YARN | {"beta_fast": 6.0, "beta_slow": 2.0}), ("yarn", {"factor": 4.0}),
        ("yarn", YARN | {"factor": 1.0}), ("dynamic", {"factor": 4.0}),
        ("longrope", long | {"original_max_position_embeddings": 128}),
        ("longrope", long | {"factor": 8.0, "original_max_position_embeddings": 128}),
        ("longrope", long | {"attention_factor": 1.3, "original_max_position_embeddings": 128}),
        ("proportional", {"partial_rotary_factor": 0.5}), ("default", {}), (None, {"factor": 4.0})]
    for i, (kind, fields) in enumerate(scalings):
        word = {"rope_type": kind} if kind else {}
        spellings = [
            {"rope_theta": 5000.0, "rope_scaling": fields | word},
            {"rope_theta": 5000.0, "rope_scaling": fields | ({"type": kind} if kind else {})},
            {"rope_parameters": fields | word | {"rope_theta": 5000.0}},
            {"rope_scaling": fields | word | {"rope_theta": 5000.0}}]
        for spelling in spellings if kind == "linear" else [spellings[i % 4]]:
            yield json.dumps(spelling), ROPE | spelling
    yield "no rope", ROPE
    yield "rope_scaling empty", ROPE | {"rope_scaling": {}, "rope_parameters": {
        "rope_type": "linear", "factor": 3.0, "rope_theta": 5000.0}}
    for share in (0.25, 0.5, 1.0):
        yield f"partial_rotary_factor {share}", {"partial_rotary_factor": share}
        yield f"rope_parameters share {share}", {
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": share}}
    yield "rope by kind", {
        "rope_scaling": None, "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 700.0}}}
    yield "rope by kind, both scaled", {
        "rope_scaling": None, "rope_parameters": {
            "full_attention": YARN | {"rope_type": "yarn", "rope_theta": 5000.0},
            "sliding_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 700.0}}}


def list_changes(key, value, config):
    words = [kind for kind in value if isinstance(kind, str)]
    if words:
        kinds = sorted(set(words) | (
            {"sliding_attention", "full_attention"} if "layer_types" == key else set()))
        for seed in range(4):
            rng = random.Random(f"{key}{seed}")
            yield [rng.choice(kinds) for _ in value]
    elif value and all(isinstance(x, (int, float)) for x in value):
        yield value[::-1]
        yield [1 - x if isinstance(x, int) and x in (0, 1) else x * 1.5 for x in value]
    elif not value:
        yield [0]
        yield [1]


def field_changes(key, value, config):
    """Other values of a field."""
    if key in WORDS:
        return [word for word in WORDS[key] if word != value]
    if value is None:
        return ABSENT.get(key, [True, 3, 0.7])
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        large = {1, 2, 6} if "layers" in key and value > 0 else {value * 2, value + 8, value // 2}
        return sorted((large if value > 9 or "layers" in key else {
            value + 1, value * 2, max(0, value - 1), 0}) - {value})
    if isinstance(value, float):
        return [value * 1.5, value * 0.5, 0.0]
    if isinstance(value, list):
        return list(list_changes(key, value, config))
    return []


def read_config(config):
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
        return transformers.AutoConfig.from_pretrained(folder)


def changes(config):
    """(name, {field: value}) of one field each; None takes a field out."""
    if "text_config" in config:
        return changes(config["text_config"])
    known = {key: None for key in read_config(config).to_dict()} | config
    shown = read_config(config).to_dict() | config
    found = []
    for key in known:
        skipped = key in PASSED or key.startswith("_attn") or key.endswith(
            ("_token_id", "dropout")) or key.startswith(("output_", "rope_parameters", "rope_scaling"))
        if not skipped:
            found += [(f"{key} {json.dumps(value)}", {key: value})
                      for value in field_changes(key, shown[key], config)]
            if key in config:
                found.append((f"no {key}", {key: None}))
    return found + list(rope_changes(shown))


def fill(model, seed):
    """Weights that bf16 holds exactly, each tensor's from its name; norms about what their class
    begins with."""
    tensors = list(model.named_parameters()) + [
        (name, buffer) for name, buffer in model.named_buffers()
        if name.endswith(("expert_bias", "e_score_correction_bias", "layer_scalar"))]
    for name, tensor in tensors:
        generator = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode()))
        value = torch.randn(tensor.shape, generator=generator)
        fan = tensor.shape[-1] if tensor.dim() > 1 else 1
        if tensor.dim() == 3 and "conv" not in name:
            fan = model.config.get_text_config().hidden_size
        if name.endswith(("expert_bias", "e_score_correction_bias")):
            value = 0.2 * value
        elif name.endswith(("A_log", "dt_bias", "layer_scalar", "alpha_p", "alpha_n", "per_expert_scale")):
            value = tensor.float() + 0.2 * value
        elif "conv" in name and tensor.dim() == 3:
            value = 0.5 * value
        elif tensor.dim() == 1:
            starts_at_one = bool((tensor == 1).all())
            value = 1 + 0.25 * value if starts_at_one else 0.3 * value
        elif "embed" in name or "lm_head" in name:
            value = 0.5 * value
        elif any(part in name for part in ("qkv", "q_proj", "k_proj", "gate.weight", "router")):
            value = value * 1.6 / fan**0.5
        else:
            value = value * 0.7 / fan**0.5
        tensor.data.copy_(value.to(torch.bfloat16).float())
    model.tie_weights()


def prompts():
    rng = random.Random(3)
    return [[1] + [rng.randrange(3, 60) for _ in range(length - 1)] for length in LENGTHS]


@torch.no_grad()
def make(folder, config, seed):
    """Writes the model's files and returns transformers' logits [prompt][position, token]."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    read = transformers.AutoConfig.from_pretrained(folder)
    kind = transformers.AutoModelForCausalLM
    if "vision_config" in config:
        kind = transformers.AutoModelForImageTextToText
    torch.manual_seed(seed)
    model = kind.from_config(read, dtype=torch.float32, attn_implementation="eager").eval()
    fill(model, seed)
    logits = [model(torch.tensor([ids]), use_cache=False).logits[0].double() for ids in prompts()]
    if not all(bool(torch.isfinite(rows).all()) for rows in logits):
        raise ValueError("logits are not finite")
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "config.json").rename(folder / "saved.json")
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    return logits


def ask(folder, vocab):
    """quern's logits, or the sentence that refuses the model."""
    queries = "".join(
        json.dumps({"ids": ids, "positions": list(range(len(ids))), "top": vocab}) + "\n"
        for ids in prompts())
    done = subprocess.run(
        [BINARY, "logits", "--model", folder, "--batch", "--reference", "--threads", "1"],
        input=queries, capture_output=True, text=True)
    if done.returncode < 0 or done.returncode > 3:
        return None, f"CRASH {done.returncode}: {done.stderr.strip()[-300:]}"
    if done.returncode != 0:
        return None, done.stderr.strip().replace(str(folder), "DIR")[-300:]
    rows = []
    for line in done.stdout.splitlines():
        answer = json.loads(line)  # an error: longer than the context that quern gives the model
        rows.append("positions" in answer and torch.tensor([
            [logit for _, logit in sorted(position["top"])]
            for position in answer["positions"]]).double())
    return rows, None


def judge(expected, got, sentence, tolerance=TOLERANCE):
    if sentence:
        return ("DIFFERS" if sentence.startswith("CRASH") else "refused"), sentence
    pairs = [(a, b) for a, b in zip(got, expected) if a is not False]
    if not pairs or any(a.shape != b.shape for a, b in pairs):
        return "DIFFERS", f"{[a.shape for a, _ in pairs]}"
    difference = max(float((a - b).abs().max()) for a, b in pairs)
    return ("same" if difference <= tolerance else "DIFFERS"), f"{difference:.1e}"


# Fields that converters leave out, since their GGUF has no key for any other value.
UNSAID = {
    "lfm2_moe": {"norm_topk_prob": True, "use_expert_bias": True},
    "qwen3_moe": {"norm_topk_prob": True}, "qwen3_next": {"norm_topk_prob": True}, "falcon_h1": {
        "tie_word_embeddings": False, "mamba_norm_before_gate": False},
    "deepseek_v2": {"rope_interleave": True}, "deepseek_v3": {"rope_interleave": True},
    "glm4_moe_lite": {"rope_interleave": True}}


def as_published(config):
    """The config as a converter to GGUF gets it. ValueError: a field has no key there."""
    kind, read = config["model_type"], read_config(config).to_dict()
    for field, value in UNSAID.get(kind, {}).items():
        if read.get(field, value) != value:
            raise ValueError(f"GGUF has no key for {field} {read[field]}")
    heads, width = read.get("num_attention_heads"), read.get("hidden_size")
    if kind in ("gemma2", "gemma3_text"):
        scalar = read["query_pre_attn_scalar"]
        if scalar != (width / heads if len(read["layer_types"]) in (46, 62) else read["head_dim"]):
            raise ValueError(f"GGUF has no key for query_pre_attn_scalar {scalar}")
    if kind in ("qwen3_5_text", "qwen3_5_moe_text", "gemma4_text"):
        return {"model_type": kind.removesuffix("_text"), "text_config": read | config,
                "vocab_size": config["vocab_size"]}
    added = {"num_local_experts": config["num_experts"]} if kind == "qwen3_moe" else {}
    if kind in ("cohere2", "exaone4"):
        added["layer_types"] = read["layer_types"]
    return config | added


def compare(config, seed, as_gguf=False):
    """(verdict, sentence or difference)"""
    with tempfile.TemporaryDirectory() as parent:
        folder = pathlib.Path(parent) / "m"
        try:
            expected = make(folder, config, seed)
            if as_gguf:
                gguf_of.convert(folder, folder.with_suffix(".gguf"), config=as_published(config))
        except Exception as error:  # whatever transformers, or the converter, thinks of it
            return "no model", f"{type(error).__name__}: {error}"[:200]
        got = ask(folder, expected[0].shape[1])
        verdict, told = judge(expected, *got)
        if verdict == "same" and as_gguf:
            verdict, told = judge(got[0], *ask(folder.with_suffix(".gguf"), expected[0].shape[1]),
                                  1e-3)
            return verdict, "GGUF: " + told
        if verdict == "same":
            (folder / "saved.json").rename(folder / "config.json")
            saved, said = judge(expected, *ask(folder, expected[0].shape[1]))
            if saved != "same":
                verdict, told = f"{saved} as saved", said
        if verdict != "same" and os.environ.get("DRAWN_KEEP"):
            shutil.copytree(folder, os.environ["DRAWN_KEEP"], dirs_exist_ok=True)
        return verdict, told


def changed(config, patch):
    if "text_config" in config:
        return config | {"text_config": changed(config["text_config"], patch)}
    config = config | patch
    return {key: value for key, value in config.items() if value is not None or key not in patch}


def runs_of(mode, arguments):
    """(family, name, config) of each configuration."""
    count, seed = (int(arguments.pop(0)), arguments.pop(0)) if mode == "draw" else (0, "")
    for family in arguments or BASES:
        base = BASES[family]
        if mode == "gguf" and family == "gemma3_text":
            base = base | {"query_pre_attn_scalar": base["head_dim"]}
        yield family, "base", base
        found = changes(base)
        for name, patch in found if mode != "draw" else ():
            if mode == "each" or isinstance(next(iter(patch.values())), int):
                yield family, name, changed(base, patch)
        rng = random.Random(f"{seed} {family}")
        for _ in range(count):
            taken = [rng.choice(found) for _ in range(rng.randint(2, 7))]
            config = base
            for _, patch in taken:
                config = changed(config, patch)
            yield family, "; ".join(name for name, _ in taken), config


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    counts = {}
    for family, name, config in runs_of(sys.argv[1], sys.argv[2:]):
        verdict, told = compare(config, 7, sys.argv[1] == "gguf")
        counts[verdict] = counts.get(verdict, 0) + 1
        print(json.dumps({"family": family, "verdict": verdict, "change": name, "told": told}),
              flush=True)
    print(json.dumps(counts))
    return 1 if any("DIFFERS" in verdict for verdict in counts) else 0


if __name__ == "__main__":
    sys.exit(main())
