# SPDX-License-Identifier: Apache-2.0
"""quern preflight: what it says about a file is what running the file shows."""
import contextlib, http.client, json, os, pathlib, subprocess, threading

import pytest

import support

ROLE = "You judge one profile against this role. It asks for careful work with stones, grain and water. " * 6


def preflight(path, *arguments, status=0):
    done = support.quern("preflight", path, "--model", "smollm2", "--json", *arguments)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


def write(tmp_path, requests):
    path = tmp_path / "in.jsonl"
    path.write_bytes(support.jsonl(requests))
    return path


def profiles(count, shared_first=True, **body):
    lines = []
    for i in range(count):
        parts = [
            ROLE,
            f"Profile {i} worked {i * 7 % 13} years for number {i * 31} and liked it very much."]
        lines.append(
            support.request(f"p{i}",
                            "\n".join(parts if shared_first else parts[::-1]),
                            temperature=0,
                            **{"max_tokens": 4, **body}))
    return lines


def test_the_tokens_are_those_that_a_run_counts(tmp_path):
    requests = profiles(12) + [support.request("é", "Grüße, 世界 🌍", max_tokens=3)]
    requests.append({
        "custom_id": "c", "method": "POST", "url": "/v1/completions", "body": {
            "model": "smollm2", "prompt": ["one two", "three"], "max_tokens": 2, "n": 2}})
    path = write(tmp_path, requests)
    said = preflight(path, "--pilot", "0")
    assert (said["token_counts"], said["requests"], said["faulty"], said["pilot"],
            said["seconds"]) == ("exact", 14, 0, None, None)
    done = support.quern("run", "-i", path, "-o", tmp_path / "out.jsonl", "--model", "smollm2",
                         "--json")
    assert done.returncode == 0, done.stderr
    counted = sorted(
        json.loads(line)["response"]["body"]["usage"]["prompt_tokens"]
        for line in (tmp_path / "out.jsonl").read_text().splitlines())
    assert said["prompt_tokens"] == json.loads(done.stdout)["prompt_tokens"] == sum(counted)
    assert said["prompt_lengths"]["max"] == counted[-1] and said["prompt_lengths"][
        "p50"] == counted[6]
    assert sum(b["count"] for b in said["prompt_lengths"]["bins"]) == 14
    assert said["max_tokens_sum"] == 12 * 4 + 3 + 2 * 2 * 2


def test_duplicates_and_prefixes_are_found_whatever_the_order_of_keys(tmp_path):
    requests = profiles(20)
    double = json.loads(json.dumps(requests[3]))
    double["custom_id"] = "double"
    double["body"] = dict(reversed(list(double["body"].items())))
    said = preflight(write(tmp_path, requests + [double]), "--pilot", "0")
    assert said["duplicates"] == 1
    # Everything but each request's own end is shared, in blocks of 16 tokens.
    assert 0.6 < said["shared_prefix_share"] < 1 and said["shared_prefix_tokens"] % 16 == 0
    assert said["late_shared"]["requests_share"] == 0


def test_shapes_are_compiled_once_and_refused_as_the_run_refuses_them(tmp_path):
    def shape(keyword):
        return {
            "type": "json_schema", "json_schema": {
                "name": "a", "schema": {"type": "object", "properties": {"n": {keyword: {}}}}}}
    requests = [*profiles(6, response_format={"type": "json_object"}), *profiles(4)]
    for i, request in enumerate(requests):
        request["custom_id"] = f"c{i}"
    said = preflight(write(tmp_path, requests), "--pilot", "0")["shapes"]
    assert (said["lines"], said["distinct"], said["refused"], said["unseen_lines"]) == (6, 1, 0, 0)
    assert 0 < said["compile_seconds_max"] <= said["compile_seconds"]
    assert 0 < said["compiled_bytes_max"] <= said["compiled_bytes"] < 1 << 20
    for i in (2, 7, 8):
        requests[i]["body"]["response_format"] = shape("not")
    path = write(tmp_path, requests)
    said = preflight(path, "--pilot", "0", status=1)
    assert (said["refused"], said["shapes"]["lines"], said["shapes"]["distinct"],
            said["shapes"]["refused"]) == (3, 8, 2, 1)
    assert [fault["line"] for fault in said["faults"]] == [
        3, 8, 9] and "$.properties.n" in said["faults"][0]["message"]
    assert "2 of 8 requests compile in" in support.quern("preflight", path, "--model", "smollm2",
                                                         "--pilot", "0").stdout
    done = support.quern("run", "-i", path, "-o", tmp_path / "out.jsonl", "--model", "smollm2")
    assert done.returncode != 0 and "$.properties.n" in done.stderr
    # An upstream is asked for its own shapes.
    assert preflight_of_upstream(path)["shapes"] is None


def preflight_of_upstream(path):
    done = support.quern("preflight", path, "--upstream", "other=http://127.0.0.1:9/v1",
                         "--any-model", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_shared_text_behind_private_text_is_noticed(tmp_path):
    path = write(tmp_path, profiles(20, shared_first=False))
    said = preflight(path, "--pilot", "0")
    assert said["late_shared"]["requests_share"] == 1 and said["late_shared"][
        "tokens_per_request"] > 50
    assert said["shared_prefix_share"] < 0.5
    shown = support.quern("preflight", path, "--model", "smollm2", "--pilot", "0")
    assert "Advice" in shown.stdout and "after text of their own" in shown.stdout


def test_what_does_not_fit_and_what_is_no_request_is_told_before_it_runs(tmp_path):
    requests = profiles(5) + [
        support.request("long", "word " * 600, max_tokens=4),
        support.request("bad", "x", top_p=7)]
    path = tmp_path / "in.jsonl"
    path.write_bytes(support.jsonl(requests[:6]) + b"\n{not json}\n" + support.jsonl(requests[6:]))
    said = preflight(path, "--pilot", "0", "--max-model-len", "512", status=1)
    assert (said["requests"], said["faulty"], said["refused"], said["context_tokens"],
            said["over_context"]) == (8, 3, 1, 512, 1)
    assert [f["line"]
            for f in said["faults"]] == [6, 8, 9] and "top_p" in said["faults"][2]["message"]
    assert [f["code"] for f in said["faults"]] == [
        "context_length_exceeded", "invalid_json_line", "decimal_above_max_value"]
    assert said[
        "no_truncation_max_model_len"] >= 604 + 500 and said["recommended_max_model_len"] % 128 == 0
    done = support.quern("run", "-i", write(tmp_path, requests[:6]), "-o", tmp_path / "out.jsonl",
                         "--model", "smollm2", "--max-model-len", "512", "--json")
    assert json.loads(done.stdout)["failed"] == said["over_context"]


def test_a_sample_is_measured_and_costs_are_counted(tmp_path):
    path = write(tmp_path, [
        dict(r, body=dict(r["body"], model=f"some/model-{i % 2}"))
        for i, r in enumerate(profiles(30))])
    said = preflight(path, "--any-model", "--pilot", "8", "--watts", "100", "--price-per-kwh",
                     "0.5", "--input-price", "1", "--output-price", "2", "--batch-discount", "0.5")
    assert said["pilot"]["lines"] == 8 and said["pilot"]["groups"] == 4 and said["pilot"][
        "failed"] == 0
    seconds = said["seconds"]
    assert 0 < seconds["low"] <= seconds["mean"] <= seconds["high"]
    assert said["kwh"]["mean"] == pytest.approx(seconds["mean"] * 100 / 3.6e6, rel=1e-4)
    assert said["energy_cost"]["mean"] == pytest.approx(said["kwh"]["mean"] * 0.5, rel=1e-4)
    assert 0 < said["output_tokens"]["mean"] <= 120
    assert said["api_cost"]["mean"] == pytest.approx(
        (said["prompt_tokens"] + 2 * said["output_tokens"]["mean"]) * 0.5 / 1e6, rel=1e-4)
    assert not list(tmp_path.glob("*pilot*"))


def test_other_work_on_the_processor_widens_the_range(tmp_path):
    path, processor = write(tmp_path, profiles(12)), str(min(os.sched_getaffinity(0)))
    other = subprocess.Popen(["taskset", "-c", processor, "sh", "-c", "while :; do :; done"])
    try:
        done = subprocess.run([
            "taskset", "-c", processor, support.BINARY, "preflight", path, "--model", "smollm2",
            "--json", "--pilot", "8", "--threads", "1"],
                              capture_output=True,
                              text=True)
    finally:
        other.kill()
        other.wait()
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    share, seconds = said["pilot"]["wait_share"], said["seconds"]
    assert 0 < share <= 0.95
    assert seconds["low"] <= seconds["mean"] * (
        1 - share * 2 / 3) * 1.001 and seconds["high"] >= seconds["mean"] * (1 + 2 * share) * 0.999


def test_costs_are_told_once_per_month_and_without_sharing(tmp_path):
    requests = profiles(20)
    requests += [
        dict(json.loads(json.dumps(r)), custom_id=f"again{i}") for i, r in enumerate(requests[:5])]
    path, settings = write(tmp_path, requests), tmp_path / "config"
    settings.write_text(
        "watts = 120\nprice-per-kwh = 0.25\nrent-per-hour = 1.5\ninput-price = 0.15\ncached-price = 0\noutput-price = 0.6\ncurrency = EUR\n"
    )
    arguments = [
        "--config", settings, "--pilot", "10", "--times-per-month", "30", "--batch-discount", "0.5"]
    costs = preflight(path, *arguments)["costs"]
    once, month, unshared = costs["once"], costs["per_month"], costs["once_without_sharing"]
    assert (costs["currency"], costs["times_per_month"], costs["power"]) == ("EUR", 30, {
        "source": "given", "watts": 120})
    for key in ("seconds", "watt_hours", "electricity", "rented_gpu", "managed_api"):
        assert once[key]["low"] <= once[key]["mean"] <= once[key]["high"]
        assert month[key]["mean"] == pytest.approx(30 * once[key]["mean"], rel=1e-4)
        assert unshared[key]["mean"] > once[key]["mean"], key
    assert once["watt_hours"]["mean"] == pytest.approx(once["seconds"]["mean"] * 120 / 3600,
                                                       rel=1e-4)
    # Money is told in whole billionths.
    assert once["electricity"]["mean"] == pytest.approx(once["watt_hours"]["mean"] * 0.25 / 1000,
                                                        rel=1e-4,
                                                        abs=2e-9)
    assert once["rented_gpu"]["mean"] == pytest.approx(once["seconds"]["mean"] * 1.5 / 3600,
                                                       rel=1e-4,
                                                       abs=2e-9)
    assert costs["saved"]["deduplicated_requests"] == 5 and costs["saved"][
        "input_tokens_computed"] < costs["saved"]["input_tokens_asked"] / 2
    shown = support.quern("preflight", path, "--model", "smollm2", *arguments).stdout
    assert "Electricity" in shown and "30 times per month" in shown and "EUR" in shown and "5 requests answered as an equal one" in shown


def test_without_a_tokenizer_the_lengths_are_called_an_estimate(tmp_path):
    path = write(tmp_path, profiles(10))
    done = support.quern("preflight", path, "--model", "smollm2=echo", "--json")
    said = json.loads(done.stdout)
    assert said["token_counts"] == "estimated" and said["pilot"] is None and said[
        "shared_prefix_share"] is None
    assert said["prompt_tokens"] > 0
    assert "ESTIMATE" in support.quern("preflight", path, "--model", "smollm2=echo").stdout
    done = support.quern("preflight", path, "--upstream", "away=http://127.0.0.1:9", "--json",
                         "--input-price", "1", "--output-price", "1")
    said = json.loads(done.stdout)
    assert (said["model"], said["token_counts"], said["pilot"]) == ("away", "estimated", None)
    assert said["api_cost"]["mean"] == pytest.approx((said["prompt_tokens"] + 40) / 1e6, rel=1e-4)


def test_wrong_calls_are_answered_with_a_sentence(tmp_path):
    for arguments, word, status in (([], "FILE", 2), ([
            tmp_path / "none.jsonl", "--model",
            "smollm2"], "none.jsonl", 4), ([tmp_path / "x"], "--model", 2), ([
                tmp_path / "x", "--model", "smollm2", "--pilot", "2000"], "--pilot", 2)):
        done = support.quern("preflight", *arguments)
        assert done.returncode == status and word in done.stderr, done.stderr
    empty = tmp_path / "empty.jsonl"
    empty.write_bytes(b"\n\n")
    said = preflight(empty, status=1)
    assert said["requests"] == 0 and said["file_fault"] == "The input file has no requests."


# One line each that a run does not answer: refused with its whole file, or with an error of its
# own.
GOOD = support.request("good", "Hello.", max_tokens=2)
REFUSED = {
    "a model that nobody serves": {**GOOD, "body": {**GOOD["body"], "model": "gpt-4o-mini"}},
    "no model's name": {**GOOD, "body": {**GOOD["body"], "model": 7}
                        }, "a stream": {**GOOD, "body": {**GOOD["body"], "stream": True}},
    "a misspelt custom_id": {
        **{k: v
           for k, v in GOOD.items() if k != "custom_id"}, "customid": "x"},
    "another method": {**GOOD, "method": "GET"}, "an unknown url": {**GOOD, "url": "/v1/images"},
    "misspelt messages": {**GOOD, "body": {"model": "smollm2", "mesages": []}}, "no object": [1], }
FAILS = {
    "a misspelt role": {
        **GOOD, "body": {**GOOD["body"], "messages": [{"rol": "user", "content": "x"}]}},
    "a number out of its range": {**GOOD, "body": {**GOOD["body"], "temperature": 9}},
    "more than the context": {**GOOD, "body": {**GOOD["body"], "max_tokens": 4096}
                              }, "a prompt that is too long": support.request(
                                  "good", "word " * 3000), "embeddings of a model that has none": {
                                      **GOOD, "url": "/v1/embeddings",
                                      "body": {"model": "smollm2", "input": "x"}}, "a score": {
                                          **GOOD, "url": "/v1/score", "body": {
                                              "model": "smollm2", "text_1": "x", "text_2": "y"}},
    "its own template": {**GOOD, "body": {**GOOD["body"], "chat_template": "x"}}, }


def test_a_line_that_a_run_refuses_is_refused_before_and_by_the_same_words(tmp_path):
    for name, line in REFUSED.items():
        path = write(tmp_path, [{**GOOD, "custom_id": "first"}, line])
        said = preflight(path, "--pilot", "0", status=1)
        done = support.quern("run", "-i", path, "-o", tmp_path / "out.jsonl", "--model", "smollm2")
        assert done.returncode == 3, (name, done.stderr)
        fault, = said["faults"]
        assert said[
            "refused"] == 1 and f"line 2: {fault['code']}: {fault['message']}" in done.stderr, (
                name, said["faults"], done.stderr)
        assert not (tmp_path / "out.jsonl").exists()
    said = preflight(write(tmp_path, [GOOD, GOOD]), "--pilot", "0", status=1)
    assert said["faults"][0]["code"] == "duplicate_custom_id"
    path = write(tmp_path, [REFUSED["a model that nobody serves"]])
    assert "Served here: 'smollm2'" in preflight(path, "--pilot", "0",
                                                 status=1)["faults"][0]["message"]
    assert preflight(path, "--pilot", "0", "--alias", "gpt-4o-mini=smollm2")["faulty"] == 0


def test_a_line_that_fails_in_a_run_is_told_before_and_by_the_same_words(tmp_path):
    lines = [{**line, "custom_id": name} for name, line in FAILS.items()]
    limits = ("--max-model-len", "2048")
    path = write(tmp_path, [GOOD] + lines)
    said = preflight(path, "--pilot", "0", *limits, status=1)
    done = support.quern("run", "-i", path, "-o", tmp_path / "out.jsonl", "--model", "smollm2",
                         "--json", *limits)
    assert done.returncode == 1 and json.loads(
        done.stdout)["failed"] == said["faulty"] == len(FAILS), (done.stderr, said)
    answers = {
        r["custom_id"]: r
        for r in map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())}
    for line in lines:
        path = write(tmp_path, [line])
        fault, = preflight(path, "--pilot", "0", *limits, status=1)["faults"]
        error = answers[line["custom_id"]]["response"]["body"]["error"]
        assert (fault["code"], fault["message"]) == (error["code"] or "",
                                                     error["message"][:399]), line["custom_id"]


def test_figures_of_a_small_file_are_true_of_it(tmp_path):
    requests = [
        support.request(f"r{i}", "word " * (5 if i else 1500), max_tokens=2) for i in range(5)]
    shown = support.quern("preflight", write(tmp_path, requests), "--model", "smollm2", "--pilot",
                          "0").stdout
    assert "serves all of them" in shown and "of 100" not in shown, shown
    requests += [support.request(f"s{i}", "word", max_tokens=2) for i in range(35)]
    shown = support.quern("preflight", write(tmp_path, requests), "--model", "smollm2", "--pilot",
                          "0").stdout
    assert "serves 39 of 40 requests" in shown, shown


# --- the same, asked of a server ---

PATH = "/v1/batches/preflight"


def children(server):
    """The processes of the server's preflights."""
    found = []
    for pid in support.children(server.process.pid):
        with contextlib.suppress(OSError):
            if b"\0preflight\0" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def is_there(pid):
    try:
        return "\nState:\tZ" not in pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def ask_a_long_one(server):
    file = server.upload(support.jsonl(profiles(40, max_tokens=4000, ignore_eos=True)))
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    connection.request("POST", PATH, json.dumps({"input_file_id": file["id"], "pilot_lines": 40}),
                       {"Content-Type": "application/json"})
    return connection


def begin_a_long_one(server):
    """The connection that waits for it, and the child that works on it with its own engine."""
    connection = ask_a_long_one(server)
    support.until(lambda: len(children(server)) == 1)
    pid, = children(server)
    support.until(lambda: support.children(pid))
    return connection, pid, support.children(pid)[0]


def test_a_server_answers_what_the_command_says(tmp_path):
    requests = profiles(12) + [support.request("bad", "x", top_p=7)]
    path = write(tmp_path, requests)
    with support.serving(tmp_path / "state", "--model", "mine=smollm2", "--model", "far=echo",
                         "--max-model-len", "512") as server:
        file = server.upload(path.read_bytes())
        said = server.json(
            "POST", PATH, {
                "input_file_id": file["id"], "model": "mine", "pilot_lines": 0, "input_price": 1,
                "output_price": 2})
        wanted = preflight(path,
                           "--pilot",
                           "0",
                           "--max-model-len",
                           "512",
                           "--input-price",
                           "1",
                           "--output-price",
                           "2",
                           status=1)
        assert said == {**wanted, "model": "mine"
                        } and (said["faulty"], said["context_tokens"]) == (1, 512)
        timed = server.json(
            "POST", PATH,
            {"input_file_id": file["id"], "model": "mine", "pilot_lines": 4, "watts": 100})
        assert timed["pilot"]["lines"] == 4 and timed["seconds"]["mean"] > 0 and timed["kwh"][
            "mean"] > 0


def test_a_preflight_ends_with_its_client_its_time_and_its_server(tmp_path):
    secrets = {
        "QUERN_SECRET_WORD": "open sesame", "OPENAI_API_KEY": "sk-1", "TMPDIR": str(tmp_path)}
    with support.serving(tmp_path / "state",
                         "--model",
                         "smollm2",
                         "--packed-cache-dir",
                         tmp_path / "packed",
                         environment=secrets) as server:
        connection, pid, engine = begin_a_long_one(server)
        assert str(
            tmp_path /
            "packed").encode() in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        environment = pathlib.Path(f"/proc/{pid}/environ").read_text()
        assert "sesame" not in environment and "sk-1" not in environment
        opened = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in (0, 3)]
        assert opened[0] == "/dev/null" and opened[1].startswith(str(tmp_path / "state" / "files"))
        connection.close()
        support.until(lambda: not is_there(pid) and not is_there(engine))
        assert not list(tmp_path.glob(
            "quern-sample-*")), "a sample run that is stopped removes its state directory"
        connection, pid, engine = begin_a_long_one(server)
        answers = []
        waiting = threading.Thread(target=lambda: answers.append(connection.getresponse().status))
        waiting.start()
        server.stop()
        waiting.join()
        assert answers == [503]
        support.until(lambda: not is_there(pid) and not is_there(engine))
        server.start()
        connection, pid, engine = begin_a_long_one(server)
        server.kill()
        support.until(lambda: not is_there(pid) and not is_there(engine))
        assert not list(tmp_path.glob("quern-sample-*"))
    with support.serving(tmp_path / "state",
                         "--model",
                         "smollm2",
                         "--preflight-seconds",
                         "1",
                         environment=secrets) as server:
        answer = ask_a_long_one(server).getresponse()
        assert answer.status == 504 and answer.getheader("x-should-retry") == "false" and json.load(
            answer)["error"]["code"] == "preflight_timeout"
        support.until(lambda: not children(server))
    support.fsck(tmp_path / "state")
