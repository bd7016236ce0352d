/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvml.h"

#include "base/mem.h"

#include <dlfcn.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libnvidia-ml.so.1"

/* Names and numbers of nvml.h, which is not needed to build. */
#define MEMORY_VERSION (sizeof(struct memory_info) | 2u << 24)
#define SENSOR_GPU 0
#define CLOCK_SM 1
#define CLOCK_MEMORY 2
#define ECC_UNCORRECTED 1
#define ECC_VOLATILE 0
#define EVENT_XID 8ull
#define BRAKES_POWER 0x84ull    /* software power cap, power brake of the machine */
#define BRAKES_HEAT 0x60ull     /* software and hardware thermal slowdown */
#define BRAKES_HARDWARE 0x08ull /* hardware slowdown of another cause */

struct memory_info {
    unsigned int version;
    unsigned long long total, reserved, free, used;
};

struct utilisation {
    unsigned int gpu, memory; /* percent */
};

struct event {
    void *card;
    unsigned long long type, data; /* data: the number of the Xid */
    unsigned int gpu_instance, compute_instance;
};

/* Functions that the library lacks are NULL. */
struct nvml {
    void *library;
    void *events; /* NULL: none */
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned int *ret);
    int (*card_at)(unsigned int index, void **ret);
    int (*card_of)(const char *uuid, void **ret);
    int (*name)(void *card, char *ret, unsigned int bytes);
    int (*uuid)(void *card, char *ret, unsigned int bytes);
    int (*memory)(void *card, struct memory_info *ret);
    int (*utilisation)(void *card, struct utilisation *ret);
    int (*temperature)(void *card, int sensor, unsigned int *ret);
    int (*power)(void *card, unsigned int *ret);
    int (*power_limit)(void *card, unsigned int *ret);
    int (*energy)(void *card, unsigned long long *ret);
    int (*clock)(void *card, int domain, unsigned int *ret);
    int (*brakes)(void *card, unsigned long long *ret);
    int (*old_brakes)(void *card, unsigned long long *ret);
    int (*ecc)(void *card, int kind, int counter, unsigned long long *ret);
    int (*events_create)(void **ret);
    int (*events_follow)(void *card, unsigned long long types, void *set);
    int (*events_wait)(void *set, struct event *ret, unsigned int timeout_ms);
    int (*events_free)(void *set);
};

static const struct {
    const char *symbol;
    size_t at; /* offset of its pointer in struct nvml */
} functions[] = {
    {"nvmlInit_v2", offsetof(struct nvml, init)},
    {"nvmlShutdown", offsetof(struct nvml, shutdown)},
    {"nvmlDeviceGetCount_v2", offsetof(struct nvml, count)},
    {"nvmlDeviceGetHandleByIndex_v2", offsetof(struct nvml, card_at)},
    {"nvmlDeviceGetHandleByUUID", offsetof(struct nvml, card_of)},
    {"nvmlDeviceGetName", offsetof(struct nvml, name)},
    {"nvmlDeviceGetUUID", offsetof(struct nvml, uuid)},
    {"nvmlDeviceGetMemoryInfo_v2", offsetof(struct nvml, memory)},
    {"nvmlDeviceGetUtilizationRates", offsetof(struct nvml, utilisation)},
    {"nvmlDeviceGetTemperature", offsetof(struct nvml, temperature)},
    {"nvmlDeviceGetPowerUsage", offsetof(struct nvml, power)},
    {"nvmlDeviceGetEnforcedPowerLimit", offsetof(struct nvml, power_limit)},
    {"nvmlDeviceGetTotalEnergyConsumption", offsetof(struct nvml, energy)},
    {"nvmlDeviceGetClockInfo", offsetof(struct nvml, clock)},
    {"nvmlDeviceGetCurrentClocksEventReasons", offsetof(struct nvml, brakes)},
    {"nvmlDeviceGetCurrentClocksThrottleReasons", offsetof(struct nvml, old_brakes)},
    {"nvmlDeviceGetTotalEccErrors", offsetof(struct nvml, ecc)},
    {"nvmlEventSetCreate", offsetof(struct nvml, events_create)},
    {"nvmlDeviceRegisterEvents", offsetof(struct nvml, events_follow)},
    {"nvmlEventSetWait_v2", offsetof(struct nvml, events_wait)},
    {"nvmlEventSetFree", offsetof(struct nvml, events_free)},
};

static void find_functions(struct nvml *nvml) {
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *found = dlsym(nvml->library, functions[i].symbol);
        memcpy((char *)nvml + functions[i].at, &found, sizeof found);
    }
}

enum err nvml_open(struct nvml **ret_nvml, const char *library, struct error *error) {
    void *handle = dlopen(library ? library : LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle) {
        const char *why = dlerror();
        return err_set(error, ERR_UNAVAILABLE, "%.300s", why ? why : LIBRARY);
    }
    struct nvml *nvml = mem_new(1, sizeof *nvml);
    nvml->library = handle;
    find_functions(nvml);
    int code = nvml->init && nvml->card_of ? nvml->init() : -1;
    if (code != 0) {
        free(nvml);
        return err_set(error, ERR_UNAVAILABLE, "%s does not start: error %d", LIBRARY, code);
    }
    if (!nvml->events_create || !nvml->events_follow || !nvml->events_wait ||
        nvml->events_create(&nvml->events) != 0)
        nvml->events = NULL;
    *ret_nvml = nvml;
    return OK;
}

void nvml_close(struct nvml *nvml) {
    if (!nvml) return;
    if (nvml->events && nvml->events_free) nvml->events_free(nvml->events);
    if (nvml->shutdown) nvml->shutdown();
    dlclose(nvml->library);
    free(nvml);
}

uint64_t nvml_largest_bytes(struct nvml *nvml) {
    unsigned int count = 0;
    uint64_t largest = 0;
    if (!nvml->count || !nvml->card_at || !nvml->memory || nvml->count(&count) != 0) return 0;
    for (unsigned int i = 0; i < count; i++) {
        struct memory_info memory = {.version = (unsigned int)MEMORY_VERSION};
        void *card;
        if (nvml->card_at(i, &card) == 0 && nvml->memory(card, &memory) == 0 &&
            memory.total > largest)
            largest = memory.total;
    }
    return largest;
}

static void read_memory(struct nvml *nvml, void *card, double *values) {
    struct memory_info memory = {.version = (unsigned int)MEMORY_VERSION};
    struct utilisation shares;
    if (nvml->memory && nvml->memory(card, &memory) == 0) {
        values[CARD_MEMORY_BYTES] = (double)memory.total;
        values[CARD_MEMORY_USED_BYTES] = (double)memory.used;
    }
    if (nvml->utilisation && nvml->utilisation(card, &shares) == 0) {
        values[CARD_UTILISATION] = shares.gpu / 100.0;
        values[CARD_MEMORY_UTILISATION] = shares.memory / 100.0;
    }
}

static void read_power(struct nvml *nvml, void *card, double *values) {
    unsigned int number;
    unsigned long long count;
    if (nvml->power && nvml->power(card, &number) == 0) values[CARD_POWER_WATTS] = number / 1000.0;
    if (nvml->power_limit && nvml->power_limit(card, &number) == 0)
        values[CARD_POWER_LIMIT_WATTS] = number / 1000.0;
    if (nvml->energy && nvml->energy(card, &count) == 0)
        values[CARD_ENERGY_JOULES] = (double)count / 1000;
    if (nvml->clock && nvml->clock(card, CLOCK_SM, &number) == 0)
        values[CARD_SM_CLOCK_HERTZ] = number * 1e6;
    if (nvml->clock && nvml->clock(card, CLOCK_MEMORY, &number) == 0)
        values[CARD_MEMORY_CLOCK_HERTZ] = number * 1e6;
    if (nvml->temperature && nvml->temperature(card, SENSOR_GPU, &number) == 0)
        values[CARD_CELSIUS] = number;
    if (nvml->ecc && nvml->ecc(card, ECC_UNCORRECTED, ECC_VOLATILE, &count) == 0)
        values[CARD_ECC_ERRORS] = (double)count;
}

static void read_brakes(struct nvml *nvml, void *card, bool *brakes) {
    int (*read)(void *card, unsigned long long *ret) =
        nvml->brakes ? nvml->brakes : nvml->old_brakes;
    unsigned long long reasons = 0;
    if (!read || read(card, &reasons) != 0) reasons = 0;
    brakes[CARD_BRAKE_POWER] = (reasons & BRAKES_POWER) != 0;
    brakes[CARD_BRAKE_HEAT] = (reasons & BRAKES_HEAT) != 0;
    brakes[CARD_BRAKE_HARDWARE] = (reasons & BRAKES_HARDWARE) != 0;
}

void nvml_read(struct nvml *nvml, const char *uuid, struct card_status *ret_status) {
    void *card;
    for (size_t i = 0; i < CARD_VALUES; i++) ret_status->values[i] = NAN;
    memset(ret_status->brakes, 0, sizeof ret_status->brakes);
    ret_status->is_up = nvml->card_of(uuid, &card) == 0;
    if (!ret_status->is_up) return;
    if (!nvml->name || nvml->name(card, ret_status->name, sizeof ret_status->name) != 0)
        ret_status->name[0] = '\0';
    read_memory(nvml, card, ret_status->values);
    read_power(nvml, card, ret_status->values);
    read_brakes(nvml, card, ret_status->brakes);
    /* A lost GPU keeps its handle and tells nothing. */
    bool tells = false;
    for (size_t i = 0; i < CARD_VALUES; i++) tells = tells || !isnan(ret_status->values[i]);
    ret_status->is_up = tells;
}

bool nvml_follow(struct nvml *nvml, const char *uuid) {
    void *card;
    return nvml->events && nvml->card_of(uuid, &card) == 0 &&
           nvml->events_follow(card, EVENT_XID, nvml->events) == 0;
}

bool nvml_next_xid(struct nvml *nvml, uint32_t *ret_xid, char ret_uuid[CARD_UUID_BYTES]) {
    struct event event = {0};
    if (!nvml->events || nvml->events_wait(nvml->events, &event, 0) != 0) return false;
    *ret_xid = (uint32_t)event.data;
    if (!nvml->uuid || nvml->uuid(event.card, ret_uuid, CARD_UUID_BYTES) != 0) ret_uuid[0] = '\0';
    return true;
}
