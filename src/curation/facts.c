/* SPDX-License-Identifier: Apache-2.0 */
#include "curation/facts.h"

#include "base/mem.h"
#include "curation/answer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct facts {
    pthread_mutex_t lock; /* guards `at` */
    struct fact *at;      /* (count); NULL until the first call */
    size_t count;
};

void facts_open(struct facts **ret_facts, size_t line_count) {
    struct facts *facts = mem_new(1, sizeof *facts);
    facts->count = line_count;
    pthread_mutex_init(&facts->lock, NULL);
    *ret_facts = facts;
}

void facts_close(struct facts *facts) {
    if (!facts) return;
    pthread_mutex_destroy(&facts->lock);
    free(facts->at);
    free(facts);
}

static enum err read_fact(struct deck_reader *reader, uint32_t line, struct buf *text,
                          struct fact *ret_fact, struct error *error) {
    struct answer answer;
    double uncertainty;
    struct fact fact = {.uncertainty = FACT_NOT_TOLD, .is_known = true};
    buf_clear(text);
    enum err err = deck_read_result(reader, line, text, error);
    if (err == OK) {
        answer_read(&answer, buf_str(text));
        if (answer_uncertainty(&answer, &uncertainty)) fact.uncertainty = (float)uncertainty + 0.0f;
        fact.labels = answer_labels(&answer);
        answer_release(&answer);
    }
    /* A text over DECK_TEXT_BYTES_MAX has no facts. The line of a damaged record runs again. */
    if (err == ERR_CORRUPT) return OK;
    if (err != OK && err != ERR_LIMIT) return err;
    *ret_fact = fact;
    return OK;
}

enum err facts_copy(struct deck_reader *reader, struct fact **ret_facts, struct error *error) {
    struct facts *facts = deck_facts(reader->deck);
    unsigned char *has = deck_results(reader->deck);
    struct buf text;
    enum err err = OK;
    buf_init(&text, DECK_TEXT_BYTES_MAX);
    pthread_mutex_lock(&facts->lock);
    if (!facts->at) facts->at = mem_new(facts->count + 1, sizeof *facts->at);
    for (size_t i = 0; i < facts->count && err == OK; i++)
        if (has[i] && !facts->at[i].is_known)
            err = read_fact(reader, (uint32_t)i, &text, &facts->at[i], error);
    if (err == OK) {
        *ret_facts = mem_new(facts->count + 1, sizeof **ret_facts);
        memcpy(*ret_facts, facts->at, facts->count * sizeof **ret_facts);
    }
    pthread_mutex_unlock(&facts->lock);
    buf_release(&text);
    free(has);
    return err;
}
