# SPDX-License-Identifier: Apache-2.0
"""The settings of `quern evaluate --tune`: impact, saving and effort of each, measured on the requests
of the evaluation."""
import json, os, pathlib, random, resource, subprocess, time

import pytest

import support
from test_evaluate import SEED, evaluate, lines_of, write

MODEL = pathlib.Path(os.environ.get(
    "XDG_CACHE_HOME",
    pathlib.Path.home() / ".cache")) / "quern/models/SmolLM2-135M-Instruct.Q4_1.gguf"
SHORT = ["--tune-lines", "4", "--tune-rounds", "1"]


def requests_of(tmp_path, **more):
    return write(tmp_path / "in.jsonl", [
        support.request(f"p{i}", f"Profile {i}. Rate it.", max_tokens=2, temperature=0, **more)
        for i in range(6)])


def test_each_setting_has_its_impact_and_effort_and_is_measured_once(tmp_path):
    path = requests_of(tmp_path)
    arguments = [
        "--model", "smollm2", "--device", "cpu", "--tune", "--knob", "threads", "--knob",
        "kv-cache-dtype", *SHORT, "--watts", "50"]
    said = evaluate(path, *arguments)
    tuning = said["tuning"]
    assert tuning["model"] == "smollm2" and tuning["lines"] == 4
    rows = {row["options"]: row for row in tuning["settings"]}
    threads = rows["--threads 1"]
    assert threads["ratio"]["mean"] > 0 and threads["equal_share"] == 1
    assert threads["effort"]["kind"] == "restart" and threads["verdict"] == "few_rounds"
    assert threads["saving"] is None  # one round tells no setting apart
    refused = rows["--kv-cache-dtype fp8"]
    assert refused["rounds"] == 0 and refused["why_not"] and "effort" not in refused
    folder = tmp_path / "in.jsonl.evaluation"
    page = (folder / "report.html").read_text()
    assert "Settings of smollm2" in page and "--threads 1" in page and refused["why_not"][:20] in page
    before = (folder / "tune.json").read_bytes()
    assert evaluate(path, *arguments)["tuning"] == tuning
    assert (folder / "tune.json").read_bytes() == before
    shown = support.quern("evaluate", path, *arguments)
    assert shown.returncode == 0 and "--threads 1" in shown.stdout, shown.stderr
    assert "not measured" in shown.stdout


def test_what_a_setting_saves_is_its_ratio_of_the_job(tmp_path):
    """The figures on the disk are those of another call: what is made of them is arithmetic."""
    path = write(tmp_path / "in.jsonl", lines_of(8, each_ms=2))
    arguments = [
        "--model", "a=echo", "--tune", "--knob", "threads", *SHORT, "--rent-per-hour", "2"]
    said = evaluate(path, *arguments)
    kept = tmp_path / "in.jsonl.evaluation/tune.json"
    figures = json.loads(kept.read_text())
    figures["today"] |= {"equal_share": 1.0, "failed": 0, "joules_per_request": 4.0}
    common = {"value": "1", "rounds": 3, "why_not": None, "requests_per_second": 3.0,
              "joules_per_request": 3.0, "failed": 0}
    figures["settings"] = [
        common | {"knob": "x", "options": "--x 1", "verdict": "faster", "equal_share": 1.0,
                  "ratio": {"low": 1.25, "mean": 2.0, "high": 4.0}},
        common | {"knob": "y", "options": "--y 1", "verdict": "slower", "equal_share": 0.75,
                  "ratio": {"low": 0.5, "mean": 0.5, "high": 0.5}},
        common | {"knob": "z", "options": "--z 1", "verdict": "noise", "equal_share": 1.0,
                  "ratio": {"low": 0.9, "mean": 1.0, "high": 1.1}, "failed": 2}]
    kept.write_text(json.dumps(figures))
    said = evaluate(path, *arguments)
    [model] = said["models"]
    faster, slower, noise = said["tuning"]["settings"]
    assert [job["requests"] for job in faster["saving"]] == [5000, 50000, 170000, 200000]
    for job, whole in zip(faster["saving"], model["jobs"]):
        seconds = job["requests"] / model["req_s"]
        assert job["seconds"] == pytest.approx(seconds / 2)
        assert job["seconds_low"] == pytest.approx(seconds * 0.2)
        assert job["seconds_high"] == pytest.approx(seconds * 0.75)
        assert job["rented_gpu"] == pytest.approx(whole["rented_gpu"] / 2)
        assert job["electricity"] is None  # no price of electricity was given
    assert slower["saving"][0]["seconds"] == pytest.approx(-5000 / model["req_s"])
    assert noise["saving"] is None
    assert [row["effort"]["kind"] for row in (faster, slower, noise)] == [
        "restart", "judge_again", "unusable"]
    assert "25.0 % of the answers differ" in slower["effort"]["text"]
    page = (tmp_path / "in.jsonl.evaluation/report.html").read_text()
    assert "costs" in page and "25.0 % of the answers differ" in page


def test_other_wishes_are_measured_anew(tmp_path):
    path = write(tmp_path / "in.jsonl", lines_of(8))
    arguments = ["--model", "a=echo", "--tune", "--knob", "threads", "--tune-rounds", "1"]
    assert evaluate(path, *arguments, "--tune-lines", "3")["tuning"]["lines"] == 3
    assert evaluate(path, *arguments, "--tune-lines", "5")["tuning"]["lines"] == 5


def test_the_settings_of_another_server_are_its_own(tmp_path):
    with support.serving(tmp_path / "far", "--model", "big=echo") as far:
        path = write(tmp_path / "in.jsonl", lines_of(3))
        done = support.quern("evaluate", path, "--upstream", f"big={far.url}", "--tune")
        assert done.returncode == 3 and "no model runs here" in done.stderr, done.stderr
        said = evaluate(path, "--model", "small=echo", "--upstream", f"big={far.url}", "--tune",
                        "--knob", "threads", *SHORT)
    assert said["tuning"]["model"] == "small"


def records_of(path):
    return json.loads(path.read_text())["records"] if path.exists() else []


def test_killed_at_ten_moments_it_goes_on_with_the_next_trial_and_ends_with_the_same_settings(
        tmp_path):
    """The moments are drawn, each after a number of records, so that a fast machine has them too."""
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    path = write(tmp_path / "in.jsonl", lines_of(8, each_ms=5))
    arguments = ["--model", "a=echo", "--tune", "--knob", "threads", "--knob", "max-num-seqs",
                 "--tune-lines", "4", "--tune-rounds", "5"]
    whole = evaluate(path, *arguments, "-o", tmp_path / "whole")["tuning"]
    folder = tmp_path / "broken"
    kept, seen, killed = folder / "tune/trials.json", [], 0
    evaluate(path, "--model", "a=echo", "-o", folder)  # the models have run
    for _ in range(10):
        process = subprocess.Popen([support.BINARY, "evaluate", path, "-o", folder, *arguments],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wanted = len(seen) + rng.randrange(3)
        while process.poll() is None and len(records_of(kept)) < wanted:
            time.sleep(0.001)
        time.sleep(rng.random() * 0.03)
        killed += process.poll() is None
        process.kill()
        process.wait()
        if (folder / "tune.json").exists():
            break
        now = records_of(kept)
        assert now[:len(seen)] == seen, "what was measured stays"
        seen = now
    said = evaluate(path, *arguments, "-o", folder)["tuning"]
    assert not kept.exists() and killed >= 3

    def lasting(tuning):
        return tuning["lines"], [(row["options"], row["rounds"], row["why_not"] is None)
                                 for row in tuning["settings"]]

    assert lasting(said) == lasting(whole)
    begun = sum("setting" not in record for record in seen)
    assert said["today"]["runs"] <= whole["today"]["runs"] + max(0, begun - 1) + 1
    last, ratios = None, {}
    for record in seen:
        if "run" in record:
            mean = (last + record["today"]["requests_per_s"]) / 2
            ratios.setdefault(record["setting"], []).append(
                record["run"]["requests_per_s"] / mean)
        last = record["today"]["requests_per_s"] if "today" in record else last
    for row in said["settings"]:
        for ratio in ratios.get(row["options"], []):
            assert row["ratio"]["low"] * 0.9999 <= ratio <= row["ratio"]["high"] * 1.0001


def test_a_setting_that_lacks_memory_is_blamed_once_todays_options_ran_again(tmp_path):
    """A process may have 4 GiB of addresses here, so an engine with a KV cache of 4 GiB ends."""
    done = support.quern(
        "tune", requests_of(tmp_path), "--model", "smollm2", "--device", "cpu", "--json", "--knob",
        "kv-cache-memory-bytes", "--lines", "4", "--rounds", "1",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)))
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    small, large = said["settings"]
    assert small["rounds"] == 1 and large["rounds"] == 0 and "memory" in large["why_not"]
    assert said["today"]["runs"] == 3  # the first, and one after each setting


def test_a_model_that_goes_away_ends_the_tuning_and_no_setting_is_blamed(tmp_path):
    """It goes at the first record; the run that misses it first is one of a setting or of today's
    options, as it happens."""
    path, link = requests_of(tmp_path), tmp_path / "model.gguf"
    link.symlink_to(MODEL)
    arguments = ["--model", f"m={link}", "--device", "cpu", "--tune", "--knob", "threads", *SHORT]
    kept = tmp_path / "in.jsonl.evaluation/tune/trials.json"
    process = subprocess.Popen([support.BINARY, "evaluate", path, *arguments], text=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while process.poll() is None and not records_of(kept):
        time.sleep(0.001)
    link.unlink()
    said = process.communicate(timeout=300)[1]
    assert process.returncode == 4 and "model.gguf" in said, said
    assert not any("why" in record for record in records_of(kept))
    link.symlink_to(MODEL)
    [row] = evaluate(path, *arguments)["tuning"]["settings"]
    assert row["rounds"] == 1 and row["why_not"] is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"of":"x","records":[]}', '{"of":1,"records":2}'])
def test_a_damaged_file_of_trials_is_none(tmp_path, text):
    path = write(tmp_path / "in.jsonl", lines_of(4))
    (tmp_path / "out/tune").mkdir(parents=True)
    (tmp_path / "out/tune/trials.json").write_text(text)
    said = evaluate(path, "--model", "a=echo", "--tune", "--knob", "threads", *SHORT, "-o",
                    tmp_path / "out")
    assert said["tuning"]["settings"][0]["rounds"] == 1


@pytest.mark.parametrize("arguments, words", [
    (["--knob", "threads"], "--knob goes with --tune"),
    (["--tune", "--knob", "none"], "none of the seven"),
    (["--compare-to", "x", "--compare-to-column", "y"], "does not go with --compare-to"),
    (["--judgement-field", "x"], "go with --compare-to")])
def test_options_that_say_nothing_together_are_refused(tmp_path, arguments, words):
    path = write(tmp_path / "in.jsonl", lines_of(1))
    done = support.quern("evaluate", path, "--model", "a=echo", *arguments)
    assert done.returncode == 2 and words in done.stderr, done.stderr
