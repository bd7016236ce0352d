#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes copies of sources of copy/ that have mistakes in them, for the simulator to find. A
mistake is made where sim_planted() says its number.

  tests/sim_copy/plant.py SOURCE_ROOT OUT_FOLDER
"""
import pathlib, sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "rig"))
from planting import plant

SENDER, PUT, COPY, BASE, SWEEP, STANDBY = FILES = ("sender.c", "put.c", "copy.c", "base.c",
                                                   "sweep.c", "standby.c")
# The file, its text, and the text in its place.
MISTAKES = [
    # 1: an entry counts before the storage has answered
    (SENDER, "    copy->is_sending = true;\n",
     "    copy->is_sending = true;\n    if (sim_planted() == 1) {\n        copy->copied = told;\n"
     "        pthread_cond_broadcast(&copy->stored);\n    }\n"),
    # 2: whose entry stands there already is not looked at
    (PUT, "if (strcmp(header.nonce, copy->nonce) == 0) return OK;",
     "if (sim_planted() == 2 || strcmp(header.nonce, copy->nonce) == 0) return OK;"),
    # 3: a server leads without an entry of its own
    (COPY, "    err = copy_put_entry(copy, end->number + 1, buf_str(&entry), error);\n"
     "    if (err == OK) err = check_end(copy, end->number + 1, error);\n"
     "    if (err == OK) err = check_refusal(copy, end->number + 1, buf_str(&entry), error);\n",
     "    if (sim_planted() != 3)\n"
     "        err = copy_put_entry(copy, end->number + 1, buf_str(&entry), error);\n"
     "    if (err == OK && sim_planted() != 3 && sim_planted() != 5)\n"
     "        err = check_end(copy, end->number + 1, error);\n"
     "    if (err == OK && sim_planted() != 3)\n"
     "        err = check_refusal(copy, end->number + 1, buf_str(&entry), error);\n"),
    # 4: a base removes the first entry that it needs
    (SWEEP, "if (number >= sweep->than->first ||",
     "if (number >= sweep->than->first + (sim_planted() == 4) ||"),
    # 5: that an entry stands in a gap below a base is not seen (above)
    # 6: entries with which servers began to lead are removed, too
    (SWEEP, "is_lead(sweep->copy, number))", "(is_lead(sweep->copy, number) && sim_planted() != 6))"),
    # 7: a base leaves out the entry under way
    (BASE, "base->than.first = copy->next + (copy->is_sending ? 1 : 0);",
     "base->than.first = copy->next + (copy->is_sending || sim_planted() == 7 ? 1 : 0);"),
    # 8: a standby leads before there is a whole state
    (STANDBY, "if (end->base == 0) {", "if (end->base == 0 && sim_planted() != 8) {"),
    # 9: a base removes a file's object that only the log after it names
    (SWEEP, "row.told_in < sweep->than->first) continue;",
     "(row.told_in < sweep->than->first || sim_planted() == 9)) continue;"),
    # 10: a base removes an object whose pieces are being stored
    (SWEEP, "object->serial < sweep->than->under_way;",
     "object->serial <\n"
     "           (sim_planted() == 10 ? sweep->than->serial : sweep->than->under_way);"),
    # 11: objects of earlier leaders stay
    (SWEEP, "return object->leader < copy->leader ||",
     "return (object->leader < copy->leader && sim_planted() != 11) ||"),
    # 12: entries that an earlier leader did not remove stay
    (SWEEP, "    judge_unknown(sweep);\n", "    if (sim_planted() != 12) judge_unknown(sweep);\n"),
    # 13: a server that was followed removes the objects of its follower
    (SWEEP, "if (object->leader > copy->leader ||",
     "if (sim_planted() == 13 && object->leader > copy->leader) return true;\n"
     "    if (object->leader > copy->leader ||"),
    # 14: a standby looks at one entry per second
    (STANDBY, "wait_a_moment(copy, has_moved ? 0 : LOOK_MS, error);",
     "wait_a_moment(copy, has_moved && sim_planted() != 14 ? 0 : LOOK_MS, error);"), ]

plant("copy", FILES, MISTAKES, "int sim_planted(void);\n")
