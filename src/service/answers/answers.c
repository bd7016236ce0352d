/* SPDX-License-Identifier: Apache-2.0 */

/* The set of indexes, and the thread that makes and follows them. */

#include "answers/answers_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sync.h"

#include <sodium/randombytes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define INDEXES_LEAST 2               /* kept at any size, so that two runs can be compared */
#define BYTES_MAX ((size_t)512 << 20) /* limit for all indexes; those in use may exceed it */
#define TAKE_MS 200                   /* the longest wait of a first query for rows */
#define LOOK_NS ((int64_t)500 * 1000 * 1000) /* between two looks at a running batch */
#define CPU_PERCENT 2 /* following a run takes this share of the server's CPU time */
#define CPU_PARTS 400 /* or 1/400 of the machine's, if that is more */
#define WAIT_NS ((int64_t)5 * 1000 * 1000)      /* between two looks at the server's CPU time */
#define FOLLOW_NS ((int64_t)60 * 1000000000)    /* a batch is followed after its last query */
#define IDLE_NS ((int64_t)15 * 60 * 1000000000) /* an index is kept after its last query */
/* Running lines have priority over the thread. The lowest priority would be too low: readers wait
 * while the thread adds rows. */
#define THREAD_NICE 10

/* --- the list; answers->lock is held --- */

static struct answers_index *find(struct answers *answers, const char *batch_id) {
    for (struct answers_index *at = answers->indexes; at; at = at->next)
        if (!at->is_outdated && strcmp(at->batch_id, batch_id) == 0) return at;
    return NULL;
}

static struct answers_index *add(struct answers *answers, const char *batch_id) {
    struct answers_index *index = mem_new(1, sizeof *index);
    index->answers = answers;
    memcpy(index->batch_id, batch_id, strnlen(batch_id, sizeof index->batch_id - 1));
    pthread_rwlock_init(&index->rows, NULL);
    pthread_mutex_init(&index->requests, NULL);
    record_init(&index->record);
    buf_init(&index->array_texts, SEGLOG_TEXT_BYTES_MAX);
    jsonl_file_init(&index->input);
    index->next = answers->indexes;
    answers->indexes = index;
    return index;
}

static void free_index(struct answers_index *index) {
    runner_results_close(index->results);
    record_release(&index->record);
    buf_release(&index->array_texts);
    jsonl_file_close(&index->input);
    if (index->has_table) table_release(&index->table);
    pthread_rwlock_destroy(&index->rows);
    pthread_mutex_destroy(&index->requests);
    free(index->places);
    store_erased_lines_release(&index->erased);
    free(index);
}

static void forget(struct answers *answers, struct answers_index *index) {
    for (struct answers_index **at = &answers->indexes; *at; at = &(*at)->next) {
        if (*at != index) continue;
        *at = index->next;
        break;
    }
    free_index(index);
}

/* Frees an index that nobody uses and that has lines which were erased. */
static void forget_outdated(struct answers *answers) {
    struct answers_index *next;
    for (struct answers_index *at = answers->indexes; at; at = next) {
        next = at->next;
        if (at->is_outdated && at->users == 0) forget(answers, at);
    }
}

/* The index without users that was asked for longest ago; NULL if all are in use. */
static struct answers_index *least_used(struct answers *answers) {
    struct answers_index *found = NULL;
    for (struct answers_index *at = answers->indexes; at; at = at->next)
        if (at->users == 0 && (!found || at->asked_ns < found->asked_ns)) found = at;
    return found;
}

/* Frees indexes until the rest is within its bounds. */
static void make_room(struct answers *answers, int64_t now_ns) {
    struct answers_index *old;
    forget_outdated(answers);
    while ((old = least_used(answers))) {
        size_t bytes = 0, count = 0;
        for (struct answers_index *at = answers->indexes; at; at = at->next, count++)
            if (at->users == 0 && at->has_table) bytes += table_bytes(&at->table);
        if (count <= ANSWERS_INDEXES_MAX && bytes <= BYTES_MAX && now_ns - old->asked_ns < IDLE_NS)
            return;
        /* The last ones stay until they are idle, however large they are. */
        if (count <= INDEXES_LEAST && now_ns - old->asked_ns < IDLE_NS) return;
        forget(answers, old);
    }
}

/* --- the thread --- */

/* The due index whose look is the most overdue. */
static struct answers_index *next_due(struct answers *answers, int64_t now_ns,
                                      int64_t *ret_due_ns) {
    struct answers_index *found = NULL;
    *ret_due_ns = answers->indexes ? now_ns + IDLE_NS : SYNC_NEVER;
    for (struct answers_index *at = answers->indexes; at; at = at->next) {
        bool is_followed = at->waiting > 0 || now_ns - at->asked_ns <= FOLLOW_NS;
        if (at->is_complete || at->is_outdated || !is_followed) continue;
        if (at->due_ns < *ret_due_ns) *ret_due_ns = at->due_ns;
        if (at->due_ns <= now_ns && (!found || at->due_ns < found->due_ns)) found = at;
    }
    return found;
}

static int64_t cpu_ns(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Decides when the next piece is due; `spent_ns` is the CPU time of the last one. An index that has
 * not yet reached the end of its log is made without pauses, once and within seconds. */
static void set_due(const struct answers *answers, struct answers_index *index, bool more,
                    int64_t now_ns, int64_t spent_ns) {
    bool is_following = index->seen_ns > 0 && !index->has_ended;
    index->due_ns = index->latest_ns = now_ns;
    if (index->is_behind && is_following) {
        index->paid_ns = cpu_ns(CLOCK_PROCESS_CPUTIME_ID) + spent_ns * 100 / CPU_PERCENT;
        index->latest_ns += spent_ns * CPU_PARTS / answers->cores;
    } else if (!more) {
        index->due_ns = index->latest_ns += LOOK_NS;
    }
}

/* True if a due index waits until the server has used more CPU time. */
static bool is_put_off(const struct answers *answers, struct answers_index *index, int64_t now_ns) {
    int64_t missing_ns = index->paid_ns - cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
    if (now_ns >= index->latest_ns || missing_ns <= 0) return false;
    int64_t wait_ns = missing_ns / answers->cores;
    index->due_ns = now_ns + (wait_ns > WAIT_NS ? wait_ns : WAIT_NS);
    if (index->due_ns > index->latest_ns) index->due_ns = index->latest_ns;
    return true;
}

/* One piece of an index's work. */
struct look {
    bool more;     /* results or requests are left */
    bool is_short; /* results are left: the piece did not reach their end */
    bool ended;    /* no result will come */
    enum err err;  /* outcome for the results */
    struct error error;
    struct answers_requests requests;
};

/* Reads a piece of the results, or of the requests if no results are left. */
static void read_piece(struct answers_index *index, bool wants_requests, struct look *look) {
    struct answers_requests *requests = &look->requests;
    look->err = index_build(index, &look->is_short, &look->ended, &look->error);
    look->more = look->is_short;
    if (look->err != OK || look->more || !wants_requests || requests->is_read) return;
    requests->err = index_read_requests(index, &look->more, &requests->error);
    requests->is_read = requests->err == OK && !look->more;
    requests->has_one_shape = index->has_one_shape;
}

/* Takes over the findings of a look. The caller holds the lock. */
static void note_look(struct answers *answers, struct answers_index *index, const struct look *look,
                      int64_t started_ns) {
    if (look->err != OK && look->err != ERR_NOT_FOUND && index->err != look->err)
        log_warn("batch=%s event=answers_index error=\"%s\", retrying", index->batch_id,
                 look->error.text);
    index->err = look->err;
    if (look->err != OK) index->error = look->error;
    index->read_requests = look->requests;
    index->is_behind = look->err == OK && look->is_short;
    if (!index->is_behind) {
        index->seen_ns = started_ns;
        pthread_cond_broadcast(&answers->told);
    }
    bool is_whole = look->requests.is_read || look->requests.err != OK || !index->wants_requests;
    index->is_complete = look->err == OK && look->ended && !look->more && is_whole;
    if (index->is_complete) { /* it needs its descriptors no more */
        runner_results_close(index->results);
        index->results = NULL;
    }
}

/* Reads one piece. The caller holds the lock; it is released during the read. */
static void look(struct answers *answers, struct answers_index *index, int64_t now_ns) {
    struct look look = {.requests = index->read_requests};
    bool wants_requests = index->wants_requests;
    index->users++;
    pthread_mutex_unlock(&answers->lock);
    int64_t spent_ns = -cpu_ns(CLOCK_THREAD_CPUTIME_ID);
    read_piece(index, wants_requests, &look);
    spent_ns += cpu_ns(CLOCK_THREAD_CPUTIME_ID);
    bool has_ended = index_has_ended(index);
    pthread_mutex_lock(&answers->lock);
    index->has_ended = has_ended;
    index->users--;
    note_look(answers, index, &look, now_ns);
    set_due(answers, index, look.more, now_ns, spent_ns);
}

static void *answers_main(void *context) {
    struct answers *answers = context;
    setpriority(PRIO_PROCESS, 0, THREAD_NICE); /* this thread alone */
    pthread_mutex_lock(&answers->lock);
    while (!answers->is_stopping) {
        int64_t now_ns = clock_monotonic_ns(), due_ns;
        make_room(answers, now_ns);
        struct answers_index *index = next_due(answers, now_ns, &due_ns);
        if (index && !is_put_off(answers, index, now_ns))
            look(answers, index, now_ns);
        else if (!index)
            sync_wait_until(&answers->work, &answers->lock, due_ns);
    }
    pthread_mutex_unlock(&answers->lock);
    return NULL;
}

/* --- */

enum err answers_open(struct answers **ret_answers, struct store *store, struct runner *runner,
                      struct error *error) {
    struct answers *answers = mem_new(1, sizeof *answers);
    answers->store = store;
    answers->runner = runner;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    answers->cores = cores > 0 ? cores : 1;
    randombytes_buf(answers->key, sizeof answers->key);
    buf_init(&answers->piece, ANSWERS_PIECE_BYTES);
    pthread_mutex_init(&answers->lock, NULL);
    sync_cond_init(&answers->work);
    sync_cond_init(&answers->told);
    int failed = pthread_create(&answers->thread, NULL, answers_main, answers);
    if (failed != 0) {
        pthread_cond_destroy(&answers->work);
        pthread_cond_destroy(&answers->told);
        pthread_mutex_destroy(&answers->lock);
        buf_release(&answers->piece);
        free(answers);
        return err_from_errno(error, failed, "cannot start the thread of answers");
    }
    pthread_setname_np(answers->thread, "answers");
    *ret_answers = answers;
    return OK;
}

void answers_close(struct answers *answers) {
    if (!answers) return;
    pthread_mutex_lock(&answers->lock);
    answers->is_stopping = true;
    pthread_cond_signal(&answers->work);
    pthread_mutex_unlock(&answers->lock);
    pthread_join(answers->thread, NULL);
    while (answers->indexes) forget(answers, answers->indexes);
    pthread_cond_destroy(&answers->work);
    pthread_cond_destroy(&answers->told);
    pthread_mutex_destroy(&answers->lock);
    buf_release(&answers->piece);
    free(answers);
}

struct answers_index *answers_take(struct answers *answers, const struct store_batch *batch) {
    int64_t now_ns = clock_monotonic_ns(), until_ns = sync_deadline_ns(TAKE_MS);
    pthread_mutex_lock(&answers->lock);
    struct answers_index *index = find(answers, batch->id);
    if (!index) index = add(answers, batch->id);
    index->users++;
    index->asked_ns = now_ns;
    if (!index->is_complete) pthread_cond_signal(&answers->work);
    while (index->seen_ns == 0 && sync_wait_until(&answers->told, &answers->lock, until_ns))
        continue;
    pthread_mutex_unlock(&answers->lock);
    return index;
}

void answers_drop(struct answers_index *index) {
    if (!index) return;
    struct answers *answers = index->answers;
    pthread_mutex_lock(&answers->lock);
    index->users--;
    forget_outdated(answers);
    pthread_mutex_unlock(&answers->lock);
}

void answers_forget(struct answers *answers, const char *batch_id) {
    pthread_mutex_lock(&answers->lock);
    for (struct answers_index *at = answers->indexes; at; at = at->next)
        if (strcmp(at->batch_id, batch_id) == 0) at->is_outdated = true;
    forget_outdated(answers);
    pthread_mutex_unlock(&answers->lock);
}

bool answers_catch_up(struct answers_index *index, int64_t wait_ms) {
    struct answers *answers = index->answers;
    int64_t now_ns = clock_monotonic_ns(), until_ns = sync_deadline_ns(wait_ms);
    pthread_mutex_lock(&answers->lock);
    if (!index->is_complete && !index->is_behind) index->due_ns = index->latest_ns = now_ns;
    if (!index->is_complete) pthread_cond_signal(&answers->work);
    index->waiting++;
    while (!index->is_complete && index->seen_ns < now_ns &&
           sync_wait_until(&answers->told, &answers->lock, until_ns))
        continue;
    index->waiting--;
    bool is_caught_up = index->is_complete || index->seen_ns >= now_ns;
    pthread_mutex_unlock(&answers->lock);
    return is_caught_up;
}

void answers_requests(struct answers_index *index, struct answers_requests *ret_requests) {
    struct answers *answers = index->answers;
    pthread_mutex_lock(&answers->lock);
    *ret_requests = index->read_requests;
    if (!ret_requests->is_read && (index->is_complete || !index->wants_requests)) {
        index->wants_requests = true;
        index->is_complete = false;
        index->due_ns = index->latest_ns = 0;
        pthread_cond_signal(&answers->work);
    }
    pthread_mutex_unlock(&answers->lock);
}

void answers_state(struct answers_index *index, struct answers_state *ret_state) {
    struct answers *answers = index->answers;
    pthread_mutex_lock(&answers->lock);
    *ret_state = (struct answers_state){
        .is_made = index->seen_ns > 0, .err = index->err, .error = index->error};
    pthread_mutex_unlock(&answers->lock);
    /* Read after is_made, so that an index that is made has its rows counted. */
    pthread_rwlock_rdlock(&index->rows);
    ret_state->indexed = index->has_table ? index->table.indexed : 0;
    pthread_rwlock_unlock(&index->rows);
}
