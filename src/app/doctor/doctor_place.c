/* SPDX-License-Identifier: Apache-2.0 */

/* The machine, the state directory and the files of secrets. */

#include "doctor/doctor_internal.h"

#include "base/clock.h"
#include "base/os.h"
#include "hub/inspect.h"
#include "kernels/kernels.h"
#include "secrets/secret.h"
#include "store/store.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/timex.h>
#include <unistd.h>

#define STATE "state directory"
#define SPACE_LEAST ((uint64_t)256 << 20) /* the ballast, and room for a few segments */
#define SPACE_SMALL ((uint64_t)4 << 30)
#define FILES_LEAST 4096               /* 1024 connections, files of batches, upstreams' sockets */
#define TIME_LEAST INT64_C(1767225600) /* 2026-01-01: no quern is older */
#define MEMORY_SMALL ((uint64_t)1 << 30)

/* --- the machine --- */

static void check_clock(struct doctor *doctor) {
    struct timex state = {0};
    if (clock_unix_s() < TIME_LEAST)
        doctor_find(doctor, DOCTOR_WRONG, "clock", "set the clock, for example with an NTP client",
                    "the clock stands before 2026: times of batches and keys would be wrong");
    else if (adjtimex(&state) == TIME_ERROR)
        doctor_find(doctor, DOCTOR_HINT, "clock", "start an NTP client such as systemd-timesyncd",
                    "no program keeps the clock right; webhooks are signed with its time");
    else
        doctor_find(doctor, DOCTOR_GOOD, "clock", NULL, "the clock is kept right");
}

static void check_limits(struct doctor *doctor) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
    if (files.rlim_max < FILES_LEAST)
        doctor_find(doctor, DOCTOR_WRONG, "open files",
                    "raise the hard limit: LimitNOFILE= of the unit, or ulimit -Hn",
                    "a process may have %llu open files, and a server wants %d",
                    (unsigned long long)files.rlim_max, FILES_LEAST);
    else
        doctor_find(doctor, DOCTOR_GOOD, "open files", NULL, "a process may have %llu open files",
                    (unsigned long long)files.rlim_max);
}

void doctor_check_machine(struct doctor *doctor) {
    struct machine machine = inspect_machine();
    const struct kernels *best = kernels_choose(NULL);
    if (best && strcmp(best->name, "ref") == 0)
        doctor_find(doctor, DOCTOR_HINT, "processor", "use a CPU with AVX2, a GPU, or an upstream",
                    "quern %s computes in portable C here, which is slow", QUERN_VERSION);
    else if (best)
        doctor_find(doctor, DOCTOR_GOOD, "processor", NULL, "quern %s computes with its %s kernels",
                    QUERN_VERSION, best->name);
    if (machine.memory_bytes > 0)
        doctor_find(doctor, machine.free_bytes < MEMORY_SMALL ? DOCTOR_HINT : DOCTOR_GOOD, "memory",
                    machine.free_bytes < MEMORY_SMALL ? "`quern models` says which models fit"
                                                      : NULL,
                    "%.1f of %.1f GB are free", (double)machine.free_bytes / 1e9,
                    (double)machine.memory_bytes / 1e9);
    check_limits(doctor);
    check_clock(doctor);
}

/* --- the state directory --- */

static void check_space(struct doctor *doctor, const char *folder) {
    uint64_t bytes;
    struct error error;
    if (os_free_bytes(folder, &bytes, &error) != OK)
        doctor_find(doctor, DOCTOR_WRONG, "disk", NULL, "%s", error.text);
    else if (bytes < SPACE_LEAST)
        doctor_find(doctor, DOCTOR_WRONG, "disk",
                    "make room, or move the state directory: results wait for space",
                    "%.2f GB are free on the disk of %s", (double)bytes / 1e9, folder);
    else
        doctor_find(doctor, bytes < SPACE_SMALL ? DOCTOR_HINT : DOCTOR_GOOD, "disk",
                    bytes < SPACE_SMALL ? "make room before a large batch" : NULL,
                    "%.1f GB are free on the disk of %s", (double)bytes / 1e9, folder);
}

/* File systems on which the promises of the store do not hold. Numbers of linux/magic.h. */
static void check_file_system(struct doctor *doctor, const char *folder) {
    struct statfs is;
    if (statfs(folder, &is) != 0) return;
    switch ((unsigned long)is.f_type) {
    case 0x6969UL:     /* NFS */
    case 0x517BUL:     /* SMB */
    case 0xFE534D42UL: /* SMB 2 */
    case 0xFF534D42UL: /* CIFS */
        doctor_find(doctor, DOCTOR_WRONG, STATE, "put --state-dir on a local disk",
                    "%s is on a network file system, where locks and syncs are not certain",
                    folder);
        break;
    case 0x01021994UL: /* tmpfs */
        doctor_find(doctor, DOCTOR_HINT, STATE, "put --state-dir on a disk",
                    "%s is in memory: a restart of the machine loses all batches", folder);
        break;
    default: break;
    }
}

/* The first folder above the path that exists. */
static void find_parent(const char *path, char ret_parent[PATH_MAX]) {
    snprintf(ret_parent, PATH_MAX, "%s", path);
    while (access(ret_parent, F_OK) != 0) {
        char *slash = strrchr(ret_parent, '/');
        if (!slash) {
            snprintf(ret_parent, PATH_MAX, ".");
            return;
        }
        slash[slash == ret_parent] = '\0';
    }
}

static void check_missing(struct doctor *doctor, const char *folder) {
    char parent[PATH_MAX];
    find_parent(folder, parent);
    if (access(parent, W_OK | X_OK) == 0)
        doctor_find(doctor, DOCTOR_GOOD, STATE, NULL, "%s does not exist yet; quern serve makes it",
                    folder);
    else
        doctor_find(doctor, DOCTOR_WRONG, STATE,
                    "make it as root and give it to this user, or name another --state-dir",
                    "%s does not exist, and this user may not make it in %s", folder, parent);
    check_space(doctor, parent);
}

#define OWNER_BYTES_MAX 4096

/* The name of a user, or the number of one without a name. */
static const char *name_of(uid_t owner, char text[OWNER_BYTES_MAX]) {
    struct passwd row, *found = NULL;
    if (getpwuid_r(owner, &row, text, OWNER_BYTES_MAX, &found) == 0 && found) return row.pw_name;
    snprintf(text, OWNER_BYTES_MAX, "%u", (unsigned)owner);
    return text;
}

/* Whether a process holds a lock on the file, as the kernel lists them: taking the lock for a look
 * would stop a server that starts meanwhile. */
static bool is_locked(const char *path) {
    struct stat status;
    char line[256], wanted[32];
    bool found = false;
    if (stat(path, &status) != 0) return false;
    snprintf(wanted, sizeof wanted, ":%llu ", (unsigned long long)status.st_ino);
    FILE *locks = fopen("/proc/locks", "re");
    while (locks && !found && fgets(line, sizeof line, locks))
        found = strstr(line, "FLOCK") && strstr(line, wanted);
    if (locks) fclose(locks);
    return found;
}

static void check_lock(struct doctor *doctor, const char *folder) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.*s/LOCK", PATH_MAX - 8, folder);
    doctor->holds_server = is_locked(path);
    if (doctor->holds_server)
        doctor_find(doctor, DOCTOR_GOOD, STATE, NULL, "a server runs with %s", folder);
}

/* The files that a server must write. */
static void check_files(struct doctor *doctor, const char *folder) {
    static const char *const names[] = {"meta.db", "meta.db-wal", "meta.db-shm", "LOCK",
                                        "files",   "batches",     "tmp",         "cache"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[PATH_MAX], owner[OWNER_BYTES_MAX];
        struct stat status;
        snprintf(path, sizeof path, "%.*s/%s", PATH_MAX - 16, folder, names[i]);
        if (lstat(path, &status) != 0 || access(path, R_OK | W_OK) == 0) continue;
        doctor_find(doctor, DOCTOR_WRONG, STATE,
                    "run quern as that user, or as root: chown -R USER the state directory",
                    "%s belongs to %s, and this user may not write it", path,
                    name_of(status.st_uid, owner));
    }
}

static void check_dumps(struct doctor *doctor, const char *folder) {
    char path[PATH_MAX];
    size_t count = 0;
    snprintf(path, sizeof path, "%.*s/dumps", PATH_MAX - 8, folder);
    DIR *dir = os_opendir(path);
    for (const struct dirent *entry; dir && (entry = readdir(dir));)
        if (*entry->d_name != '.') count++;
    if (dir) closedir(dir);
    if (count > 0)
        doctor_find(doctor, DOCTOR_HINT, "engines", "read the newest one, and remove them",
                    "engines hung or crashed: %s has %zu dumps of them", path, count);
}

static void check_folder(struct doctor *doctor, const char *folder, const struct stat *status) {
    char owner[OWNER_BYTES_MAX];
    if (!S_ISDIR(status->st_mode)) {
        doctor_find(doctor, DOCTOR_WRONG, STATE, "name a folder with --state-dir",
                    "%s is no folder", folder);
        return;
    }
    if (access(folder, R_OK | W_OK | X_OK) != 0) {
        doctor_find(doctor, DOCTOR_WRONG, STATE,
                    "run quern as that user, or name another --state-dir",
                    "%s belongs to %s (mode %03o), and this user may not write it", folder,
                    name_of(status->st_uid, owner), (unsigned)(status->st_mode & 0777));
        return;
    }
    if (status->st_mode & 022)
        doctor_find(doctor, DOCTOR_WRONG, STATE, "chmod go-w the folder",
                    "%s may be written by other users (mode %03o)", folder,
                    (unsigned)(status->st_mode & 0777));
    else
        doctor_find(doctor, DOCTOR_GOOD, STATE, NULL, "%s is this user's", folder);
    check_files(doctor, folder);
    check_file_system(doctor, folder);
    check_space(doctor, folder);
    check_lock(doctor, folder);
    check_dumps(doctor, folder);
}

void doctor_check_state(struct doctor *doctor) {
    const char *folder = doctor->settings.state_dir;
    struct stat status;
    if (!folder || !*folder)
        doctor_find(doctor, DOCTOR_WRONG, STATE, "name one with --state-dir",
                    "no folder is known: neither HOME nor XDG_STATE_HOME is set");
    else if (stat(folder, &status) == 0)
        check_folder(doctor, folder, &status);
    else if (errno == ENOENT)
        check_missing(doctor, folder);
    else
        doctor_find(doctor, DOCTOR_WRONG, STATE,
                    "give this user the right to search the folders above it, or run as its user",
                    "cannot look at %s: %s", folder, strerror(errno));
}

/* --- secrets --- */

static void check_secret(struct doctor *doctor, const char *setting, const char *path) {
    struct secret secret = {0};
    struct error error = {0};
    if (!path || !*path) return;
    if (secret_read_file(&secret, path, &error) != OK)
        doctor_find(doctor, DOCTOR_WRONG, "secrets",
                    "name a file that exists, belongs to quern's user and has mode 600", "%s: %s",
                    setting, error.text);
    else if (str_trim(str_from(secret.text)).bytes == 0)
        doctor_find(doctor, DOCTOR_WRONG, "secrets", "write the secret into it", "%s: %s is empty",
                    setting, path);
    else
        doctor_find(doctor, DOCTOR_GOOD, "secrets", NULL, "%s: only its owner can read %s", setting,
                    path);
    secret_release(&secret);
}

static void check_certificate(struct doctor *doctor, const char *setting, const char *path) {
    if (!path || !*path || access(path, R_OK) == 0) return;
    doctor_find(doctor, DOCTOR_WRONG, "secrets", "name a file that this user can read",
                "%s: cannot read %s: %s", setting, path, strerror(errno));
}

void doctor_check_secrets(struct doctor *doctor) {
    const struct doctor_settings *settings = &doctor->settings;
    static const char *const variables[] = {"QUERN_API_KEYS_FILE", "QUERN_WEBHOOK_SECRET_FILE",
                                            "HF_TOKEN_FILE", "OPENAI_API_KEY_FILE"};
    char keys[PATH_MAX];
    struct stat status;
    check_secret(doctor, "api-key-file", settings->api_key_file);
    check_secret(doctor, "webhook-secret-file", settings->webhook_secret_file);
    check_secret(doctor, "env-file", settings->env_file);
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        check_secret(doctor, variables[i], getenv(variables[i]));
    check_certificate(doctor, "ssl-certfile", settings->certificate);
    check_certificate(doctor, "ssl-keyfile", settings->certificate_key);
    const char *folder = settings->state_dir;
    snprintf(keys, sizeof keys, "%.*s/keys.jsonl", PATH_MAX - 16, folder ? folder : "");
    if (stat(keys, &status) == 0 && (status.st_mode & 077))
        doctor_find(doctor, DOCTOR_WRONG, "secrets", "chmod 600 it",
                    "%s can be read by others than its owner (mode %03o)", keys,
                    (unsigned)(status.st_mode & 0777));
}
