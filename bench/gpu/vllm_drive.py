# SPDX-License-Identifier: Apache-2.0
"""vLLM on the requests of bench/gpu, offline: vllm_drive.py FOLDER OPTIONS REQUESTS... (OPTIONS:
LLM's arguments as JSON; with "own_weights" its weights are those that it makes up itself). Run by
versus with the Python that has vLLM. One JSON line for each file; its weights are made up too, and
prefixes are shared."""
import json, math, os, pathlib, sys, time

os.environ.update(VLLM_LOGGING_LEVEL="WARNING", VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1")


def make_weights_as_quern(folder):
    """Lets vLLM make up weights of quern's distribution (src/inference/checkpoint/folder_dummy.c),
    which keeps activations near 1.

    vLLM's own are all within ±0.001, those of norms too. Keys and values of Llama and Qwen3 are
    then some 0.000003, far below E4M3's smallest number (2^-9): a cache in fp8 holds zeros, and
    products of zeros draw less power than those of numbers."""
    import torch
    from vllm.model_executor.model_loader import dummy_loader, weight_utils
    norm = 0.0 if json.loads((pathlib.Path(folder) /
                              "config.json").read_text())["model_type"].startswith("gemma") else 1.0
    fill_uniformly = weight_utils.initialize_single_dummy_weight

    @torch.no_grad()
    def fill(param, *_, **__):
        if param.dim() > 1:
            most = math.sqrt(3 / param.shape[-1])
            fill_uniformly(param, -most, most)
        elif param.dim() == 1 and param.device.type != "meta" and torch.is_floating_point(param):
            param.fill_(norm)
        # a number alone is a scale that nothing was loaded for: vLLM puts 1 in its place

    weight_utils.initialize_single_dummy_weight = dummy_loader.initialize_single_dummy_weight = fill


# Here, so that a process that vLLM starts anew does it too.
if len(sys.argv) > 2 and not json.loads(sys.argv[2]).get("own_weights"):
    make_weights_as_quern(sys.argv[1])


def jobs_of(path):
    with open(path) as lines:
        return [json.loads(line)["body"] for line in lines]


def main():
    import vllm
    from vllm import LLM, SamplingParams
    folder, extra, *files = sys.argv[1:]
    begin = time.time()
    options = dict(model=folder,
                   load_format="dummy",
                   skip_tokenizer_init=True,
                   max_model_len=8192,
                   gpu_memory_utilization=0.9,
                   enable_prefix_caching=True,
                   disable_log_stats=True)
    options.update(json.loads(extra))
    own_weights = options.pop("own_weights", False)
    llm = LLM(**options)
    load_s = time.time() - begin

    def go(bodies):
        prompts = [{"prompt_token_ids": body["prompt"]} for body in bodies]
        sampling = [
            SamplingParams(temperature=body["temperature"],
                           top_p=body.get("top_p", 1.0),
                           max_tokens=body["max_tokens"],
                           ignore_eos=True,
                           detokenize=False) for body in bodies]
        begin = time.time()
        answers = llm.generate(prompts, sampling, use_tqdm=False)
        return time.time() - begin, answers

    some = jobs_of(files[0])[:64]
    go([dict(body, prompt=[token + 1
                           for token in body["prompt"]])
        for body in some])  # warm, and nothing of it is shared later
    # About -ln(vocabulary), 12, where all logits are nearly the same; some 4 more where activations
    # are near 1.
    first = llm.generate([{"prompt_token_ids": some[0]["prompt"]}],
                         SamplingParams(temperature=0, max_tokens=1, logprobs=1, detokenize=False),
                         use_tqdm=False)[0].outputs[0]
    for file in files:
        llm.reset_prefix_cache()
        bodies = jobs_of(file)
        seconds, answers = go(bodies)
        tokens = sum(len(answer.outputs[0].token_ids) for answer in answers)
        print("RESULT " + json.dumps({
            "engine": "vllm", "version": vllm.__version__, "n": len(bodies), "seconds": round(
                seconds, 3), "load_seconds": round(load_s, 1), "own_weights": own_weights,
            "first_logprob": round(first.cumulative_logprob, 2), "req_s": round(
                len(bodies) / seconds, 3), "prompt_tokens": sum(
                    len(body["prompt"])
                    for body in bodies), "completion_tokens": tokens, "output_tok_s": round(
                        tokens / seconds), "is_whole": tokens == sum(body["max_tokens"]
                                                                     for body in bodies)}),
              flush=True)


if __name__ == "__main__":
    main()
