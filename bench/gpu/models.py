# SPDX-License-Identifier: Apache-2.0
"""Model folders of real shapes with random weights: a config, and a vocabulary that nobody trained.
The weights are made up by whoever loads the folder (--load-format dummy), so a folder of an 8B
model is made in a second. A GGUF file has weights: 100,003 random blocks, repeated."""
import array, itertools, json, math, os, struct

COMMON = dict(torch_dtype="bfloat16",
              bos_token_id=1,
              rms_norm_eps=1e-6,
              attention_bias=False,
              attention_dropout=0.0,
              initializer_range=0.02,
              use_cache=True,
              hidden_act="silu")
LLAMA3_ROPE = dict(factor=32.0,
                   high_freq_factor=4.0,
                   low_freq_factor=1.0,
                   original_max_position_embeddings=8192,
                   rope_type="llama3")
LLAMA = dict(COMMON,
             architectures=["LlamaForCausalLM"],
             model_type="llama",
             num_attention_heads=32,
             num_key_value_heads=8,
             vocab_size=128256,
             rope_theta=500000.0,
             max_position_embeddings=131072)
QWEN3 = dict(COMMON,
             architectures=["Qwen3ForCausalLM"],
             model_type="qwen3",
             hidden_size=2560,
             num_hidden_layers=36,
             num_attention_heads=32,
             num_key_value_heads=8,
             head_dim=128,
             intermediate_size=9728,
             vocab_size=151936,
             tie_word_embeddings=True,
             rope_theta=5000000.0,
             max_position_embeddings=262144)
GEMMA3 = dict(COMMON,
              architectures=["Gemma3ForCausalLM"],
              model_type="gemma3_text",
              hidden_size=2560,
              num_hidden_layers=34,
              num_attention_heads=8,
              num_key_value_heads=4,
              head_dim=256,
              intermediate_size=10240,
              vocab_size=262208,
              tie_word_embeddings=True,
              rope_theta=1000000.0,
              rope_local_base_freq=10000.0,
              rope_scaling=dict(factor=8.0, rope_type="linear"),
              sliding_window=1024,
              sliding_window_pattern=6,
              query_pre_attn_scalar=256,
              max_position_embeddings=131072,
              hidden_activation="gelu_pytorch_tanh",
              final_logit_softcapping=None,
              attn_logit_softcapping=None)
QWEN3_MOE = dict(COMMON,
                 architectures=["Qwen3MoeForCausalLM"],
                 model_type="qwen3_moe",
                 hidden_size=2048,
                 num_hidden_layers=48,
                 num_attention_heads=32,
                 num_key_value_heads=4,
                 head_dim=128,
                 intermediate_size=6144,
                 moe_intermediate_size=768,
                 num_experts=128,
                 num_experts_per_tok=8,
                 norm_topk_prob=True,
                 decoder_sparse_step=1,
                 mlp_only_layers=[],
                 vocab_size=151936,
                 tie_word_embeddings=False,
                 rope_theta=1000000.0,
                 max_position_embeddings=40960)
GRANITE4 = dict(COMMON,
                architectures=["GraniteMoeHybridForCausalLM"],
                model_type="granitemoehybrid",
                hidden_size=2048,
                num_hidden_layers=40,
                num_attention_heads=32,
                num_key_value_heads=8,
                intermediate_size=8192,
                shared_intermediate_size=8192,
                num_local_experts=0,
                num_experts_per_tok=0,
                layer_types=[
                    "attention" if i % 10 == 5 else "mamba" for i in range(40)],
                mamba_n_heads=64,
                mamba_n_groups=1,
                mamba_d_head=64,
                mamba_d_state=128,
                mamba_d_conv=4,
                mamba_expand=2,
                mamba_chunk_size=256,
                mamba_conv_bias=True,
                mamba_proj_bias=False,
                embedding_multiplier=12.0,
                residual_multiplier=0.22,
                attention_multiplier=0.015625,
                logits_scaling=8.0,
                position_embedding_type="nope",
                rope_theta=10000.0,
                rms_norm_eps=1e-5,
                max_position_embeddings=131072,
                hidden_act="silu",
                tie_word_embeddings=True,
                attention_bias=False,
                vocab_size=100352)
QWEN3_5 = dict(COMMON,
               architectures=["Qwen3_5ForCausalLM"],
               model_type="qwen3_5_text",
               hidden_size=2560,
               num_hidden_layers=32,
               num_attention_heads=16,
               num_key_value_heads=4,
               head_dim=256,
               intermediate_size=9216,
               attn_output_gate=True,
               full_attention_interval=4,
               layer_types=(["linear_attention"] * 3 + ["full_attention"]) * 8,
               linear_conv_kernel_dim=4,
               linear_key_head_dim=128,
               linear_num_key_heads=16,
               linear_num_value_heads=32,
               linear_value_head_dim=128,
               mamba_ssm_dtype="float32",
               vocab_size=248320,
               tie_word_embeddings=True,
               rope_parameters=dict(mrope_interleaved=True,
                                    mrope_section=[11, 11, 10],
                                    rope_type="default",
                                    rope_theta=10000000,
                                    partial_rotary_factor=0.25),
               max_position_embeddings=262144)
GPT_OSS = dict(COMMON,
               architectures=["GptOssForCausalLM"],
               model_type="gpt_oss",
               hidden_size=2880,
               num_hidden_layers=24,
               num_attention_heads=64,
               num_key_value_heads=8,
               head_dim=64,
               intermediate_size=2880,
               num_local_experts=32,
               num_experts_per_tok=4,
               experts_per_token=4,
               swiglu_alpha=1.702,
               swiglu_limit=7.0,
               attention_bias=True,
               sliding_window=128,
               layer_types=["sliding_attention", "full_attention"] * 12,
               rms_norm_eps=1e-5,
               vocab_size=201088,
               tie_word_embeddings=False,
               rope_theta=150000.0,
               rope_scaling=dict(factor=32.0,
                                 beta_fast=32.0,
                                 beta_slow=1.0,
                                 truncate=False,
                                 original_max_position_embeddings=4096,
                                 rope_type="yarn"),
               initial_context_length=4096,
               max_position_embeddings=131072)
GEMMA4 = dict(COMMON,
              architectures=["Gemma4ForCausalLM"],
              model_type="gemma4_text",
              hidden_size=2560,
              num_hidden_layers=42,
              num_attention_heads=8,
              num_key_value_heads=2,
              head_dim=256,
              global_head_dim=512,
              intermediate_size=10240,
              hidden_size_per_layer_input=256,
              vocab_size_per_layer_input=262144,
              num_kv_shared_layers=18,
              use_double_wide_mlp=False,
              attention_k_eq_v=False,
              num_global_key_value_heads=None,
              enable_moe_block=False,
              num_experts=None,
              top_k_experts=None,
              moe_intermediate_size=None,
              layer_types=(["sliding_attention"] * 5 + ["full_attention"]) * 7,
              sliding_window=512,
              vocab_size=262144,
              tie_word_embeddings=True,
              rope_parameters=dict(full_attention=dict(partial_rotary_factor=0.25,
                                                       rope_theta=1000000.0,
                                                       rope_type="proportional"),
                                   sliding_attention=dict(rope_theta=10000.0,
                                                          rope_type="default")),
              max_position_embeddings=131072,
              hidden_activation="gelu_pytorch_tanh",
              final_logit_softcapping=30.0)
DEEPSEEK_V2_LITE = dict(COMMON,
                        architectures=["DeepseekV2ForCausalLM"],
                        model_type="deepseek_v2",
                        hidden_size=2048,
                        num_hidden_layers=27,
                        num_attention_heads=16,
                        num_key_value_heads=16,
                        intermediate_size=10944,
                        moe_intermediate_size=1408,
                        n_routed_experts=64,
                        n_shared_experts=2,
                        num_experts_per_tok=6,
                        first_k_dense_replace=1,
                        moe_layer_freq=1,
                        n_group=1,
                        topk_group=1,
                        topk_method="greedy",
                        scoring_func="softmax",
                        norm_topk_prob=False,
                        routed_scaling_factor=1.0,
                        kv_lora_rank=512,
                        q_lora_rank=None,
                        qk_nope_head_dim=128,
                        qk_rope_head_dim=64,
                        v_head_dim=128,
                        vocab_size=102400,
                        tie_word_embeddings=False,
                        rope_theta=10000.0,
                        rope_scaling={
                            "type": "yarn", "factor": 40.0, "beta_fast": 32.0, "beta_slow": 1.0,
                            "mscale": 0.707, "mscale_all_dim": 0.707,
                            "original_max_position_embeddings": 4096},
                        max_position_embeddings=163840)
LFM2 = dict(COMMON,
            architectures=["Lfm2ForCausalLM"],
            model_type="lfm2",
            hidden_size=2048,
            num_hidden_layers=16,
            num_attention_heads=32,
            num_key_value_heads=8,
            intermediate_size=8192,
            block_auto_adjust_ff_dim=False,
            layer_types=[
                "full_attention" if i in (2, 5, 8, 10, 12, 14) else "conv" for i in range(16)],
            conv_bias=False,
            conv_L_cache=3,
            norm_eps=1e-5,
            vocab_size=65536,
            tie_word_embeddings=True,
            rope_theta=1000000.0,
            max_position_embeddings=128000)
# The public hyper-parameters of the reference models, as vLLM's runs had them; `tiny` and
# those that begin so are for a try of the scripts without a GPU.
CONFIGS = {
    "llama-3.2-1b": dict(LLAMA,
                         hidden_size=2048,
                         num_hidden_layers=16,
                         head_dim=64,
                         intermediate_size=8192,
                         tie_word_embeddings=True,
                         rope_scaling=LLAMA3_ROPE), "qwen3-4b": QWEN3, "gemma-3-4b": GEMMA3,
    "qwen3-32b": dict(QWEN3,
                      hidden_size=5120,
                      num_hidden_layers=64,
                      num_attention_heads=64,
                      intermediate_size=25600,
                      tie_word_embeddings=False,
                      rope_theta=1000000.0,
                      max_position_embeddings=40960),
    "qwen3.5-4b": QWEN3_5, "tiny-states": dict(QWEN3_5,
                                               hidden_size=256,
                                               num_hidden_layers=4,
                                               num_attention_heads=4,
                                               num_key_value_heads=2,
                                               intermediate_size=512,
                                               layer_types=["linear_attention"] * 3 +
                                               ["full_attention"],
                                               linear_num_key_heads=2,
                                               linear_num_value_heads=4,
                                               vocab_size=32000),
    "gemma-4-26b-a4b": dict(GEMMA4,
                            hidden_size=2816,
                            num_hidden_layers=30,
                            num_attention_heads=16,
                            num_key_value_heads=8,
                            num_global_key_value_heads=2,
                            intermediate_size=2112,
                            hidden_size_per_layer_input=0,
                            num_kv_shared_layers=0,
                            attention_k_eq_v=True,
                            enable_moe_block=True,
                            num_experts=128,
                            top_k_experts=8,
                            moe_intermediate_size=704,
                            layer_types=(["sliding_attention"] * 5 + ["full_attention"]) * 5,
                            sliding_window=1024),
    "gemma-4-e4b": GEMMA4, "tiny-gemma-4": dict(GEMMA4,
                                                hidden_size=256,
                                                num_hidden_layers=6,
                                                num_attention_heads=4,
                                                num_key_value_heads=1,
                                                intermediate_size=512,
                                                hidden_size_per_layer_input=32,
                                                num_kv_shared_layers=3,
                                                layer_types=["sliding_attention"] * 2 +
                                                ["full_attention"] + ["sliding_attention"] * 2 +
                                                ["full_attention"],
                                                vocab_size=32000,
                                                vocab_size_per_layer_input=32000),
    "granite-4-h-micro": GRANITE4,
    "deepseek-v2-lite": DEEPSEEK_V2_LITE,
    "lfm2-1.2b": LFM2,
    "gpt-oss-20b": GPT_OSS, "tiny-oss": dict(GPT_OSS,
                                             hidden_size=256,
                                             num_hidden_layers=2,
                                             num_attention_heads=8,
                                             num_key_value_heads=2,
                                             intermediate_size=64,
                                             num_local_experts=8,
                                             layer_types=["sliding_attention", "full_attention"],
                                             vocab_size=32000),
    # the shapes of Qwen3-14B as a Llama, which make_q4_k_m can write
    "llama-14b": dict(LLAMA,
                      hidden_size=5120,
                      num_hidden_layers=40,
                      num_attention_heads=40,
                      head_dim=128,
                      intermediate_size=17408,
                      vocab_size=151936,
                      tie_word_embeddings=False,
                      max_position_embeddings=40960),
    "qwen3-30b-a3b": QWEN3_MOE, "tiny-experts": dict(QWEN3_MOE,
                                                     hidden_size=256,
                                                     num_hidden_layers=2,
                                                     num_attention_heads=8,
                                                     num_key_value_heads=2,
                                                     head_dim=64,
                                                     moe_intermediate_size=64,
                                                     num_experts=16,
                                                     num_experts_per_tok=4,
                                                     vocab_size=32000),
    "llama-3.1-8b": dict(LLAMA,
                         hidden_size=4096,
                         num_hidden_layers=32,
                         head_dim=128,
                         intermediate_size=14336,
                         tie_word_embeddings=False,
                         rope_scaling=dict(LLAMA3_ROPE,
                                           factor=8.0)), "tiny": dict(LLAMA,
                                                                      hidden_size=256,
                                                                      num_hidden_layers=2,
                                                                      num_attention_heads=8,
                                                                      num_key_value_heads=2,
                                                                      head_dim=64,
                                                                      intermediate_size=512,
                                                                      vocab_size=32000,
                                                                      tie_word_embeddings=True), }
TOKENS_LEAST = 30000  # requests draw their ids below it


def byte_names():
    """The characters by which byte-level BPE names the 256 bytes."""
    kept = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = itertools.count(256)
    return [chr(byte if byte in kept else next(others)) for byte in range(256)]


def vocabulary(count):
    """The bytes, then short words with a space before each: an answer's text is as long as that of
    a trained model."""
    words = byte_names()
    made = ("\u0120" + "".join(letters)
            for length in itertools.count(2)
            for letters in itertools.product("abcdefghijklmnopqrstuvwxyz", repeat=length))
    return words + list(itertools.islice(made, count - len(words)))


def make_folder(folder, name):
    """config.json, tokenizer.json and generation_config.json; the last id ends an answer."""
    config, end = CONFIGS[name], CONFIGS[name]["vocab_size"] - 1
    byte_level = {
        "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
        "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "added_tokens": [{
            "id": end, "content": "<|end|>", "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": True}], "model": {
                "type": "BPE", "dropout": None, "unk_token": None,
                "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
                "byte_fallback": False, "vocab": {
                    word: i
                    for i, word in enumerate(vocabulary(end))}, "merges": []}}
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in (("config", dict(
            config, eos_token_id=end)), ("tokenizer", tokenizer), ("generation_config", {
                "eos_token_id": end})):
        (folder / f"{file}.json").write_text(json.dumps(content))
    return folder


# GGUF

F32, Q8_0, Q4_K, Q6_K, MXFP4 = 0, 8, 12, 14, 39
BLOCK = {Q8_0: 34, Q4_K: 144, Q6_K: 210, MXFP4: 17}  # bytes of a block
VALUES = {Q8_0: 32, Q4_K: 256, Q6_K: 256, MXFP4: 32}  # weights of a block
PATTERN_BLOCKS = 100003  # a prime, so that rows of a matrix differ


def block(kind, deviation):
    """A block of random weights of about this deviation. Q4_K: d and dmin (fp16), 12 bytes of
    scales and minima, 128 of 4-bit codes: the minimum is half of the range. Q6_K: 4-bit and 2-bit
    parts of codes, 16 scales of one byte, d. Q8_0: d, 32 codes. MXFP4: the exponent of a scale, 32
    codes, which deviate by 2.8 in halves of a scale."""
    if kind == Q8_0:
        return struct.pack("<e", deviation / 74) + os.urandom(32)
    if kind == MXFP4:
        return bytes([127 + round(math.log2(deviation / 2.8))]) + os.urandom(16)
    if kind == Q4_K:
        unit = deviation / (32 * 4.6)  # a scale is 32 on average, a code deviates by 4.6
        return struct.pack("<ee", unit, 7.5 * unit) + os.urandom(140)
    scales = bytes(24 + value % 16 for value in os.urandom(16))
    return os.urandom(192) + scales + struct.pack("<e", deviation / (32 * 18.5))


def pattern(kind, deviation):
    return b"".join(block(kind, deviation) for _ in range(PATTERN_BLOCKS))


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def pair(key, value):
    if isinstance(value, str):
        return text(key) + struct.pack("<I", 8) + text(value)
    if isinstance(value, float):
        return text(key) + struct.pack("<If", 6, value)
    if isinstance(value, list):
        body = b"".join(map(text, value)) if isinstance(value[0], str) else struct.pack(
            f"<{len(value)}i", *value)
        return text(key) + struct.pack("<IIQ", 9, 8 if isinstance(value[0], str) else 5,
                                       len(value)) + body
    return text(key) + struct.pack("<II", 4, value)


def llama_tensors(config):
    """(name, type, axes), the mix of Q4_K_M: values and down projections of half of the layers in
    Q6_K, and the head."""
    width, ffn, layers = config["hidden_size"], config["intermediate_size"], config[
        "num_hidden_layers"]
    heads, kv = (config["head_dim"] * config[f"num_{kind}_heads"]
                 for kind in ("attention", "key_value"))
    yield "token_embd.weight", Q4_K, (width, config["vocab_size"])
    yield "output_norm.weight", F32, (width,)
    yield "output.weight", Q6_K, (width, config["vocab_size"])
    if scaling := config.get("rope_scaling"):
        yield "rope_freqs.weight", F32, (config["head_dim"] // 2,)
    for layer in range(layers):
        more = Q6_K if layer < layers // 8 or layer >= 7 * layers // 8 or (
            layer - layers // 8) % 3 == 2 else Q4_K
        for name, kind, *axes in (("attn_norm", F32, width), ("ffn_norm", F32, width),
                                  ("attn_q", Q4_K, width, heads), ("attn_k", Q4_K, width, kv),
                                  ("attn_v", more, width, kv), ("attn_output", Q4_K, heads, width),
                                  ("ffn_gate", Q4_K, width, ffn), ("ffn_up", Q4_K, width, ffn),
                                  ("ffn_down", more, ffn, width)):
            yield f"blk.{layer}.{name}.weight", kind, tuple(axes)


def rope_factors(config):
    """The divisors of llama3's rotation, one for each frequency."""
    scaling, dims = config["rope_scaling"], config["head_dim"]
    low, high, before = scaling["low_freq_factor"], scaling["high_freq_factor"], scaling[
        "original_max_position_embeddings"]
    for i in range(dims // 2):
        turns = before / (2 * math.pi * config["rope_theta"] ** (2 * i / dims))
        smooth = min(1.0, max(0.0, (turns - low) / (high - low)))
        yield 1 / ((1 - smooth) / scaling["factor"] + smooth)


def tokens_of(count, pre):
    """A vocabulary of `count` words; the last one ends an answer. Its one merge is of two bytes that
    no UTF-8 has: OpenVINO reads no vocabulary without one."""
    end = count - 1
    return [
        pair("tokenizer.ggml.model", "gpt2"),
        pair("tokenizer.ggml.pre", pre),
        pair("tokenizer.ggml.tokens",
             vocabulary(end - 1) + ["\u00fe\u00ff", "<|end|>"]),
        pair("tokenizer.ggml.token_type", [1] * end + [3]),
        pair("tokenizer.ggml.merges", ["\u00fe \u00ff"]),
        pair("tokenizer.ggml.bos_token_id", end),
        pair("tokenizer.ggml.eos_token_id", end)]


def write_gguf(path, pairs, tensors):
    """Writes (name, type, axes, numbers) as fast as the disk takes them: `numbers` fill a tensor of
    F32, over and over; others are random, of a deviation of 0.02."""
    at, head = 0, b""
    sizes = [
        4 * math.prod(axes) if kind == F32 else math.prod(axes) // VALUES[kind] * BLOCK[kind]
        for _, kind, axes, _ in tensors]
    for (tensor, kind, axes, _), size in zip(tensors, sizes):
        head += text(tensor) + struct.pack(f"<I{len(axes)}QIQ", len(axes), *axes, kind, at)
        at += size + -size % 32
    start = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(pairs)) + b"".join(pairs) + head
    patterns = {kind: pattern(kind, 0.02) for kind in {tensor[1] for tensor in tensors} - {F32}}
    with open(path, "wb") as out:
        out.write(start + bytes(-len(start) % 32))
        for (_, kind, _, numbers), size in zip(tensors, sizes):
            filled = array.array("f", numbers).tobytes() if kind == F32 else patterns[kind]
            left = size
            while left > 0:
                left -= out.write(memoryview(filled)[:left])
            out.write(bytes(-size % 32))
    return path


def make_q4_k_m(path, name):
    """A Llama as a GGUF file in the mix of Q4_K_M: 4.9 GB for 8B."""
    config = CONFIGS[name]
    pairs = [
        pair("general.architecture", "llama"),
        pair("general.name", name),
        pair("llama.block_count", config["num_hidden_layers"]),
        pair("llama.context_length", config["max_position_embeddings"]),
        pair("llama.embedding_length", config["hidden_size"]),
        pair("llama.feed_forward_length", config["intermediate_size"]),
        pair("llama.attention.head_count", config["num_attention_heads"]),
        pair("llama.attention.head_count_kv", config["num_key_value_heads"]),
        pair("llama.rope.dimension_count", config["head_dim"]),
        pair("llama.rope.freq_base", config["rope_theta"]),
        pair("llama.attention.layer_norm_rms_epsilon", config["rms_norm_eps"]),
        *tokens_of(config["vocab_size"], "llama-bpe")]
    return write_gguf(path, pairs,
                      [(tensor, kind, axes,
                        list(rope_factors(config)) if tensor.startswith("rope") else [1.0])
                       for tensor, kind, axes in llama_tensors(config)])
