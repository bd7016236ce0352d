#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes copies of sources of quern that have mistakes in them, for the rig to find. A mistake is
made where rig_planted() says its number.

  tests/rig/plant.py SOURCE_ROOT OUT_FOLDER
"""
from planting import plant

WRITER, SPOOL, LEASES = ("store/seglog_writer.c", "store/files_spool.c", "runner/leases.c")
CACHE, OBJECT, ADOPT = ("store/result_cache.c", "backup/object.c", "workers/fleet/fleet_adopt.c")
BATCHES, MULTIPART, SWEEP = ("api/batches.c", "http/multipart.c", "store/files_sweep.c")
TAIL, RESULTS, ERASE = ("runner/tail.c", "runner/results.c", "batch/erase.c")
# The file, its text, and the text in its place.
MISTAKES = [
    # 1: the sync of a log is left out
    (WRITER, "enum err err = os_fdatasync(log->fd, &error);",
     "enum err err = rig_planted() == 1 ? OK : os_fdatasync(log->fd, &error);"),
    # 2: results are acknowledged before they are synced
    (WRITER, "    sync_logs(group);\n    store_note_group(writer->store, group->count);\n",
     "    if (rig_planted() == 2) tell(writer, group);\n"
     "    sync_logs(group);\n    store_note_group(writer->store, group->count);\n"),
    (WRITER, "        else if (is_durable)\n            tell(writer, group);\n        else\n",
     "        else if (is_durable && rig_planted() == 2)\n            ;\n"
     "        else if (is_durable)\n            tell(writer, group);\n        else\n"),
    # 3: the row of a file, which is the index of files, is written before the file's bytes
    (SPOOL, "enum err err = store_sync_result(store, os_fsync(spool->fd, error), error);",
     "enum err err = row_first ? OK : store_sync_result(store, os_fsync(spool->fd, error), error);"
     ),
    (SPOOL, "struct store_spool {", "static bool row_first;\n\nstruct store_spool {"),
    (SPOOL, "    enum err err = store_spool_place(spool, file, error);\n    if (err != OK) return err;\n"
     "    err = database_transact(store, add_row, file, error);\n",
     "    char late[STORE_PATH_BYTES];\n    int late_fd;\n    row_first = rig_planted() == 3;\n"
     "    enum err err = store_spool_place(spool, file, error);\n    row_first = false;\n"
     "    if (err != OK) return err;\n"
     "    err = database_transact(store, add_row, file, error);\n"
     "    store_file_path(store, late, file->id);\n"
     "    if (rig_planted() == 3 && os_open(&late_fd, late, O_RDWR, 0, error) == OK) {\n"
     "        (void)store_sync_result(store, os_fsync(late_fd, error), error);\n"
     "        os_close(late_fd);\n    }\n"),
    # 4: a place of a lease is freed twice
    (LEASES, "if (last == line->number) own->at--;",
     "if (last == line->number) own->at -= rig_planted() == 4 && own->at > 1 ? 2 : 1;"),
    # 5: the folder is not synced after a rename
    (SPOOL, "    if (err == OK) err = store_sync_result(store, os_fsync(folder, error), error);",
     "    if (err == OK && rig_planted() != 5)\n"
     "        err = store_sync_result(store, os_fsync(folder, error), error);"),
    # 6: the answers of a deleted batch stay in the result cache
    (CACHE, "    if (!cache) return OK;\n    pthread_mutex_lock(&cache->lock);\n    uint32_t last",
     "    if (!cache || rig_planted() == 6) return OK;\n    pthread_mutex_lock(&cache->lock);\n"
     "    uint32_t last"),
    # 7: the bytes of a backup are not synced before its manifest
    (OBJECT, "    if (err == OK) err = os_fsync(fd, error);\n",
     "    if (err == OK && rig_planted() != 7) err = os_fsync(fd, error);\n"),
    # 8: lines run before the nodes have told theirs
    (ADOPT, "    if (age_ms > ADOPT_MS_MAX) return false;\n",
     "    if (age_ms > ADOPT_MS_MAX || rig_planted() == 8) return false;\n"),
    # 9: a pack of results leaves the queue before they are durable
    (ADOPT, "    if (fleet->options.ended && told->count > 0)\n",
     "    if (fleet->options.ended && told->count > 0 && rig_planted() != 9)\n"),
    # 10: a cancel is answered before it is kept
    (BATCHES, "    enum err err = runner_batch_cancel(api->options.runner, str_from(id), &batch, &error);\n"
     "    if (err == OK) {\n        answer_batch(api, request, &batch);\n",
     "    bool is_early = rig_planted() == 10 && batches_find(api, request, &batch);\n"
     "    if (is_early) answer_batch(api, request, &batch);\n"
     "    enum err err = runner_batch_cancel(api->options.runner, str_from(id), &batch, &error);\n"
     "    if (is_early) {\n        if (err == OK) store_batch_release(&batch);\n"
     "    } else if (err == OK) {\n        answer_batch(api, request, &batch);\n"),
    # 11: a delimiter that comes in two pieces is not seen
    (MULTIPART, "    size_t at = 0;\n    while (at < bytes.bytes) {\n        enum err err = OK;\n",
     "    size_t at = 0;\n    if (rig_planted() == 11 && multipart->state == MULTIPART_DATA)\n"
     "        multipart->matched = 0;\n    while (at < bytes.bytes) {\n        enum err err = OK;\n"),
    # 12: the salts of a file stay when its row goes
    (SWEEP, "        if (err == OK) err = proofs_forget_file(store, sweep->ids[i], error);\n",
     "        if (err == OK && rig_planted() != 12)\n"
     "            err = proofs_forget_file(store, sweep->ids[i], error);\n"),
    # 13: a line that its worker has begun and does not give back is taken from it
    (TAIL, "        if (slot->may_stay && !seat->is_silent) {\n",
     "        if (slot->may_stay && !seat->is_silent && rig_planted() != 13) {\n"),
    # 14: an error of a worker is a line's record, though another worker is well
    (RESULTS, "    return seat_is_fault(result) && seat_has_well_neighbour(",
     "    return rig_planted() != 14 && seat_is_fault(result) &&\n           seat_has_well_neighbour("),
    # 15: the order of results of an erasure is written behind its transaction
    (ERASE, "    return write_order(work, one, error);\n",
     "    return rig_planted() == 15 ? OK : write_order(work, one, error);\n"),
    (ERASE, "    if (err != OK) return err;\n    ret_erasure->requests",
     "    for (size_t i = 0; i < work->count && err == OK && rig_planted() == 15; i++)\n"
     "        err = write_order(work, &work->ones[i], error);\n"
     "    if (err != OK) return err;\n    ret_erasure->requests"),
]

plant("", (WRITER, SPOOL, LEASES, CACHE, OBJECT, ADOPT, BATCHES, MULTIPART, SWEEP, TAIL, RESULTS,
          ERASE),
      MISTAKES, "int rig_planted(void);\n")
