/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sandbox.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- Landlock: paths and TCP ---- */

/* Constants that later kernels added to linux/landlock.h. */
#define FS_TRUNCATE (UINT64_C(1) << 14)  /* ABI 3 */
#define NET_TCP_ALL UINT64_C(3)          /* ABI 4: bind, connect */
#define FS_IOCTL_DEV (UINT64_C(1) << 15) /* ABI 5 */
#define SCOPE_ALL UINT64_C(3)            /* ABI 6: abstract sockets and signals of others */
#define RESTRICT_THREADS 8u              /* ABI 8: LANDLOCK_RESTRICT_SELF_TSYNC */

struct ruleset {
    uint64_t fs;
    uint64_t net;
    uint64_t scopes;
};

/* All rights over files that this kernel can take away. */
static uint64_t fs_rights(int abi) {
    static const unsigned char counts[] = {0, 13, 14, 15, 15, 16};
    const int known = (int)sizeof counts - 1;
    return (UINT64_C(1) << counts[abi < known ? abi : known]) - 1;
}

static uint64_t rights_of(const struct sandbox_path *path, bool is_directory) {
    uint64_t rights = LANDLOCK_ACCESS_FS_READ_FILE;
    if (is_directory) rights |= LANDLOCK_ACCESS_FS_READ_DIR;
    if (path->is_writable) rights |= LANDLOCK_ACCESS_FS_WRITE_FILE | FS_TRUNCATE;
    if (path->is_device) rights |= LANDLOCK_ACCESS_FS_WRITE_FILE | FS_IOCTL_DEV;
    if (path->is_writable && is_directory)
        rights |= LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_REMOVE_FILE;
    return rights;
}

/* Returns the opened descriptor, or -1. */
static int allow_path(int ruleset, const struct sandbox_path *path, uint64_t handled) {
    struct stat stat;
    int fd = open(path->path, O_PATH | O_CLOEXEC);
    if (fd < 0) return -1;
    if (fstat(fd, &stat) == 0) {
        struct landlock_path_beneath_attr rule = {
            .allowed_access = rights_of(path, S_ISDIR(stat.st_mode)) & handled, .parent_fd = fd};
        (void)syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
    }
    return fd;
}

static void close_if_open(int fd) {
    if (fd >= 0) close(fd);
}

/* Files that a sanitizer reads to name the lines of a stack. */
static void allow_sanitizer(int ruleset, uint64_t handled) {
    static const char *const paths[] = {"/proc", "/usr", "/lib", "/proc/self/exe"};
    for (size_t i = 0; SANDBOX_IS_LOOSE && i < sizeof paths / sizeof *paths; i++)
        close_if_open(allow_path(ruleset, &(struct sandbox_path){.path = paths[i]}, handled));
}

/* Binds the caller, and for a device the driver's threads where the kernel can. */
static bool restrict_process(enum sandbox_kind kind, int abi, int ruleset,
                             struct sandbox_state *state) {
    state->binds_threads = kind == SANDBOX_DEVICE && abi >= 8 &&
                           syscall(SYS_landlock_restrict_self, ruleset, RESTRICT_THREADS) == 0;
    return state->binds_threads || syscall(SYS_landlock_restrict_self, ruleset, 0) == 0;
}

static void enter_landlock(enum sandbox_kind kind, const struct sandbox_path *paths, size_t count,
                           struct sandbox_state *state) {
    int abi = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi < 1) return;
    const struct ruleset wanted = {.fs = fs_rights(abi),
                                   .net = abi >= 4 ? NET_TCP_ALL : 0,
                                   .scopes = abi >= 6 ? SCOPE_ALL : 0};
    /* An older kernel takes the longer struct if the members that it does not know are zero. */
    int ruleset = (int)syscall(SYS_landlock_create_ruleset, &wanted, sizeof wanted, 0);
    if (ruleset < 0) return;
    for (size_t i = 0; i < count; i++) close_if_open(allow_path(ruleset, &paths[i], wanted.fs));
    allow_sanitizer(ruleset, wanted.fs);
    /* base/stacks reads the names of threads here. The rule is for this inode, which the kernel
     * keeps only while a descriptor is open. */
    (void)allow_path(ruleset, &(struct sandbox_path){.path = "/proc/self/task"}, wanted.fs);
    if (restrict_process(kind, abi, ruleset, state)) state->landlock_abi = abi;
    close(ruleset);
}

/* ---- seccomp: system calls ---- */

/* A call, or a call with (argument & mask) == value. */
struct rule {
    unsigned short number;
    unsigned char argument; /* number of the argument, from 1; 0: any arguments */
    uint32_t mask, value;
};

/* The calls of an engine after its files are named. It reads files, of which Landlock chooses, uses
 * its open socket, computes in threads and reads clocks. mmap and mprotect make nothing executable.
 * clone makes threads only; clone3 fails, for a filter cannot read its arguments, and the library
 * then takes clone. ioctl only asks whether a descriptor is a terminal. */
static const struct rule allowed[] = {
    {.number = SYS_read},
    {.number = SYS_write},
    {.number = SYS_readv},
    {.number = SYS_writev},
    {.number = SYS_pread64},
    {.number = SYS_pwrite64},
    {.number = SYS_lseek},
    {.number = SYS_open},
    {.number = SYS_openat},
    {.number = SYS_close},
    {.number = SYS_stat},
    {.number = SYS_lstat},
    {.number = SYS_fstat},
    {.number = SYS_newfstatat},
    {.number = SYS_statx},
    {.number = SYS_access},
    {.number = SYS_faccessat},
    {.number = SYS_faccessat2},
    {.number = SYS_readlink},
    {.number = SYS_readlinkat},
    {.number = SYS_getdents64},
    {.number = SYS_fcntl},
    {.number = SYS_flock},
    {.number = SYS_fadvise64},
    {.number = SYS_readahead},
    {.number = SYS_ioctl, .argument = 2, .mask = UINT32_MAX, .value = TCGETS},

    /* These change files of a writable directory. */
    {.number = SYS_ftruncate},
    {.number = SYS_fallocate},
    {.number = SYS_fsync},
    {.number = SYS_fdatasync},
    {.number = SYS_rename},
    {.number = SYS_renameat},
    {.number = SYS_renameat2},
    {.number = SYS_unlink},
    {.number = SYS_unlinkat},
    {.number = SYS_statfs},
    {.number = SYS_fstatfs},

    {.number = SYS_recvfrom},
    {.number = SYS_sendto},
    {.number = SYS_recvmsg},
    {.number = SYS_sendmsg},
    {.number = SYS_shutdown},
    {.number = SYS_poll},
    {.number = SYS_ppoll},
    {.number = SYS_select},
    {.number = SYS_pselect6},
    {.number = SYS_epoll_create1},
    {.number = SYS_epoll_ctl},
    {.number = SYS_epoll_wait},
    {.number = SYS_epoll_pwait},
    {.number = SYS_eventfd2},

    {.number = SYS_brk},
    {.number = SYS_mmap, .argument = 3, .mask = PROT_EXEC},
    {.number = SYS_mprotect, .argument = 3, .mask = PROT_EXEC},
    {.number = SYS_munmap},
    {.number = SYS_mremap},
    {.number = SYS_madvise},
    {.number = SYS_mincore},
    {.number = SYS_msync},
    {.number = SYS_mlock},
    {.number = SYS_munlock},

    {.number = SYS_futex},
    {.number = SYS_clone, .argument = 1, .mask = CLONE_THREAD, .value = CLONE_THREAD},
    {.number = SYS_set_robust_list},
    {.number = SYS_set_tid_address},
    {.number = SYS_rseq},
    {.number = SYS_sched_yield},
    {.number = SYS_sched_getaffinity},
    {.number = SYS_sched_setaffinity, .argument = 1, .mask = UINT32_MAX}, /* its own thread */
    {.number = SYS_sched_getparam},
    {.number = SYS_sched_getscheduler},
    {.number = SYS_sched_get_priority_min},
    {.number = SYS_sched_get_priority_max},
    {.number = SYS_getpriority},
    {.number = SYS_getcpu},
    {.number = SYS_membarrier},
    {.number = SYS_prctl, .argument = 1, .mask = UINT32_MAX, .value = PR_SET_NAME},
    {.number = SYS_prctl, .argument = 1, .mask = UINT32_MAX, .value = PR_GET_NAME},
    {.number = SYS_exit},
    {.number = SYS_exit_group},

    {.number = SYS_rt_sigaction},
    {.number = SYS_rt_sigprocmask},
    {.number = SYS_rt_sigreturn},
    {.number = SYS_sigaltstack},
    {.number = SYS_restart_syscall},

    {.number = SYS_clock_gettime},
    {.number = SYS_clock_getres},
    {.number = SYS_clock_nanosleep},
    {.number = SYS_nanosleep},
    {.number = SYS_gettimeofday},
    {.number = SYS_time},
    {.number = SYS_getrandom},
    {.number = SYS_getpid},
    {.number = SYS_gettid},
    {.number = SYS_getuid},
    {.number = SYS_geteuid},
    {.number = SYS_getgid},
    {.number = SYS_getegid},
    {.number = SYS_getppid},
    {.number = SYS_getrusage},
    {.number = SYS_sysinfo},
    {.number = SYS_uname},
    {.number = SYS_prlimit64, .argument = 1, .mask = UINT32_MAX},
    {.number = SYS_getrlimit},
    {.number = SYS_getcwd},
};

/* The further calls of a driver that is open: it speaks to its card by ioctl alone. Landlock lets
 * it open its own nodes only, and mmap still makes nothing executable. */
static const struct rule allowed_device[] = {
    {.number = SYS_ioctl},
    {.number = SYS_memfd_create},
    {.number = SYS_mbind},
    {.number = SYS_get_mempolicy},
};

/* No reader of files makes these calls by mistake. */
static const unsigned short fatal[] = {
    SYS_execve,
    SYS_execveat,
    SYS_socket,
    SYS_connect,
    SYS_bind,
    SYS_listen,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_unshare,
    SYS_setns,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_io_uring_setup,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    SYS_init_module,
    SYS_finit_module,
    SYS_kexec_load,
    SYS_reboot,
    SYS_setuid,
    SYS_setgid,
    SYS_setresuid,
    SYS_setresgid,
    SYS_setreuid,
    SYS_setregid,
    SYS_pidfd_getfd,
    SYS_kexec_file_load,
    SYS_open_by_handle_at,
#if !SANDBOX_IS_LOOSE /* the search for leaks attaches to the process itself */
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
#endif
};

/* A driver listens on a socket, and a stranger who connects to it must not end the engine: there
 * these calls only fail. */
static const unsigned short fatal_without_device[] = {SYS_accept, SYS_accept4};

#define FILTER_MAX 512

struct filter {
    struct sock_filter at[FILTER_MAX];
    unsigned short count;
};

static void add(struct filter *filter, unsigned code, uint32_t value, unsigned char if_so,
                unsigned char if_not) {
    assert(filter->count < FILTER_MAX);
    filter->at[filter->count++] = (struct sock_filter){(unsigned short)code, if_so, if_not, value};
}

static void add_load(struct filter *filter, size_t offset) {
    add(filter, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static void add_answer(struct filter *filter, uint32_t answer) {
    add(filter, BPF_RET | BPF_K, answer, 0, 0);
}

/* The call's number is loaded before and after these instructions. */
static void add_rule(struct filter *filter, const struct rule *rule, uint32_t answer) {
    const unsigned is_equal = BPF_JMP | BPF_JEQ | BPF_K;
    add(filter, is_equal, rule->number, 0, rule->argument ? 5 : 1);
    if (rule->argument) {
        /* The low half of the argument, which comes first in memory. */
        add_load(filter,
                 offsetof(struct seccomp_data, args) + sizeof(uint64_t) * (rule->argument - 1u));
        add(filter, BPF_ALU | BPF_AND | BPF_K, rule->mask, 0, 0);
        add(filter, is_equal, rule->value, 0, 1);
    }
    add_answer(filter, answer);
    if (rule->argument) add_load(filter, offsetof(struct seccomp_data, nr));
}

static void add_rules(struct filter *filter, const struct rule *rules, size_t count) {
    for (size_t i = 0; i < count; i++) add_rule(filter, &rules[i], SECCOMP_RET_ALLOW);
}

static void add_fatal(struct filter *filter, const unsigned short *numbers, size_t count) {
    for (size_t i = 0; i < count; i++)
        add_rule(filter, &(struct rule){.number = numbers[i]}, SECCOMP_RET_KILL_PROCESS);
}

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void build(struct filter *filter, enum sandbox_kind kind) {
    filter->count = 0;
    add_load(filter, offsetof(struct seccomp_data, arch));
    add(filter, BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
    add_answer(filter, SECCOMP_RET_KILL_PROCESS);
    add_load(filter, offsetof(struct seccomp_data, nr));
    if (kind == SANDBOX_DEVICE) add_rules(filter, allowed_device, COUNT(allowed_device));
    add_rules(filter, allowed, COUNT(allowed));
    /* abort and base/stacks signal threads of this process. */
    add_rule(filter, &(struct rule){SYS_tgkill, 1, UINT32_MAX, (uint32_t)getpid()},
             SECCOMP_RET_ALLOW);
    add_fatal(filter, fatal, COUNT(fatal));
    if (kind == SANDBOX_FILES) add_fatal(filter, fatal_without_device, COUNT(fatal_without_device));
    add_answer(filter, SANDBOX_IS_LOOSE ? SECCOMP_RET_ALLOW : SECCOMP_RET_ERRNO | ENOSYS);
}

static bool enter_seccomp(enum sandbox_kind kind) {
    struct filter filter;
    build(&filter, kind);
    const struct sock_fprog program = {.len = filter.count, .filter = filter.at};
    unsigned threads = kind == SANDBOX_DEVICE ? SECCOMP_FILTER_FLAG_TSYNC : 0;
    /* Without SPEC_ALLOW a kernel before 5.16 turns off speculation, which costs the kernels' speed
     * and protects nothing: this process holds no secret. */
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, threads | SECCOMP_FILTER_FLAG_SPEC_ALLOW,
                   &program) == 0 ||
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, threads, &program) == 0;
}

void sandbox_enter(enum sandbox_kind kind, const struct sandbox_path *paths, size_t count,
                   struct sandbox_state *ret_state) {
    *ret_state = (struct sandbox_state){.landlock_abi = 0};
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}); /* a core would hold prompts */
    if (!SANDBOX_IS_LOOSE) prctl(PR_SET_DUMPABLE, 0);
    /* Landlock and seccomp both need it; a kernel that has either has it. */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return;
    enter_landlock(kind, paths, count, ret_state);
    ret_state->has_seccomp = enter_seccomp(kind);
}
