/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* upload: a file of requests brought to a server, from the disk, without its bytes in memory.
 *
 * A small file goes in one multipart POST to /files. A larger one goes through the Uploads API, in
 * parts that are each repeated alone; where a server does not have that API, it goes in one POST as
 * well. An upload whose answer was lost is made again: the server then has a file that no batch
 * names, which does no harm and expires.
 *
 * Thread: one.
 * Memory: none beyond a few KB. */

#include "client/objects.h"
#include "client/remote.h"

#define UPLOAD_PART_BYTES ((uint64_t)64 << 20) /* the most that OpenAI and quern take as a part */

struct upload_source {
    int fd;
    uint64_t bytes;   /* from the beginning of the file */
    const char *name; /* for the server's list of files; ".jsonl" is added to another ending */
    void *context;
    /* Tells how many bytes have arrived, after each part. NULL: no telling. */
    void (*progress)(void *context, uint64_t bytes);
};

/* Brings the file as one with the purpose batch. ERR_INVALID for an empty file; else errors of
 * remote_get and remote_judge. */
enum err upload_file(struct remote *remote, const struct upload_source *source,
                     char ret_id[OBJECT_FILE_ID_BYTES], struct error *error) MUST_CHECK;
