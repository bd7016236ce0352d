# SPDX-License-Identifier: Apache-2.0
"""The command lines of `vllm serve` and `vllm run-batch`: each option acts, or says why it changes
nothing, or is refused with the reason."""
import json, pathlib, re, subprocess

import pytest

import support

# Options of `vllm serve --help` that users of one machine are likely to pass, with a value where
# they take one.
VLLM = """
--dtype auto | --quantization awq | --gpu-memory-utilization 0.9 | --max-model-len 32k
--max-num-seqs 256 | --max-num-batched-tokens 8k | --tensor-parallel-size 1 | -tp 1
--pipeline-parallel-size 1 | -pp 1 | --enable-chunked-prefill
--enable-prefix-caching | --no-enable-prefix-caching | --enforce-eager | --trust-remote-code
--swap-space 4 | --cpu-offload-gb 0 | --seed 0 | --tokenizer x | --tokenizer-mode auto
--revision main | --download-dir /tmp | --load-format auto | --kv-cache-dtype auto | --block-size 16
--served-model-name m | --chat-template x.jinja | --chat-template-content-format auto
--response-role assistant | --enable-auto-tool-choice | --tool-call-parser hermes
--reasoning-parser qwen3 | --api-key k | --host 127.0.0.1 | --port 8000 | --allowed-origins []
--uvicorn-log-level info | --disable-log-requests | --enable-log-requests | --disable-log-stats
--max-log-len 100 | --max-logprobs 20 | --generation-config vllm | --override-generation-config {}
--enable-lora | --lora-modules a=b | --max-lora-rank 16 | --limit-mm-per-prompt {}
--rope-scaling {} | --hf-overrides {} | --hf-token x | --config F | --task auto | --runner auto
--distributed-executor-backend mp | --scheduling-policy fcfs | --num-gpu-blocks-override 9
--compilation-config 3 | -O 3 | --speculative-config {} | --structured-outputs-config {}
--guided-decoding-backend auto | --attention-backend X | --async-scheduling
--enable-expert-parallel | --enable-sleep-mode | --enable-prompt-tokens-details
--enable-force-include-usage | --enable-server-load-tracking | --return-tokens-as-token-ids
--enable-request-id-headers | --disable-uvicorn-access-log | --root-path /x | --middleware x
--uds /x | --api-server-count 1 | --default-chat-template-kwargs {} | --trust-request-chat-template
--kv-cache-memory-bytes 2GiB | --model x | --max_model_len 4096 | --otlp-traces-endpoint x
""".strip().replace("\n", " | ").split(" | ")
ACTS = {
    "--dtype", "--quantization", "--gpu-memory-utilization", "--max-model-len", "--max-num-seqs",
    "--max-num-batched-tokens", "--tensor-parallel-size", "-tp", "--enable-prefix-caching",
    "--no-enable-prefix-caching", "--load-format", "--kv-cache-dtype", "--block-size",
    "--served-model-name", "--chat-template", "--api-key", "--host", "--port", "--tool-call-parser",
    "--config", "--disable-uvicorn-access-log", "--trust-request-chat-template",
    "--kv-cache-memory-bytes", "--model", "--max_model_len"}


def test_every_option_of_vllm_acts_or_says_why_not(tmp_path):
    for option in filter(None, VLLM):
        name, *value = option.split(" ", 1)
        # No model is served: what comes after the options is never reached.
        done = support.quern("serve", "nothing=/nowhere", "--state-dir", tmp_path / "state", name,
                             *value)
        said = done.stderr
        assert "no option" not in said, option
        if name not in ACTS:
            noted = re.search(r"^quern: --[a-z-]+ ?.* changes nothing: \S", said, re.M)
            refused = re.search(r"^quern serve: --[a-z-]+ ?.* is not supported.*: \S", said, re.M)
            assert bool(noted) != bool(refused), (option, said)
            assert done.returncode == (2 if refused else 4), (option, said)


def test_a_parser_that_is_none_is_refused_with_those_that_are(tmp_path):
    done = support.quern("serve", "nothing=/nowhere", "--state-dir", tmp_path / "state",
                         "--tool-call-parser", "jamba")
    assert done.returncode == 2 and "hermes, qwen3_json" in done.stderr and "openai are)" in done.stderr


def test_the_page_of_serve_lists_each_option_of_vllm_that_the_help_lists():
    shown = support.quern("run", "--help").stdout
    foreign = set(re.findall(r"--[a-z][a-z0-9-]*", shown[shown.index("Options of vLLM"):]))
    page = (pathlib.Path(__file__).parents[2] / "docs/man/quern-serve.1").read_text().replace(
        "\\-", "-")
    section = page[page.index(".SH OPTIONS OF VLLM"):]
    assert len(foreign) > 90 and foreign == set(
        re.findall(r"^\.B (--[a-z][a-z0-9-]*)", section, re.M))


def test_a_vllm_command_line_serves(tmp_path):
    """A positional model, a key and a template, as `vllm serve` takes them."""
    template = tmp_path / "chat.jinja"
    template.write_text("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<answer>")
    arguments = [
        "smollm2", "--served-model-name", "small", "--api-key", "sk-one", "sk-two",
        "--chat-template", template, "--max_model_len", "1K", "--enable-auto-tool-choice",
        "--tool-call-parser", "hermes", "--gpu-memory-utilization", "0.9", "--enforce-eager",
        "--disable-log-requests", "--log-level", "error", "--kv-cache-memory-bytes", "64MiB"]
    with support.serving(tmp_path / "state", *map(str, arguments)) as server:
        arguments_shown = pathlib.Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
        assert b"sk-one" not in arguments_shown and b"sk-two" not in arguments_shown
        assert server.call("GET", "/v1/models")[0] == 401
        for key in ("sk-one", "sk-two"):
            status, data = server.call("GET",
                                       "/v1/models",
                                       headers={"Authorization": f"Bearer {key}"})
            model = json.loads(data)["data"][0]
            assert status == 200 and (model["id"], model["max_model_len"]) == ("small", 1024)
        body = {
            "model": "small", "messages": [{"role": "user", "content": "Hello."}], "max_tokens": 1,
            "return_token_ids": True}
        status, data = server.call("POST",
                                   "/v1/chat/completions",
                                   body,
                                   headers={"Authorization": "Bearer sk-one"})
        prompt = json.loads(data)["prompt_token_ids"]
        assert status == 200, data
        tokens = json.loads(
            support.quern("tokenize",
                          "--model",
                          "smollm2",
                          "--batch",
                          input='"<user>Hello.<answer>"\n').stdout)
        assert prompt == tokens
        assert " info " not in server.log_text(
        ) and "--enforce-eager changes nothing" in server.log_text()


def test_a_template_is_a_file_or_its_text_and_a_wrong_one_is_refused(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_bytes(support.jsonl([support.request("a", "Hello.", max_tokens=1)]))
    counts = [
        json.loads(
            support.quern("preflight", path, "--model", "smollm2", "--json", "--pilot", "0",
                          *extra).stdout)["prompt_tokens"]
        for extra in ([], ["--chat-template", "{{ messages[0].content }}"])]
    assert counts[0] > counts[1] == 2
    for template, word in (("{% if %}", "--chat-template"), (tmp_path / "nowhere.jinja",
                                                             "nowhere.jinja")):
        done = support.quern("run", "-i", path, "-o", tmp_path / "out.jsonl", "--model", "smollm2",
                             "--chat-template", template)
        assert done.returncode in (2, 3, 4) and word in done.stderr, done.stderr


@pytest.mark.parametrize("word, form, fits", (("awq", "awq", True), ("awq_marlin", "awq", True),
                                              ("gptq", "awq", False), ("awq", None, False)))
def test_the_form_of_files_as_quantization_is_held_against_the_model(tmp_path, word, form, fits):
    model = tmp_path / "model"
    model.mkdir()
    config = {"architectures": ["LlamaForCausalLM"]}
    if form:
        config["quantization_config"] = {"quant_method": form}
    (model / "config.json").write_text(json.dumps(config))
    done = support.quern("run", "-i", "/dev/null", "-o", tmp_path / "out.jsonl", "--model", model,
                         "--quantization", word)
    assert (f"--quantization {word} does not fit" in done.stderr) != fits, done.stderr
    assert "is not auto" not in done.stderr
    if not fits:
        assert done.returncode == 3 and str(form or "none") in done.stderr
