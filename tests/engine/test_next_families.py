# SPDX-License-Identifier: Apache-2.0
"""Families with more than attention and one feed-forward, against reference numbers in float32: the
folders of shared/tiny_next, and the GGUF files made of them.

A route that flips moves the logits of its position by up to 8 in these models of noise, and rounded
activations flip a few. So the fast paths are held to the reference at the middle position, and
float32 at every one."""
import functools, json, math, random, shutil, struct, time

import pytest

import folders, gguf_keys, gguf_of, support

TINY = support.SHARED / "tiny_next"
pytestmark = pytest.mark.skipif(not TINY.exists(), reason="shared/tiny_next is not here")
TOLERANCE = 2e-3  # README of shared/tiny_next; measured: 3e-5
MARGIN = 0.01
FORMS = {
    "qwen3_moe": ["folder", "gguf", "fused", "vl", "vl-unturned"],
    "gpt_oss": ["folder", "llama", "ollama", "ollama-first", "whole"],
    "deepseek_v3": ["folder", "llama", "first", "v5"],
    "gemma4_e": ["folder", "gguf", "text"], "gemma4_moe": ["folder", "gguf", "text"]}
EACH_FORM = [(family, form) for family, forms in FORMS.items() for form in forms]
# The median over positions of the largest difference of a logit; measured: 0.004. test_kl_bars.py
# has the paths that round activations: bf16, and experts of four bits.
FAST = [(family, kernels) for family in ("deepseek_v3", "qwen3_moe", "gemma4_e", "gemma4_moe")
        for kernels in ("avx2", "avx512")]
FAST_TOLERANCE = 0.02


def cases_of(family):
    return json.loads((TINY / family / "reference.json").read_text())["cases"]


def vocab_of(family):
    return len(cases_of(family)[0]["last_logits"])


def logits_of(model, prompts, *flags, vocab=512):
    """[prompt][position] → {token: logit}."""
    queries = "".join(
        json.dumps({"ids": ids, "positions": list(range(len(ids))), "top": vocab}) + "\n"
        for ids in prompts)
    done = support.quern("logits", "--model", model, "--batch", *flags, input=queries)
    if "has no kernels" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    return [[dict(map(tuple, position["top"]))
             for position in json.loads(line)["positions"]]
            for line in done.stdout.splitlines()]


def difference(row, other):
    return max(abs(row[token] - logit) for token, logit in other.items())


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The forms of each family: its folder, GGUF files by the rules of their writers, and folders
    that hold the same weights otherwise."""
    folder = tmp_path_factory.mktemp("next")
    forms = {(family, "folder"): TINY / family for family in FORMS}
    gguf_of.convert(TINY / "qwen3_moe", folder / "qwen3_moe.gguf")
    fuse(TINY / "qwen3_moe", folder / "fused")
    forms["qwen3_moe", "gguf"] = folder / "qwen3_moe.gguf"
    forms["qwen3_moe", "fused"] = folder / "fused"
    for form, is_turned in (("vl", True), ("vl-unturned", False)):
        forms["qwen3_moe", form] = folder / form
        see(folder / "fused", folder / form, is_turned)
    for form in ("llama", "ollama", "ollama-first"):
        forms["gpt_oss", form] = folder / f"gpt_oss-{form}.gguf"
        gguf_of.convert(TINY / "gpt_oss", forms["gpt_oss", form], form)
    for form in ("llama", "first"):
        forms["deepseek_v3", form] = folder / f"deepseek_v3-{form}.gguf"
        gguf_of.convert(TINY / "deepseek_v3", forms["deepseek_v3", form], form)
    forms["deepseek_v3", "v5"] = folder / "deepseek_v3-v5"
    forms["deepseek_v3", "v5"].mkdir()
    for file, name in (("config.v5.json", "config.json"), ("model.safetensors", ) * 2,
                       ("tokenizer.json", ) * 2):
        (forms["deepseek_v3", "v5"] / name).symlink_to(TINY / "deepseek_v3" / file)
    forms["gpt_oss", "whole"] = folder / "gpt_oss-whole"
    widen(TINY / "gpt_oss", folder / "gpt_oss-whole")
    for family in ("gemma4_e", "gemma4_moe"):
        forms[family, "gguf"] = folder / f"{family}.gguf"
        gguf_of.convert(TINY / family, forms[family, "gguf"])
        forms[family, "text"] = folder / f"{family}-text"
        take_text(TINY / family, forms[family, "text"])
    return forms


def tensors_of(folder):
    data = (folder / "model.safetensors").read_bytes()
    size, = struct.unpack_from("<Q", data)
    return {
        name: (entry["dtype"], entry["shape"],
               data[8 + size + entry["data_offsets"][0]:8 + size + entry["data_offsets"][1]])
        for name, entry in json.loads(data[8:8 + size]).items()
        if name != "__metadata__"}


def fuse(source, folder):
    """Experts as transformers 5 keeps them in memory: gate, then up, of each."""
    shutil.copytree(source, folder)
    folder.chmod(0o755)
    tensors = tensors_of(source)
    for layer in range(3):
        name = f"model.layers.{layer}.mlp.experts."
        parts = {
            part: [tensors.pop(f"{name}{i}.{part}_proj.weight")
                   for i in range(8)]
            for part in ("gate", "up", "down")}
        tensors[name + "gate_up_proj"] = ("BF16", (8, 64, 64), b"".join(
            gate[2] + up[2] for gate, up in zip(parts["gate"], parts["up"])))
        tensors[name + "down_proj"] = ("BF16", (8, 64, 32), b"".join(
            down[2] for down in parts["down"]))
    (folder / "model.safetensors").unlink()
    folders.write_safetensors(folder / "model.safetensors", tensors)


def by_inputs(tensor):
    """Each matrix of a tensor of 16-bit numbers, transposed."""
    kind, (count, rows, cols), data = tensor
    place = ((each * rows + row) * cols + col
             for each in range(count) for col in range(cols) for row in range(rows))
    return kind, (count, cols, rows), b"".join(data[2 * i:2 * i + 2] for i in place)


def see(source, folder, is_turned):
    """The text model of a Qwen3-VL with experts, as published or as transformers 5.12 stores it.
    gate_up_proj is square here, so that down_proj alone tells which."""
    shutil.copytree(source, folder)
    tensors = {
        name.replace("model.layers", "model.language_model.layers"): tensor
        for name, tensor in tensors_of(source).items()}
    for name in ("norm.weight", "embed_tokens.weight"):
        tensors["model.language_model." + name] = tensors.pop("model." + name)
    for name in [name for name in tensors if ".mlp.experts." in name]:
        if is_turned:
            tensors[name] = by_inputs(tensors[name])
    tensors["model.visual.blocks.0.norm1.weight"] = ("BF16", (2, ), b"\0" * 4)
    folders.write_safetensors(folder / "model.safetensors", tensors)
    text = json.loads((source / "config.json").read_text())
    text |= {
        "model_type": "qwen3_vl_moe_text", "num_experts": text.pop("num_local_experts"),
        "rope_scaling": {
            "mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"}}
    (folder / "config.json").write_text(
        json.dumps({
            "architectures": ["Qwen3VLMoeForConditionalGeneration"], "model_type": "qwen3_vl_moe",
            "text_config": text, "vision_config": {"depth": 1}, "tie_word_embeddings": False}))


def take_text(source, folder):
    """The text model alone, as its own class saves it."""
    shutil.copytree(source, folder)
    folder.chmod(0o755)
    tensors = {
        name.replace("language_model.", ""): tensor for name, tensor in tensors_of(source).items()}
    for name in ("model.safetensors", "config.json"):
        (folder / name).unlink()
    folders.write_safetensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_bytes((source / "config.text.json").read_bytes())


STEPS = [0, .5, 1, 1.5, 2, 3, 4, 6]


def widen(source, folder):
    """gpt-oss with its experts as numbers of 16 bits, by inputs, and the config of transformers 5."""
    shutil.copytree(source, folder)
    folder.chmod(0o755)
    tensors = tensors_of(source)
    for name in [name for name in tensors if name.endswith("_blocks")]:
        _, (experts, rows, blocks, _), packed = tensors.pop(name)
        _, _, scales = tensors.pop(name.replace("_blocks", "_scales"))
        cols = 32 * blocks
        nibbles = [nibble for byte in packed for nibble in (byte & 15, byte >> 4)]
        values = [(-1 if nibble & 8 else 1) * STEPS[nibble & 7] * 2.0**(scales[i // 32] - 127)
                  for i, nibble in enumerate(nibbles)]
        turned = b"".join(
            struct.pack("<f", values[(expert * rows + row) * cols + col])[2:]
            for expert in range(experts) for col in range(cols) for row in range(rows))
        tensors[name.removesuffix("_blocks")] = ("BF16", (experts, cols, rows), turned)
    (folder / "model.safetensors").unlink()
    folders.write_safetensors(folder / "model.safetensors", tensors)
    config = json.loads((source / "config.v5.json").read_text())
    del config["quantization_config"]
    (folder / "config.json").unlink()
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("family, form", EACH_FORM)
def test_every_position_of_every_prompt_is_the_references(made, family, form):
    cases = cases_of(family)
    prompts = [case["ids"] + case["greedy_ids"][:-1] for case in cases]
    worst = compared = 0
    found = logits_of(made[family, form], prompts, "--reference", vocab=vocab_of(family))
    for case, rows in zip(cases, found, strict=True):
        last = case["n"] - 1
        for position, logits in [(last, case["last_logits"]),
                                 *((int(at), logits) for at, logits in case["logits_at"].items())]:
            worst = max(worst, difference(rows[position], dict(enumerate(logits))))
        for at, logprob in enumerate(case["prompt_logprobs"]):
            top = max(rows[at].values())
            total = top + math.log(sum(math.exp(logit - top) for logit in rows[at].values()))
            worst = max(worst, abs(rows[at][case["ids"][at + 1]] - total - logprob))
        for i, (token, margin) in enumerate(zip(case["greedy_ids"], case["greedy_margin"])):
            if margin < MARGIN:
                break
            assert max(rows[last + i], key=rows[last + i].get) == token
            compared += 1
    print(f"{family}, {form}: largest difference {worst:.1e}, {compared} tokens compared")
    assert worst <= TOLERANCE and compared >= 70


@functools.cache
def of_prompts(model, family, *flags):
    """The logits of a family's prompts; those of the reference path are computed once."""
    return logits_of(model, [case["ids"] for case in cases_of(family)], *flags,
                     vocab=vocab_of(family))


@pytest.mark.parametrize("family, kernels", FAST)
def test_the_fast_paths_take_the_same_routes_at_most_positions(made, family, kernels):
    pairs = zip(
        *(of_prompts(made[family, "folder"], family, *flags)
          for flags in (["--kernels", kernels], ["--reference"])), strict=True)
    worst = sorted(difference(*rows) for both in pairs for rows in zip(*both, strict=True))
    print(f"{family}, {kernels}: median {worst[len(worst) // 2]:.1e}, largest {worst[-1]:.1e}")
    assert worst[len(worst) // 2] <= FAST_TOLERANCE


@pytest.mark.parametrize("family", FORMS)
def test_tokens_one_by_one_are_those_of_the_whole_prompt(tmp_path, family):
    """Greedy answers of a batch, whose tokens are computed one by one beside those of others, are
    the reference's."""
    cases = cases_of(family)
    lines = [{
        "custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": {
            "model": "m", "prompt": case["ids"], "temperature": 0, "max_tokens": 24,
            "ignore_eos": True, "return_token_ids": True}} for i, case in enumerate(cases * 3)]
    (tmp_path / "in.jsonl").write_bytes(support.jsonl(lines))
    done = support.quern("run", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl",
                         "--model", f"m={TINY / family}", "--device", "cpu", "--reference",
                         "--max-num-batched-tokens", "64")
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(answers) == len(lines)
    tokenizer = json.loads((TINY / family / "tokenizer.json").read_text())
    known = {
        *tokenizer["model"]["vocab"].values(),
        *(token["id"] for token in tokenizer["added_tokens"])}  # no other is ever sampled
    compared = 0
    for answer in answers:
        case = cases[int(answer["custom_id"]) % len(cases)]
        sure = next(
            (i for i, (token, margin) in enumerate(zip(case["greedy_ids"], case["greedy_margin"]))
             if margin < MARGIN or token not in known), 24)
        assert answer["response"]["body"]["choices"][0]["token_ids"][:sure] == case[
            "greedy_ids"][:sure]
        compared += sure
    print(f"{compared} tokens compared")
    assert compared >= 3 * 50


@pytest.mark.parametrize("family", FORMS)
def test_made_up_weights_have_experts(tmp_path, family):
    for file in ("config.json", "tokenizer.json"):
        (tmp_path / file).write_bytes((TINY / family / file).read_bytes())
    rows, = logits_of(tmp_path, [[1, 2, 3]], "--load-format", "dummy", vocab=vocab_of(family))
    assert all(math.isfinite(logit) for row in rows for logit in row.values())


def refusal_of(folder):
    begin = time.monotonic()
    done = support.quern("logits", "--model", folder, input='{"ids":[1]}')
    print(f"refused in {time.monotonic() - begin:.2f} s")
    assert done.returncode == 3 and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize("change, sentence", [
    ({"num_experts_per_tok": 9}, "num_experts_per_tok is 9, over the 8 experts"),
    ({"num_local_experts": 0}, "num_local_experts is no integer of 1..1024"),
    ({"num_local_experts": 1000000}, "num_local_experts is no integer of 1..1024"),
    ({"num_local_experts": 9}, "tensor model.layers.0.mlp.router.weight has 2 axes, 96 x 8"),
    ({"swiglu_limit": 0}, "swiglu_limit is no number of 0.001..1e+06"),
    ({"attention_bias": False}, "attention_bias false is not supported here"),
    ({"rope_scaling": {"rope_type": "yarn"}}, "the factor of rope_type yarn is missing"),
    ({"rope_scaling": {"rope_type": "yarn", "factor": 0.5}}, "factor is no number of 1..1e+06"),
    ({"quantization_config": {"quant_method": "mxfp8"}}, "quant_method 'mxfp8' is not supported"),
    ({"quantization_config": None}, "_proj_blocks: dtype U8 is not supported here"),
    ({"layer_types": ["full_attention"]}, "layer_types is no list of 4 layers"),
    ({"num_key_value_heads": 3}, "4 attention heads cannot share 3 key-value heads"),
    ({"intermediate_size": 32},
     "tensor model.layers.0.mlp.experts.gate_up_proj_blocks has 3 axes, 96 x 128 x 8, instead of"), ])
def test_a_gpt_oss_that_its_tensors_are_not_is_refused_by_one_sentence(tmp_path, change, sentence):
    for file in ("model.safetensors", "tokenizer.json"):
        (tmp_path / file).symlink_to(TINY / "gpt_oss" / file)
    config = json.loads((TINY / "gpt_oss/config.json").read_text()) | change
    (tmp_path / "config.json").write_text(
        json.dumps({name: value for name, value in config.items() if value is not None}))
    assert sentence in refusal_of(tmp_path)


@pytest.mark.parametrize("family, change, sentence", [
    ("gemma4_e", {"num_kv_shared_layers": 6}, "num_kv_shared_layers is 6, not below the 6 layers"),
    ("gemma4_e", {"num_kv_shared_layers": 4},
     "num_kv_shared_layers is 4, but no layer before has keys for layer 2"),
    ("gemma4_e", {"num_kv_shared_layers": 10**6}, "num_kv_shared_layers is no integer of 1..512"),
    ("gemma4_e", {"use_double_wide_mlp": False},
     "layers.3.mlp.gate_proj.weight has 2 axes, 64 x 192, instead of 64 x 96"),
    ("gemma4_e", {"global_head_dim": 1024}, "global_head_dim is no integer of 1..512"),
    ("gemma4_e", {"global_head_dim": 500}, "global_head_dim is 500, no multiple of 8"),
    ("gemma4_e", {"hidden_size_per_layer_input": 0},
     "embed_tokens_per_layer.weight is not part of architecture gemma4"),
    ("gemma4_e", {"hidden_size_per_layer_input": 10**6},
     "hidden_size_per_layer_input is no integer of 1..65536"),
    ("gemma4_e", {"attention_k_eq_v": True}, "v_proj.weight is not part of architecture gemma4"),
    ("gemma4_moe", {"num_experts": 0}, "num_experts is no integer of 1..1024"),
    ("gemma4_moe", {"num_experts": 10**6}, "num_experts is no integer of 1..1024"),
    ("gemma4_moe", {"top_k_experts": 9}, "top_k_experts is 9, over the 8 experts"),
    ("gemma4_moe", {"top_k_experts": None}, "top_k_experts is missing"),
    ("gemma4_moe", {"num_global_key_value_heads": 3},
     "4 attention heads cannot share 3 key-value heads"),
    ("gemma4_moe", {"enable_moe_block": False}, "is not part of architecture gemma4"), ])
def test_a_gemma_4_that_its_tensors_are_not_is_refused_by_one_sentence(
        tmp_path, family, change, sentence):
    for file in ("model.safetensors", "tokenizer.json"):
        (tmp_path / file).symlink_to(TINY / family / file)
    config = json.loads((TINY / family / "config.json").read_text())
    config["text_config"] |= change
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert sentence in refusal_of(tmp_path)


EXPERTS_2 = "model.layers.2.mlp.experts."


@pytest.mark.parametrize("name, replaced, sentence", [
    (EXPERTS_2 + "down_proj_scales", None, "down_proj_scales is missing"),
    (EXPERTS_2 + "down_proj_blocks", None, EXPERTS_2 + "0.down_proj.weight is missing"),
    (EXPERTS_2 + "down_proj_bias", None, "experts.down_proj_bias is missing"),
    (EXPERTS_2 + "gate_up_proj_bias", None, "experts.gate_up_proj_bias is missing"),
    ("model.layers.0.self_attn.sinks", None, "model.layers.0.self_attn.sinks is missing"),
    ("model.layers.0.self_attn.sinks", ("F32", [4], struct.pack("<4f", 0, math.nan, 0, 0)),
     "model.layers.0.self_attn.sinks: element 1 is no finite number"),
    ("model.layers.1.mlp.router.bias", ("F32", [7], bytes(28)), "router.bias has 1 axes, 7 x 1"),
    (EXPERTS_2 + "down_proj_scales", ("U8", [8, 96, 1], bytes(768)), "does not fit its blocks"),
    (EXPERTS_2 + "down_proj_blocks", ("U8", [8, 96, 32], bytes(8 * 96 * 32)),
     "is no U8 of four axes, the last of 16"), ])
def test_a_gpt_oss_with_a_damaged_tensor_is_refused_by_one_sentence(
        tmp_path, name, replaced, sentence):
    tensors = tensors_of(TINY / "gpt_oss")
    del tensors[name]
    if replaced:
        tensors[name] = replaced
    folders.write_safetensors(tmp_path / "model.safetensors", tensors)
    for file in ("config.json", "tokenizer.json"):
        (tmp_path / file).symlink_to(TINY / "gpt_oss" / file)
    assert sentence in refusal_of(tmp_path)


@pytest.mark.parametrize("change, sentence", [
    ({"num_experts_per_tok": 9}, "num_experts_per_tok is 9, over the 8 experts"),
    ({"num_local_experts": 9
      }, "tensor model.layers.0.mlp.gate.weight has 2 axes, 64 x 8, instead of 64 x 9"),
    ({"moe_intermediate_size": 64},
     "tensor model.layers.0.mlp.experts.0.gate_proj.weight has 2 axes, 64 x 32, instead of 64 x 64"
     ), ({"mlp_only_layers": [1]}, "tensor model.layers.1.mlp.gate_proj.weight is missing"),
    ({"num_hidden_layers": 2}, "tensor model.layers.2."), ])
def test_what_config_and_tensors_say_differently_is_refused_by_one_sentence(
        tmp_path, change, sentence):
    for file in ("model.safetensors", "tokenizer.json"):
        (tmp_path / file).symlink_to(TINY / "qwen3_moe" / file)
    (tmp_path / "config.json").write_text(
        json.dumps(json.loads((TINY / "qwen3_moe/config.json").read_text()) | change))
    done = support.quern("logits", "--model", tmp_path, input='{"ids":[1]}')
    assert done.returncode == 3 and sentence in done.stderr and done.stderr.count(
        "\n") == 1, done.stderr


@pytest.mark.parametrize("name, sentence", [
    ("model.layers.1.mlp.experts.3.up_proj.weight",
     "tensor model.layers.1.mlp.experts.3.up_proj.weight is missing"),
    ("model.layers.2.mlp.gate.weight", "tensor model.layers.2.mlp.gate.weight is missing"), ])
def test_an_expert_that_is_not_there_is_named(tmp_path, name, sentence):
    tensors = tensors_of(TINY / "qwen3_moe")
    del tensors[name]
    folders.write_safetensors(tmp_path / "model.safetensors", tensors)
    for file in ("config.json", "tokenizer.json"):
        (tmp_path / file).symlink_to(TINY / "qwen3_moe" / file)
    done = support.quern("logits", "--model", tmp_path, input='{"ids":[1]}')
    assert done.returncode == 3 and sentence in done.stderr, done.stderr


def test_experts_of_two_types_are_refused(tmp_path):
    tensors = tensors_of(TINY / "qwen3_moe")
    name = "model.layers.1.mlp.experts.5.down_proj.weight"
    dtype, shape, content = tensors[name]
    tensors[name] = ("F16", shape, content)
    folders.write_safetensors(tmp_path / "model.safetensors", tensors)
    for file in ("config.json", "tokenizer.json"):
        (tmp_path / file).symlink_to(TINY / "qwen3_moe" / file)
    done = support.quern("logits", "--model", tmp_path, input='{"ids":[1]}')
    assert done.returncode == 3 and f"tensor {name} has type F16, but the layer's first expert has BF16" in done.stderr, done.stderr


def test_a_gguf_whose_heads_with_a_window_are_the_larger_ones_is_refused(tmp_path, made):
    pairs, tensors = gguf_keys.read(made["gemma4_e", "gguf"])
    tensors = [tensor for tensor in tensors if tensor[0] != "rope_freqs.weight"]
    _, local = pairs["gemma4.attention.key_length_swa"]
    for key in ("key_length", "value_length"):
        pairs[f"gemma4.attention.{key}"] = gguf_keys.U32, local // 2
    refusal = refusal_of(gguf_keys.write(tmp_path / "wide.gguf", pairs, tensors))
    assert (f"attention.key_length_swa is {local}, over the attention.key_length of {local // 2}"
            in refusal)


def test_the_list_of_models_says_that_it_is_served(made):
    for each in EACH_FORM:
        done = support.quern("models", "inspect", made[each])
        assert done.returncode == 0 and "servable     yes" in done.stdout, done.stdout + done.stderr


def test_the_memory_of_weights_is_counted_as_the_cpu_keeps_them(made):
    """Blocks of four bits with a scale in float32 for 32 of them; vectors, biases and routers in
    float32; the embedding, which no head is tied to, as it is stored."""
    expected = 0
    for name, (kind, shape, content) in tensors_of(TINY / "gpt_oss").items():
        if name.endswith("_blocks"):
            expected += 2 * len(content) // 32 * (16 + 4)
        elif len(shape) == 1 or name.endswith(("router.weight", "_proj_bias")):
            expected += 4 * math.prod(shape)
        elif not name.endswith("_scales"):
            expected += len(content)
    for form in FORMS["gpt_oss"]:
        if form == "whole":
            continue
        done = support.quern("models", "inspect", "--json", made["gpt_oss", form])
        assert done.returncode == 0, done.stderr
        needed = json.loads(done.stdout)["memory_needed_bytes"] - (256 << 20)
        assert needed == pytest.approx(expected, rel=0.001), form


@pytest.mark.parametrize("form", ["fp8-block", "fp8-channel", "awq", "gptq", "gptq-act"])
def test_quantised_experts_of_a_folder_are_what_their_numbers_mean(tmp_path, form):
    quantise, quantization_config = folders.QUANTISED[form]
    config = {
        **folders.CONFIG, "model_type": "qwen3_moe", "num_experts": 3, "num_experts_per_tok": 2,
        "moe_intermediate_size": 128, "norm_topk_prob": True}
    rng = random.Random(5)
    small = folders.others(rng)
    for name, size in (("self_attn.q_norm", 64), ("self_attn.k_norm", 64)):
        small[f"model.layers.0.{name}.weight"] = folders.plain([1.0] * size, (size,))
    matrices = {
        name: shape
        for name, shape in folders.LINEAR.items()
        if name.startswith("self_attn")} | {"mlp.gate": (3, 128)}
    for name, (rows, cols) in matrices.items():
        small[f"model.layers.0.{name}.weight"] = folders.plain(
            [rng.gauss(0, 0.1) for _ in range(rows * cols)], (rows, cols))
    whole = dict(small)
    for expert in range(3):
        for part in ("gate", "up", "down"):
            module = f"model.layers.0.mlp.experts.{expert}.{part}_proj"
            parts, weight = quantise(rng, module, 128, 128)
            small.update(parts)
            whole[f"{module}.weight"] = folders.plain(
                weight, (128, 128),
                "BF16" if form.startswith("fp8") or form == "gptq-act" else "F32")
    for name, tensors, more in (("small", small, {
            "quantization_config": quantization_config}), ("whole", whole, {})):
        (tmp_path / name).mkdir()
        folders.write_safetensors(tmp_path / name / "model.safetensors", tensors)
        (tmp_path / name / "config.json").write_text(json.dumps(config | more))
        (tmp_path / name / "tokenizer.json").symlink_to(TINY / "qwen3_moe/tokenizer.json")
    ids = [[rng.randrange(96) for _ in range(20)]]
    got, expected = (logits_of(tmp_path / name, ids, "--reference", vocab=96)
                     for name in ("small", "whole"))
    assert got == expected
