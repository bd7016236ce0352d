# SPDX-License-Identifier: Apache-2.0
"""Batches and requests through an upstream, whatever the upstream does."""
import contextlib, email.utils, json, os, pathlib, re, threading, time

import pytest

import support
import upstream

# Time passes in steps that are small next to these limits, and only while no request is with the
# upstream that it will answer: so no answer comes too late for the clock alone.
TIMES = "timeout=20,stall-timeout=20,connect-timeout=2"
STEP = 0.5


@pytest.fixture
def clock(tmp_path):
    return support.Clock(tmp_path)


@pytest.fixture
def fake(clock):
    server = upstream.Upstream()
    server.behaviour.clock = clock.now
    yield server
    server.stop()


def lines(texts, model="fake"):
    return support.jsonl(
        support.request(f"c{i}", text, model=model) for i, text in enumerate(texts))


def wait(server, clock, fake, batch_id):
    """The batch when it has ended; time passes until then."""
    clock.until(lambda: server.batch(batch_id)["status"] in support.TERMINAL, STEP, fake.is_busy)
    return server.batch(batch_id)


def run(server, texts, seconds=300, model="fake", clock=None, fake=None):
    """The results by custom_id, after checking that each is there exactly once."""
    batch_id = server.create(lines(texts, model))["id"]
    batch = wait(server, clock, fake, batch_id) if clock else server.wait(batch_id, seconds)
    assert batch["status"] == "completed", batch
    good, bad = server.results(batch)
    ids = [line["custom_id"] for line in good + bad]
    assert sorted(ids) == sorted(f"c{i}" for i in range(len(texts)))
    assert batch["request_counts"] == {
        "total": len(texts), "completed": len(good), "failed": len(bad)}
    return {line["custom_id"]: line for line in good}, {line["custom_id"]: line for line in bad}


def assert_answers(good, texts):
    for i, text in enumerate(texts):
        if f"c{i}" in good:
            body = good[f"c{i}"]["response"]["body"]
            assert body["choices"][0]["message"]["content"] == f"re: {text} \u2028é😀"
            assert body["usage"]["prompt_tokens"] == len(
                text) and body["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}


def serving(tmp_path, *options, **keywords):
    return support.serving(tmp_path / "state",
                           *(part for option in options for part in ("--upstream", option)),
                           **keywords)


def metric(server, name):
    """A number of the one upstream."""
    return float(
        re.search(rf'^quern_upstream_{name}{{upstream="fake"}} (\S+)',
                  server.call("GET", "/metrics")[1].decode(), re.M)[1])


MISBEHAVIOURS = sorted(set(upstream.MODES) - set(upstream.UNUSUAL) - {"detail", "ollama"}) + [
    "408", "409", "425", "429", "500", "502", "503", "504", "529"]


def test_what_misbehaves_once_is_tried_again(tmp_path, fake, clock):
    texts = [f"{i} mode={mode} times=1"
             for i, mode in enumerate(MISBEHAVIOURS)] + [f"plain {i}" for i in range(40)]
    with serving(tmp_path, f"fake={fake.url},{TIMES}", environment=clock.environment) as server:
        good, bad = run(server, texts, clock=clock, fake=fake)
        assert not bad
        assert_answers(good, texts)
        assert all(fake.behaviour.seen[text] >= 2 for text in texts[:len(MISBEHAVIOURS)])
    support.fsck(tmp_path / "state")


def test_what_always_misbehaves_ends_in_an_error_of_its_own(tmp_path, fake, clock):
    always = {
        "garbage": (502, "upstream_bad_answer"), "half": (502, "upstream_bad_answer"),
        "cut-body": (502, "upstream_broken"), "endless": (502, "upstream_bad_answer"),
        "redirect": (502, "upstream_bad_answer"), "disguised": (502, None), "500": (500, None),
        "close": (502, "upstream_broken"), "reset": (502, "upstream_broken"),
        "no-choices": (502, "upstream_no_answer"), "null-choices": (502, "upstream_no_answer"),
        "empty-choices": (502, "upstream_no_answer"), "no-message": (502, "upstream_no_answer"),
        "choice-error": (502, None)}
    texts = [f"mode={mode} x" for mode in always] + ["mode=stall x", "mode=loris-head x"] + [
        f"plain {i}" for i in range(300)]
    with serving(tmp_path, f"fake={fake.url},{TIMES}", environment=clock.environment) as server:
        good, bad = run(server, texts, clock=clock, fake=fake)
        assert len(bad) == len(always) + 2
        assert_answers(good, texts)
        for i, (status, code) in enumerate(always.values()):
            line = bad[f"c{i}"]
            assert line["error"] is None and line["response"]["status_code"] == status
            assert line["response"]["body"]["error"]["code"] == code and set(
                line["response"]["body"]["error"]) == {"message", "type", "param", "code"}
        for i in (len(always), len(always) + 1):
            assert bad[f"c{i}"]["response"] is None and bad[f"c{i}"]["error"][
                "code"] == "request_timeout"
        assert all(fake.behaviour.seen[text] == 5 for text in texts[:len(always) + 2])
        assert all(fake.behaviour.seen[text] == 1 for text in texts[len(always) + 2:])


def test_a_200_without_an_answer_is_an_error_that_a_retry_finds(tmp_path, fake, clock):
    texts = ["mode=null-choices times=5 x", "mode=disguised times=5 x", "plain"]
    with serving(tmp_path, f"fake={fake.url},{TIMES}", environment=clock.environment) as server:
        batch = wait(server, clock, fake, server.create(lines(texts))["id"])
        assert batch["request_counts"] == {"total": 3, "completed": 1, "failed": 2}
        _, bad = server.results(batch)
        assert [line["response"]["body"]["error"]["message"] for line in bad] == [
            "The upstream fake answered without choices.", "it broke, says 200"]
        again = server.json("POST", f"/v1/batches/{batch['id']}/retry", {})
        assert wait(server, clock, fake, again["id"])["request_counts"] == {
            "total": 2, "completed": 2, "failed": 0}


def test_answers_that_pythons_clients_read_are_answers(tmp_path, fake):
    texts = [f"mode={mode} x" for mode in upstream.UNUSUAL]
    with serving(tmp_path, f"fake={fake.url},{TIMES}") as server:
        good, bad = run(server, texts)
        assert not bad and all(fake.behaviour.seen[text] == 1 for text in texts)
        for i, mode in enumerate(upstream.UNUSUAL):
            ending = "\ufffd" if mode == "half-pair" else "😀"
            assert good[f"c{i}"]["response"]["body"]["choices"][0]["message"][
                "content"] == f"re: {texts[i]} \u2028é{ending}"
        assert not any("accept-encoding" in head
                       for head in fake.behaviour.heads), "no packed answer is asked for"


def test_a_coding_that_is_none_is_not_undone_again(tmp_path, fake, clock):
    """Content-Encoding: utf-8 costs one try; the answers after it are taken as they come."""
    with serving(tmp_path, f"fake={fake.url},{TIMES}", environment=clock.environment) as server:
        for text, seen in (("mode=odd-coding a", 2), ("mode=odd-coding b", 1)):
            good, bad = run(server, [text], clock=clock, fake=fake)
            assert not bad and fake.behaviour.seen[text] == seen
            assert_answers(good, [text])


@pytest.mark.parametrize(
    "mode,reason", [("overload-200", "429: Provider returned error: slow down"),
                    ("overload-529", "529: Overloaded"),
                    ("overload-page", "503: 503 Service Temporarily Unavailable"),
                    ("overload-bare", "429"), ("quota", "429: You exceeded your current quota"),
                    ("quota-400", "429: You exceeded your current quota")])
def test_an_overload_under_any_name_waits_and_is_told(tmp_path, fake, clock, mode, reason):
    fake.control(mode)
    with serving(tmp_path, f"fake={fake.url},{TIMES}", environment=clock.environment) as server:
        batch = server.create(lines(["a", "b"]))
        clock.until(
            lambda: f"the upstream fake: it answered {reason}" in
            (server.batch(batch["id"])["waiting_for"] or ""), STEP, fake.is_busy)
        assert reason in server.log_text() and "event=refused" in server.log_text()
        clock.until(lambda: server.call("GET", "/ready")[0] == 503, STEP, fake.is_busy)
        assert server.call("GET", "/health")[0] == 200, "it is alive"
        assert server.batch(batch["id"])["request_counts"]["failed"] == 0
        fake.control(None)
        assert wait(server, clock, fake, batch["id"])["request_counts"] == {
            "total": 2, "completed": 2, "failed": 0}


@pytest.mark.parametrize("mode,after,seconds", [("429", "7", 7), ("429", "6500ms", 7),
                                                ("ratelimit-reset", "", 1)])
def test_the_pause_that_an_upstream_asks_for_is_told(tmp_path, fake, clock, mode, after, seconds):
    fake.control(mode, after=after)
    with serving(tmp_path, f"fake={fake.url},{TIMES}", environment=clock.environment) as server:
        batch = server.create(lines(["a"]))
        told = f"the upstream fake: it answered 429 and asked for a pause of {seconds} s"
        clock.until(lambda: told in (server.batch(batch["id"])["waiting_for"] or ""), STEP,
                    fake.is_busy)
        fake.control(None)
        assert wait(server, clock, fake, batch["id"])["request_counts"]["completed"] == 1


def test_an_error_of_the_request_is_its_result_at_once(tmp_path, fake):
    texts = [
        "mode=400 x", "mode=403 x", "mode=404 x", "mode=422 x", "mode=413 x", "mode=ollama x",
        "mode=detail x"]
    with serving(tmp_path, f"fake={fake.url},{TIMES}") as server:
        good, bad = run(server, texts)
        assert not good and all(fake.behaviour.seen[text] == 1 for text in texts)
        for i, status in enumerate((400, 403, 404, 422, 413, 404, 422)):
            error = bad[f"c{i}"]["response"]["body"]["error"]
            assert bad[f"c{i}"]["response"]["status_code"] == status
            assert set(error) == {"message", "type", "param", "code"} and error["code"] is None
        assert bad["c0"]["response"]["body"]["error"]["message"] == "told to say 400"
        assert bad["c5"]["response"]["body"]["error"]["message"] == "model is no good"
        assert bad["c6"]["response"]["body"]["error"]["message"] == "body.messages: Field required"


@pytest.mark.parametrize("status", ["401", "402", "403"])
def test_while_the_key_is_refused_lines_wait_and_none_is_lost(tmp_path, fake, clock, status):
    texts = [f"line {i}" for i in range(100)] + ["mode=401 times=2 x"]
    fake.control(status)
    with serving(tmp_path, f"fake={fake.url},{TIMES}", environment=clock.environment) as server:
        batch = server.create(lines(texts))

        def is_told():  # but not while it tries the key again
            code, body = server.call("GET", "/ready")
            told = json.loads(body)["upstreams"][0]
            return code == 503 and told["breaker"] != "closed" and told["text"].startswith(
                f"waiting: it refuses its key (status {status})") and (
                    "told to say" in told["text"]) == (status == "402")

        clock.until(is_told, STEP, fake.is_busy)
        assert 'quern_upstream_key_refused{upstream="fake"} 1' in server.call(
            "GET", "/metrics")[1].decode()
        clock.until(
            lambda: f"key (status {status})" in (server.batch(batch["id"])["waiting_for"] or ""),
            STEP, fake.is_busy)
        assert server.batch(batch["id"])["request_counts"] == {
            "total": len(texts), "completed": 0, "failed": 0}
        # Some were tried before it was known, and then one after the other, ever more rarely.
        assert sum(fake.behaviour.seen.values()) < 40
        fake.control(None)
        done = wait(server, clock, fake, batch["id"])
        assert done["request_counts"] == {"total": len(texts), "completed": len(texts), "failed": 0}
        assert 'quern_upstream_key_refused{upstream="fake"} 0' in server.call(
            "GET", "/metrics")[1].decode()
        assert server.log_text().count("event=key_refused") == server.log_text().count(
            "event=key_accepted") == 1
    support.fsck(tmp_path / "state")


@pytest.mark.parametrize("mode,after", [("429", ""), ("429", "1"), ("429", "700ms"),
                                        ("429", "date"), ("503", ""), ("503", "1"), ("500", "")])
def test_a_storm_delays_and_loses_nothing(tmp_path, fake, clock, mode, after):
    if after == "date":
        after = email.utils.formatdate(time.time() + 2, usegmt=True)
    texts = [f"line {i} ms=5" for i in range(200)]
    fake.control(mode, seconds=1e9, after=after)
    with serving(tmp_path, f"fake={fake.url},{TIMES}", environment=clock.environment) as server:
        batch = server.create(lines(texts))
        if mode in ("503", "500"):  # its /health and /v1/models say so too
            before = fake.behaviour.probes
            clock.until(lambda: fake.behaviour.probes > before, STEP, fake.is_busy)
            assert server.batch(batch["id"])["status"] == "validating"
        else:
            support.until(
                lambda: metric(server, "refusals_total") > 0 and metric(server, "inflight") == 0)
            # It backs off: far fewer requests than an upstream without pauses would get.
            assert 0 < sum(fake.behaviour.seen.values()) < 200
        fake.control(None)
        batch = wait(server, clock, fake, batch["id"])
        assert batch["request_counts"] == {"total": 200, "completed": 200, "failed": 0}
        good, _ = server.results(batch)
        assert len({line["custom_id"] for line in good}) == 200


def test_a_storm_in_the_middle_burns_no_line(tmp_path, fake, clock):
    """Everything answers 500, the probes too, for far longer than five tries of a line would
    take."""
    texts = [f"line {i} ms=20" for i in range(600)]
    with serving(tmp_path, f"fake={fake.url},concurrency=8,{TIMES}",
                 environment=clock.environment) as server:
        fake.control("500", from_=100)
        batch = server.create(lines(texts))
        clock.until(lambda: 'state="open"} 1' in server.call("GET", "/metrics")[1].decode(), STEP,
                    fake.is_busy)
        status, health = server.call("GET", "/ready")
        told = json.loads(health)["upstreams"][0]
        assert status == 503 and told["name"] == "fake" and not told["ready"] and "500" in told[
            "text"]
        sent, probes = sum(fake.behaviour.seen.values()), fake.behaviour.probes
        clock.until(lambda: fake.behaviour.probes >= probes + 2, STEP, fake.is_busy)
        assert sum(fake.behaviour.seen.values()) <= sent + 8  # probes only
        fake.control(None)
        batch = wait(server, clock, fake, batch["id"])
        assert batch["request_counts"] == {"total": 600, "completed": 600, "failed": 0}


def test_probes_come_ever_more_rarely_but_twice_a_minute_at_least(tmp_path, fake, clock):
    texts = [f"line {i}" for i in range(20)]
    with serving(tmp_path, f"fake={fake.url},{TIMES}", environment=clock.environment) as server:
        support.until(lambda: server.call("GET", "/health")[0] == 200)
        fake.control("500")
        batch = server.create(lines(texts))
        clock.until(lambda: metric(server, "breaker_openings_total") > 0, STEP, fake.is_busy)
        del fake.behaviour.probed[:]
        clock.until(lambda: len(fake.behaviour.probed) >= 10, STEP, fake.is_busy)
        waits = [
            after - before
            for before, after in zip(fake.behaviour.probed, fake.behaviour.probed[1:])]
        # Half of 0.5 s, 1 s, 2 s … at least; from the seventh on half of 30 s.
        assert all(
            wait >= min(0.25 * 2**number, 15) - 0.1 for number, wait in enumerate(waits)), waits
        sent = sum(fake.behaviour.seen.values())
        fake.control(None)
        clock.move(30)
        support.until(lambda: sum(fake.behaviour.seen.values()) > sent, 60)
        assert wait(server, clock, fake, batch["id"])["request_counts"] == {
            "total": 20, "completed": 20, "failed": 0}


def test_the_upstream_dies_and_comes_back(tmp_path, clock):
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(support.reserved_port())
        process = upstream.Process(port, "--service-ms", "30", "--answers",
                                   "100")  # then it stands still until it is killed
        stack.callback(lambda: process.kill())
        with serving(tmp_path,
                     f"fake={process.url},concurrency=16,{TIMES}",
                     environment=clock.environment) as server:
            batch = server.create(lines([f"line {i}" for i in range(1200)]))
            for more in (("--answers", "100"), ()):
                support.until(lambda: len(process.stats()["seen"]) >= 100)
                process.kill()
                clock.until(lambda: 'state="open"} 1' in server.call("GET", "/metrics")[1].decode(),
                            STEP)
                assert server.batch(batch["id"])["status"] == "in_progress"
                process = upstream.Process(port, "--service-ms", "30", *more)
                clock.until(
                    lambda: 'state="closed"} 1' in server.call("GET", "/metrics")[1].decode(), STEP,
                    process.is_busy)
            batch = server.wait(batch["id"], 120)
            assert batch["request_counts"] == {"total": 1200, "completed": 1200, "failed": 0}
            good, bad = server.results(batch)
            assert sorted(line["custom_id"]
                          for line in good) == sorted(f"c{i}" for i in range(1200)) and not bad
            key = next(line for line in server.call("GET", "/metrics")[1].decode().split("\n")
                       if line.startswith("quern_upstream_breaker_openings_total"))
            assert int(key.split()[-1]) >= 2


def test_an_upstream_that_is_not_there_yet_is_waited_for(tmp_path, clock):
    with support.reserved_port() as port, serving(tmp_path,
                                                  f"fake=http://127.0.0.1:{port},{TIMES}",
                                                  environment=clock.environment) as server:
        assert server.call("GET", "/health")[0] == 503
        batch = server.create(lines(["a", "b"]))
        clock.until(lambda: server.batch(batch["id"])["waiting_for"], STEP)
        assert server.batch(batch["id"])["status"] == "validating"
        process = upstream.Process(port)
        try:
            clock.until(lambda: server.call("GET", "/ready")[0] == 200, STEP, process.is_busy)
            assert server.wait(batch["id"], 60)["request_counts"] == {
                "total": 2, "completed": 2, "failed": 0}
        finally:
            process.kill()


def test_kill_9_in_the_middle_and_a_restart(tmp_path):
    process = upstream.Process(0, "--service-ms", "30")
    state, arguments = tmp_path / "state", ("--upstream",
                                            f"fake={process.url},concurrency=16,{TIMES}")
    try:
        with support.serving(state, *arguments) as server:
            batch = server.create(lines([f"line {i}" for i in range(1000)]))
            support.until(lambda: server.batch(batch["id"])["request_counts"]["completed"] >= 200)
            server.kill()
        with support.serving(state, *arguments) as server:
            batch = server.wait(batch["id"], 120)
            good, bad = server.results(batch)
            assert not bad and sorted(line["custom_id"]
                                      for line in good) == sorted(f"c{i}" for i in range(1000))
            # Only what was in flight, or done and not yet durable, was sent a second time.
            assert sum(process.stats()["seen"].values()) < 1000 + 400
        support.fsck(state)
    finally:
        process.kill()


def test_lines_arrive_in_prefix_order(tmp_path, fake):
    shared = ["apple " * 40, "berry " * 40, "cherry " * 40]
    texts = [shared[i % 3] + str(i) for i in range(90)]
    with serving(tmp_path, f"fake={fake.url},concurrency=1") as server:
        run(server, texts)
    order = [
        shared.index(next(s
                          for s in shared
                          if text.startswith(s)))
        for text in fake.behaviour.order]
    assert sum(a != b for a, b in zip(order, order[1:])) == 2  # one prefix after the other
    assert fake.behaviour.peak == 1


def test_no_more_in_flight_than_allowed(tmp_path, fake):
    with serving(tmp_path, f"fake={fake.url},concurrency=7") as server:
        run(server, [f"line {i} ms=20" for i in range(200)])
    assert fake.behaviour.peak == 7


def test_bodies_go_out_as_they_were_written(tmp_path, fake):
    body = '{"model":"fake","messages":[{"role":"user","content":"a\\u00e9\\ud83d\\ude00"}],"temperature":0.10,"unknown":[1.50,{"x":null}]}'
    line = '{"custom_id":"c0","method":"POST","url":"/v1/chat/completions","body":' + body + "}\n"
    raw = []
    original = json.loads
    with serving(tmp_path, f"fake={fake.url}") as server:
        upstream.json.loads = lambda data, *a, **k: (raw.append(data), original(data, *a, **k))[1]
        try:
            server.wait(server.create(line.encode())["id"])
        finally:
            upstream.json.loads = original
    assert body.encode() in raw


def test_models_are_asked_for_or_named_and_mapped(tmp_path, fake):
    fake.behaviour.models = ("one", "two")
    with serving(tmp_path, f"a={fake.url},models=big=one|two") as server:
        assert [m["id"] for m in server.json("GET", "/v1/models")["data"]] == ["big", "two"]
        good, bad = run(server, ["x", "y"], model="big")
        assert [request["model"] for request in fake.behaviour.bodies] == ["one", "one"]
        assert {line["response"]["body"]["model"] for line in good.values()} == {"big"}
        assert server.call(
            "POST", "/v1/chat/completions",
            {"model": "one", "messages": [{"role": "user", "content": "x"}]})[0] == 404
        status, data = server.call(
            "POST", "/v1/chat/completions",
            {"model": "big", "messages": [{"role": "user", "content": "x"}], "stream": True})
        assert status == 200 and b'"model":"big"' in data and b'"one"' not in data


def test_a_stream_passes_through(tmp_path, fake):
    with serving(tmp_path, f"fake={fake.url},{TIMES}") as server:
        ask = {
            "model": "fake", "messages": [{"role": "user", "content": "one two three"}],
            "stream": True}
        status, data = server.call("POST", "/v1/chat/completions", ask)
        events = [part[6:] for part in data.decode().split("\n\n") if part]
        assert status == 200 and events[-1] == "[DONE]"
        chunks = [json.loads(event) for event in events[:-1]]
        assert "".join(
            c["choices"][0]["delta"].get("content", "") for c in chunks) == "one two three"
        assert not any(c.get("usage") for c in chunks)
        status, data = server.call("POST", "/v1/chat/completions",
                                   {**ask, "stream_options": {"include_usage": True}})
        events = [part[6:] for part in data.decode().split("\n\n") if part]
        assert json.loads(events[-2])["usage"]["prompt_tokens"] == 13 and json.loads(
            events[-2])["choices"] == []
        metrics = server.call("GET", "/metrics")[1].decode()
        assert 'quern_tokens_total{type="output"} 6\n' in metrics
        ask["messages"][0]["content"] = "mode=no-choice x"
        status, data = server.call("POST", "/v1/chat/completions", ask)
        assert status == 502 and json.loads(
            data)["error"]["message"] == "The upstream ended its stream without a choice."
        ask["messages"][0]["content"] = "mode=null-choices x"
        assert server.call("POST", "/v1/chat/completions", ask)[0] == 502
        for mode in ("cut", "event-error", "event-garbage"):
            ask["messages"][0]["content"] = f"one two three mode={mode}"
            status, data = server.call("POST", "/v1/chat/completions", ask)
            events = [part[6:] for part in data.decode().split("\n\n") if part]
            assert status == 200 and set(json.loads(events[-1])["error"]) == {
                "message", "type", "param", "code"}
            assert fake.behaviour.seen[ask["messages"][0]
                                       ["content"]] == 1  # never twice once something was streamed


def test_a_request_of_a_client_fails_over_and_is_answered(tmp_path, fake):
    with support.reserved_port() as port, serving(
            tmp_path, f"gone=http://127.0.0.1:{port},models=fake,{TIMES}",
            f"fake={fake.url},{TIMES}") as server:
        for _ in range(20):
            assert server.call(
                "POST", "/v1/chat/completions",
                {"model": "fake", "messages": [{"role": "user", "content": "x"}]})[0] == 200
        status, data = server.call(
            "POST", "/v1/chat/completions",
            {"model": "fake", "messages": [{"role": "user", "content": "mode=400 x"}]})
        assert status == 400 and json.loads(data)["error"]["message"] == "told to say 400"
        good, bad = run(server, [f"line {i}" for i in range(300)])
        assert not bad


def test_two_upstreams_share_a_batch(tmp_path, fake):
    other = upstream.Upstream()
    try:
        with serving(tmp_path, f"a={fake.url},weight=3", f"b={other.url}") as server:
            texts = [f"line {i} ms=30" for i in range(600)]
            good, bad = run(server, texts)
            assert not bad
            seen = [sum(s.behaviour.seen.values()) for s in (fake, other)]
            assert sum(seen) == 600 and min(seen) > 50
    finally:
        other.stop()


def test_the_key_is_sent_and_shown_nowhere(tmp_path, fake, clock):
    key = "sk-verysecret0123456789"
    file = tmp_path / "key"
    file.write_text(key + "\n")
    file.chmod(0o600)
    with serving(tmp_path, f"fake={fake.url},key-file={file}",
                 environment=clock.environment) as server:
        good, bad = run(server, ["x", "mode=401 y", "mode=500 z"], clock=clock, fake=fake)
        assert {head["authorization"] for head in fake.behaviour.heads} == {f"Bearer {key}"}
        shown = pathlib.Path(f"/proc/{server.process.pid}/cmdline").read_text() + server.log_text(
        ) + json.dumps([good, bad])
        for path in ("/health", "/ready", "/metrics", "/v1/models"):
            shown += server.call("GET", path)[1].decode()
        assert key not in shown


def test_a_proxy_is_taken_from_the_environment_only_when_asked(tmp_path, fake):
    away = {
        "http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9",
        "ALL_PROXY": "http://127.0.0.1:9", "no_proxy": ""}
    with serving(tmp_path, f"fake={fake.url}", environment=away) as server:
        run(server, ["x"])
    with support.serving(tmp_path / "other",
                         "--upstream",
                         f"fake={fake.url},proxy=env",
                         environment=away) as server:
        assert server.call("GET", "/health")[0] == 503


def test_a_cancelled_batch_lets_the_upstream_go(tmp_path, fake):
    with serving(tmp_path, f"fake={fake.url}") as server:
        batch = server.create(lines([f"{i} mode=stall" for i in range(100)]))
        support.until(lambda: fake.behaviour.now >= 64)
        server.json("POST", f"/v1/batches/{batch['id']}/cancel", "")
        batch = server.wait(batch["id"], 60)
        assert batch["status"] == "cancelled"
        good, bad = server.results(batch)
        assert not good and len(bad) == 100 and {line["error"]["code"]
                                                 for line in bad} == {"batch_cancelled"}


def test_run_goes_through_an_upstream(tmp_path, fake):
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(lines([f"line {i}" for i in range(50)]))
    done = support.quern("run", "-i", source, "-o", out, "--upstream", f"fake={fake.url}", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["completed"] == 50
    assert [json.loads(line)["custom_id"] for line in out.read_text().splitlines()] == [
        f"c{i}" for i in range(50)]


@pytest.mark.parametrize("option,words",
                         [("http://127.0.0.1:1", "without a name"),
                          ("a=ftp://127.0.0.1", "neither http"), ("a=127.0.0.1:8000", "URL"),
                          ("a=http://u:sesame@127.0.0.1", "key-file"),
                          ("a=http://127.0.0.1?x=1", "query"), ("a b=http://127.0.0.1", "letters"),
                          ("a=http://127.0.0.1,concurrency=0", "concurrency=0"),
                          ("a=http://127.0.0.1,concurrency=many", "concurrency=many"),
                          ("a=http://127.0.0.1,colour=red", "no key colour="),
                          ("a=http://127.0.0.1,models=", "models="),
                          ("a=http://127.0.0.1,models=x|x", "twice"),
                          ("a=http://127.0.0.1,health=x", "health="),
                          ("a=http://127.0.0.1,proxy=http://x", "proxy="),
                          ("a=http://127.0.0.1,key-file=/nonexistent", "/nonexistent")])
def test_bad_options_are_refused_with_a_sentence(tmp_path, option, words):
    done = support.quern("serve", "--port", "0", "--state-dir", tmp_path / "state", "--upstream",
                         option)
    assert done.returncode != 0 and words in done.stderr and "sesame" not in done.stderr


def test_a_key_file_that_others_can_read_is_refused(tmp_path):
    file = tmp_path / "key"
    file.write_text("sk-secret")
    file.chmod(0o640)
    done = support.quern("serve", "--port", "0", "--state-dir", tmp_path / "state", "--upstream",
                         f"a=http://127.0.0.1:1,key-file={file}")
    assert done.returncode != 0 and "chmod 600" in done.stderr and "sk-secret" not in done.stderr
    assert support.quern("serve", "--upstream", "a=http://127.0.0.1:1", "--upstream",
                         "a=http://127.0.0.1:2").stderr.count("two upstreams are called a") == 1
