# SPDX-License-Identifier: Apache-2.0
"""What a run and a batch cost, at the prices that their owner gives. The arithmetic:
tests/unit/ground/costs, tests/unit/service/batch/test_batch_costs.c."""
import json

import pytest

import support

PRICES = [
    "--watts", "90", "--price-per-kwh", "0.2", "--rent-per-hour", "3", "--rent-speed", "2",
    "--input-price", "2", "--output-price", "8", "--batch-discount", "0.5", "--currency", "EUR",
    "--times-per-month", "4"]


def equal(count):
    return [support.request(f"r{i}", "hello there", temperature=0) for i in range(count)]


def check_bill(costs, usage):
    once, month = costs["once"], costs["per_month"]
    assert (costs["currency"], costs["times_per_month"], costs["power"]) == ("EUR", 4, {
        "source": "given", "watts": 90})
    assert once["watt_hours"] == pytest.approx(once["seconds"] * 90 / 3600, rel=1e-4)
    assert once["electricity"] == pytest.approx(once["watt_hours"] * 0.2 / 1000, rel=1e-3, abs=2e-9)
    assert once["rented_gpu"] == pytest.approx(once["seconds"] * 3 / 3600 / 2, rel=1e-3, abs=2e-9)
    assert once["managed_api"] == pytest.approx(
        (usage["input_tokens"] * 2 + usage["output_tokens"] * 8) * 0.5 / 1e6, abs=2e-9)
    assert month["managed_api"] == pytest.approx(4 * once["managed_api"], abs=1e-9)
    assert costs["once_without_sharing"]["seconds"] >= once["seconds"]


def test_a_batch_that_has_ended_tells_its_costs(tmp_path):
    with support.serving(tmp_path / "state", "--model", "smollm2=echo", *PRICES) as server:
        batch = server.create(support.jsonl(equal(6)))
        assert batch["quern"]["costs"] is None
        batch = server.wait(batch["id"])
        check_bill(batch["quern"]["costs"], batch["usage"])
        saved = batch["quern"]["costs"]["saved"]
        assert saved["input_tokens_asked"] == batch["usage"]["input_tokens"]
        assert saved["output_tokens_computed"] == batch["usage"]["output_tokens"] - batch["usage"][
            "output_tokens_details"]["deduplicated_tokens"]
        assert server.json("GET",
                           "/v1/batches")["data"][0]["quern"]["costs"] == batch["quern"]["costs"]
        # A preflight has the server's prices until the client gives its own.
        said = server.json("POST", "/v1/batches/preflight",
                           {"input_file_id": batch["input_file_id"]})["costs"]
        assert (said["currency"], said["times_per_month"], said["power"]["watts"]) == ("EUR", 4, 90)
        said = server.json(
            "POST", "/v1/batches/preflight", {
                "input_file_id": batch["input_file_id"], "currency": "CHF", "times_per_month": 2,
                "watts": 10, "cached_price": 0, "rent_per_hour": 1, "rent_speed": 3})["costs"]
        assert (said["currency"], said["times_per_month"], said["power"]["watts"]) == ("CHF", 2, 10)


def test_a_run_tells_its_costs_at_the_end(tmp_path):
    (tmp_path / "in.jsonl").write_bytes(support.jsonl(equal(6)))
    arguments = [
        "run", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", "--overwrite", "--model",
        "smollm2=echo", *PRICES]
    done = support.quern(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    check_bill(said["costs"],
               {"input_tokens": said["prompt_tokens"], "output_tokens": said["completion_tokens"]})
    assert said["costs"]["once"]["seconds"] == pytest.approx(said["seconds"] + said["load_seconds"],
                                                             abs=2e-3)
    done = support.quern(*arguments)
    assert done.returncode == 0 and "Managed API" in done.stderr and "EUR" in done.stderr and "4 times per month" in done.stderr


def test_without_prices_no_money_is_told(tmp_path):
    (tmp_path / "in.jsonl").write_bytes(support.jsonl(equal(2)))
    done = support.quern("run", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl",
                         "--model", "smollm2=echo", "--json")
    once = json.loads(done.stdout)["costs"]["once"]
    assert once["seconds"] > 0 and (once["electricity"], once["rented_gpu"],
                                    once["managed_api"]) == (None, None, None)


def test_list_and_status_show_name_and_cost(tmp_path):
    path = tmp_path / "questions of today.jsonl"
    path.write_bytes(support.jsonl(equal(2)))
    with support.serving(tmp_path / "state", "--model", "smollm2=echo", *PRICES) as server:
        done = support.quern("submit", path, "-o", tmp_path / "out.jsonl", "--base-url", server.url)
        assert done.returncode == 0, done.stderr
        named = server.create(support.jsonl(equal(1)), metadata={"name": "nightly"})
        named = server.wait(named["id"])
        listed = support.quern("list", "--base-url", server.url).stdout.splitlines()
        assert listed[0].split()[-2:] == ["name", "cost"]
        assert " nightly " in listed[1] and " questions of today.jsonl " in listed[2]
        once = named["quern"]["costs"]["once"]
        cost = ", ".join(
            f"{once[kind]:.3g} EUR {words}"
            for kind, words in (("electricity", "of electricity"),
                                ("rented_gpu", "on a rented machine"), ("managed_api",
                                                                        "at a managed API")))
        shown = support.quern("status", named["id"], "--base-url", server.url).stdout
        assert "name        nightly\n" in shown and f"cost        {cost}\n" in shown, (cost, shown)
        server.call("DELETE", f"/v1/files/{named['input_file_id']}")
        ended = server.json("GET", "/v1/batches")["data"][1]
        server.call("DELETE", f"/v1/files/{ended['input_file_id']}")
        listed = support.quern("list", "--base-url", server.url)
        assert listed.returncode == 0 and "questions" not in listed.stdout
        assert "questions" not in support.quern("status", ended["id"], "--base-url",
                                                server.url).stdout
