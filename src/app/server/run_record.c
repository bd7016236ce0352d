/* SPDX-License-Identifier: Apache-2.0 */
#include "server/run_record.h"

#include "base/hash.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/utf8.h"
#include "gpu/gpu_find.h"
#include "kernels/kernels.h"
#include "proof/file_sum.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILES_MAX 4096
#define PROGRAM "/proc/self/exe"

json_t *run_record_text(const char *text) {
    struct buf repaired;
    buf_init(&repaired, BUF_UNLIMITED);
    utf8_add_repaired(&repaired, str_from(text));
    json_t *string = json_stringn(repaired.at ? repaired.at : "", repaired.bytes);
    buf_release(&repaired);
    return string;
}

static json_t *sum_of(struct str text) {
    unsigned char digest[SHA256_BYTES];
    char hex[SHA256_HEX_BYTES];
    struct sha256 hash;
    if (text.bytes == 0) return json_null();
    sha256_init(&hash);
    sha256_add(&hash, text.at, text.bytes);
    sha256_end(&hash, digest);
    sha256_hex(digest, hex);
    return json_string(hex);
}

/* The sum of a file as it is now, or null. */
static json_t *noted_sum(const char *path, const volatile bool *stop) {
    char hex[DIGEST_HEX_BYTES];
    struct error ignored;
    return file_sum_noted(path, hex, stop, &ignored) == OK ? json_string(hex) : json_null();
}

/* --- the files of a model --- */

static void add_file(json_t *files, const char *folder, const char *name) {
    char path[PATH_MAX + 256];
    struct file_facts facts;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (json_array_size(files) >= FILES_MAX || !file_facts_read(path, &facts)) return;
    json_t *file = json_object();
    json_object_set_new(file, "name", run_record_text(name));
    json_object_set_new(file, "bytes", json_integer((json_int_t)facts.bytes));
    json_object_set_new(file, "changed_ns", json_integer(facts.changed_ns));
    json_object_set_new(file, "inode", json_integer((json_int_t)facts.inode));
    json_array_append_new(files, file);
}

static int is_shown(const struct dirent *entry) {
    return *entry->d_name != '.';
}

/* Whether both names are parts of one model, NAME-00001-of-00003.gguf, or one name. */
static bool is_part(const char *name, const char *first) {
    const char *end = strstr(first, "-of-");
    size_t before = end ? (size_t)(end - first) : 0;
    if (strcmp(name, first) == 0) return true;
    return before > 5 && strlen(name) == strlen(first) && strcmp(name + before, end) == 0 &&
           strncmp(name, first, before - 5) == 0;
}

/* Adds the files of a folder, or the parts of one file, in the order of their names. */
static json_t *files_of(const char *path) {
    char folder[PATH_MAX];
    json_t *files = json_array();
    struct stat status;
    struct dirent **entries;
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    const char *only = NULL;
    if (slash && stat(path, &status) == 0 && !S_ISDIR(status.st_mode)) {
        only = path + (slash - folder) + 1;
        slash[slash == folder] = '\0';
    }
    int count = scandir(folder, &entries, is_shown, alphasort);
    for (int i = 0; i < count; i++) {
        if (!only || is_part(entries[i]->d_name, only)) add_file(files, folder, entries[i]->d_name);
        free(entries[i]);
    }
    if (count >= 0) free((void *)entries);
    return files;
}

/* --- what computes --- */

static void take_template(void *context, const struct runner_model *model) {
    *(json_t **)context = sum_of(model->served.about.template);
}

static json_t *names_of(const struct model_choice *choice) {
    json_t *names = json_array();
    for (size_t i = 0; i < choice->name_count; i++)
        json_array_append_new(names, run_record_text(choice->names[i]));
    return names;
}

static json_t *model_of(struct node *node, const struct model_choice *choice,
                        const char *template) {
    char whole[PATH_MAX];
    json_t *model = json_object(), *sum = NULL;
    json_object_set_new(model, "names", names_of(choice));
    if (choice->is_echo) {
        json_object_set_new(model, "path", json_string("echo"));
        return model;
    }
    const char *path = realpath(choice->path, whole) ? whole : choice->path;
    if (template)
        sum = sum_of(str_from(template));
    else
        (void)runner_model_find(node_runner(node), str_from(choice->names[0]), take_template, &sum);
    json_object_set_new(model, "path", run_record_text(path));
    json_object_set_new(model, "chat_template_sha256", sum ? sum : json_null());
    json_object_set_new(model, "files", files_of(path));
    return model;
}

static json_t *gpus_of(struct node *node) {
    struct worker_status workers[RUNNER_WORKERS_MAX];
    json_t *gpus = json_array();
    size_t count = runner_worker_statuses(node_runner(node), workers, RUNNER_WORKERS_MAX);
    for (size_t i = 0; i < count; i++)
        if (*workers[i].card) json_array_append_new(gpus, run_record_text(workers[i].card));
    return gpus;
}

static json_t *program_of(bool has_gpus) {
    char plugin[PATH_MAX];
    json_t *program = json_object();
    json_object_set_new(program, "version", json_string(QUERN_VERSION));
    json_object_set_new(program, "sha256", noted_sum(PROGRAM, NULL));
    if (has_gpus && gpu_find_plugin(plugin))
        json_object_set_new(program, "plugin_sha256", noted_sum(plugin, NULL));
    return program;
}

static json_t *aliases_of(const struct node_options *options) {
    json_t *aliases = json_object();
    for (size_t i = 0; i < options->alias_count; i++)
        json_object_set_new(aliases, options->aliases[i].name,
                            run_record_text(options->aliases[i].model));
    return aliases;
}

json_t *run_record_make(struct node *node, const struct node_options *options,
                        const json_t *settings) {
    const struct engine_settings *engine = &options->engine;
    const struct kernels *kernels = kernels_choose(engine->reference ? "ref" : engine->kernels);
    json_t *record = json_object(), *models = json_array(), *upstreams = json_array(),
           *gpus = gpus_of(node);
    json_object_set_new(record, "quern", program_of(json_array_size(gpus) > 0));
    json_object_set_new(record, "instructions", kernels ? json_string(kernels->name) : json_null());
    json_object_set_new(record, "gpus", gpus);
    json_object_set_new(record, "settings", settings ? json_deep_copy(settings) : json_array());
    for (size_t i = 0; i < options->model_count; i++)
        json_array_append_new(models, model_of(node, &options->models[i], engine->chat_template));
    json_object_set_new(record, "models", models);
    json_object_set_new(record, "aliases", aliases_of(options));
    for (size_t i = 0; i < options->upstream_count; i++) {
        json_t *upstream = json_object();
        json_object_set_new(upstream, "name", run_record_text(options->upstreams[i].name));
        json_object_set_new(upstream, "url", run_record_text(options->upstreams[i].base));
        json_array_append_new(upstreams, upstream);
    }
    json_object_set_new(record, "upstreams", upstreams);
    if (options->queue) json_object_set_new(record, "has_nodes", json_true());
    if (options->shelf) json_object_set_new(record, "on_demand", json_true());
    return record;
}

/* --- sums --- */

/* The folder of a model's files. */
static void folder_of(const json_t *model, char ret_folder[PATH_MAX]) {
    struct stat status;
    const char *path = json_string_value(json_object_get(model, "path"));
    snprintf(ret_folder, PATH_MAX, "%s", path ? path : "");
    char *slash = strrchr(ret_folder, '/');
    if (slash && (stat(ret_folder, &status) != 0 || !S_ISDIR(status.st_mode)))
        slash[slash == ret_folder] = '\0';
}

static void add_sum(json_t *file, const char *folder, const volatile bool *stop) {
    char path[PATH_MAX + 256];
    struct file_facts now;
    const struct file_facts then = {
        .bytes = (uint64_t)json_integer_value(json_object_get(file, "bytes")),
        .changed_ns = json_integer_value(json_object_get(file, "changed_ns")),
        .inode = (uint64_t)json_integer_value(json_object_get(file, "inode"))};
    const char *name = json_string_value(json_object_get(file, "name"));
    snprintf(path, sizeof path, "%s/%s", folder, name ? name : "");
    bool is_same = file_facts_read(path, &now) && file_facts_are_same(&then, &now);
    json_object_set_new(file, "sha256", is_same ? noted_sum(path, stop) : json_null());
}

bool run_record_add_sums(json_t *record, const volatile bool *stop) {
    char folder[PATH_MAX];
    json_t *model, *file;
    size_t i, k;
    json_array_foreach(json_object_get(record, "models"), i, model) {
        folder_of(model, folder);
        json_array_foreach(json_object_get(model, "files"), k, file) {
            add_sum(file, folder, stop);
            if (stop && *stop) return false;
        }
    }
    return true;
}

bool run_record_has_sums(const json_t *record) {
    const json_t *model, *file;
    size_t i, k;
    json_array_foreach(json_object_get(record, "models"), i, model)
        json_array_foreach(json_object_get(model, "files"), k,
                           file) if (!json_object_get(file, "sha256")) return false;
    return true;
}

static void drop(json_t *record, const char *member) {
    json_t *model, *file;
    size_t i, k;
    json_array_foreach(json_object_get(record, "models"), i, model)
        json_array_foreach(json_object_get(model, "files"), k, file) json_object_del(file, member);
}

void run_record_drop_facts(json_t *record) {
    drop(record, "changed_ns");
    drop(record, "inode");
}

enum err run_record_append(const char *path, struct str line, struct error *error) {
    int fd;
    enum err err = os_open(&fd, path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0600, error);
    if (err != OK) return err;
    err = os_write_all(fd, line.at, line.bytes, error);
    if (err == OK) err = os_fsync(fd, error);
    os_close(fd);
    return err;
}

bool run_record_is_same(const json_t *a, const json_t *b) {
    json_t *one = json_deep_copy(a), *other = json_deep_copy(b);
    drop(one, "sha256");
    drop(other, "sha256");
    bool is_same = json_equal(one, other);
    json_decref(one);
    json_decref(other);
    return is_same;
}
