#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows that the simulator catches mistakes: builds it with copies of the scheduler that have one
mistake each and no assertions of their own, and runs it with two steps under way until it fails;
those of PASSING with one, which others pass.
Ends with 1 when a mistake is not caught, or when the scheduler without a mistake fails. A text that
a mistake replaces must occur once, so that the list follows the code.

  tests/sim/mutants.py [--seeds N] [--last N]     seeds for each (default 40); only the last
                                                  mistakes of the list
"""
import argparse, os, pathlib, subprocess, sys, tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
INCLUDES = [f"-I{ROOT / path}" for path in ("src/inference", "src/ground", "tests")]
# What it breaks, the file, its text, and the text in its place.
MUTANTS = [
    ("nothing", "compose.c", "\n", "\n"),
    ("a block enters the tree before its last token is known", "compose.c",
     "uint32_t known = min_u32(sequence->computed, sequence_token_count(sequence));",
     "uint32_t known = sequence->computed;"),
    ("a block enters the tree before its last row is computed", "compose.c",
     "uint32_t full = known / BACKEND_BLOCK_TOKENS;",
     "uint32_t full = min_u32(known + 1, sequence_token_count(sequence)) / BACKEND_BLOCK_TOKENS;"
     ),
    ("a block enters the tree while other rows of the step have its number", "compose.c",
     "enter_blocks(scheduler, sequence, false);", "enter_blocks(scheduler, sequence, true);"),
    ("a token that a row has taken is pending once more", "compose.c",
     "if (sequence->computed < sequence_token_count(sequence)) {",
     "if (sequence->generated_count == 0 || sequence->computed + 1 < sequence_token_count(sequence)) {"
     ),
    ("the pending token of another slot is taken", "compose.c", "backend_pending(sequence->slot)",
     "backend_pending(0)"),
    ("a row that needs its last token is sampled in submit", "compose.c",
     "bool is_late = is_pending && depends_on_tokens(request);",
     "bool is_late = is_pending && false && depends_on_tokens(request);"),
    ("a pending token does not count in the draw", "compose.c",
     ".counter = sequence->generated_count + sequence->pending,",
     ".counter = sequence->generated_count,"),
    ("a late row of a sequence that has ended is sampled", "compose.c",
     "if (!row->is_late || sequence->is_leaving || is_for_nothing(sequence, row)) continue;\n"
     "        assert(row->counter == sequence->generated_count);", "if (!row->is_late) continue;"),
    ("a page is given back one block before the last row sees it", "running.c",
     "first_seen_block(scheduler, sequence->computed);\n"
     "    assert(",
     "first_seen_block(scheduler, sequence->computed + BACKEND_BLOCK_TOKENS);\n    assert("),
    ("pages of a sequence are given back while its row is under way", "retire.c",
     "plan->members[i]->steps--;", "plan->members[i]->steps = 0;"),
    ("a sequence is preempted while its row is under way", "start.c",
     "} else if (scheduler->under_way > 0) {\n            return false;\n", ""),
    ("what was sampled where a token was given comes behind it", "retire.c",
     "if (is_for_nothing(sequence, row)) continue;", ""),
    ("the place of a given token is still pending", "retire.c",
     "if (count > 0) sequence->pending = 0;", ""),
    ("given tokens have one block only", "start.c",
     "if (rows_with_block(sequence) >= rows_missing(sequence) ||",
     "if (has_block_for_next(sequence) || rows_missing(sequence) == 0 ||"),
    ("a sequence at max_tokens has one row more", "running.c", "return is_last ? 0 :",
     "return is_last && false ? 0 :"),
    ("a part comes from a block of the same step", "match.c",
     "bool is_written = scheduler->states || scheduler->written_in[at] != scheduler->step_number;",
     "bool is_written = true;"),
    ("a part has one token more than both have in common", "match.c",
     "match->part = at, match->part_tokens = common;",
     "match->part = at, match->part_tokens = common < count ? common + 1 : common;"),
    ("a part lacks its window pages", "match.c",
     " &&\n            kv_pages_has_window(scheduler->pages, at))", ")"),
    ("a part whose blocks before it lack their window pages", "match.c",
     "caps.copies_pages && match.blocks == count)", "caps.copies_pages)"),
    ("a part's pages are taken before they are copied", "start.c",
     "    if (sequence->part != PREFIX_NONE) {\n"
     "        kv_pool_hold(scheduler->pool, sequence->part);\n"
     "        kv_pages_hold_window(scheduler->pages, sequence->part);\n    }\n",
     "    sequence->part = PREFIX_NONE;\n"),
    ("a state is saved one row early", "saves.c",
     "part->save_rows = position - part->kv_tokens;",
     "part->save_rows = position - part->kv_tokens - (position - part->kv_tokens > 1);"),
    ("a state is restored that another prefix has", "state_places.c",
     "memcmp(prefix->tail, tail, prefix->tail_count * sizeof *tail) != 0)", "false)"),
    ("a state that is to be restored is forgotten", "state_places.c",
     "(at == but || places->places[at].pins > 0 ||", "(at == but ||"),
    ("a state is written in the step that reads it", "state_places.c",
     "if (touched[i] == steps.composed || (", "if ((false && touched[i] == steps.composed) || ("),
    ("a state is read in the step that saves it", "match.c",
     "return saved == steps.composed || filled == steps.composed ||",
     "return filled == steps.composed ||"),
    ("a part is copied in the step that fills it", "match.c",
     "return saved == steps.composed || filled == steps.composed ||",
     "return saved == steps.composed ||"),
    ("a state stays behind a node that has gone", "prefix_tree.c",
     "    if (tree->states) state_places_forget_node(tree->states, node);\n", ""),
    ("a state is restored without the keys of its tail", "match.c",
     "uint32_t room = k < count ? STATE_TAIL_MAX : known->part_tokens;",
     "uint32_t room = STATE_TAIL_MAX;"),
    ("a new sequence goes on from the state of another", "compose.c",
     "part->state_from = stored == STATE_NONE ? BACKEND_STATE_ZERO : stored;",
     "part->state_from = stored == STATE_NONE ? sequence->state_place : stored;"),
    ("rows go past a second state to be saved", "saves.c",
     "return sequence->saves[1] - 1 - sequence->computed;", "return UINT32_MAX;"), ]
PASSING = [ # with urgent steps that pass others
    ("a state is written that the step under way reads", "state_places.c",
     "(steps.passed > 0 && touched[i] == steps.passed))", "false)"),
    ("an urgent step reads a state that the step under way saves", "match.c",
     "(steps.passed > 0 && (saved == steps.passed || filled == steps.passed));", "false;"),
    ("a wrong guess stays in the cache", "retire.c", "sequence->computed -= draft->count;", ""),
    ("what was sampled behind a wrong guess is taken", "retire.c",
     "if (i > 0 && !is_right(sequence, row, draft->tokens[i - 1])) break;", ""),
    ("a guess has a row for the last token of all", "drafts.c",
     "return min_u32(request->tokens_max - sequence_token_count(sequence) - 1,",
     "return min_u32(request->tokens_max - sequence_token_count(sequence),"),
    ("a guess counts in no draw", "compose.c", "    row->counter++;\n", ""), ]


def compile(folder, sources, *flags):
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([
        os.environ.get("CC", "cc"), "-std=gnu17", "-D_GNU_SOURCE", "-O1", "-w", *flags, "-c",
        *map(str, sources)],
                   cwd=folder,
                   check=True)
    return [str(path) for path in folder.glob("*.o")]


def build(folder, others, file, text, other):
    """The simulator with a scheduler that has the mistake, and that does not check itself:
    -DNDEBUG."""
    sources = folder / "scheduler"
    sources.mkdir(parents=True)
    for path in (ROOT / "src/inference/scheduler").glob("*.[ch]"):
        code = path.read_text()
        if path.name == file and text != other:
            assert code.count(text) == 1, f"{file}: {text!r} occurs {code.count(text)} times"
            code = code.replace(text, other)
        (sources / path.name).write_text(code)
    objects = compile(folder / "o", sources.glob("*.c"), "-DNDEBUG", f"-I{folder}", *INCLUDES)
    program = folder / "sim"
    subprocess.run([
        os.environ.get("CC", "cc"), *objects, *others, "-lsodium", "-lcrypto", "-lm", "-lpthread",
        "-o", program],
                   check=True)
    return program


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", default="40")
    parser.add_argument("--last", type=int, default=len(MUTANTS + PASSING))
    options = parser.parse_args()
    seeds, first = options.seeds, len(MUTANTS + PASSING) - options.last
    bad = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        others = compile(folder / "base", (ROOT / "src/ground/base").glob("*.c"), *INCLUDES)
        others += compile(folder / "sim", [*(ROOT / "tests/sim").glob("*.c"), ROOT / "tests/tap.c"],
                          *INCLUDES)
        for number, (what, file, text, other) in enumerate(MUTANTS + PASSING):
            if 0 < number < first:
                continue
            program = build(folder / f"m{number}", others, file, text, other)
            under_way = "2" if number < len(MUTANTS) else "1"
            ended = subprocess.run([program, "--under-way", under_way, "--seeds", seeds],
                                   capture_output=True,
                                   text=True,
                                   timeout=600)
            is_right = (ended.returncode == 0) == (number == 0)
            bad += not is_right
            words = (ended.stderr.strip().splitlines() or [f"status {ended.returncode}"])[0].split(
                ": ", 1)[-1]
            print(f"{'ok' if is_right else 'NOT OK'} {what}: {words}", flush=True)
    return 1 if bad else 0


sys.exit(main())
