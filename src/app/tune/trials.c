/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/trials.h"

#include "base/mem.h"
#include "base/os.h"
#include "base/str.h"
#include "json/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS 16 /* per answer */

static json_t *read_file(const char *path, const char *of) {
    char *text;
    size_t bytes, room = 16 * TRIALS_BYTES_MAX;
    json_t *kept = NULL;
    struct error ignored;
    if (os_read_file(path, TRIALS_BYTES_MAX, &text, &bytes, &ignored) != OK) return NULL;
    bool is_json = json_read_within(&kept, (struct str){text, bytes}, &room, &ignored) == OK;
    free(text);
    if (is_json && str_is(json_member_str(kept, "of"), of) &&
        json_is_array(json_member(kept, "records")))
        return kept;
    json_decref(kept);
    return NULL;
}

void trials_open(struct trials *ret_trials, const char *path, const char *of) {
    *ret_trials = (struct trials){.next = 0};
    snprintf(ret_trials->path, sizeof ret_trials->path, "%s", path);
    ret_trials->kept = read_file(path, of);
    if (!ret_trials->kept) ret_trials->kept = json_pack("{s:s,s:[]}", "of", of, "records");
}

const json_t *trials_next(const struct trials *trials) {
    return json_array_get(json_member(trials->kept, "records"), trials->next);
}

void trials_take(struct trials *trials) {
    trials->next++;
}

enum err trials_add(struct trials *trials, json_t *record, struct error *error) {
    json_t *records = json_member(trials->kept, "records");
    char part[PATH_MAX + 8];
    struct buf out;
    if (!trials->kept) {
        json_decref(record);
        return OK;
    }
    while (json_array_size(records) > trials->next) json_array_remove(records, trials->next);
    json_array_append_new(records, record);
    trials->next++;
    snprintf(part, sizeof part, "%s.part", trials->path);
    buf_init(&out, BUF_UNLIMITED);
    json_write(&out, trials->kept);
    buf_add_byte(&out, '\n');
    enum err err = os_write_file(part, 0644, out.at, out.bytes, error);
    if (err == OK) err = os_rename(part, trials->path, error);
    buf_release(&out);
    return err;
}

void trials_set_answers(struct trials *trials, const struct trial *trial) {
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    for (size_t i = 0; i < trial->answer_count; i++)
        buf_printf(&text, "%016" PRIx64, trial->answers[i]);
    if (trials->kept)
        json_object_set_new(trials->kept, "answers",
                            json_stringn(text.at ? text.at : "", text.bytes));
    buf_release(&text);
}

bool trials_get_answers(const struct trials *trials, struct trial *ret_trial) {
    struct str text = json_member_str(trials->kept, "answers");
    struct trial trial = {.requests_per_s = 0};
    if (!text.at || text.bytes % DIGITS != 0) return false;
    trial.answers = mem_new(text.bytes / DIGITS, sizeof *trial.answers);
    for (size_t i = 0; i < text.bytes / DIGITS; i++) {
        char digits[DIGITS + 1] = {0};
        memcpy(digits, text.at + i * DIGITS, DIGITS);
        trial.answers[trial.answer_count++] = strtoull(digits, NULL, DIGITS);
    }
    *ret_trial = trial;
    return true;
}

void trials_close(struct trials *trials) {
    json_decref(trials->kept);
    *trials = (struct trials){.next = 0};
}
