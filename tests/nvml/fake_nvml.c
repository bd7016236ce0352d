/* SPDX-License-Identifier: Apache-2.0 */

/* fake_nvml: the functions of NVIDIA's management library that quern calls, over a file of numbers.
 *
 * The file is named by QUERN_FAKE_NVML: "name value" per line. It is read anew by each call, so a
 * test changes a value while a server runs. A name that the file lacks has the value of the table
 * below. The value "gone" makes the call fail as if the card were lost, "unknown" as if the card
 * did not support it. "stall N" lets every call wait N ms, as a driver in trouble does; the
 * file with ".stalled" behind its name then tells that one waits.
 *
 * It has `cards` cards, all with the same numbers. Their UUIDs are those of the plain device
 * (tests/gpu).
 *
 * Thread: any.
 * Memory: none. */

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NVML_SUCCESS 0
#define NVML_ERROR_INVALID_ARGUMENT 2
#define NVML_ERROR_NOT_SUPPORTED 3
#define NVML_ERROR_NOT_FOUND 6
#define NVML_ERROR_TIMEOUT 10
#define NVML_ERROR_GPU_IS_LOST 15
#define CARDS_MAX 8

static const struct {
    const char *name;
    unsigned long long value;
} defaults[] = {
    {"cards", 1},
    {"memory_total", 17179869184ull},
    {"memory_used", 524288000},
    {"utilisation", 75},
    {"memory_utilisation", 40},
    {"power_mw", 250000},
    {"power_limit_mw", 700000},
    {"energy_mj", 1000000},
    {"sm_mhz", 1980},
    {"memory_mhz", 3201},
    {"celsius", 51},
    {"throttle", 0},
    {"ecc", 0},
    {"xid", 0},
    {"stall", 0},
};

static char cards[CARDS_MAX];

/* The value of a name; a negative result is minus the code of a failure. */
static long long value_of(const char *name) {
    const char *path = getenv("QUERN_FAKE_NVML");
    FILE *file = path ? fopen(path, "re") : NULL;
    char line[128];
    size_t bytes = strlen(name);
    long long found = -NVML_ERROR_NOT_SUPPORTED;
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++)
        if (strcmp(defaults[i].name, name) == 0) found = (long long)defaults[i].value;
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, name, bytes) != 0 || line[bytes] != ' ') continue;
        const char *value = line + bytes + 1;
        found = strncmp(value, "gone", 4) == 0      ? -NVML_ERROR_GPU_IS_LOST
                : strncmp(value, "unknown", 7) == 0 ? -NVML_ERROR_NOT_SUPPORTED
                                                    : strtoll(value, NULL, 10);
    }
    if (file) (void)fclose(file);
    return found;
}

static void stall(void) {
    long long ms = value_of("stall");
    char path[PATH_MAX];
    if (ms <= 0) return;
    (void)snprintf(path, sizeof path, "%s.stalled", getenv("QUERN_FAKE_NVML"));
    FILE *file = fopen(path, "we");
    if (file) (void)fclose(file);
    (void)nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* Sets a number of a card; the result is NVML's. */
static int give(const char *name, unsigned int *ret) {
    stall();
    long long value = value_of(name);
    if (value < 0) return (int)-value;
    *ret = (unsigned int)value;
    return NVML_SUCCESS;
}

static int give_long(const char *name, unsigned long long *ret) {
    stall();
    long long value = value_of(name);
    if (value < 0) return (int)-value;
    *ret = (unsigned long long)value;
    return NVML_SUCCESS;
}

static int number_of(const void *card) {
    return (int)((const char *)card - cards);
}

int nvmlInit_v2(void);
int nvmlInit_v2(void) {
    long long value = value_of("cards");
    return value < 0 ? (int)-value : NVML_SUCCESS;
}

int nvmlShutdown(void);
int nvmlShutdown(void) {
    return NVML_SUCCESS;
}

const char *nvmlErrorString(int code);
const char *nvmlErrorString(int code) {
    return code == NVML_ERROR_GPU_IS_LOST ? "GPU is lost" : "Not Supported";
}

int nvmlSystemGetDriverVersion(char *ret, unsigned int bytes);
int nvmlSystemGetDriverVersion(char *ret, unsigned int bytes) {
    (void)snprintf(ret, bytes, "580.00");
    return NVML_SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned int *ret);
int nvmlDeviceGetCount_v2(unsigned int *ret) {
    return give("cards", ret);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **ret);
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **ret) {
    unsigned int count = 0;
    int code = give("cards", &count);
    if (code != NVML_SUCCESS) return code;
    if (index >= count || index >= CARDS_MAX) return NVML_ERROR_INVALID_ARGUMENT;
    *ret = &cards[index];
    return NVML_SUCCESS;
}

int nvmlDeviceGetUUID(const void *card, char *ret, unsigned int bytes);
int nvmlDeviceGetUUID(const void *card, char *ret, unsigned int bytes) {
    (void)snprintf(ret, bytes, "GPU-00000000-0000-0000-0000-%012d", number_of(card));
    return NVML_SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **ret);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **ret) {
    unsigned int count = 0;
    int code = give("cards", &count);
    if (code != NVML_SUCCESS) return code;
    for (unsigned int i = 0; i < count && i < CARDS_MAX; i++) {
        char own[48];
        (void)nvmlDeviceGetUUID(&cards[i], own, sizeof own);
        if (strcmp(own, uuid) != 0) continue;
        *ret = &cards[i];
        return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_FOUND;
}

int nvmlDeviceGetName(const void *card, char *ret, unsigned int bytes);
int nvmlDeviceGetName(const void *card, char *ret, unsigned int bytes) {
    (void)snprintf(ret, bytes, "fake card %d", number_of(card));
    return NVML_SUCCESS;
}

struct memory {
    unsigned int version;
    unsigned long long total, reserved, free, used;
};

int nvmlDeviceGetMemoryInfo_v2(const void *card, struct memory *ret);
int nvmlDeviceGetMemoryInfo_v2(const void *card, struct memory *ret) {
    unsigned long long total = 0, used = 0;
    (void)card;
    int code = give_long("memory_total", &total);
    if (code == NVML_SUCCESS) code = give_long("memory_used", &used);
    if (code != NVML_SUCCESS) return code;
    if (ret->version != (sizeof *ret | 2u << 24)) return NVML_ERROR_INVALID_ARGUMENT;
    ret->total = total;
    ret->reserved = 0;
    ret->used = used;
    ret->free = total - used;
    return NVML_SUCCESS;
}

struct rates {
    unsigned int gpu, memory;
};

int nvmlDeviceGetUtilizationRates(const void *card, struct rates *ret);
int nvmlDeviceGetUtilizationRates(const void *card, struct rates *ret) {
    (void)card;
    int code = give("utilisation", &ret->gpu);
    return code == NVML_SUCCESS ? give("memory_utilisation", &ret->memory) : code;
}

int nvmlDeviceGetTemperature(const void *card, int sensor, unsigned int *ret);
int nvmlDeviceGetTemperature(const void *card, int sensor, unsigned int *ret) {
    (void)card;
    return sensor == 0 ? give("celsius", ret) : NVML_ERROR_INVALID_ARGUMENT;
}

int nvmlDeviceGetPowerUsage(const void *card, unsigned int *ret);
int nvmlDeviceGetPowerUsage(const void *card, unsigned int *ret) {
    (void)card;
    return give("power_mw", ret);
}

int nvmlDeviceGetEnforcedPowerLimit(const void *card, unsigned int *ret);
int nvmlDeviceGetEnforcedPowerLimit(const void *card, unsigned int *ret) {
    (void)card;
    return give("power_limit_mw", ret);
}

int nvmlDeviceGetTotalEnergyConsumption(const void *card, unsigned long long *ret);
int nvmlDeviceGetTotalEnergyConsumption(const void *card, unsigned long long *ret) {
    (void)card;
    return give_long("energy_mj", ret);
}

int nvmlDeviceGetClockInfo(const void *card, int domain, unsigned int *ret);
int nvmlDeviceGetClockInfo(const void *card, int domain, unsigned int *ret) {
    (void)card;
    if (domain != 1 && domain != 2) return NVML_ERROR_INVALID_ARGUMENT;
    return give(domain == 1 ? "sm_mhz" : "memory_mhz", ret);
}

int nvmlDeviceGetCurrentClocksEventReasons(const void *card, unsigned long long *ret);
int nvmlDeviceGetCurrentClocksEventReasons(const void *card, unsigned long long *ret) {
    (void)card;
    return give_long("throttle", ret);
}

int nvmlDeviceGetTotalEccErrors(const void *card, int kind, int counter, unsigned long long *ret);
int nvmlDeviceGetTotalEccErrors(const void *card, int kind, int counter, unsigned long long *ret) {
    (void)card;
    if (kind != 1 || counter != 0) return NVML_ERROR_INVALID_ARGUMENT;
    return give_long("ecc", ret);
}

/* ---- events: a change of `xid` from one number to another is one error ---- */

struct event {
    void *card;
    unsigned long long type, data;
    unsigned int gpu_instance, compute_instance;
};

static long long last_xid;

int nvmlEventSetCreate(void **ret);
int nvmlEventSetCreate(void **ret) {
    *ret = &last_xid;
    return NVML_SUCCESS;
}

int nvmlDeviceRegisterEvents(const void *card, unsigned long long types, const void *set);
int nvmlDeviceRegisterEvents(const void *card, unsigned long long types, const void *set) {
    (void)card;
    return types == 8 && set == &last_xid ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

int nvmlEventSetWait_v2(const void *set, struct event *ret, unsigned int timeout_ms);
int nvmlEventSetWait_v2(const void *set, struct event *ret, unsigned int timeout_ms) {
    long long xid = value_of("xid");
    (void)set;
    if (xid <= 0 || xid == last_xid) {
        (void)nanosleep(&(struct timespec){timeout_ms / 1000, timeout_ms % 1000 * 1000000}, NULL);
        return NVML_ERROR_TIMEOUT;
    }
    last_xid = xid;
    *ret = (struct event){&cards[0], 8, (unsigned long long)xid, 0, 0};
    return NVML_SUCCESS;
}

int nvmlEventSetFree(const void *set);
int nvmlEventSetFree(const void *set) {
    (void)set;
    return NVML_SUCCESS;
}
