# SPDX-License-Identifier: Apache-2.0
"""What /metrics tells without a model: its form, its zeros, times of HTTP, the log, webhooks and
upstreams, and vLLM's names."""
import subprocess

import pytest

import metrics, support, upstream

CHAT = {"model": "m", "messages": [{"role": "user", "content": "say=a%20b%20c"}]}
TIMINGS = {
    "quern_time_to_first_token_seconds", "quern_inter_token_latency_seconds",
    "quern_request_time_per_output_token_seconds", "quern_e2e_request_latency_seconds",
    "quern_request_queue_time_seconds", "quern_request_inference_time_seconds",
    "quern_request_prefill_time_seconds", "quern_request_decode_time_seconds",
    "quern_request_prompt_tokens", "quern_request_generation_tokens",
    "quern_request_params_max_tokens", "quern_request_params_n", "quern_iteration_tokens"}


def lint(text):
    done = subprocess.run([metrics.PROMTOOL, "check", "metrics"],
                          input=text,
                          capture_output=True,
                          text=True)
    assert done.returncode == 0 and not done.stderr and not done.stdout, done.stderr + done.stdout


@pytest.mark.skipif(not metrics.PROMTOOL, reason=metrics.NO_PROMTOOL)
def test_promtool_finds_no_fault(echo_server):
    lint(echo_server.call("GET", "/metrics")[1].decode())


def test_all_kinds_are_there_from_the_start(tmp_path):
    with support.serving(tmp_path / "state", "--model", "m=echo") as server:
        told = metrics.of(server)
    assert TIMINGS <= {name for name, kind in told.kinds.items() if kind == "histogram"}
    for name in ("quern_log_fsync_seconds", "quern_log_group_records", "quern_webhook_seconds"):
        assert told.value(name + "_count") == 0
    for outcome in ("succeeded", "errored", "cancelled", "expired"):
        assert told.value("quern_lines_ended_total", outcome=outcome) == 0
    for status in ("completed", "failed", "expired", "cancelled"):
        assert told.value("quern_batch_e2e_seconds_count", status=status) == 0
    assert told.value("quern_recovery_seconds") > 0
    assert told.value("quern_http_request_seconds_count", route="createBatch") == 0
    assert told.value("quern_engine_info", engine="0", model="m") == 1
    assert not any(name.startswith("vllm") for name in told.kinds)


def test_lines_syncs_and_http_times_are_counted(tmp_path):
    with support.serving(tmp_path / "state", "--model", "m=echo") as server:
        batch = server.create(
            support.jsonl([support.request(str(i), f"hello {i}", model="m") for i in range(50)]))
        server.wait(batch["id"])
        told = metrics.of(server)
    assert told.value("quern_lines_ended_total",
                      outcome="succeeded") == told.value("quern_lines_total") == 50
    assert told.value("quern_log_group_records_sum") == 50
    assert told.value("quern_log_group_records_count") == told.value(
        "quern_log_groups_total") <= told.value("quern_log_fsync_seconds_count")
    assert told.value("quern_log_fsync_seconds_sum") > 0
    for route in ("createFile", "createBatch"):
        assert told.value("quern_http_request_seconds_count", route=route) == told.value(
            "quern_http_requests_total", route=route) == 1
        assert told.value("quern_http_request_seconds_sum", route=route) > 0


def test_batches_are_timed_from_their_creation_to_their_end(tmp_path):
    clock = support.Clock(tmp_path)
    slow = support.request("1", "hello", model="m")
    slow["body"]["echo"] = {"delay_ms": 3600000}
    with support.serving(tmp_path / "state", "--model", "m=echo",
                         environment=clock.environment) as server:
        server.wait(server.create(support.jsonl([support.request("1", "hello", model="m")]))["id"])
        server.wait(
            server.create(support.jsonl([support.request("twice", "hello", model="m")] * 2))["id"])
        cancelled = server.create(support.jsonl([slow]))["id"]
        server.wait(cancelled, until=("in_progress",))
        clock.move(100)
        server.json("POST", f"/v1/batches/{cancelled}/cancel", {})
        server.wait(cancelled)
        told = metrics.of(server)
    assert [
        told.value("quern_batch_e2e_seconds_count", status=status)
        for status in ("completed", "failed", "expired", "cancelled")] == [1, 1, 0, 1]
    assert told.value("quern_batch_e2e_seconds_sum", status="cancelled") >= 100


def test_attempts_of_webhooks_are_timed(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("whsec_" + "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0" + "\n")
    secret.chmod(0o600)
    with support.webhook_receiver() as webhooks, \
            support.serving(tmp_path / "state", "--model", "m=echo", "--webhook-url", webhooks,
                            "--webhook-secret-file", secret, "--webhook-allow-private") as server:
        server.wait(server.create(support.jsonl([support.request("1", "hello", model="m")]))["id"])
        support.until(lambda: metrics.of(server).value("quern_webhook_deliveries_total",
                                                       outcome="succeeded") == 1)
        told = metrics.of(server)
    assert told.value("quern_webhook_seconds_count") == 1 and told.value(
        "quern_webhook_seconds_sum") > 0


def test_requests_of_an_upstream_are_timed_on_this_side(tmp_path):
    fake = upstream.Upstream(models=("m",))
    with support.serving(tmp_path / "state", "--upstream", f"up={fake.url}") as server:
        assert server.call("POST", "/v1/chat/completions", CHAT)[0] == 200
        assert server.call("POST", "/v1/chat/completions", {**CHAT, "stream": True})[0] == 200
        server.wait(
            server.create(
                support.jsonl([
                    support.request(str(i), f"say=x {i}", model="m") for i in range(5)]))["id"])
        told = metrics.of(server)
    fake.stop()
    for name in ("e2e_request_latency_seconds", "request_queue_time_seconds",
                 "request_prompt_tokens", "request_generation_tokens"):
        assert told.value(f"quern_{name}_count", source="client") == 2, name
        assert told.value(f"quern_{name}_count", source="batch") == 5, name
    assert told.value("quern_time_to_first_token_seconds_count", source="client") == 1  # the stream
    assert told.value("quern_inter_token_latency_seconds_count", source="client") >= 1
    assert not told.series("quern_request_decode_time_seconds_count"), "an upstream does not tell"
    whole, queue = (told.value(f"quern_{name}_sum")
                    for name in ("e2e_request_latency_seconds", "request_queue_time_seconds"))
    assert 0 <= queue <= whole


def test_a_compat_other_than_vllm_is_refused():
    done = support.quern("serve", "--model", "m=echo", "--metrics-compat", "tgi")
    assert done.returncode == 2 and "tgi" in done.stderr
