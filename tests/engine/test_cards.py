# SPDX-License-Identifier: Apache-2.0
"""What /metrics tells about GPUs: the memory of an engine on the plain device, and the GPU itself
by a made-up NVML (tests/nvml)."""
import pathlib, re

import support

TINY = support.SHARED / "tiny/llama3/model-q8_0.gguf"
NVML = pathlib.Path(support.BINARY).resolve().parent.parent / "tests/nvml"
CARD = "GPU-00000000-0000-0000-0000-000000000000"
PARTS = {"context", "weights", "activations", "logits", "steps", "workspace", "kv"}


def metrics(server):
    """{name{labels}: value} of /metrics."""
    status, data = server.call("GET", "/metrics")
    assert status == 200
    return {
        found[1]: float(found[2])
        for found in re.finditer(r"^(\w[^ ]*(?:\{.*\})?) (\S+)$", data.decode(), re.M)}


def serve(tmp_path, *arguments, **nvml):
    tell(tmp_path, **nvml)
    return support.serving(tmp_path / "state",
                           "--model",
                           f"m={TINY}",
                           *arguments,
                           environment={
                               "LD_LIBRARY_PATH": str(NVML),
                               "QUERN_FAKE_NVML": str(tmp_path / "nvml")})


def tell(tmp_path, **nvml):
    """Replaces the file at once: a reader sees the old numbers or the new ones."""
    new = tmp_path / "nvml.new"
    new.write_text("".join(f"{name} {value}\n" for name, value in nvml.items()))
    new.rename(tmp_path / "nvml")


def of_card(server, name):
    return metrics(server).get(f'quern_card_{name}{{card="{CARD}"}}')


def on_card(tmp_path, **nvml):
    return serve(tmp_path, "--device", "cuda", "--device-plugin", str(support.plain_device()),
                 "--gpu-memory-limit-mib", "500", **nvml)


def test_an_engine_tells_where_its_memory_on_the_card_goes(tmp_path):
    with on_card(tmp_path) as server:
        support.until(
            lambda: f'quern_engine_card_info{{engine="0",card="{CARD}"}}' in metrics(server))
        told = metrics(server)
        parts = {
            part: told[f'quern_engine_card_memory_bytes{{engine="0",part="{part}"}}']
            for part in PARTS}
        assert told['quern_engine_card_memory_limit_bytes{engine="0"}'] == 500 << 20
        assert parts["weights"] > 0 and parts["kv"] > 0 and sum(parts.values()) <= 500 << 20


def test_a_card_tells_its_values_and_its_errors(tmp_path):
    with on_card(tmp_path, celsius=44, power_mw=321000, throttle=4) as server:
        support.until(lambda: of_card(server, "temperature_celsius") == 44)
        told = metrics(server)
        assert told[f'quern_card_up{{card="{CARD}",name="fake card 0"}}'] == 1
        assert of_card(server, "power_watts") == 321 and of_card(server,
                                                                 "utilisation_ratio") == 0.75
        assert told[f'quern_card_clocks_limited{{card="{CARD}",reason="power"}}'] == 1
        assert told[f'quern_card_clocks_limited{{card="{CARD}",reason="heat"}}'] == 0
        assert of_card(server, "xid_errors_total") == 0
        tell(tmp_path, xid=79)
        support.until(lambda: of_card(server, "xid_errors_total") == 1)
        assert of_card(server, "last_xid") == 79
        assert "event=card_error" in server.log_text() and "xid=79" in server.log_text()


def test_a_card_tells_its_tokens_and_their_energy(tmp_path):
    """Both are rates over the last minute, so that work and energy go on until they are told."""
    joules = 1000
    body = {"model": "m", "prompt": "Hello", "max_tokens": 8, "temperature": 0, "ignore_eos": True}

    def rates():
        nonlocal joules
        joules += 1000
        assert server.call("POST", "/v1/completions", body)[0] == 200
        tell(tmp_path, energy_mj=joules * 1000)
        return of_card(server, "tokens_per_second") or 0, of_card(server,
                                                                  "joules_per_1000_tokens") or 0

    with on_card(tmp_path, energy_mj=joules * 1000) as server:
        support.until(lambda: min(rates()) > 0)


def test_errors_of_a_cards_memory_are_told_when_their_count_grows(tmp_path):
    """Those of before the server's start are in /metrics alone. ECC errors have no event of the
    driver, as Xids do."""
    with on_card(tmp_path, ecc=1) as server:
        support.until(lambda: of_card(server, "ecc_errors_total") == 1)
        tell(tmp_path, ecc=4, celsius=60)
        support.until(
            lambda: f"event=card_error card={CARD} ecc_errors=4 ecc_new=3" in server.log_text())
        assert of_card(server, "ecc_errors_total") == 4
        tell(tmp_path, ecc=4, celsius=61)
        support.until(lambda: of_card(server, "temperature_celsius") == 61)
        assert server.log_text().count("event=card_error") == 1 and of_card(
            server, "xid_errors_total") == 0


def test_a_driver_that_holds_a_call_holds_nothing_else(tmp_path):
    """The server ends although the call does not return for a long time."""
    with on_card(tmp_path, stall=3600000) as server:
        support.until((tmp_path / "nvml.stalled").exists)
        assert of_card(server, "power_watts") is None
        line = support.request("a", "Hello", model="m", max_tokens=2)
        line["url"], line["body"] = "/v1/completions", {
            "model": "m", "prompt": "Hello", "max_tokens": 2}
        batch = server.wait(server.create(support.jsonl([line]), endpoint="/v1/completions")["id"])
        assert batch["request_counts"]["completed"] == 1
        server.process.terminate()
        assert server.process.wait(120) == 0


def test_a_server_without_a_card_tells_of_none(tmp_path):
    with serve(tmp_path, "--device", "cpu") as server:
        assert not [name for name in metrics(server) if "card" in name]


def test_top_shows_engines_and_cards(tmp_path):
    with on_card(tmp_path, celsius=44, throttle=4) as server:
        support.until(lambda: of_card(server, "temperature_celsius") == 44)
        done = support.quern("top", server.url, "--once", "--seconds", "1")
        assert done.returncode == 0, done.stderr
        engine, card = [line for line in done.stdout.splitlines() if "GPU-00000000" in line]
        assert engine.split()[:2] == ["0", "up"] and "/0.5 GiB: weights" in engine
        assert "fake card 0" in card and " 44C " in card and card.endswith("limited by power")
    done = support.quern("top", server.url, "--once")
    assert done.returncode == 6 and "cannot be reached" in done.stderr


def test_top_wants_a_url_and_on_a_guarded_server_a_key(tmp_path):
    assert support.quern("top", "localhost").returncode == 2
    made = support.quern("key", "create", "--name", "n", "--scopes", "metrics", "--state-dir",
                         tmp_path / "state")
    assert made.returncode == 0, made.stderr
    key = tmp_path / "key"
    key.touch(mode=0o600)
    key.write_text(re.search(r"sk-\S+", made.stdout)[0] + "\n")
    with serve(tmp_path, "--device", "cpu") as server:
        done = support.quern("top", server.url, "--once")
        assert done.returncode == 5 and "--api-key-file" in done.stderr
        done = support.quern("top", server.url, "--once", "--seconds", "1", "--api-key-file", key)
        assert done.returncode == 0 and "cpu" in done.stdout, done.stderr
