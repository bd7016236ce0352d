# SPDX-License-Identifier: Apache-2.0
"""What an engine with a model tells in /metrics about its requests: times, sizes, prefix cache,
vLLM's names, and after its death."""
import os, signal

import pytest

import metrics, support

CLIENTS, LINES, TOKENS = 3, 12, 6
# vLLM 0.33: the core set with its labels.
VLLM = {
    "num_requests_running": "gauge", "num_requests_waiting": "gauge",
    "kv_cache_usage_perc": "gauge", "prompt_tokens_total": "counter",
    "generation_tokens_total": "counter", "prompt_tokens_cached_total": "counter",
    "prefix_cache_queries_total": "counter", "prefix_cache_hits_total": "counter",
    "num_preemptions_total": "counter", "spec_decode_num_drafts_total": "counter",
    "spec_decode_num_draft_tokens_total": "counter",
    "spec_decode_num_accepted_tokens_total": "counter", "request_success_total": "counter",
    "time_to_first_token_seconds": "histogram", "inter_token_latency_seconds": "histogram",
    "request_time_per_output_token_seconds": "histogram",
    "e2e_request_latency_seconds": "histogram", "request_queue_time_seconds": "histogram",
    "request_inference_time_seconds": "histogram", "request_prefill_time_seconds": "histogram",
    "request_decode_time_seconds": "histogram", "request_prompt_tokens": "histogram",
    "request_generation_tokens": "histogram", "request_params_n": "histogram",
    "request_params_max_tokens": "histogram", "iteration_tokens_total": "histogram"}
BUCKETS = {
    "time_to_first_token_seconds": ".001 .005 .01 .02 .04 .06 .08 .1 .25 .5 .75 1 2.5 5 7.5 10 20 40 80 160 640 2560",
    "inter_token_latency_seconds": ".01 .025 .05 .075 .1 .15 .2 .3 .4 .5 .75 1 2.5 5 7.5 10 20 40 80",
    "e2e_request_latency_seconds": ".3 .5 .8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480 960 1920 7680",
    "request_params_n": "1 2 5 10 20",
    "iteration_tokens_total": "1 8 16 32 64 128 256 512 1024 2048 4096 8192 16384"}


def bounds(told, name):
    return {float(labels["le"]) for labels, _ in told.series(name + "_bucket")} - {float("inf")}


def ask(server, index):
    server.json(
        "POST", "/v1/chat/completions", {
            "model": "smollm2", "messages": [{"role": "user", "content": f"Count from {index}."}],
            "temperature": 0, "max_tokens": TOKENS, "ignore_eos": True})


def run(server, first=0):
    """No line is like one of a run with another `first`, whose answers would be used again."""
    batch = server.create(
        support.jsonl([
            support.request(str(i),
                            f"Name river {first + i}.",
                            temperature=0,
                            max_tokens=TOKENS,
                            ignore_eos=True) for i in range(LINES)]))
    return server.wait(batch["id"])


def settled(server, count):
    """/metrics once the engine has told of so many requests."""
    support.until(
        lambda: metrics.of(server).value("quern_e2e_request_latency_seconds_count") >= count)
    return metrics.of(server)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    with support.serving(
            tmp_path_factory.mktemp("metrics") / "state", "--model", "smollm2", "--metrics-compat",
            "vllm") as server:
        for index in range(CLIENTS):
            ask(server, index)
        run(server)
        yield settled(server, CLIENTS + LINES)


def test_clients_and_lines_are_told_apart(told):
    for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds",
                 "request_queue_time_seconds", "request_prefill_time_seconds",
                 "request_decode_time_seconds", "request_inference_time_seconds",
                 "request_params_n", "request_time_per_output_token_seconds"):
        assert told.value(f"quern_{name}_count", source="client") == CLIENTS, name
        assert told.value(f"quern_{name}_count", source="batch") == LINES, name
    assert told.value("quern_engine_requests_total", source="batch", reason="length") == LINES
    assert told.value("quern_engine_requests_total") == CLIENTS + LINES


def test_times_add_up(told):
    def seconds(name):
        return told.value(f"quern_{name}_sum")

    parts = {
        name: seconds(f"request_{name}_time_seconds")
        for name in ("queue", "prefill", "decode", "inference")}
    assert parts["queue"] + parts["prefill"] == pytest.approx(
        seconds("time_to_first_token_seconds"), abs=1e-6)
    assert parts["prefill"] + parts["decode"] == pytest.approx(parts["inference"], abs=1e-6)
    assert parts["queue"] + parts["inference"] <= seconds("e2e_request_latency_seconds") + 1e-6
    assert parts["decode"] == pytest.approx(seconds("inter_token_latency_seconds"), abs=1e-6)
    assert min(parts.values()) > 0


def test_sizes_and_tokens_agree(told):
    requests = CLIENTS + LINES
    assert told.value("quern_request_generation_tokens_sum") == told.value(
        "quern_tokens_total", type="output") == requests * TOKENS
    assert told.value("quern_request_params_max_tokens_sum") == requests * TOKENS
    assert told.value("quern_inter_token_latency_seconds_count") == requests * (TOKENS - 1)
    assert told.value("quern_request_prompt_tokens_sum") == told.value("quern_tokens_total",
                                                                       type="input")
    queries, hits = (told.value(f"quern_engine_prefix_{kind}_total")
                     for kind in ("queries", "hits"))
    assert queries == told.value("quern_engine_prompt_tokens_total") and 0 < hits < queries
    # Each prompt token that was not found, and each generated one but the last of a sequence, is a
    # row.
    assert told.value("quern_iteration_tokens_sum") >= queries - hits + requests * (TOKENS - 1)


def test_vllm_has_the_same_numbers_under_its_names(told):
    found = {
        name.partition(":")[2]: kind
        for name, kind in told.kinds.items()
        if name.startswith("vllm:")}
    assert found == VLLM
    for name, kind in VLLM.items():
        series = f"vllm:{name}" + ("_count" if kind == "histogram" else "")
        for labels, _ in told.series(series):
            assert labels["model_name"] == "smollm2" and labels["engine"] == "0" and set(labels) - {
                "finished_reason"} == {"model_name", "engine"}
        assert told.series(series), name
    assert told.value(
        "vllm:e2e_request_latency_seconds_count") == CLIENTS, "a line may wait for hours"
    assert told.value("vllm:request_generation_tokens_count") == told.value(
        "vllm:request_success_total", finished_reason="length") == CLIENTS + LINES
    assert told.value("vllm:prefix_cache_hits_total") == told.value(
        "quern_engine_prefix_hits_total")


@pytest.mark.parametrize("name", sorted(BUCKETS))
def test_buckets_are_vllms(told, name):
    wanted = {float(bound) for bound in BUCKETS[name].split()}
    assert bounds(told, f"vllm:{name}") == wanted
    assert bounds(told,
                  "quern_" + name.replace("iteration_tokens_total", "iteration_tokens")) == wanted


def test_counters_do_not_fall_when_the_engine_dies(tmp_path):
    with support.serving(tmp_path / "state", "--model", "smollm2") as server:
        run(server)
        before = settled(server, LINES)
        os.kill(server.engine_pid(), signal.SIGKILL)
        support.until(lambda: metrics.of(server).value("quern_engine_restarts_total") > 0)
        assert not metrics.falls(before, metrics.of(server))
        run(server, LINES)
        after = settled(server, 2 * LINES)
    assert not metrics.falls(before, after)
    assert after.value("quern_e2e_request_latency_seconds_count") == 2 * LINES
    assert after.value("quern_engine_generated_tokens_total") == 2 * LINES * TOKENS
