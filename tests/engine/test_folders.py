# SPDX-License-Identifier: Apache-2.0
"""Folders of Hugging Face's tools: how weights are stored, what is refused and why, which tokens
end, which template counts."""
import json, os, pathlib, random, shutil, struct, subprocess, sys

import pytest

import folders, gguf_of, support

TINY = support.SHARED / "tiny"
QUERY = json.dumps({"ids": [5, 17, 3, 88, 42, 9, 0, 61], "positions": [0, 3, 7], "top": 96})


def logits(model, *arguments):
    done = support.quern("logits", "--model", model, "--reference", *arguments, input=QUERY)
    assert done.returncode == 0, done.stderr
    return [sorted(map(tuple, row["top"])) for row in json.loads(done.stdout)["positions"]]


def refusal(model, *arguments):
    done = support.quern("logits", "--model", model, *arguments, input=QUERY)
    assert done.returncode == 3, (done.returncode, done.stdout, done.stderr)
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("quern logits: "), done.stderr
    return lines[0]


@pytest.mark.parametrize("dtype", ["F16", "F32"])
def test_a_weight_is_the_same_in_every_dtype_that_holds_it(tmp_path, dtype):
    folders.write_plain(tmp_path / "bf16")
    folders.write_plain(tmp_path / dtype, dtype)
    for mine, other in zip(logits(tmp_path / dtype), logits(tmp_path / "bf16"), strict=True):
        assert mine == other


@pytest.mark.parametrize("name", folders.QUANTISED)
def test_a_quantised_folder_is_the_model_of_its_dequantised_weights(tmp_path, name):
    """Integers of four bits keep their values; 8 bits, groups of 16, those that are not in order
    and FP8 are rounded to BF16."""
    small, whole = folders.write_pair(
        tmp_path, *folders.QUANTISED[name],
        "BF16" if name in ("awq-16", "gptq-act", "gptq-8", "rows-16", "rows-act", "rows-8", "nvfp4")
        or name.startswith(("fp8", "int8")) else "F32")
    assert logits(small) == logits(whole)


def test_the_text_part_of_a_model_that_sees_is_a_model(tmp_path):
    text = tmp_path / "text"
    tensors = folders.write_plain(text)
    config = {
        "model_type": "mistral3", "vision_config": {},
        "text_config": {**folders.CONFIG, "model_type": "mistral", "sliding_window": None}}
    for number, (prefix, head) in enumerate([("language_model.model.", "language_model.lm_head."),
                                             ("model.language_model.", "lm_head.")]):
        whole = tmp_path / f"whole-{number}"
        whole.mkdir()
        renamed = {prefix + name.removeprefix("model."): value for name, value in tensors.items()}
        seeing = {("model." if number else "") + name: folders.plain([1.0] * 6, (2, 3))
                  for name in ("vision_tower.patch.weight", "multi_modal_projector.linear.weight")}
        folders.write_safetensors(
            whole / "model.safetensors",
            {**renamed, **seeing, f"{head}weight": tensors["model.embed_tokens.weight"]})
        (whole / "config.json").write_text(json.dumps(config))
        assert logits(whole) == logits(text)
        (whole / "config.json").write_text(json.dumps(config["text_config"]))
        assert "vision_tower.patch.weight is not part of architecture llama" in refusal(whole)


def change(folder, **fields):
    config = json.loads((folder / "config.json").read_text())
    config.update(fields)
    (folder / "config.json").write_text(json.dumps(config))


def test_what_makes_no_model_is_refused_in_one_sentence(tmp_path):
    good = tmp_path / "good"
    tensors = folders.write_plain(good)

    def broken(name, *, without=(), extra=None, index=None, files=None, **fields):
        folder = tmp_path / name
        folder.mkdir()
        kept = {key: value for key, value in tensors.items() if key not in without}
        for file, content in (files or {"model.safetensors": {**kept, **(extra or {})}}).items():
            folders.write_safetensors(folder / file, content)
        if index is not None:
            (folder / "model.safetensors.index.json"
             ).write_text(index if isinstance(index, str) else json.dumps(index))
        (folder / "config.json").write_text(json.dumps({**folders.CONFIG, **fields}))
        return refusal(folder)

    q = "model.layers.0.self_attn.q_proj.weight"
    assert "config.json: model_type is missing" in broken("type", model_type=None)
    assert f"tensor {q} is missing" in broken("missing", without=[q])
    assert "tensor model.embed_tokens.weight is missing" in broken("empty",
                                                                   files={"model.safetensors": {}})
    assert "tensor lm_head.weight is missing, and tie_word_embeddings is not true" in broken(
        "head", tie_word_embeddings=False)
    assert "tensor model.layers.1.input_layernorm.weight is missing" in broken("layers",
                                                                               num_hidden_layers=2)
    assert "tensor score.weight is not part of architecture llama" in broken(
        "extra", extra={"score.weight": folders.plain([1.0], (1, 1))})
    assert "128 x 127" in broken("shape", extra={q: folders.plain([0.0] * 127 * 128, (127, 128))})
    assert "dtype I64 is not supported" in broken("dtype",
                                                  extra={
                                                      q: ("I64", (128, 128), bytes(8 * 128 * 128))})
    assert "dtype F8_E4M3 is not supported" in broken(
        "fp8", extra={q: ("F8_E4M3", (128, 128), bytes(128 * 128))})
    assert "is no finite number" in broken(
        "nan", extra={"model.norm.weight": folders.plain([float("nan")] * 128, (128, ), "F32")})
    assert "3 axes" in broken("axes", extra={q: folders.plain([0.0] * 128 * 128, (128, 128, 1))})
    a, b = dict(list(tensors.items())[:5]), dict(list(tensors.items())[5:])
    both = {"a.safetensors": a, "b.safetensors": b}
    assert "tensor model.norm.weight is in two files" in broken(
        "twice",
        files={
            "a.safetensors": a,
            "b.safetensors": {**b, "model.norm.weight": a["model.norm.weight"]}},
        index={"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}})
    assert "is missing" in broken("half", files=both, index={"weight_map": {"x": "a.safetensors"}})
    for number, bad in enumerate([
            "../a.safetensors", "/a.safetensors", "a.bin", "", ".safetensors", 7, None,
            "a\u0000.safetensors"]):
        assert "names a file that is no .safetensors in the folder" in broken(f"path-{number}",
                                                                              files=both,
                                                                              index={
                                                                                  "weight_map": {
                                                                                      "x": bad}})
    assert "has no weight_map" in broken("map", files=both, index={"metadata": {}})
    assert "weight_map is empty" in broken("none", files=both, index={"weight_map": {}})
    assert "is no JSON object" in broken("text", files=both, index="[")
    (good / "model.safetensors").unlink()
    assert "neither model.safetensors nor model.safetensors.index.json" in refusal(good)
    (good / "model.safetensors").write_bytes(b"pickle")
    assert "model.safetensors: this is no safetensors file" in refusal(good)
    (good / "config.json").write_text("{")
    assert "config.json" in refusal(good)


def test_parts_of_a_quantised_weight_that_do_not_fit_are_refused(tmp_path):
    def broken(name, parts, config):
        tensors = folders.write_plain(tmp_path / name,
                                      config={**folders.CONFIG, "quantization_config": config})
        module = "model.layers.0.mlp.up_proj"
        del tensors[f"{module}.weight"]
        folders.write_safetensors(
            tmp_path / name / "model.safetensors",
            {**tensors, **{f"{module}{key}": value
                           for key, value in parts.items()}})
        return refusal(tmp_path / name)

    def parts_of(made):
        return {key.removeprefix("m"): value for key, value in made[0].items()}

    awq, gptq, fp8 = {"quant_method": "awq"}, {"quant_method": "gptq"}, {"quant_method": "fp8"}
    good = parts_of(folders.awq(random.Random(1), "m", 256, 128))
    assert "up_proj.qzeros is missing" in broken("a",
                                                 {k: v
                                                  for k, v in good.items()
                                                  if k != ".qzeros"}, awq)
    assert "up_proj.scales is missing" in broken("b",
                                                 {k: v
                                                  for k, v in good.items()
                                                  if k != ".scales"}, awq)
    assert "up_proj.scales is 1 x 255 instead of 1 x 256" in broken(
        "c", {**good, ".scales": folders.plain([1.0] * 255, (1, 255), "F16")}, awq)
    assert "up_proj.qzeros is 1 x 31 instead of 1 x 32" in broken(
        "d", {**good, ".qzeros": ("I32", (1, 31), bytes(124))}, awq)
    assert "dtype I64 instead of I32" in broken(
        "e", {**good, ".qweight": ("I64", (128, 32), bytes(8 * 128 * 32))}, awq)
    assert "no matrix" in broken("g", {**good, ".qweight": ("I32", (128, 0), b"")}, awq)
    good = parts_of(folders.gptq(random.Random(1), "m", 256, 128))
    assert "up_proj.g_idx: element 127 is not below 1" in broken(
        "h", {**good, ".g_idx": ("I32", (128, ), folders.i32([0] * 127 + [1]))}, gptq)
    assert "up_proj.g_idx is 127 x 1 instead of 128 x 1" in broken(
        "i", {**good, ".g_idx": ("I32", (127, ), folders.i32([0] * 127))}, gptq)
    shorter = {
        **good, ".qweight": ("I32", (15, 256), bytes(15 * 256 * 4)),
        ".g_idx": ("I32", (120, ), bytes(480))}
    assert "120 x 256, instead of 128 x 256" in broken("j", shorter, gptq)
    good = parts_of(folders.fp8(random.Random(1), "m", 256, 128, "channel"))
    assert "up_proj.weight_scale is missing" in broken("k", {".weight": good[".weight"]}, fp8)
    assert "weight_scale is 255 x 1 instead of 256 x 1" in broken(
        "l", {**good, ".weight_scale": folders.plain([1.0] * 255, (255, 1))}, fp8)
    assert "dtype F8_E4M3 is not supported here" in broken(
        "m", {**good, ".weight_scale": ("F8_E4M3", (256, 1), bytes(256))}, fp8)
    assert "there in two forms" in broken(
        "n", {
            **parts_of(folders.awq(random.Random(1), "m", 256, 128)), ".weight": folders.plain(
                [0.0] * 256 * 128, (256, 128))}, awq)


def i64(*values):
    return "I64", (len(values), ), struct.pack(f"<{len(values)}q", *values)


@pytest.mark.parametrize("kind,part,value,sentence", [
    ("rows", "weight_scale", None, "up_proj.weight_scale is missing"),
    ("rows", "weight_shape", i64(256, 129), "weight_shape: 256 x 129 do not fit"),
    ("rows", "weight_shape", i64(255, 128), "weight_shape: 255 x 128 do not fit"),
    ("rows", "weight_shape", i64(256, -1), "weight_shape: 256 x -1 do not fit"),
    ("rows", "weight_shape", i64(256), "is no pair of I64"),
    ("rows", "weight_packed", ("I32", (256, 15), bytes(256 * 60)), "do not fit its words"),
    ("rows", "weight_packed", ("U8", (256, 64), bytes(256 * 64)), "dtype U8 instead of I32"),
    ("rows", "weight_scale", folders.plain([1.0] * 255, (255, 1)), "is 255 x 1 instead of 256"),
    ("rows-32", "weight_zero_point", ("I32", (31, 4), bytes(31 * 16)), "is 31 x 4 instead of 32"),
    ("rows-act", "weight_g_idx", ("I32", (128, ), folders.i32([4] * 128)), "is not below 4"),
    ("int8", "weight_scale", folders.plain([1.0] * 2, (2, 1)), "is 2 x 1 instead of 256 x 1"),
    ("int8", "weight_zero_point", ("I8", (256, 1), bytes(256)), "with zero points are not"),
    ("nvfp4", "weight_scale", ("F8_E4M3", (256, 7), bytes(7 * 256)), "is 256 x 7 instead of"),
    ("nvfp4", "weight_global_scale", folders.plain([0.0], (1, ), "F32"), "no divisor above 0"),
    ("nvfp4", "weight_global_scale", None, "weight_global_scale is missing")])
def test_damaged_parts_of_compressed_tensors_are_refused(tmp_path, kind, part, value, sentence):
    make, quantised = folders.QUANTISED[kind]
    tensors = folders.others(random.Random(7))
    for linear, size in folders.LINEAR.items():
        tensors.update(make(random.Random(1), f"model.layers.0.{linear}", *size)[0])
    tensors[f"model.layers.0.mlp.up_proj.{part}"] = value
    folders.write_safetensors(tmp_path / "model.safetensors", {
        name: tensor for name, tensor in tensors.items() if tensor})
    (tmp_path / "config.json").write_text(
        json.dumps({**folders.CONFIG, "quantization_config": quantised}))
    assert sentence in refusal(tmp_path)


@pytest.mark.parametrize("change,sentence", [
    ({"format": "marlin-24"}, "format 'marlin-24' is not supported"),
    ({"num_bits": 3}, "pack-quantized of int with 3 bits"),
    ({"type": "float"}, "pack-quantized of float with 4 bits"),
    ({"strategy": "tensor"}, "strategy 'tensor' is not supported"),
    ({"group_size": None}, "group_size is missing"), ({"group_size": 0}, "group_size")])
def test_unknown_compressed_tensors_are_refused_by_name(tmp_path, change, sentence):
    config = json.loads(json.dumps(folders.QUANTISED["rows"][1]))
    weights = config["config_groups"]["group_0"]["weights"]
    for key, value in change.items():
        (config if key == "format" else weights)[key] = value
    folders.write_plain(tmp_path / "m", config={**folders.CONFIG, "quantization_config": config})
    assert sentence in refusal(tmp_path / "m")


def copy_of(tmp_path, family):
    folder = tmp_path / family
    shutil.copytree(TINY / family,
                    folder,
                    ignore=shutil.ignore_patterns("*.gguf", "reference.json", "config.v5.json"))
    return folder


def run(folder, tmp_path, *bodies):
    lines = [
        json.dumps({
            "custom_id": str(i), "method": "POST",
            "url": "/v1/chat/completions" if "messages" in body else "/v1/completions", "body": {
                "model": folder.name, "temperature": 0, **body}}) for i, body in enumerate(bodies)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    done = support.quern("run", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl",
                         "--model", folder, "--quiet", "--overwrite")
    assert done.returncode in (0, 1), done.stderr
    return [
        json.loads(line)["response"]["body"]
        for line in (tmp_path / "out.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("eos", [lambda id: id, lambda id: [1, id]])
def test_a_generation_ends_at_the_eos_of_generation_config_else_of_config(tmp_path, eos):
    folder = copy_of(tmp_path, "qwen2")
    case = json.loads((TINY / "qwen2/reference.json").read_text())["cases"][1]
    stop = case["greedy_ids"][3]
    first = case["greedy_ids"].index(stop)
    body = {"prompt": case["ids"], "max_tokens": 8, "return_token_ids": True}
    assert run(folder, tmp_path, body)[0]["choices"][0]["finish_reason"] == "length"
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": eos(stop)}))
    answer = run(folder, tmp_path, body)[0]
    assert answer["choices"][0]["finish_reason"] == "stop" and answer["usage"][
        "completion_tokens"] == first + 1
    change(folder, eos_token_id=case["greedy_ids"][0])  # is not looked at beside the other
    assert run(folder, tmp_path, body)[0]["usage"]["completion_tokens"] == first + 1
    (folder / "generation_config.json").unlink()
    change(folder, eos_token_id=eos(stop))
    assert run(folder, tmp_path, body)[0]["usage"]["completion_tokens"] == first + 1


def test_the_chat_template_is_the_nearest_of_those_a_folder_has(tmp_path):
    folder = copy_of(tmp_path, "qwen2")
    config = json.loads((folder / "tokenizer_config.json").read_text())

    def rendered(**variables):
        done = support.quern(
            "render",
            "--model",
            folder,
            input=json.dumps({"messages": [{"role": "user", "content": "x"}]} | variables))
        return done.stdout.rstrip("\n") if done.returncode == 0 else done.stderr

    def write(**fields):
        (folder / "tokenizer_config.json").write_text(json.dumps({**config, **fields}))

    assert rendered() == "user: x"
    write(chat_template=[{"name": "tool_use", "template": "no"}, {
        "name": "default", "template": "yes {{ eos_token }}"}])
    assert rendered() == rendered(tools=None) == "yes <|im_end|>"
    assert rendered(tools=[{"type": "function", "function": {"name": "f"}}]) == "no"
    write(chat_template={"tool_use": "no", "default": "by name {{ eos_token }}"})
    assert rendered() == "by name <|im_end|>" and rendered(
        tools=[{"type": "function", "function": {"name": "f"}}]) == "no"
    write(chat_template={"rag": "only"})
    assert rendered() == "only"
    write(chat_template=[{"name": "rag", "template": "one of one"}])
    assert rendered() == "one of one"
    write(chat_template=[{"name": "rag", "template": "a"}, {"name": "tool_use", "template": "b"}])
    assert "no chat template" in rendered()
    write(chat_template=None, eos_token={"content": "<|endoftext|>", "special": True})
    (folder / "chat_template.json").write_text(
        json.dumps({"chat_template": "third {{ eos_token }}"}))
    assert rendered() == "third <|endoftext|>"
    (folder / "chat_template.jinja").write_text("first {{ messages[0].content }}")
    write()
    assert rendered() == "first x"
    tools = [{"type": "function", "function": {"name": "f"}}]
    write(chat_template=[{"name": "tool_use", "template": "no"}, {
        "name": "default", "template": "no"}])
    assert rendered(tools=tools) == "first x", "a file stands for all of the config's templates"
    extra = folder / "additional_chat_templates"
    extra.mkdir()
    (extra / "rag.jinja").write_text("another")
    assert rendered(tools=tools) == "first x"
    (extra / "tool_use.jinja").write_text("with {{ tools[0].function.name }}")
    assert rendered(tools=tools) == "with f" and rendered() == "first x"
    (extra / "tool_use.jinja").write_text("{% if %}")
    assert "additional_chat_templates/tool_use.jinja: " in rendered()
    shutil.rmtree(extra)
    (folder / "chat_template.jinja").write_text("{% if %}")
    assert "chat_template.jinja: " in rendered()


def test_a_gguf_file_may_have_a_template_of_its_own_for_tools(tmp_path, monkeypatch):
    plain = gguf_of.vocabulary_of

    def with_templates(folder, config):
        yield from plain(folder, config)
        yield gguf_of.pair("tokenizer.chat_template", gguf_of.STRING, "plain")
        yield gguf_of.pair("tokenizer.chat_template.tool_use", gguf_of.STRING,
                           "{{ tools[0].function.name }}")
    monkeypatch.setattr(gguf_of, "vocabulary_of", with_templates)
    gguf_of.convert(pathlib.Path(__file__).parent / "families/phi3", tmp_path / "model.gguf")
    asked = {"messages": [{"role": "user", "content": "x"}]}
    for tools, text in ((None, "plain"), ([{"type": "function", "function": {"name": "f"}}], "f")):
        assert support.quern("render",
                             "--model",
                             tmp_path / "model.gguf",
                             input=json.dumps(asked | {"tools": tools})).stdout.rstrip("\n") == text


def test_a_snapshot_of_the_hugging_face_cache_is_served_by_its_id(tmp_path):
    """Its files are links into another folder of the cache, where the sandbox of the engine lets it
    read."""
    commit, repository = "0123456789abcdef" * 2 + "01234567", tmp_path / "hub/models--org--name"
    snapshot = repository / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text(commit)
    for number, file in enumerate(sorted(copy_of(tmp_path, "qwen3").iterdir())):
        shutil.copy(file, repository / f"blobs/{number}")
        (snapshot / file.name).symlink_to(f"../../blobs/{number}")
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path / "hub")}
    listed = [
        json.loads(line)
        for line in support.quern("models", "--json", env=environment).stdout.splitlines()]
    assert [(m["servable"], m["path"]) for m in listed if m["model"] == "org/name"] == [
        (True, str(snapshot.resolve()))]
    (tmp_path / "in.jsonl"
     ).write_text(json.dumps(support.request("a", "Hello", model="org/name", max_tokens=3)) + "\n")
    done = support.quern("run",
                         "-i",
                         tmp_path / "in.jsonl",
                         "-o",
                         tmp_path / "out.jsonl",
                         "--model",
                         "org/name",
                         "--quiet",
                         env=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(
        (tmp_path / "out.jsonl").read_text())["response"]["body"]["usage"]["completion_tokens"] == 3


def test_preflight_counts_the_tokens_of_a_folder(tmp_path):
    folder = copy_of(tmp_path, "llama3")
    (tmp_path / "in.jsonl"
     ).write_text(json.dumps(support.request("a", "Hello", model="llama3", max_tokens=3)) + "\n")
    done = support.quern("preflight", tmp_path / "in.jsonl", "--model", folder, "--json")
    assert done.returncode == 0, done.stderr
    body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 3}
    assert json.loads(done.stdout)["prompt_tokens"] == run(folder, tmp_path,
                                                           body)[0]["usage"]["prompt_tokens"]


def test_a_token_without_a_row_is_refused_and_never_sampled(tmp_path):
    folder = copy_of(tmp_path, "qwen2")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["added_tokens"].append(
        {**tokenizer["added_tokens"][-1], "id": 512, "content": "<|beyond|>"})
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    good, bad = run(folder, tmp_path, {"prompt": "plain", "max_tokens": 2},
                    {"prompt": "a <|beyond|> b", "max_tokens": 2})
    assert good["usage"]["completion_tokens"] == 2
    assert "512" in bad["error"]["message"] and bad["error"]["param"] == "prompt"


def test_made_up_weights_are_the_same_on_every_run_and_need_a_config_alone(tmp_path):
    folder = tmp_path / "made-up"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(folders.CONFIG))
    first = logits(folder, "--load-format", "dummy")
    assert first == logits(folder, "--load-format", "dummy", "--threads", "1")
    spread = [value for _, value in first[0]]
    assert 0.1 < max(spread) - min(spread) < 100
    assert "neither model.safetensors" in refusal(folder)
    assert "no tokenizer.json" in support.quern("tokenize", "--model", folder, input='"x"').stderr
    assert "--load-format 'pt' is not supported" in support.quern("logits",
                                                                  "--model",
                                                                  folder,
                                                                  "--load-format",
                                                                  "pt",
                                                                  input=QUERY).stderr


def test_a_loader_needs_little_more_memory_than_the_model(tmp_path):
    """A BF16 model of 500 MB in files that take no room on the disk: what stays in memory is the
    packed copy."""
    folder = tmp_path / "large"
    folder.mkdir()
    config = {
        **folders.CONFIG, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 3,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 20000}
    (folder / "config.json").write_text(json.dumps(config))
    rows = {
        "self_attn.q_proj": (2048, 2048), "self_attn.k_proj": (1024, 2048),
        "self_attn.v_proj": (1024, 2048), "self_attn.o_proj": (2048, 2048),
        "mlp.gate_proj": (8192, 2048), "mlp.up_proj": (8192, 2048), "mlp.down_proj": (2048, 8192)}
    shapes = {"model.embed_tokens.weight": (20000, 2048), "model.norm.weight": (2048,)}
    for layer in range(3):
        shapes.update({
            f"model.layers.{layer}.{name}.weight": shape
            for name, shape in rows.items()})
        shapes.update({
            f"model.layers.{layer}.{name}.weight": (2048, )
            for name in ("input_layernorm", "post_attention_layernorm")})
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + at)
    assert 380e6 < at < 600e6
    for arguments in ((), ("--load-format", "dummy")):
        peak = peak_rss(["logits", "--model", folder, "--threads", "2", *arguments])
        print(f"{arguments}: a model of {at / 1e6:.0f} MB, peak {peak / 1e6:.0f} MB")
        assert peak <= 1.1 * at + 40e6  # the program itself, its libraries and the step's workspace


def peak_rss(arguments):
    """The peak of one quern alone."""
    script = (
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], input=b'{\"ids\":[1],\"top\":1}', stdout=subprocess.DEVNULL, check=True)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)\n")
    done = subprocess.run([sys.executable, "-c", script, support.BINARY, *map(str, arguments)],
                          capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


SENTENCEPIECE = pathlib.Path(__file__).resolve().parent / "sentencepiece"


def sentencepiece_folder(tmp_path, kind, **config):
    folders.write_plain(tmp_path / "m")
    shutil.copyfile(SENTENCEPIECE / f"{kind}.model", tmp_path / "m/tokenizer.model")
    (tmp_path / "m/tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path / "m"


def tokenized(folder, texts, *flags):
    done = support.quern("tokenize", "--model", folder, "--batch", *flags,
                         input="".join(json.dumps(text) + "\n" for text in texts))
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_tokenizer_model_alone_gives_sentencepieces_ids(tmp_path, kind):
    cases = json.loads((SENTENCEPIECE / f"{kind}.json").read_text())
    folder = sentencepiece_folder(tmp_path, kind)
    texts = [text for text, _ in cases]
    assert tokenized(folder, texts) == [ids for _, ids in cases]
    assert tokenized(folder, texts, "--bos") == [[1, *ids] for _, ids in cases]
    sentencepiece_folder(tmp_path, kind, add_bos_token=False, add_eos_token=True)
    assert tokenized(folder, texts, "--bos") == [[*ids, 2] for _, ids in cases]


def test_a_damaged_tokenizer_model_is_refused_by_one_sentence(tmp_path):
    folder = sentencepiece_folder(tmp_path, "bpe")
    good = (folder / "tokenizer.model").read_bytes()

    def refused(data):
        (folder / "tokenizer.model").write_bytes(data)
        done = support.quern("tokenize", "--model", folder, "--batch", input='"a"\n')
        assert done.returncode == 3 and done.stderr.count("\n") == 1, done.stderr
        return done.stderr

    for cut in (1, 2, 5, 100, len(good) // 2 + 1):
        assert "tokenizer.model: " in refused(good[:cut])
    assert "tokenizer.model: " in refused(b"") and "tokenizer.model: " in refused(b"\xff" * 64)
    assert "tokenizer.model: " in refused(b"\x0a\x02\x0a\x00")  # a piece without a text
    (folder / "tokenizer.model").write_bytes(good)
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"added_tokens_decoder": {"32000": {"content": "<|im_start|>"}}}))
    assert "the added token 32000 is not in tokenizer.model" in refused(good)
