# SPDX-License-Identifier: Apache-2.0
"""`quern evaluate` that is killed, and that finds no space: the same command ends with the same
report. bench/evaluate-kills does it with real models."""
import json, os, random, signal, subprocess, sys, time, pathlib

import pytest

import evaluations, support
from test_evaluate import answers_in, evaluate, lines_of, write

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "crash"))
import life

SEED = support.SEED
NAMES = ("a", "b", "c", "far")
MODELS = [word for name in NAMES[:3] for word in ("--model", f"{name}=echo")]


def command_of(path, *arguments):
    return [support.BINARY, "evaluate", path, *map(str, arguments)]


@pytest.mark.parametrize("sample", [0, 30])
def test_killed_at_ten_moments_it_ends_with_the_same_report(tmp_path, sample):
    print(f"seed {SEED}")
    rng = random.Random(f"{SEED} {sample}")
    lines, judged = answers_in(rng, 40)
    for number, line in enumerate(lines):
        # The last one keeps a model from ending between two looks.
        line["body"]["echo"] = {"each_ms": 8} | ({"delay_ms": 200} if number == 39 else {})
    path = write(tmp_path / "in.jsonl", lines)
    write(tmp_path / "judged.jsonl", judged[::3])
    with support.serving(tmp_path / "far-state", "--model", "far=echo") as far:
        arguments = [*MODELS, "--upstream", f"far={far.url}", "--compare-to",
                     tmp_path / "judged.jsonl", "--sample", sample]
        wanted = evaluate(path, *arguments, "-o", tmp_path / "whole")
        broken = tmp_path / "broken"
        begin = time.monotonic()
        deaths = evaluations.kill_all_along(command_of(path, *arguments, "-o", broken), broken,
                                            NAMES, sample or 40, rng)
        said = evaluate(path, *arguments, "-o", broken)
        seconds = time.monotonic() - begin
    print(f"killed with {deaths} results")
    assert len(deaths) >= 8, "the command was too quick to be killed"
    # Models of equal answers are told apart by their speed alone, so any of these may be chosen.
    said["choice"]["model"] = wanted["choice"]["model"]
    assert evaluations.lasting(said) == evaluations.lasting(wanted)
    assert evaluations.answers(broken, NAMES) == evaluations.answers(tmp_path / "whole", NAMES)
    assert not evaluations.wrong_times(said, seconds)
    # A run that died while it wrote its proof has left NAME.PID.tmp (base/whole_file.h).
    assert sorted(path.name for path in broken.iterdir() if path.suffix != ".tmp") == sorted(
        path.name for path in (tmp_path / "whole").iterdir())


def is_whole(folder):
    """Whether the report is not there, or whole, in both forms."""
    page, figures = folder / "report.html", folder / "evaluation.json"
    if figures.exists():
        json.loads(figures.read_text())
    return not page.exists() or page.read_text().rstrip().endswith("</html>")


@pytest.mark.parametrize("fault", ["any:{}:KILL", "write:{}:TEAR"])
def test_killed_while_it_writes_its_report_it_leaves_none_or_a_whole_one(tmp_path, fault):
    lines, judged = answers_in(random.Random(SEED), 12)
    path = write(tmp_path / "in.jsonl", lines)
    arguments = ["--model", "a=echo", "--model", "b=echo", "--compare-to",
                 write(tmp_path / "judged.jsonl", judged)]
    wanted = evaluate(path, *arguments)
    folder = tmp_path / "in.jsonl.evaluation"
    (folder / "evaluation.json").unlink()
    (folder / "report.html").unlink()
    deaths = 0
    while True:
        done = subprocess.run(command_of(path, *arguments), capture_output=True, env={
            **os.environ, "QUERN_FAULT": fault.format(deaths + 1)})
        assert is_whole(folder), deaths
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        deaths += 1
    assert deaths >= 3 and evaluations.lasting(
        json.loads((folder / "evaluation.json").read_text())) == evaluations.lasting(wanted)
    assert (folder / "report.html").exists() and not list(folder.glob("*.part"))


@pytest.mark.parametrize("plan, words", [
    ("write:3:ENOSPC", "requests.jsonl: cannot write: No space left on device"),
    ("write:4:ENOSPC", "evaluation.json: cannot write: No space left on device"),
    ("write:5:ENOSPC", "report.html: cannot write: No space left on device")])
def test_without_space_for_its_files_it_says_which_and_ends_with_6(tmp_path, plan, words):
    path = write(tmp_path / "in.jsonl", lines_of(3))
    evaluate(path, "--model", "a=echo")
    done = support.quern("evaluate", path, "--model", "a=echo", env={
        **os.environ, "QUERN_FAULT": plan})
    assert (done.returncode, done.stderr) == (6, f"quern evaluate: {words}\n")
    assert evaluate(path, "--model", "a=echo")["models"][0]["answered"] == 3


def test_a_run_that_finds_no_space_ends_with_6_and_goes_on(tmp_path):
    lines = lines_of(20)
    path = write(tmp_path / "in.jsonl", lines)
    folder = tmp_path / "in.jsonl.evaluation"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder],
                          capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
    try:
        done = support.quern("evaluate", path, "--model", "a=echo")
        assert done.returncode == 6 and done.stderr.startswith("quern evaluate: a: "), done.stderr
        assert "full" in done.stderr or "No space left" in done.stderr
        subprocess.run(["mount", "-o", "remount,size=200m", folder], check=True)
        [model] = evaluate(path, "--model", "a=echo")["models"]
        assert model["answered"] == 20
        life.judge([json.loads(line) for line in (folder / "a.jsonl").read_text().splitlines()],
                   lines)
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
