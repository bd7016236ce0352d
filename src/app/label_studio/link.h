/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* link: the file that ties one batch to one project of Label Studio: the task of each request, and
 * the judgement of each annotation.
 *
 * It belongs to the user who runs the command, not to the server's state directory: the command
 * also ties results from files, and batches of other servers. It is text, so that a user can read
 * it. A lost link costs no task: tasks carry batch_id and custom_id, by which a push with --project
 * finds them.
 *
 * Every intent is written before its call, and every outcome after it. A kill
 * between the two leaves an open intent; the next command asks the project for the outcome.
 *
 * The file has one JSON object per line, each ended by LF; the file is only appended to.
 *
 *     head       {"quern_label_studio":1,"batch":ID,"studio":URL}
 *     intent     {"wanted":MARKER}                      a project with this marker is made; "":
 *                                                       the server refused it
 *     outcome    {"project":N,"form":[…]}
 *     end        {"gone":N}                             of a project, with its tasks and
 *                annotations
 *     intent     {"sending":[custom_id…],"at_ms":T,"after":TASK}   a chunk is imported; tasks up
 *                                                       to TASK existed before
 *     note       {"import":N}                           N > 0: number of a background import;
 *                                                       -1: the import is done
 *     outcome    {"tasks":{custom_id:TASK…}}            these tasks exist
 *     end        {"sent":true} or {"sent":false}        of a chunk: it arrived whole, or did not
 *     outcome    {"annotation":KEY,"judgement":{…},"held":bool}
 *     outcome    {"judgement_sent":ID}                  a judgement of quern is an annotation
 *
 * A line is valid if (1) it ends in LF and (2) it is a JSON object. An invalid last line is the
 * trace of a kill: it is cut off. Any other invalid line is an error, and nothing is written.
 *
 * Thread: one. A lock refuses other processes.
 * Memory: the custom_id and task of each task, the key of each annotation, the id of each
 *     judgement that was sent, the ids of one chunk.
 * Invariant: all lines added before a successful link_sync are on the disk. */

#include "base/buf.h"
#include "base/map.h"
#include "label_studio/form.h"

#define LINK_MARKER_BYTES 48

/* A chunk that was being sent. */
struct link_chunk {
    json_t *custom_ids; /* array; NULL: no chunk is open */
    int64_t at_ms;      /* Unix time of the intent */
    int64_t after;      /* the project's newest task before the chunk */
    int64_t import;     /* the server's number of the import, or LINK_ANSWERED; 0: no answer */
};
#define LINK_ANSWERED (-1)

struct link {
    int fd;
    char *path;
    char *batch, *studio;
    char marker[LINK_MARKER_BYTES]; /* marker of a project that is being made; empty: none */
    int64_t project;                /* 0: none yet */
    struct form form;
    struct map tasks;       /* custom_id → task */
    struct map annotations; /* keys (judgement.h) */
    struct map sent;        /* ids of judgements of quern that are annotations */
    struct link_chunk chunk;
    int64_t newest_task; /* the largest number of a known task */
    struct buf pending;  /* lines that link_sync will write */
};

/* Opens or makes the file. ERR_CONFLICT if it ties another batch or server, or if another process
 * keeps it open for 3 s; ERR_CORRUPT if it is damaged. */
enum err link_open(struct link *ret_link, const char *path, const char *batch, const char *studio,
                   struct error *error) MUST_CHECK;
void link_close(struct link *link);

/* The functions below add a line, which link_sync writes. */
void link_want_project(struct link *link, const char *marker);
void link_set_project(struct link *link, int64_t project, const struct form *form);
/* The project no longer exists. The link forgets all but the judgements that were pulled. */
void link_forget_project(struct link *link);
/* Opens a chunk; takes the array over. */
void link_send(struct link *link, json_t *custom_ids, int64_t at_ms);
void link_set_import(struct link *link, int64_t import);
void link_end_chunk(struct link *link, bool has_arrived);
/* Adds tasks, an object {custom_id: TASK…}. */
void link_add_tasks(struct link *link, json_t *tasks);
void link_add_judgement(struct link *link, const char *key, json_t *judgement, bool is_held);
void link_add_sent(struct link *link, const char *id);
enum err link_sync(struct link *link, struct error *error) MUST_CHECK;

/* Takes one judgement that was pulled and not held. */
typedef void (*link_judgement_fn)(void *context, const json_t *judgement);
/* Reads all judgements of the file once more, in the order in which they were pulled. */
enum err link_each_judgement(const struct link *link, link_judgement_fn take, void *context,
                             struct error *error) MUST_CHECK;
