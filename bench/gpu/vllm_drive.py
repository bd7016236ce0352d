# SPDX-License-Identifier: Apache-2.0
"""vLLM on the requests of bench/gpu, offline: vllm_drive.py FOLDER OPTIONS REQUESTS... (OPTIONS: LLM's arguments as JSON). Run by versus with
the Python that has vLLM. One JSON line for each file; its weights are made up too, and prefixes are shared."""
import json, os, sys, time

os.environ.update(VLLM_LOGGING_LEVEL="WARNING", VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1")


def jobs_of(path):
    with open(path) as lines:
        return [json.loads(line)["body"] for line in lines]


def main():
    import vllm
    from vllm import LLM, SamplingParams
    folder, extra, *files = sys.argv[1:]
    begin = time.time()
    options = dict(model=folder, load_format="dummy", skip_tokenizer_init=True, max_model_len=8192, gpu_memory_utilization=0.9,
                   enable_prefix_caching=True, disable_log_stats=True)
    llm = LLM(**{**options, **json.loads(extra)})
    load_s = time.time() - begin

    def go(bodies):
        prompts = [{"prompt_token_ids": body["prompt"]} for body in bodies]
        sampling = [SamplingParams(temperature=body["temperature"], top_p=body.get("top_p", 1.0), max_tokens=body["max_tokens"], ignore_eos=True,
                                   detokenize=False) for body in bodies]
        begin = time.time()
        answers = llm.generate(prompts, sampling, use_tqdm=False)
        return time.time() - begin, answers

    go([dict(body, prompt=[token + 1 for token in body["prompt"]]) for body in jobs_of(files[0])[:64]])  # warm, and nothing of it is shared later
    for file in files:
        llm.reset_prefix_cache()
        bodies = jobs_of(file)
        seconds, answers = go(bodies)
        tokens = sum(len(answer.outputs[0].token_ids) for answer in answers)
        print("RESULT " + json.dumps({"engine": "vllm", "version": vllm.__version__, "n": len(bodies), "seconds": round(seconds, 3),
                                      "load_seconds": round(load_s, 1), "req_s": round(len(bodies) / seconds, 3),
                                      "prompt_tokens": sum(len(body["prompt"]) for body in bodies), "completion_tokens": tokens,
                                      "output_tok_s": round(tokens / seconds), "is_whole": tokens == sum(body["max_tokens"] for body in bodies)}), flush=True)


if __name__ == "__main__":
    main()
