# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's benchmark AIPerf: runs of chats and completions, streamed and whole, whose counts are
the server's own."""
import json, pathlib, subprocess, sys

import pytest

from conftest import TINY_FOLDER, metric

COUNT = 12
pytestmark = pytest.mark.skipif(
    not TINY_FOLDER.exists(),
    reason="the tiny models of ../shared are not there, whose tokenizer makes the prompts")


def aiperf(folder, server, model, kind, *arguments):
    """A run of 12 requests, 3 at a time, of 100 tokens each; the records of its requests."""
    done = subprocess.run([
        pathlib.Path(sys.executable).with_name("aiperf"), "profile", "--model", model, "--url",
        server.url.removesuffix("/v1"), "--endpoint-type", kind, "--tokenizer", TINY_FOLDER,
        "--synthetic-input-tokens-mean", "100", "--synthetic-input-tokens-stddev", "0",
        "--request-count",
        str(COUNT), "--concurrency", "3", "--random-seed", "1", "--ui", "none",
        "--use-server-token-count", "--output-artifact-dir", folder / "out", *arguments],
                          cwd=folder,
                          capture_output=True,
                          text=True,
                          timeout=900)
    return done, [
        json.loads(text) for text in (folder / "out/profile_export.jsonl").read_text().splitlines()]


def profile(folder, *arguments):
    """The figures of such a run and the records of its requests, none of which may fail."""
    done, records = aiperf(folder, *arguments)
    assert done.returncode == 0, done.stdout[-5000:]
    figures = json.loads((folder / "out/profile_export_aiperf.json").read_text())
    assert figures["request_count"]["avg"] == COUNT == len(
        records) and not figures["error_summary"] and figures["is_complete"]
    assert figures["request_latency"]["min"] > 0 and not any(
        record.get("error") for record in records)
    return figures, records


@pytest.mark.parametrize("kind", ["chat", "completions"])
@pytest.mark.parametrize("streaming", [True, False])
def test_a_run_counts_the_tokens_that_the_engine_made(tiny, tmp_path, kind, streaming):
    before = metric(tiny, 'quern_requests_total{endpoint="%s",outcome="succeeded"}' % kind)
    figures, records = profile(tmp_path, tiny, "tiny", kind, "--output-tokens-mean", "16",
                               "--output-tokens-stddev", "0", "--extra-inputs", "ignore_eos:true",
                               *(["--streaming"] if streaming else []))
    assert metric(
        tiny, 'quern_requests_total{endpoint="%s",outcome="succeeded"}' % kind) == before + COUNT
    assert figures["total_usage_completion_tokens"]["avg"] == 16 * COUNT and figures[
        "usage_prompt_tokens"]["min"] > 50
    assert all(record["metrics"]["usage_completion_tokens"]["value"] == 16 for record in records)
    assert ("time_to_first_token" in figures) == streaming
    if streaming:
        assert 0 < figures["time_to_first_token"]["avg"] <= figures["request_latency"]["avg"]


def test_a_stream_of_a_real_model_has_a_latency_between_its_tokens(real, tmp_path):
    figures, _ = profile(tmp_path, real, "smollm2", "chat", "--output-tokens-mean", "16",
                         "--output-tokens-stddev", "0", "--extra-inputs", "ignore_eos:true",
                         "--streaming")
    assert figures["inter_token_latency"]["avg"] > 0 and figures["time_to_first_token"][
        "avg"] < figures["request_latency"]["avg"]


def test_embeddings(echo, tmp_path):
    figures, _ = profile(tmp_path, echo, "gpt-4", "embeddings")
    assert "time_to_first_token" not in figures


def test_requests_that_fail_are_counted_as_errors(tiny, tmp_path):
    done, records = aiperf(tmp_path, tiny, "absent", "chat")
    assert done.returncode != 0 and f"All {COUNT} inference request(s) failed" in done.stdout, done.stdout[
        -3000:]
    assert [record["error"]["code"] for record in records] == [404] * COUNT
