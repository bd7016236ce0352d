# SPDX-License-Identifier: Apache-2.0
"""Every command of the guides about tuning runs, as it stands there; `quern tune` with a smaller
sample, so that it ends soon."""
import json, os, pathlib, re, subprocess

import pytest

import support

GUIDES = pathlib.Path(__file__).resolve().parents[2] / "docs" / "guides"
PAGES = ["tuning.md", "4080.md"]


def commands_of(page):
    """The lines of its blocks of shell."""
    return [
        line for block in re.findall(r"^```sh\n(.*?)^```", (GUIDES / page).read_text(), re.M | re.S)
        for line in block.splitlines()]


COMMANDS = [(page, command) for page in PAGES for command in commands_of(page)]


@pytest.fixture
def place(tmp_path):
    """A folder with the file that the guides speak of, and `quern` on the path."""
    requests = [
        support.request(f"p{i}",
                        f"Profile {i} worked {i} years with stones. Rate it.",
                        temperature=0,
                        max_tokens=4) for i in range(8)]
    (tmp_path / "requests.jsonl").write_bytes(support.jsonl(requests))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "quern").symlink_to(os.path.abspath(support.BINARY))
    return tmp_path


@pytest.mark.parametrize("page,command",
                         COMMANDS,
                         ids=[f"{page}-{i}" for i, (page, _) in enumerate(COMMANDS)])
def test_a_command_of_the_guides_runs(place, page, command):
    if command.startswith("quern tune"):
        command = re.sub(r" --lines \d+", "", command) + " --lines 2 --rounds 1 --seconds 1"
    environment = dict(os.environ, PATH=f"{place / 'bin'}:{os.environ['PATH']}")
    done = subprocess.run(["sh", "-c", command],
                          cwd=place,
                          env=environment,
                          capture_output=True,
                          text=True,
                          timeout=240)
    assert done.returncode == 0, done.stderr
    if command.startswith("awk"):
        assert done.stdout == "7.45 TFLOP per request, at most 52.4 requests/s, 4292 need 82 GPUs\n"


def test_the_seven_settings_of_the_guide_are_those_of_the_command():
    told = set(re.findall(r"--knob ([a-z-]+)", (GUIDES / "tuning.md").read_text()))
    help_text = support.quern("tune", "--help").stdout
    assert len(told) == 7 and all(
        support.quern("tune", "none", "--knob", knob).stderr.count("is none of the seven") == 0
        for knob in told)
    assert "--knob" in help_text


def test_settings_are_measured_and_the_others_say_why_not(place):
    done = support.quern("tune", place / "requests.jsonl", "--model", "smollm2", "--device", "cpu",
                         "--json", "--rounds", "1", "--lines", "4", "--knob", "threads", "--knob",
                         "kv-cache-dtype", "--watts", "50")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["lines"] == 4 and said["today"]["runs"] >= 2 and said["today"]["equal_share"] == 1
    by_option = {row["options"]: row for row in said["settings"]}
    threads = by_option["--threads 1"]
    assert threads["rounds"] == 1 and threads["verdict"] == "few_rounds" and threads[
        "why_not"] is None
    assert threads["ratio"]["low"] == threads["ratio"]["mean"] > 0 and threads[
        "equal_share"] == 1 and threads["joules_per_request"] > 0
    refused = by_option["--kv-cache-dtype fp8"]
    assert refused["rounds"] == 0 and "only a GPU has one" in refused[
        "why_not"] and "ratio" not in refused


def test_wrong_calls_of_tune_are_answered_with_a_sentence(place):
    for arguments, word, status in ((["--model", "smollm2"], "FILE", 2), ([
            place / "requests.jsonl"], "--model", 2), ([
                place / "none.jsonl", "--model", "smollm2"], "none.jsonl", 4), ([
                    place / "requests.jsonl", "--model", "smollm2", "--knob",
                    "colour"], "colour", 2)):
        done = support.quern("tune", *arguments)
        assert done.returncode == status and word in done.stderr, done.stderr
    assert not [name for name in os.listdir(place) if name.startswith("quern-tune")]
