/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_load.h"

#include "base/clock.h"
#include "base/log.h"
#include "gpu/gpu_find.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)
#define TEXT_MAX(text) (int)((text).bytes < 400 ? (text).bytes : 400), (text).at

/* Pauses before memory is asked for again. */
static const int pauses_ms[] = {250, 500, 1000, 2000};

/* Leaves the choice to the CPU where the settings allow it; else the sentence is an error. */
static enum err fall_back(struct loaded_gpu *loaded, enum err err, const struct error *why,
                          struct error *error) {
    if (loaded->settings.choice == GPU_CHOICE_AUTO && err == ERR_UNAVAILABLE) {
        snprintf(loaded->reason, sizeof loaded->reason, "%s", why->text);
        loaded->table = NULL;
        return OK;
    }
    return err_set(error, err, "%s", why->text);
}

/* ---- the plugin ---- */

static const char remedy[] =
    "install the plugin that was built with this quern, or run with --device cpu";

/* Checks that the table is of this build. The first two members have their place in every build. */
static enum err check_table(const struct gpu_table *table, const char *path, struct error *error) {
    if (!table) return err_set(error, ERR_UNAVAILABLE, "%.200s gives no table; %s", path, remedy);
    if (table->abi != GPU_ABI)
        return err_set(error, ERR_UNAVAILABLE,
                       "%.200s is of another build: its interface is %u, not %u; %s", path,
                       table->abi, GPU_ABI, remedy);
    if (table->bytes != sizeof *table)
        return err_set(error, ERR_UNAVAILABLE,
                       "%.200s is of another build: its table has %u bytes, not %zu; %s", path,
                       table->bytes, sizeof *table, remedy);
    if (strcmp(table->version, QUERN_VERSION) != 0)
        return err_set(error, ERR_UNAVAILABLE,
                       "%.200s is of another build: quern %.40s, not " QUERN_VERSION "; %s", path,
                       table->version, remedy);
    return OK;
}

static enum err open_library(const struct gpu_table **ret_table, const char *path,
                             struct error *error) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        return err_set(error, ERR_UNAVAILABLE, "cannot load the plugin: %.380s; %s",
                       why ? why : path, remedy);
    }
    gpu_table_fn *give;
    void *symbol = dlsym(library, GPU_SYMBOL);
    memcpy(&give, &symbol, sizeof give);
    enum err err = give ? check_table(give(), path, error)
                        : err_set(error, ERR_UNAVAILABLE, "%.200s is no plugin: it lacks %s; %s",
                                  path, GPU_SYMBOL, remedy);
    if (err == OK)
        *ret_table = give();
    else
        dlclose(library);
    return err;
}

static enum err load_plugin(struct loaded_gpu *loaded, struct error *error) {
    const struct gpu_settings *settings = &loaded->settings;
    char path[PATH_MAX];
    loaded->is_surprising = gpu_find_driver();
    if (settings->plugin.bytes > 0) {
        if (settings->plugin.bytes >= sizeof path)
            return err_set(error, ERR_UNAVAILABLE, "--device-plugin: a path of %zu bytes",
                           settings->plugin.bytes);
        snprintf(path, sizeof path, "%.*s", STR_ARGS(settings->plugin));
    } else if (!gpu_find_plugin(path)) {
        return err_set(error, ERR_UNAVAILABLE,
                       "this quern has no " GPU_PLUGIN_NAME " next to it; `make cuda` builds "
                       "it where nvcc is, or run with --device cpu");
    }
    enum err err = open_library(&loaded->table, path, error);
    loaded->has_library = err == OK;
    if (err != OK || settings->plugin.bytes > 0) loaded->is_surprising = true;
    return err;
}

/* ---- the GPU ---- */

static bool is_named(const struct gpu_info *card, struct str name) {
    uint64_t index;
    if (name.bytes == 0) return true;
    if (str_to_u64(name, &index)) return card->index == index;
    return str_starts_with(str_from(card->uuid), name);
}

/* The least of what several GPUs have. */
static void keep_least(struct gpu_info *card, const struct gpu_info *other) {
    if (other->memory_bytes < card->memory_bytes) card->memory_bytes = other->memory_bytes;
    if (other->free_bytes < card->free_bytes) card->free_bytes = other->free_bytes;
}

/* As many GPUs as are to compute together, in the driver's order: from the named one on, or from
 * the first that can be used. */
static enum err choose_ranks(struct loaded_gpu *loaded, const struct gpu_info *cards,
                             uint32_t count, const struct gpu_info *named, struct error *error) {
    const struct gpu_settings *settings = &loaded->settings;
    uint32_t chosen = 0;
    for (uint32_t i = settings->card.bytes > 0 ? (uint32_t)(named - cards) : 0;
         i < count && chosen < settings->ranks; i++) {
        if (*cards[i].refusal) continue;
        if (chosen == 0)
            loaded->card = cards[i];
        else
            loaded->more[chosen - 1] = cards[i].index;
        keep_least(&loaded->card, &cards[i]);
        chosen++;
    }
    if (chosen == settings->ranks) return OK;
    return err_set(error, ERR_UNAVAILABLE,
                   "--tensor-parallel-size %u: of the %u GPUs that there are %u can be used so",
                   settings->ranks, count, chosen);
}

/* Chooses among the GPUs that the settings name. ERR_UNAVAILABLE tells why none of them serves. */
static enum err choose_card(struct loaded_gpu *loaded, struct error *error) {
    const struct gpu_settings *settings = &loaded->settings;
    struct gpu_info cards[GPU_CARDS_MAX] = {0};
    const struct gpu_info *best = NULL, *refused = NULL;
    uint32_t count = 0;
    enum err err = loaded->table->list(cards, GPU_CARDS_MAX, &count, error);
    if (err != OK) return err;
    if (count > GPU_CARDS_MAX) count = GPU_CARDS_MAX;
    if (count > 0) loaded->is_surprising = true;
    for (uint32_t i = 0; i < count; i++) {
        if (!is_named(&cards[i], settings->card)) continue;
        if (*cards[i].refusal)
            refused = refused ? refused : &cards[i];
        else if (!best || cards[i].free_bytes > best->free_bytes)
            best = &cards[i];
    }
    if (best && settings->ranks > 1) return choose_ranks(loaded, cards, count, best, error);
    if (best) {
        loaded->card = *best;
        return OK;
    }
    if (refused)
        return err_set(error, ERR_UNAVAILABLE, "GPU %u, %s, cannot be used: %s", refused->index,
                       refused->name, refused->refusal);
    if (count == 0)
        return err_set(error, ERR_UNAVAILABLE,
                       "this machine has no %s GPU that the driver shows; see nvidia-smi, or run "
                       "with --device cpu",
                       loaded->table->kind);
    return err_set(error, ERR_UNAVAILABLE,
                   "--device cuda:%.*s: no GPU has this number or UUID; there are %u, from "
                   "cuda:0 to cuda:%u",
                   TEXT_MAX(settings->card), count, count - 1);
}

enum err gpu_load(struct loaded_gpu *ret_loaded, const struct gpu_settings *settings,
                  struct error *error) {
    struct loaded_gpu loaded = {.settings = *settings};
    struct error why = {0};
    enum err err = OK;
    if (settings->choice != GPU_CHOICE_CPU) {
        err = load_plugin(&loaded, &why);
        if (err == OK) err = choose_card(&loaded, &why);
        if (err != OK) err = fall_back(&loaded, err, &why, error);
    }
    if (err == OK) *ret_loaded = loaded;
    return err;
}

/* ---- opening ---- */

/* The memory that the GPU may take. Without an option the desktop and other programs keep what
 * they have, so the GPU takes no more than what is free. */
static uint64_t memory_of(const struct gpu_info *card, const struct gpu_settings *settings) {
    if (settings->memory_bytes > 0) return settings->memory_bytes;
    double share = settings->memory_share > 0 ? settings->memory_share : GPU_SHARE_DEFAULT;
    uint64_t bytes = (uint64_t)((double)card->memory_bytes * share);
    if (settings->memory_share > 0 || bytes <= card->free_bytes) return bytes;
    return card->free_bytes;
}

static enum err open_once(struct loaded_gpu *loaded, struct error *error) {
    loaded->memory_bytes = memory_of(&loaded->card, &loaded->settings);
    const uint32_t ranks = loaded->settings.ranks;
    struct gpu_options options = {.index = loaded->card.index,
                                  .more_count = ranks > 1 ? ranks - 1 : 0,
                                  .memory_bytes = loaded->memory_bytes,
                                  .careful_steps =
                                      loaded->settings.is_careful ? GPU_CAREFUL_STEPS : 0};
    memcpy(options.more, loaded->more, sizeof options.more);
    return loaded->table->open(&loaded->gpu, &options, error);
}

static bool is_chosen(const struct loaded_gpu *loaded, uint32_t index) {
    for (uint32_t i = 0; i + 1 < loaded->settings.ranks; i++)
        if (loaded->more[i] == index) return true;
    return index == loaded->card.index;
}

/* Asks again how much is free: others may have ended since the GPU was chosen. A try that failed
 * leaves the driver's memory of this process, which is its own and counts as taken, so the most
 * that was free is what counts. */
static void look_again(struct loaded_gpu *loaded) {
    struct gpu_info cards[GPU_CARDS_MAX] = {0};
    struct error error;
    uint32_t count = 0;
    if (loaded->table->list(cards, GPU_CARDS_MAX, &count, &error) != OK) return;
    struct gpu_info least = {.free_bytes = UINT64_MAX, .memory_bytes = UINT64_MAX};
    for (uint32_t i = 0; i < count && i < GPU_CARDS_MAX; i++)
        if (is_chosen(loaded, cards[i].index)) keep_least(&least, &cards[i]);
    if (least.free_bytes != UINT64_MAX && least.free_bytes > loaded->card.free_bytes)
        loaded->card.free_bytes = least.free_bytes;
}

enum err gpu_load_open(struct loaded_gpu *loaded, struct error *error) {
    struct error why = {0};
    if (!loaded->table) return OK;
    enum err err = open_once(loaded, &why);
    for (size_t i = 0; err == ERR_LIMIT && i < sizeof pauses_ms / sizeof *pauses_ms; i++) {
        log_warn("event=device_waits card=%u limit_mib=%llu reason=\"%s\"", loaded->card.index,
                 (unsigned long long)(loaded->memory_bytes / MIB), why.text);
        clock_sleep_ms(pauses_ms[i]);
        look_again(loaded);
        err = open_once(loaded, &why);
    }
    if (err == OK) return OK;
    loaded->gpu = NULL;
    return fall_back(loaded, err, &why, error);
}

/* A GPU computes in bf16; the plain GPU of the tests has the CPU's float32. */
static enum gpu_form usual_form(const struct loaded_gpu *loaded) {
    return strcmp(loaded->table->kind, "plain") == 0 ? GPU_F32 : GPU_BF16;
}

enum gpu_form gpu_load_weight_form(const struct loaded_gpu *loaded, bool has_few) {
    switch (loaded->settings.weights) {
    case GPU_WEIGHTS_AUTO: break;
    case GPU_WEIGHTS_BF16: return GPU_BF16;
    case GPU_WEIGHTS_E4M3: return GPU_E4M3;
    case GPU_WEIGHTS_INT8: return GPU_INT8;
    case GPU_WEIGHTS_FILE:
        if (has_few && usual_form(loaded) == GPU_BF16) return GPU_BLOCKS;
        break;
    }
    return usual_form(loaded);
}

enum gpu_form gpu_load_kv_form(const struct loaded_gpu *loaded) {
    switch (loaded->settings.kv) {
    case GPU_KV_AUTO:
    case GPU_KV_INT8: break; /* refused before */
    case GPU_KV_BF16: return GPU_BF16;
    case GPU_KV_E4M3: return GPU_E4M3;
    }
    return usual_form(loaded);
}

enum gpu_form gpu_load_state_form(const struct loaded_gpu *loaded) {
    return loaded->settings.has_bf16_states ? GPU_BF16 : GPU_F32;
}

bool gpu_load_may_shrink(const struct loaded_gpu *loaded) {
    const enum gpu_weights weights = loaded->settings.weights;
    return (weights == GPU_WEIGHTS_AUTO || weights == GPU_WEIGHTS_FILE) &&
           usual_form(loaded) == GPU_BF16;
}

void gpu_load_close(struct loaded_gpu *loaded) {
    if (loaded->gpu) loaded->table->close(loaded->gpu);
    loaded->gpu = NULL;
}
