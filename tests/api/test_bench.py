# SPDX-License-Identifier: Apache-2.0
"""`quern bench`: the servers get the same requests in turns; the files that it leaves and their
figures; failed requests and answers without usage; its own server; the report page. No test here
judges a time."""
import html.parser, json, re, statistics

import pytest

import support
from small_server import SmallServer
from upstream import Upstream

# The fields of `vllm bench serve --save-result`, without the percentiles that an option chooses.
VLLM = {
    "date", "backend", "endpoint_type", "label", "model_id", "tokenizer_id", "num_prompts",
    "request_rate", "burstiness", "max_concurrency", "duration", "completed", "failed",
    "total_input_tokens", "total_output_tokens", "request_throughput", "request_goodput",
    "output_throughput", "total_token_throughput", "max_output_tokens_per_s",
    "max_concurrent_requests",
    *(f"{figure}_{of}_ms" for figure in ("mean", "median", "std", "p50", "p90", "p95", "p99")
      for of in ("ttft", "tpot", "itl", "e2el"))}


@pytest.fixture
def servers():
    both = [Upstream(models=("one",)), Upstream(models=("one", "two"))]
    yield both
    for server in both:
        server.stop()


def bench(folder, servers, *arguments, status=0):
    own, *peers = servers
    done = support.quern(
        "bench", "--base-url", own.url,
        *(part for i, peer in enumerate(peers)
          for part in ("--compare-url", f"peer{i}={peer.url}/v1")), "-o", folder, "--json",
        *arguments)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout) if status < 2 else done


def requests_of(folder):
    return [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()]


def lines_file(path, *texts, **body):
    path.write_bytes(
        support.jsonl(
            support.request(f"c{i}", text, model="two", **body) for i, text in enumerate(texts)))
    return path


def test_servers_get_the_same_requests_in_turns(tmp_path, servers):
    said = bench(tmp_path / "out", servers, "--concurrency", "1,4", "--num-prompts", 6, "--sizes",
                 "12:3,5:3", "--rounds", 2, "--num-warmups", 2)
    orders = [server.behaviour.order for server in servers]
    assert sorted(orders[0]) == sorted(orders[1]) and len(orders[0]) == 2 * 2 * 2 * (6 + 2)
    assert {body["model"] for body in servers[0].behaviour.bodies} == {"one"}
    rows = requests_of(tmp_path / "out")
    turns = list(
        dict.fromkeys(
            (row["workload"], row["concurrency"], row["round"], row["target"]) for row in rows))
    assert turns == [(size, load, number, name)
                     for size in ("12:3", "5:3")
                     for load in (1, 4)
                     for number in (1, 2)
                     for name in ("quern", "peer0")]
    assert len(rows) == 2 * 2 * 2 * 2 * 6 and all(
        row["success"] and row["tokens_by"] == "usage" and row["output_tokens"] == 3
        for row in rows)
    assert all(row["events"] == 1 +
               int(row["workload"].split(":")[0]) and len(row["itls_s"]) == row["events"] - 1
               for row in rows)
    assert [(row["server"], row["completed"], row["failed"]) for row in said["rows"]] == [
        (name, 12, 0) for _ in range(4) for name in ("quern", "peer0")]


def test_files_of_runs_have_the_fields_of_vllm_and_the_figures_of_their_requests(tmp_path, servers):
    bench(tmp_path / "out", servers, "--concurrency", "3", "--num-prompts", 9, "--sizes", "12:3",
          "--rounds", 1, "--save-detailed")
    rows = requests_of(tmp_path / "out")
    for target in ("quern", "peer0"):
        run = json.loads((tmp_path / f"out/{target}-12_3-c3-r1.json").read_text())
        arrays = {
            "input_lens", "output_lens", "ttfts", "itls", "latencies", "start_times", "errors"}
        assert set(run) == VLLM | arrays | {"quern"}
        own = [row for row in rows if row["target"] == target]
        assert (run["completed"], run["failed"], run["max_concurrency"], run["request_rate"],
                run["model_id"]) == (9, 0, 3, "inf", "one")
        assert 1 <= run["max_concurrent_requests"] <= 3
        assert run["total_output_tokens"] == 27 and run["total_input_tokens"] == sum(
            row["prompt_tokens"] for row in own)
        assert run["mean_ttft_ms"] == pytest.approx(
            1e3 * statistics.mean(row["ttft_s"] for row in own), abs=0.01)
        assert run["median_e2el_ms"] == pytest.approx(
            1e3 * statistics.median(row["e2el_s"] for row in own), abs=0.01)
        assert run["mean_itl_ms"] == pytest.approx(
            1e3 * statistics.mean(gap for row in own for gap in row["itls_s"]), abs=0.01)
        assert run["mean_tpot_ms"] == pytest.approx(1e3 * statistics.mean(
            (row["e2el_s"] - row["ttft_s"]) / 2 for row in own),
                                                    abs=0.01)
        duration = max(row["start_s"] + row["e2el_s"] for row in own) - min(row["start_s"]
                                                                            for row in own)
        assert run["duration"] == pytest.approx(duration, abs=1e-4)
        assert run["request_throughput"] == pytest.approx(
            9 / run["duration"]) and run["output_throughput"] == pytest.approx(27 / run["duration"])
        assert len(run["latencies"]) == 9 and set(run["errors"]) == {""}
        assert run["quern"]["command"].endswith("--save-detailed") and run["quern"]["cores"] > 0


def test_lines_of_a_file_go_out_as_they_are_and_failed_ones_are_in_no_figure(tmp_path, servers):
    path = lines_file(tmp_path / "in.jsonl",
                      "one two",
                      "mode=500",
                      "mode=cut",
                      "mode=event-error x",
                      "mode=event-garbage x",
                      "mode=reset",
                      temperature=0,
                      seed=4)
    said = bench(tmp_path / "out",
                 servers[1:],
                 path,
                 "--no-fresh",
                 "--concurrency",
                 "2",
                 "--num-warmups",
                 0,
                 status=1)
    assert [(row["completed"], row["failed"], row["rounds"]) for row in said["rows"]] == [(1, 5, 1)]
    body = next(
        body for body in servers[1].behaviour.bodies if body["messages"][0]["content"] == "one two")
    assert body == {
        "model": "two", "messages": [{"role": "user", "content": "one two"}], "temperature": 0,
        "seed": 4, "stream": True, "stream_options": {"include_usage": True}}
    rows = {row["custom_id"]: row for row in requests_of(tmp_path / "out")}
    assert rows["c0"]["success"] and rows["c0"]["error"] is None
    assert [rows[f"c{i}"]["status"] for i in range(1, 6)] == [500, 200, 200, 200, 0]
    assert all(not rows[f"c{i}"]["success"] and rows[f"c{i}"]["error"] for i in range(1, 6))
    run = json.loads((tmp_path / "out/quern-in.jsonl-c2-r1.json").read_text())
    assert run["failed"] == 5 and run["total_output_tokens"] == 3
    assert run["p99_e2el_ms"] == run["p50_e2el_ms"] == pytest.approx(1e3 * rows["c0"]["e2el_s"],
                                                                     abs=0.01)
    page = (tmp_path / "out/report.html").read_text()
    assert "5 requests failed" in page


def test_a_kept_connection_that_closes_without_an_answer_fails_no_request(tmp_path, servers):
    """llama-server closes after each stream, and says that it keeps the connection."""
    path = lines_file(tmp_path / "in.jsonl", "one", *(f"mode=close times=1 {i}" for i in range(4)))
    said = bench(tmp_path / "out", servers[:1], path, "--concurrency", "1", "--num-warmups", 0,
                 "--no-stream")
    assert [(row["completed"], row["failed"]) for row in said["rows"]] == [(5, 0)]
    assert [text.split()[-1] for text in servers[0].behaviour.order] == [
        "one", "0", "0", "1", "1", "2", "2", "3", "3"]


def test_without_usage_events_are_counted_and_told(tmp_path, servers):
    path = lines_file(tmp_path / "in.jsonl", "mode=no-usage a b c")
    said = bench(tmp_path / "out", servers[:1], path, "--concurrency", "1")
    row, = requests_of(tmp_path / "out")
    assert (row["tokens_by"], row["output_tokens"],
            row["events"]) == ("events", 5, 5) and said["rows"][0]["without_usage"] == 1
    assert "have no usage" in (tmp_path / "out/report.html").read_text()
    told = support.quern("bench", path, "--base-url", servers[0].url, "--concurrency", "1", "-o",
                         tmp_path / "out")
    assert told.returncode == 0 and "tokens counted as events" in told.stdout


def test_an_answer_that_is_not_streamed_has_a_latency_only(tmp_path, servers):
    said = bench(tmp_path / "out", servers[:1], "--no-stream", "--concurrency", "2",
                 "--num-prompts", 4, "--sizes", "5:3")
    assert "stream" not in servers[0].behaviour.bodies[0]
    row = said["rows"][0]
    assert row["completed"] == 4 and row["p50_ttft_ms"] is None and row[
        "p50_tpot_ms"] is None and row["p50_e2el_ms"]["median"] > 0
    assert all(row["output_tokens"] == 3 for row in requests_of(tmp_path / "out"))


def test_an_open_loop_starts_every_request(tmp_path, servers):
    said = bench(tmp_path / "out", servers, "--request-rate", "500,1000", "--num-prompts", 20,
                 "--sizes", "5:3", "--rounds", 1)
    assert [(row["server"], row["request_rate"], row["completed"]) for row in said["rows"]] == [
        ("quern", 500, 20), ("peer0", 500, 20), ("quern", 1000, 20), ("peer0", 1000, 20)]
    starts = [
        row["start_s"]
        for row in requests_of(tmp_path / "out")
        if row["target"] == "quern" and row["request_rate"] == 500]
    assert starts == sorted(starts)


@pytest.mark.parametrize("load", [["--concurrency", "2,3"], ["--request-rate", "500,1000"]])
def test_no_run_sends_a_prompt_that_another_one_sent(tmp_path, servers, load):
    for _ in range(2):  # nor does a later call of the same command
        bench(tmp_path / "out", servers, *load, "--num-prompts", 4, "--sizes", "9:3", "--rounds", 2,
              "--num-warmups", 1)
    first, second = (server.behaviour.order for server in servers)
    assert len(set(first)) == len(first) == 2 * 2 * 2 * (4 + 1) and sorted(first) == sorted(second)
    assert all(re.match(r"\[[0-9a-f]{8}\] \w", text) for text in first)
    assert json.loads(
        (tmp_path /
         "out").glob("quern-9_3-*-r1.json").__next__().read_text())["quern"]["fresh"] is True


def test_prompts_go_out_as_they_are_if_that_is_asked_for(tmp_path, servers):
    bench(tmp_path / "out", servers, "--no-fresh", "--concurrency", "2,3", "--num-prompts", 4,
          "--sizes", "9:3", "--rounds", 2, "--num-warmups", 0)
    first = servers[0].behaviour.order
    assert len(first) == 4 * 4 and len(set(first)) == 4 and "[" not in first[0]
    assert "All runs send the same prompts (--no-fresh)" in (tmp_path /
                                                             "out/report.html").read_text()


class Cached(SmallServer):
    """Tells that 30 of the 40 tokens of each prompt were cached; or nothing of the kind."""
    details = {"cached_tokens": 30}

    def take(self, handler, body):
        if not body:
            return handler.answer(200, {"object": "list", "data": [{"id": "m", "object": "model"}]})
        usage = {
            "prompt_tokens": 40, "completion_tokens": 2, "total_tokens": 42,
            "prompt_tokens_details": self.details}
        return handler.answer(
            200, {
                "choices": [{
                    "index": 0, "message": {"role": "assistant", "content": "x"},
                    "finish_reason": "stop"}], "usage": usage})


@pytest.mark.parametrize("details,percent", [({"cached_tokens": 30}, 75), ({"cached_tokens": 0}, 0),
                                             (None, None)])
def test_the_share_of_cached_tokens_is_told(tmp_path, details, percent):
    with Cached() as server:
        server.details = details
        arguments = ("bench", "--base-url", f"{server.site}/v1", "--no-stream", "--concurrency",
                     "2", "--num-prompts", 4, "--sizes", "9:3", "-o", tmp_path / "out")
        row, = json.loads(support.quern(*arguments, "--json").stdout)["rows"]
        told = support.quern(*arguments).stdout
    assert row["cached_percent"] == (None if percent is None else {
        "median": percent, "min": percent, "max": percent})
    assert "cached %" in told and told.splitlines()[1].split()[-1] == ("-" if percent is None else
                                                                       str(percent))
    assert json.loads(
        (tmp_path / "out/quern-9_3-c2-r1.json").read_text())["quern"]["cached_percent"] == percent
    page = (tmp_path / "out/report.html").read_text()
    assert ("Cached tokens of the prompts (%)"
            in page) == (percent is not None) and "<th>cached %</th>" in page


class Page(html.parser.HTMLParser):
    VOID = {"meta", "br"}

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.addresses = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_stands_alone_and_names_machine_and_command(tmp_path, servers):
    path = lines_file(tmp_path / "<b>&.jsonl", "a b c", "d e f")
    bench(tmp_path / "out", servers, path, "--concurrency", "1,2")
    text = (tmp_path / "out/report.html").read_text()
    page = Page()
    page.feed(text)
    assert not page.open and not page.addresses and "script" not in page.tags and "b" in page.tags
    assert page.tags.count("svg") == 7 and page.tags.count("table") == 1
    assert "prefers-color-scheme:dark" in text and "@import" not in text and "url(" not in text
    assert "&lt;b&gt;&amp;.jsonl" in text and "<b>&.jsonl" not in text
    command = re.search(r"<pre>(.*?)</pre>", text, re.S)[1]
    assert "bench" in command and "--compare-url" in command and "3 rounds" in text


def test_a_server_of_its_own_for_one_benchmark(tmp_path):
    (tmp_path / "tmp").mkdir()
    done = support.quern("bench",
                         "--model",
                         "echo",
                         "--concurrency",
                         "2",
                         "--num-prompts",
                         5,
                         "-o",
                         tmp_path / "out",
                         "--json",
                         env={**support.os.environ, "TMPDIR": str(tmp_path / "tmp")})
    assert done.returncode == 0, done.stderr
    row, = json.loads(done.stdout)["rows"]
    assert (row["server"], row["completed"], row["failed"]) == ("quern", 5, 0)
    assert not list((tmp_path / "tmp").iterdir())


def test_the_key_goes_to_its_own_server_only(tmp_path, servers):
    for name in ("own", "peer"):
        (tmp_path / name).write_text(f"sk-{name}\n")
        (tmp_path / name).chmod(0o600)
    bench(tmp_path / "out", servers, "--api-key-file", tmp_path / "own", "--concurrency", "1",
          "--num-prompts", 1, "--rounds", 1)
    assert {head.get("authorization") for head in servers[0].behaviour.heads} == {"Bearer sk-own"}
    assert {head.get("authorization") for head in servers[1].behaviour.heads} == {None}
    bench(tmp_path / "out", servers, "--compare-key-file", tmp_path / "peer", "--concurrency", "1",
          "--num-prompts", 1, "--rounds", 1)
    assert servers[1].behaviour.heads[-1][
        "authorization"] == "Bearer sk-peer" and "authorization" not in servers[0].behaviour.heads[
            -1]
    assert "sk-" not in (tmp_path / "out/report.html").read_text() + (
        tmp_path / "out/requests.jsonl").read_text()


@pytest.mark.parametrize("arguments, word",
                         [(("--concurrency", "0"), "concurrency"),
                          (("--concurrency", "1,x"), "concurrency"),
                          (("--request-rate", "-1"), "request-rate"), (("--sizes", "5"), "sizes"),
                          (("--compare-url", "ftp://x"), "compare-url"), (("--sizes", ""), "sizes"),
                          (("--compare-key-file", "/k"), "compare-key-file"),
                          (("--model", "echo", "--base-url", "http://x"), "model")])
def test_a_wrong_option_is_refused(tmp_path, arguments, word):
    done = support.quern("bench", *arguments, "-o", tmp_path / "out")
    assert done.returncode == 2 and word in done.stderr and not (tmp_path / "out").exists()


def test_what_is_not_there_is_told(tmp_path, servers):
    with support.reserved_port() as port:
        done = support.quern("bench", "--base-url", f"http://127.0.0.1:{port}", "-o",
                             tmp_path / "out")
    assert done.returncode == 6 and "cannot be reached" in done.stderr
    assert support.quern("bench", tmp_path / "none.jsonl", "--base-url", servers[0].url, "-o",
                         tmp_path / "out").returncode == 4
    (tmp_path / "bad.jsonl").write_text('{"custom_id": "a"}\n')
    done = support.quern("bench", tmp_path / "bad.jsonl", "--base-url", servers[0].url, "-o",
                         tmp_path / "out")
    assert done.returncode == 3 and "line 1" in done.stderr


def test_the_roofline_of_this_cpu(tmp_path):
    done = support.quern("bench", "kernels", "--json", timeout=300)
    if done.returncode != 0:
        assert "portable C" in done.stderr
        return
    told = json.loads(done.stdout)
    assert told["cores"] >= 1 and told["ghz"] > 0 and told["memory_gb_s"] > 0
    assert {peak["instruction"] for peak in told["peaks"]} >= {"fma"}
    assert all(line["gop_s"] > 0 and line["roof_gop_s"] > 0 and line["gb_s"] > 0
               for line in told["kernel_lines"])
    assert {line["what"].split()[0]
            for line in told["kernel_lines"]} == {"Q4_1", "Q4_K", "Q8_0", "BF16", "attention"}
    assert " share" in support.quern("bench", "kernels", timeout=300).stdout
