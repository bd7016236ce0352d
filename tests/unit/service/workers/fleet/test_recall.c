/* SPDX-License-Identifier: Apache-2.0 */

/* Lines that a server asks back from a node: what no worker there has begun comes back. */

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cluster.h"
#include "workers/fleet/fleet_internal.h"

#define JOBS 10

/* The node's worker takes one job, and gives back none that it has. */
static void keep_job(struct worker *worker, uint64_t job_id) {
    (void)worker, (void)job_id;
}

/* Copies the numbers of the jobs at the only seat; the lowest one first. */
static size_t list_jobs(struct cluster *cluster, uint64_t ret_ids[JOBS]) {
    size_t count = 0;
    pthread_mutex_lock(&cluster->fleet->lock);
    const struct job_set *jobs = &cluster->fleet->berths[0]->jobs;
    for (size_t i = 0; i < jobs->capacity && count < JOBS; i++) {
        if (!jobs->entries[i].id) continue;
        size_t at = count++;
        for (; at > 0 && ret_ids[at - 1] > jobs->entries[i].id; at--) ret_ids[at] = ret_ids[at - 1];
        ret_ids[at] = jobs->entries[i].id;
    }
    pthread_mutex_unlock(&cluster->fleet->lock);
    return count;
}

static uint64_t recalled_ids[JOBS];

static bool has_begun_one(struct worker *worker) {
    struct worker_status status;
    worker->ops->status(worker, &status);
    return status.waiting == 1;
}

static bool has_all_jobs(struct cluster *cluster) {
    uint64_t ids[JOBS];
    return list_jobs(cluster, ids) == JOBS && has_begun_one(cluster->workers[0]);
}

static bool all_but_one_came_back(struct cluster *cluster) {
    uint64_t ids[JOBS];
    return list_jobs(cluster, ids) == JOBS && ids[1] > recalled_ids[JOBS - 1];
}

static void a_line_that_waits_at_a_node_comes_back_and_one_that_has_begun_stays(void **state) {
    (void)state;
    struct cluster cluster;
    char id[STORE_ID_BYTES];
    cluster_open(&cluster, 0, NULL);
    cluster.recall = keep_job;
    cluster_start_node(&cluster, 0,
                       &(struct worker_echo_options){.latency_ms = 3600000, .waiting_max = 1});
    pipeline_submit(&cluster.p, "a", JOBS, id);
    cluster_wait(has_all_jobs, &cluster, "the node has all jobs");
    assert_int_equal(list_jobs(&cluster, recalled_ids), JOBS);
    struct worker *worker = &cluster.fleet->berths[0]->worker;
    for (size_t i = 0; i < JOBS; i++) worker->ops->recall(worker, recalled_ids[i]);
    /* Each runs again under another number, the first one under its own. */
    cluster_wait(all_but_one_came_back, &cluster, "what waited came back");
    uint64_t ids[JOBS];
    assert_int_equal(list_jobs(&cluster, ids), JOBS);
    assert_int_equal(ids[0], recalled_ids[0]);
    cluster_close(&cluster);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_that_waits_at_a_node_comes_back_and_one_that_has_begun_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
