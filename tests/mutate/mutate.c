/* SPDX-License-Identifier: Apache-2.0 */

/* mutate: opens many mutated model files in this process, one after the other, and judges each: it
 * opens or is refused with one sentence, within 2 seconds of this process's time and 1 GiB; nothing
 * crashes.
 *
 *   mutate [--first N] [--count N] [--seed S] [--keep FOLDER] FILE…
 *
 * What it makes depends on the seed and the number of the case alone. A child runs the cases; when
 * one kills it, the file is kept in FOLDER and the next child goes on behind it. TAP on standard
 * output; the figures are comments. */

#include "trials.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/os.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CASE_SECONDS_MAX 2.0
#define HANG_SECONDS 60 /* a case that takes longer counts as endless */
#define RSS_BYTES_MAX ((uint64_t)1 << 30)
#define BASES_MAX 256
#define FAULTS_SHOWN 10

/* AddressSanitizer and ThreadSanitizer keep shadows, and are several times slower. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOWER 6
#else
#define SLOWER 1
#endif

/* The child's report; the child may die at any time. */
struct tally {
    atomic_ulong next; /* the case under way */
    unsigned long opened[BASE_KIND_COUNT], refused[BASE_KIND_COUNT], bad_sentences, slow, fat;
    double slowest_seconds;
    unsigned long slowest_case;
    uint64_t peak_bytes;
};

struct run {
    struct base bases[BASES_MAX];
    size_t base_count;
    unsigned long first, count; /* the number of the first case, and of the one after the last */
    uint64_t seed;
    const char *keep;
    struct tally *tally;
};

/* The next place of the kind from any place on; of another kind when no such place exists. */
static const struct base *choose(const struct run *run, enum base_kind kind, struct rng *rng) {
    size_t start = rng_below(rng, run->base_count);
    for (size_t i = 0; i < run->base_count; i++) {
        const struct base *base = &run->bases[(start + i) % run->base_count];
        if (base->kind == kind) return base;
    }
    return &run->bases[start];
}

/* Half of the cases are GGUFs, the other kinds share the rest. */
static const struct base *base_of_case(const struct run *run, unsigned long number,
                                       struct rng *rng) {
    unsigned long other = 1 + number / 2 % (unsigned long)(BASE_KIND_COUNT - 1);
    *rng = (struct rng){rng_at(run->seed, number)};
    return choose(run, number % 2 == 0 ? BASE_GGUF : (enum base_kind)other, rng);
}

static const struct base *make_case(const struct run *run, unsigned long number, struct buf *out) {
    struct rng rng;
    const struct base *base = base_of_case(run, number, &rng);
    mutate(base, choose(run, base->kind, &rng), &rng, out);
    return base;
}

static void keep_case(const struct run *run, unsigned long number, const char *why) {
    struct buf bytes;
    char path[4096] = "not kept";
    int fd = -1;
    buf_init(&bytes, BUF_UNLIMITED);
    const struct base *base = make_case(run, number, &bytes);
    const char *name = strrchr(base->path, '/');
    if (run->keep) {
        snprintf(path, sizeof path, "%s/case-%lu-%s", run->keep, number,
                 name ? name + 1 : base->path);
        if (os_open(&fd, path, O_WRONLY | O_CREAT | O_TRUNC, 0600, NULL) != OK ||
            os_write_all(fd, bytes.at, bytes.bytes, NULL) != OK)
            perror(path);
        os_close(fd);
    }
    printf("# case %lu of %s: %s (%s)\n", number, base->path, why, path);
    buf_release(&bytes);
}

static double cpu_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void judge(const struct run *run, unsigned long number, enum base_kind kind,
                  const struct trial *trial, double seconds) {
    struct tally *tally = run->tally;
    uint64_t bytes = os_peak_rss_bytes();
    if (trial->is_refused)
        tally->refused[kind]++;
    else
        tally->opened[kind]++;
    if (trial->is_refused && !trial->is_sentence && ++tally->bad_sentences <= FAULTS_SHOWN)
        keep_case(run, number, "no sentence");
    if (seconds > CASE_SECONDS_MAX * SLOWER && ++tally->slow <= FAULTS_SHOWN)
        keep_case(run, number, "slow");
    if (bytes > RSS_BYTES_MAX * SLOWER && tally->peak_bytes <= RSS_BYTES_MAX * SLOWER) {
        tally->fat++;
        keep_case(run, number, "large");
    }
    if (bytes > tally->peak_bytes) tally->peak_bytes = bytes;
    if (seconds <= tally->slowest_seconds) return;
    tally->slowest_seconds = seconds;
    tally->slowest_case = number;
}

static void run_cases(const struct run *run) {
    const struct itimerval hang = {.it_value.tv_sec = HANG_SECONDS * SLOWER};
    struct buf bytes;
    buf_init(&bytes, BUF_UNLIMITED);
    for (unsigned long number; (number = atomic_load(&run->tally->next)) < run->count;) {
        struct trial trial;
        const struct base *base = make_case(run, number, &bytes);
        setitimer(ITIMER_PROF, &hang, NULL);
        double started = cpu_seconds();
        trial_run(base->kind, base->path, buf_str(&bytes), &trial);
        judge(run, number, base->kind, &trial, cpu_seconds() - started);
        atomic_store(&run->tally->next, number + 1);
    }
    buf_release(&bytes);
}

/* How many cases ended their process. */
static unsigned long run_all(const struct run *run) {
    unsigned long deaths = 0;
    while (atomic_load(&run->tally->next) < run->count) {
        int status;
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
            run_cases(run);
            exit(0); /* where a sanitizer looks for leaks */
        }
        if (pid < 0 || waitpid(pid, &status, 0) != pid) abort();
        unsigned long number = atomic_load(&run->tally->next);
        if (number >= run->count && WIFEXITED(status) && WEXITSTATUS(status) == 0) break;
        if (number >= run->count) {
            printf("# the cases run, but the process ends badly: a leak?\n");
            return deaths + 1;
        }
        char why[64];
        snprintf(why, sizeof why, WIFSIGNALED(status) ? "killed by signal %d" : "exit status %d",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        if (++deaths <= FAULTS_SHOWN) keep_case(run, number, why);
        atomic_store(&run->tally->next, number + 1);
    }
    return deaths;
}

static bool say(unsigned number, bool is_good, const char *what) {
    printf("%s %u - %s\n", is_good ? "ok" : "not ok", number, what);
    return is_good;
}

static bool report(const struct run *run, unsigned long deaths, double seconds) {
    const struct tally *tally = run->tally;
    static const char *const names[] = {"GGUF", "folder", "tokenizer.json", "template"};
    unsigned long opened = 0, refused = 0;
    printf("# %lu files made from %zu, seed %llu, in %.0f s\n", run->count - run->first,
           run->base_count, (unsigned long long)run->seed, seconds);
    for (int i = 0; i < BASE_KIND_COUNT; i++) {
        opened += tally->opened[i];
        refused += tally->refused[i];
        printf("# %s: %lu opened, %lu refused\n", names[i], tally->opened[i], tally->refused[i]);
    }
    printf("# slowest: case %lu, %.2f s of processor; peak %.0f MiB\n", tally->slowest_case,
           tally->slowest_seconds, (double)tally->peak_bytes / (1 << 20));
    bool is_good = say(1, deaths == 0, "no mutated file ends the process");
    is_good &= say(2, tally->bad_sentences == 0, "each refusal is one printable sentence");
    is_good &= say(3, tally->slow == 0, "no mutated file takes long");
    is_good &= say(4, tally->fat == 0, "no mutated file takes much memory");
    is_good &= say(5, opened > 0 && refused > 0, "some open and some are refused");
    return is_good;
}

static void read_arguments(struct run *run, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        bool has_value = i + 1 < argc;
        if (has_value && strcmp(argv[i], "--first") == 0)
            run->first = strtoul(argv[++i], NULL, 10);
        else if (has_value && strcmp(argv[i], "--count") == 0)
            run->count = strtoul(argv[++i], NULL, 10);
        else if (has_value && strcmp(argv[i], "--seed") == 0)
            run->seed = strtoull(argv[++i], NULL, 10);
        else if (has_value && strcmp(argv[i], "--keep") == 0)
            run->keep = argv[++i];
        else if (run->base_count < BASES_MAX && base_open(&run->bases[run->base_count], argv[i]))
            run->base_count++;
    }
}

int main(int argc, char **argv) {
    static struct run run = {.count = 1000, .seed = 1};
    read_arguments(&run, argc, argv);
    log_set_level(LOG_ERROR);
    printf("1..5\n");
    if (run.base_count == 0) {
        printf("Bail out! no files to mutate\n");
        return 1;
    }
    run.tally =
        mmap(NULL, sizeof *run.tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run.tally == MAP_FAILED) abort();
    run.count += run.first;
    atomic_store(&run.tally->next, run.first);
    int64_t started_ns = clock_monotonic_ns();
    unsigned long deaths = run_all(&run);
    bool is_good = report(&run, deaths, (double)(clock_monotonic_ns() - started_ns) / 1e9);
    for (size_t i = 0; i < run.base_count; i++) base_close(&run.bases[i]);
    return is_good ? 0 : 1;
}
