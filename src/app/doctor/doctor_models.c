/* SPDX-License-Identifier: Apache-2.0 */

/* Models and GPUs. Heads of models are foreign files, so that a process in the sandbox reads them
 * and tells its findings through a pipe, a line each. */

#include "doctor/doctor_internal.h"

#include "base/sandbox.h"
#include "base/str.h"
#include "gpu/gpu_find.h"
#include "gpu/gpu_load.h"
#include "gpu/gpu_products.h"
#include "hub/model_facts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MODELS "models"
#define LINE_BYTES 2048
#define NO_MODEL "no model is on this machine, and no setting names one"

/* --- in the sandbox: "VERDICT text" per line --- */

static void tell(FILE *to, enum doctor_verdict verdict, const char *format, ...) PRINTF_LIKE(3, 4);
static void tell(FILE *to, enum doctor_verdict verdict, const char *format, ...) {
    struct error text;
    char line[ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    (void)(err_set)(&text, ERR_INVALID, "%s", line); /* one line of it */
    fprintf(to, "%d%s\n", (int)verdict, text.text);
    fflush(to);
}

static void tell_model(FILE *to, const char *argument) {
    struct model_choice model;
    struct model_facts facts;
    struct error error = {0};
    struct model_file file = {.source = SOURCE_FOLDER};
    if (catalog_choose(argument, &model, &error) != OK) {
        tell(to, DOCTOR_WRONG, "--model %.100s: %s", argument, error.text);
        return;
    }
    if (model.is_echo) {
        tell(to, DOCTOR_HINT, "%.100s answers with its question: it is for tests", model.names[0]);
        return;
    }
    snprintf(file.name, sizeof file.name, "%s", model.names[0]);
    snprintf(file.path, sizeof file.path, "%s", model.path);
    model_facts_read(&facts, &file, 0);
    if (*facts.why_not)
        tell(to, DOCTOR_WRONG, "%.100s cannot be served: %.300s", file.name, facts.why_not);
    else if (facts.is_read && facts.fit.left_bytes > 0)
        tell(to, DOCTOR_HINT,
             "%.100s needs %.1f GB of memory, and %.1f GB are free: %.1f GB of its experts stay in "
             "the file, which is slower",
             file.name, (double)facts.fit.needed_bytes / 1e9,
             (double)facts.machine.free_bytes / 1e9, (double)facts.fit.left_bytes / 1e9);
    else if (facts.is_read && !facts.fit.is_in_memory)
        tell(to, DOCTOR_HINT, "%.100s needs %.1f GB of memory, and %.1f GB are free", file.name,
             (double)facts.fit.needed_bytes / 1e9, (double)facts.machine.free_bytes / 1e9);
    else
        tell(to, DOCTOR_GOOD, "%.100s can be served (%.200s)", file.name, file.path);
    model_facts_release(&facts);
}

struct stores {
    size_t servable, refused;
};

static void count_file(void *context, const struct model_file *file) {
    struct stores *stores = context;
    if (*file->why_not)
        stores->refused++;
    else
        stores->servable++;
}

static void tell_stores(FILE *to, bool has_model) {
    struct stores stores = {0};
    struct error error = {0};
    if (catalog_list(count_file, &stores, &error) != OK)
        tell(to, DOCTOR_WRONG, "the models of this machine: %s", error.text);
    else if (stores.servable == 0 && !has_model)
        tell(to, DOCTOR_HINT, NO_MODEL);
    else
        tell(to, DOCTOR_GOOD, "%zu %s of this machine can be served, and %zu cannot",
             stores.servable, plural(stores.servable, "model", "models"), stores.refused);
}

static int tell_all(int fd, const struct doctor_settings *settings) {
    struct sandbox_state state;
    const struct sandbox_path all = {.path = "/"};
    FILE *to = fdopen(fd, "w");
    if (!to) return 1;
    sandbox_enter(SANDBOX_FILES, &all, 1, &state);
    for (size_t i = 0; i < settings->model_count; i++) tell_model(to, settings->models[i]);
    tell_stores(to, settings->model_count > 0 || settings->upstream_count > 0);
    return 0;
}

/* --- the parent --- */

static void take_lines(struct doctor *doctor, FILE *from) {
    char line[LINE_BYTES];
    while (fgets(line, sizeof line, from)) {
        int verdict = line[0] - '0';
        line[strcspn(line, "\n")] = '\0';
        if (verdict < DOCTOR_GOOD || verdict > DOCTOR_WRONG) continue;
        const char *remedy = NULL;
        if (verdict == DOCTOR_WRONG)
            remedy = "`quern models` lists what is here, `quern pull` fetches";
        if (verdict == DOCTOR_HINT) remedy = "`quern models inspect NAME` shows more";
        if (strcmp(line + 1, NO_MODEL) == 0)
            remedy = "`quern pull smollm2` fetches a small one, `quern pull ORG/NAME` another";
        doctor_find(doctor, (enum doctor_verdict)verdict, MODELS, remedy, "%s", line + 1);
    }
}

void doctor_check_models(struct doctor *doctor) {
    int ends[2], status = 0;
    fflush(stdout);
    if (pipe(ends) != 0) return;
    pid_t child = fork();
    if (child == 0) {
        (void)close(ends[0]);
        _exit(tell_all(ends[1], &doctor->settings));
    }
    (void)close(ends[1]);
    FILE *from = child > 0 ? fdopen(ends[0], "r") : NULL;
    if (from) {
        take_lines(doctor, from);
        fclose(from);
    } else {
        (void)close(ends[0]);
    }
    if (child < 0) return;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    if (status != 0)
        doctor_find(doctor, DOCTOR_WRONG, MODELS, "move it away, and tell quern's makers about it",
                    "a model's file broke the process that read it (after the models above)");
}

/* --- GPUs --- */

/* Tells whether cuBLASLt, without which a GPU of NVIDIA cannot be opened, can be loaded. */
static void tell_products(struct doctor *doctor, const struct loaded_gpu *loaded) {
    char plugin[PATH_MAX], found[PATH_MAX];
    struct str named = loaded->settings.plugin;
    if (strcmp(loaded->table->kind, "cuda") != 0) return;
    if (named.bytes > 0)
        snprintf(plugin, sizeof plugin, "%.*s", STR_ARGS(named));
    else if (!gpu_find_plugin(plugin))
        plugin[0] = '\0';
    if (gpu_products_find(plugin, found))
        doctor_find(doctor, DOCTOR_GOOD, "device", NULL, "cuBLASLt is %s", found);
    else
        doctor_find(doctor, DOCTOR_WRONG, "device",
                    "install CUDA's cuBLAS, or put libcublasLt.so next to the plugin",
                    "the GPU cannot be opened: libcublasLt.so.13 and libcublasLt.so.12 cannot be "
                    "loaded");
}

static void tell_card(struct doctor *doctor, const struct loaded_gpu *loaded) {
    bool has_driver = gpu_find_driver();
    char plugin[PATH_MAX];
    if (loaded->table) tell_products(doctor, loaded);
    if (loaded->table)
        doctor_find(doctor, DOCTOR_GOOD, "device", NULL, "%s: %.1f of %.1f GB are free",
                    loaded->card.name, (double)loaded->card.free_bytes / 1e9,
                    (double)loaded->card.memory_bytes / 1e9);
    else if (has_driver && !gpu_find_plugin(plugin))
        doctor_find(doctor, DOCTOR_HINT, "device",
                    "`make cuda` builds it; as a package: libquern-cuda",
                    "the CPU computes: a driver of NVIDIA is here, and the plugin is not");
    else
        doctor_find(doctor, loaded->is_surprising ? DOCTOR_HINT : DOCTOR_GOOD, "device",
                    loaded->is_surprising ? "--device cuda insists on a GPU, --device cpu does not "
                                            "ask for one"
                                          : NULL,
                    "the CPU computes%s%s", *loaded->reason ? ": " : "", loaded->reason);
}

void doctor_check_device(struct doctor *doctor) {
    struct loaded_gpu loaded = {0};
    struct gpu_settings settings;
    struct error error = {0};
    const struct gpu_texts texts = {
        .device = str_from(doctor->settings.device),
        .plugin = str_from(doctor->settings.device_plugin),
    };
    enum err err = gpu_settings_read(&settings, &texts, &error);
    if (err == OK) err = gpu_load(&loaded, &settings, &error);
    if (err != OK)
        doctor_find(doctor, DOCTOR_WRONG, "device",
                    "see the sentence; --device auto takes the CPU instead", "%s", error.text);
    else
        tell_card(doctor, &loaded);
    gpu_load_close(&loaded);
}
