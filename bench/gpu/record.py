# SPDX-License-Identifier: Apache-2.0
"""What quern is compared with: vLLM's figures on one H200, and the ratios that are asked for.

Figures: requests a second, greedy, 2,000 requests, seed 7; vLLM 0.26.0, torch 2.11, FlashAttention
3, prefix cache on, CUDA graphs; 2026-11-21 and -22. They repeat within 2 % from run to run on GPUs
of this kind, and say nothing about other GPUs. Weights are those that vLLM makes up itself
(docs/internals/inference/gpu.md tells what that means for a KV cache in fp8)."""
CARD = "H200"
SOURCE = "vLLM 0.26.0 on an H200, 2026-11-21 and -22"
# Records of another GPU, which no run measured: the sum of the times of vLLM's steps.
ESTIMATES = {"qwen3.5-4b": ("H100", "vLLM 0.26.0, estimated from its steps on an H100, 2026-11-28")}
FORMATS = ("bf16", "fp8-kv", "fp8", "int8")  # int8: 8-bit weights too, compared with the same

# {model: {(format, kind): req/s}}; AT_LEAST were disturbed runs, so the peer may be faster.
VLLM = {
    "llama-3.2-1b": {("bf16", "300"): 125.4, ("fp8", "300"): 126.0}, "qwen3-4b": {
                         ("bf16", "300"): 42.9, ("bf16", "473"): 48.5, ("fp8-kv", "300"): 44.8,
                         ("fp8", "300"): 46.8, ("fp8", "473"): 49.1, ("bf16", "5x300s"): 42.5,
                         ("bf16", "none"): 35.3}, "gemma-3-4b": {("bf16", "300"): 46.2,
                                                                 ("bf16", "473"): 47.3,
                                                                 ("fp8-kv", "300"): 38.4,
                                                                 ("fp8", "300"): 42.5},
    # An estimate: its steps behind those that compiled (500 requests alone were measured: 21.6).
    "qwen3.5-4b": {("bf16", "300"): 25.0},
    "qwen3-30b-a3b": {("bf16", "300"): 33.3, ("fp8", "300"): 32.5},
    # MXFP4; the sum of its steps without those that compiled (15.6 with them), no run of its own.
    "gpt-oss-20b": {("bf16", "300"): 40.0, ("fp8", "300"): 40.0},
    "llama-3.1-8b": {("bf16", "300"): 32.6, ("bf16", "473"): 37.8, ("fp8-kv", "300"): 33.4,
                     ("fp8", "300"): 41.0, ("fp8", "473"): 44.4}, }
AT_LEAST = {("gemma-3-4b", "bf16", "473"), ("gemma-3-4b", "fp8-kv", "300")}
# Llama-3.1-8B fp8, nothing shared, tokens of answers a second: TensorRT-LLM's published figures;
# quern shall reach 0.95 of them.
TENSORRT = {"fix1000/1000": 17744, "fix2048/128": 3538, "fix500/2000": 20770}
TENSORRT_SHARE = 0.95
SAMPLED_SHARE = 0.97  # share of the greedy rate

MODELS = ("llama-3.2-1b", "qwen3-4b", "gemma-3-4b", "llama-3.1-8b")
GOALS = {("bf16", "300"): (1.5, 1.25, 1.25, 1.15), ("bf16", "473"): (1.7, 1.4, 1.4, 1.25),
         ("fp8-kv", "300"): (1.8, 1.5, 1.5, 1.3), ("fp8", "300"): (2.3, 1.85, 2.0, 1.5)}

# Goals of experts, whose peer was measured on 2026-11-28.
EXPERTS_GOALS = {("qwen3-30b-a3b", "bf16", "300"): 1.7, ("qwen3-30b-a3b", "fp8", "300"): 2.6,
                 ("qwen3.5-4b", "bf16", "300"): 1.5, ("gpt-oss-20b", "bf16", "300"): 1.8, ("gpt-oss-20b", "fp8", "300"): 2.5}


def goal(model, form, kind):
    """The ratio that is asked for, or None."""
    if model not in MODELS:
        return EXPERTS_GOALS.get((model, peer_format(form), kind))
    goals = GOALS.get((peer_format(form), kind))
    return goals[MODELS.index(model)] if goals else None


def peer_format(form):
    """The peer's format whose weights have as many bits."""
    return "fp8" if form == "int8" else form


def rivals(form):
    """The peer's formats to compare with: its best of the same weights, for 8-bit weights its best
    of all."""
    return ("bf16", "fp8-kv") if form in ("bf16", "fp8-kv") else ("bf16", "fp8-kv", "fp8")


def source(model):
    """(the GPU that a model's records are of, where they come from)"""
    return ESTIMATES.get(model, (CARD, SOURCE))


def recorded(model, form, kind):
    """(req/s of the same format, req/s of its best rival, whether one of them was disturbed); None
    where nothing was recorded."""
    known = VLLM.get(model, {})
    best = max((known[rival, kind] for rival in rivals(form) if (rival, kind) in known),
               default=None)
    same = known.get((peer_format(form), kind))
    return same, best, any((model, rival, kind) in AT_LEAST for rival in rivals(form))
