#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows that the simulator of a fleet catches mistakes: builds it with copies of the deciders that
have one mistake each, without assertions, and runs it until it fails. Ends with 1 when a mistake is
not caught, or when the deciders without a mistake fail. A text that a mistake replaces must occur
once, so that the list follows the code.

  tests/sim_cluster/mutants.py [--seeds N]     seeds for each (default 20)
"""
import argparse, os, pathlib, subprocess, sys, tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
INCLUDES = [
    f"-I{ROOT / path}" for path in ("src/service", "src/protocol", "src/ground", "tests")]
QUEUE, CLUSTER = "src/service/queue", "src/protocol/cluster"
# What it breaks, the file, its text, and the text in its place.
MUTANTS = [
    ("nothing", f"{QUEUE}/pace.c", "\n", "\n"),
    ("a slow worker has as many lines as any", f"{QUEUE}/pace.c",
     "if (rate <= 0) return lines_max;", "if (rate >= 0) return lines_max;"),
    ("no line is asked back", f"{QUEUE}/pace.c",
     "return kept < worker->lines ? worker->lines - kept : 0;", "return 0;"),
    ("no line is overdue", f"{QUEUE}/pace.c", "return longest_s > 0 &&",
     "return longest_s < 0 &&"),
    ("what is leased to a slow worker stays there", f"{QUEUE}/pace.c",
     "return share < left ? (uint32_t)share : left;", "return 0;"),
    ("a worker that answers nothing has no rate", f"{QUEUE}/pace.c",
     "(pace->lines > 1 ? pace->lines : 1)", "pace->lines"),
    ("one place behind a lease is lost", f"{QUEUE}/local.c",
     "{first + count, rest - count};", "{first + count, rest - count - (rest > count)};"),
    ("the first place behind a lease is leased again", f"{QUEUE}/local.c",
     "{first + count, rest - count};", "{first + count - 1, rest - count + 1};"),
    ("a lease between two ranges is not given back", f"{QUEUE}/local.c",
     "before->count += lease->count + behind->count;", "before->count += behind->count;"),
    ("a lease before a range is not given back", f"{QUEUE}/local.c",
     "        behind->count += lease->count;\n", ""),
    ("a worker that fails at once is well", f"{QUEUE}/faults.c",
     "if (++faults->count < FAULTS_SICK) return false;", "return false;"),
    ("a job is taken twice", f"{CLUSTER}/job_set.c",
     "    *ret_value = set->entries[free_at].value;\n",
     "    *ret_value = set->entries[free_at].value;\n    if (id % 1000 == 0) return true;\n"),
    ("a job behind a gap is not found", f"{CLUSTER}/job_set.c",
     "        set->entries[free_at] = set->entries[at];\n        free_at = at;\n", ""), ]


def compile(folder, sources, *flags):
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([
        os.environ.get("CC", "cc"), "-std=gnu17", "-D_GNU_SOURCE", "-O2", "-w", *flags, *INCLUDES,
        "-c", *map(str, sources)],
                   cwd=folder,
                   check=True)
    return [str(path) for path in folder.glob("*.o")]


def build(folder, others, file, text, other):
    """The simulator with deciders that have the mistake, and that do not check themselves."""
    folder.mkdir()
    sources = []
    deciders = [*(ROOT / QUEUE).glob("*.c"), ROOT / CLUSTER / "job_set.c"]
    for path in deciders:
        code = path.read_text()
        if path == ROOT / file and text != other:
            assert code.count(text) == 1, f"{file}: {text!r} occurs {code.count(text)} times"
            code = code.replace(text, other)
        (folder / path.name).write_text(code)
        sources.append(folder / path.name)
    objects = compile(folder / "o", sources, "-DNDEBUG")
    program = folder / "sim_cluster"
    subprocess.run([
        os.environ.get("CC", "cc"), *objects, *others, "-lsodium", "-lcrypto", "-lm", "-lpthread",
        "-o", program],
                   check=True)
    return program


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", default="20")
    seeds, bad = parser.parse_args().seeds, 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        others = compile(folder / "base", (ROOT / "src/ground/base").glob("*.c"))
        others += compile(folder / "sim", [
            *(ROOT / "tests/sim_cluster").glob("*.c"), ROOT / "tests/tap.c"])
        for number, (what, file, text, other) in enumerate(MUTANTS):
            program = build(folder / f"m{number}", others, file, text, other)
            ended = subprocess.run([
                program, "--nodes", "100", "--lines", "1000000", "--seeds", seeds],
                                   capture_output=True,
                                   text=True,
                                   timeout=600)
            is_right = (ended.returncode == 0) == (number == 0)
            bad += not is_right
            failed = [line for line in ended.stdout.splitlines() if line.startswith("not ok")]
            words = failed[0].rsplit(": ", 1)[-1] if failed else f"status {ended.returncode}"
            print(f"{'ok' if is_right else 'NOT OK'} {what}: {words} ({len(failed)} seeds)",
                  flush=True)
    return 1 if bad else 0


sys.exit(main())
