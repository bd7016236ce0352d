# SPDX-License-Identifier: Apache-2.0
"""`tools/release-check`: its parts, how it goes on after a break, what it says. The part of the rig
runs, since it takes a second."""
import importlib.machinery, importlib.util, json, math, os, pathlib, subprocess, sys

import pytest

import support

PARTS = ["kills", "deaths", "cuts", "hostile", "attacks", "mutants", "fuzz", "soak", "address",
         "thread", "suites"]


def check(folder, *arguments, status=0, **environment):
    done = subprocess.run([support.ROOT / "tools/release-check", *arguments],
                          capture_output=True,
                          text=True,
                          timeout=600,
                          env={**os.environ, "QUERN_RELEASE_DIR": str(folder), **environment})
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def test_the_programme_has_all_parts_and_as_much_of_each_as_it_promises(tmp_path):
    whole = [line.split() for line in check(tmp_path, "--list").splitlines()]
    assert list(dict.fromkeys(part for part, *_ in whole)) == PARTS
    counts = {part: sum(one[0] == part for one in whole) for part in PARTS}
    assert counts["kills"] * 120 >= 5000 and counts["hostile"] * 160 >= 3200
    assert counts["cuts"] * 1000 >= 5000
    targets = [path.stem.removeprefix("fuzz_")
               for path in (support.ROOT / "tests/fuzz").glob("fuzz_*.c")]
    listed = [name for part, names in (one[:2] for one in whole) if part == "fuzz"
              for name in names.split("+")]
    assert sorted(listed) == sorted(targets)
    short = [line.split()[0] for line in check(tmp_path, "--list", "--scale", "0.01").splitlines()]
    assert list(dict.fromkeys(short)) == PARTS


def test_a_part_runs_once_for_a_commit_and_a_scale_and_goes_on_after_a_break(tmp_path):
    rig = pathlib.Path(os.environ.get("BUILD", "build")) / "tests/rig/rig"
    if not (support.ROOT / rig).exists() and not rig.exists():
        pytest.skip("this build has no rig")
    only = ["--only", "cuts", "--scale", "0.004"]
    said = check(tmp_path, *only)
    assert "rig-1" in said and "good" in said and "20 seeds" in said
    records = [json.loads(line) for line in (tmp_path / "pieces.jsonl").read_text().splitlines()]
    [record] = records
    assert record["good"] and record["figures"]["cuts"] > 0
    row = said.splitlines()[-1]
    assert row.startswith("| 20") and f"{record['figures']['cuts']} in 20 seeds" in row
    assert row.count("not run") == len(PARTS) - 1
    with open(tmp_path / "pieces.jsonl", "a") as out:
        out.write('{"part": "cuts", "pie')  # a call that was killed
    again = check(tmp_path, *only)
    assert again.splitlines() == [row], "nothing runs twice"
    assert "rig-1" in check(tmp_path, "--only", "cuts", "--scale", "0.002")  # another scale
    assert "rig-1" in check(tmp_path, *only, "--fresh")


def test_a_piece_that_failed_is_told_with_the_command_that_repeats_it(tmp_path):
    said = check(tmp_path, "--only", "soak", "--scale", "0.0001", status=1,
                 QUERN_BINARY="/bin/false")
    assert "soak     soak" in said and "FAILED" in said
    assert said.endswith("again: QUERN_BINARY=/bin/false python3 tests/crash/soak.py --lines 100\n")


@pytest.fixture
def programme(tmp_path, monkeypatch):
    """The programme as a module whose pieces are the test's."""
    monkeypatch.setattr(sys, "argv", ["release-check"])
    monkeypatch.setenv("QUERN_RELEASE_DIR", str(tmp_path))
    monkeypatch.setenv("QUERN_LANES", "2")
    loader = importlib.machinery.SourceFileLoader("release_check",
                                                  str(support.ROOT / "tools/release-check"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    return module


def test_pieces_of_one_part_run_side_by_side_and_each_has_its_record(programme, tmp_path):
    os.mkfifo(tmp_path / "met")  # a writer and a reader of it wait for each other
    shell = lambda part, name, text: (part, name, ["sh", "-c", text, "sh", tmp_path / "met"], {}, 60)
    pieces = [shell("cuts", "writer", 'echo "7 seeds, 5 power cuts" > "$1"'),
              shell("cuts", "reader", 'cat "$1"; exit 3'), shell("soak", "after", "true")]
    records = {piece.name: record for piece, record in programme.run(pieces, math.inf)}
    assert list(records)[-1] == "after"
    assert {name: record["good"] for name, record in records.items()} == {
        "writer": True, "reader": False, "after": True}
    assert records["reader"]["figures"] == {"cuts": 5, "seeds": 7}


def test_a_programme_that_is_ended_leaves_no_piece_behind(programme, tmp_path):
    os.mkfifo(tmp_path / "told")
    hanging = ["sh", "-c", 'echo $$ > "$1"; exec sleep 1000', "sh", tmp_path / "told"]
    running = programme.run([("cuts", "hanging", hanging, {}, 2000),
                             ("cuts", "short", ["cat", tmp_path / "told"], {}, 60)], math.inf)
    piece, record = next(running)
    pid = int(pathlib.Path(record["log"]).read_text())
    assert piece.name == "short" and pathlib.Path(f"/proc/{pid}").exists()
    running.close()
    assert not pathlib.Path(f"/proc/{pid}").exists()


def test_hours_are_those_in_which_a_piece_ran(programme):
    at = lambda begin, seconds: {"at": begin, "seconds": seconds}
    assert programme.hours_of({1: at(0, 3600), 2: at(0, 1800), 3: at(1800, 3600),
                               4: at(9000, 1800)}) == 2


def test_no_piece_begins_after_the_time_that_was_given(tmp_path):
    said = check(tmp_path, "--only", "hostile", "--scale", "0.05", "--minutes", "0.000001",
                 status=75)
    assert said == "1 pieces are left; the same command goes on\n"


def test_the_rows_of_the_table_have_a_cell_per_part():
    page = (support.ROOT / "docs/measurements/releases.md").read_text()
    heads, *rows = page[page.index("| date"):].split("\n\n")[0].splitlines()
    assert len(rows) > 1 and {row.count("|") for row in rows} == {heads.count("|")}
    assert heads.count("|") == len(PARTS) + 6


@pytest.mark.parametrize("arguments", [["--scale", "0"], ["--only", "none"], ["--none"]])
def test_what_it_does_not_know_it_refuses(tmp_path, arguments):
    check(tmp_path, *arguments, status=2)
