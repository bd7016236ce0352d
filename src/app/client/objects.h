/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* objects: what a server says of batches, files and uploads, read as the bytes of a stranger.
 *
 * Texts are cut to their room and lose control characters, so that they can stand on a terminal.
 * Ids of batches become names of files, so such an id holds only letters, digits and a few marks,
 * and begins with a letter or a digit. Ids of files are only parts of URLs, where each byte is
 * encoded that could mean something: any text without control characters is one, and a number.
 * Members that OpenAI's own server leaves out or sets to null are zero here.
 *
 * Thread: any.
 * Memory: plain structs. */

#include "base/buf.h"

#include <jansson.h>

#define OBJECT_ID_BYTES 512       /* LiteLLM packs a route into an id */
#define OBJECT_FILE_ID_BYTES 1024 /* for the id of a file: some servers give the URL of a bucket */
#define OBJECT_ERRORS_SHOWN 5
/* The pair of a batch's metadata by which a client finds the batch that it asked for. */
#define OBJECT_SUBMISSION "quern_submission"

enum object_state {
    STATE_VALIDATING,
    STATE_IN_PROGRESS,
    STATE_FINALIZING,
    STATE_COMPLETED,
    STATE_FAILED,
    STATE_EXPIRED,
    STATE_CANCELLING,
    STATE_CANCELLED,
    STATE_OTHER, /* a word that OpenAI's API does not have */
};

#define OBJECT_WAITING_BYTES 384
#define OBJECT_NAME_BYTES 256
#define OBJECT_COST_BYTES 160

struct batch_object {
    char id[OBJECT_ID_BYTES];
    enum object_state state;
    char status[32]; /* the server's word for it */
    char endpoint[64], window[16];
    char model[128];
    char input_file_id[OBJECT_FILE_ID_BYTES], output_file_id[OBJECT_FILE_ID_BYTES];
    char error_file_id[OBJECT_FILE_ID_BYTES];
    const char *bad_file; /* the member whose id no file can be fetched by; NULL: none */
    uint64_t total, completed, failed;
    uint64_t input_tokens, output_tokens;                               /* 0: not told */
    int64_t created_unix_s, begun_unix_s, ended_unix_s, expires_unix_s; /* 0: not told */
    int64_t delete_unix_s; /* when a quern server deletes it; 0: not told */
    char waiting_for[OBJECT_WAITING_BYTES], paused[16];
    char submission[OBJECT_ID_BYTES]; /* member of the metadata */
    char name[OBJECT_NAME_BYTES];     /* the metadata's; empty: none */
    char cost[OBJECT_COST_BYTES];     /* words for one run, with prices; empty: not told */
    bool is_quern;                    /* the object has quern's own member */
    struct {
        uint64_t line; /* 0: the whole file */
        char text[200];
    } errors[OBJECT_ERRORS_SHOWN];
    size_t error_count; /* all of them; OBJECT_ERRORS_SHOWN at most are kept */
};

struct file_object {
    char id[OBJECT_FILE_ID_BYTES];
    uint64_t bytes;
    char filename[OBJECT_NAME_BYTES]; /* empty: not told */
};

/* Reads a JSON object, which the caller owns. ERR_CORRUPT with a sentence for anything else. */
enum err object_read(struct str text, json_t **ret_object, struct error *error) MUST_CHECK;
/* ERR_CORRUPT for an object without an id or a status. */
enum err batch_object_read(struct batch_object *ret_batch, const json_t *object,
                           struct error *error) MUST_CHECK;
/* ERR_CORRUPT, with the member's name, for a batch one of whose files has an id that is none. */
enum err batch_object_check_files(const struct batch_object *batch, struct error *error) MUST_CHECK;
bool batch_object_is_over(const struct batch_object *batch);
enum err file_object_read(struct file_object *ret_file, const json_t *object,
                          struct error *error) MUST_CHECK;
/* Whether the text is an id as this module reads them. */
bool object_id_is_sane(struct str id);
/* Appends the id as a segment of a URL's path, percent-encoded. */
void object_add_id(struct buf *buf, const char *id);
/* Copies the text to a C string: without control characters, cut at a character. */
void object_copy_text(struct str text, char *ret_text, size_t bytes);
/* The message of an error's envelope, of OpenAI's or another common form; empty if it has none. */
void object_error_message(struct str body, char *ret_text, size_t bytes);
