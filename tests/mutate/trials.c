/* SPDX-License-Identifier: Apache-2.0 */
#include "trials.h"

#include "../unit/tree.h"

#include "base/os.h"
#include "base/utf8.h"
#include "engine/served_model.h"
#include "model/model.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define KV_BYTES ((uint64_t)4 << 20)

static const char sample[] = "Hello, world! \xC3\x9C"
                             "ber 1234567 <|im_start|>\n\n   tabs\tand "
                             "\xF0\x9F\x98\x80 <s>[INST] aaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/* A failure after the file was opened, which is the answer to a request. */
static void check_answer(enum err err, const struct error *error) {
    if (err != OK && !*error->text) abort();
}

static void use_tokenizer(const struct tokenizer *tokenizer) {
    struct error error = {0};
    struct ids ids = {0};
    struct buf text;
    buf_init(&text, (size_t)64 << 20);
    const struct encode_options options = {.parse_special = true, .add_bos = true};
    check_answer(tokenizer_encode(tokenizer, str_from(sample), options, &ids, &error), &error);
    for (size_t i = 0; i < ids.count; i++)
        if (ids.at[i] < 0 || (size_t)ids.at[i] >= tokenizer_count(tokenizer)) abort();
    tokenizer_decode_text(tokenizer, ids.at, ids.count, true, &text);
    buf_release(&text);
    ids_release(&ids);
}

static void use_template(const struct jinja_template *template) {
    struct error error = {0};
    json_t *context = json_pack(
        "{s:[{s:s, s:s}, {s:s, s:s}, {s:s, s:s}], s:s, s:s, s:b, s:[{s:s, s:{s:s}}]}", "messages",
        "role", "system", "content", "Be brief.", "role", "user", "content", " Hello\n", "role",
        "assistant", "content", "\xC3\xBC <&> text", "bos_token", "<s>", "eos_token", "</s>",
        "add_generation_prompt", 1, "tools", "type", "function", "function", "name", "f");
    struct buf out;
    buf_init(&out, (size_t)64 << 20);
    const struct jinja_options options = {.now_unix_s = 1};
    check_answer(jinja_template_render(template, context, &options, &out, NULL, &error), &error);
    buf_release(&out);
    json_decref(context);
}

static void use_vocabulary(struct vocabulary *vocabulary) {
    use_tokenizer(vocabulary->tokenizer);
    if (vocabulary->template) use_template(vocabulary->template);
    vocabulary_close(vocabulary);
}

static void use_model(struct model *model) {
    const int32_t ids[2] = {0, 1};
    const uint32_t last = 1;
    const struct logits_request request = {
        .ids = ids, .count = 2, .positions = &last, .position_count = 1};
    struct error error = {0};
    float *logits = calloc(model_backend(model)->caps.vocab, sizeof *logits);
    if (!logits) abort();
    check_answer(model_logits(model, &request, logits, &error), &error);
    free(logits);
}

/* The words alone, as `quern tokenize` reads them, then all of it, as the engine does. */
static enum err try_model(const char *path, struct error *error) {
    struct vocabulary vocabulary;
    struct served_model model;
    const struct wire_hello hello = {.model_path = str_from(path),
                                     .threads = 1,
                                     .max_num_seqs = 4,
                                     .max_num_batched_tokens = 64,
                                     .kv_bytes = KV_BYTES};
    if (vocabulary_open_file(&vocabulary, path, error) == OK) use_vocabulary(&vocabulary);
    enum err err = served_model_open(&model, &hello, NULL, error);
    if (err != OK) return err;
    use_model(model.model);
    served_model_close(&model);
    return OK;
}

/* A folder without words, as `quern logits` reads it. */
static enum err try_weights(const char *path, struct error *error) {
    struct model *model;
    struct model_description is;
    const struct model_options options = {
        .reference = true, .threads = 1, .sequences_max = 4, .rows_max = 64, .kv_bytes = KV_BYTES};
    enum err err = model_open(&model, path, &options, error);
    if (err != OK) return err;
    model_describe(model, &is);
    if (is.generates) use_model(model);
    model_close(model);
    return OK;
}

/* "config.v5.json" stands in for config.json. */
static const char *name_in_folder(const char *path) {
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    return strncmp(name, "config", 6) == 0 ? "config.json" : name;
}

/* Links all files next to `path`, except the replaced one, which gets `bytes`. */
static void make_folder(const char *folder, const char *path, struct str bytes) {
    char source[PATH_MAX], from[2 * PATH_MAX], to[2 * PATH_MAX];
    int fd = -1;
    struct error error;
    snprintf(source, sizeof source, "%s", path);
    *strrchr(source, '/') = '\0';
    DIR *directory = opendir(source);
    if (!directory) abort();
    for (const struct dirent *at; (at = readdir(directory));) {
        if (at->d_name[0] == '.' || strcmp(at->d_name, name_in_folder(path)) == 0) continue;
        snprintf(from, sizeof from, "%s/%s", source, at->d_name);
        snprintf(to, sizeof to, "%s/%s", folder, at->d_name);
        if (symlink(from, to) != 0) abort();
    }
    closedir(directory);
    snprintf(to, sizeof to, "%s/%s", folder, name_in_folder(path));
    if (os_open(&fd, to, O_WRONLY | O_CREAT, 0600, &error) != OK ||
        os_write_all(fd, bytes.at, bytes.bytes, &error) != OK)
        abort();
    os_close(fd);
}

static enum err try_folder(const char *path, struct str bytes, struct error *error) {
    char full[PATH_MAX], folder[] = "/tmp/quern-mutate-XXXXXX", words[PATH_MAX];
    if (!realpath(path, full) || !mkdtemp(folder)) abort();
    make_folder(folder, full, bytes);
    snprintf(words, sizeof words, "%s/tokenizer.json", folder);
    enum err err = access(words, F_OK) == 0 ? try_model(folder, error) : try_weights(folder, error);
    tree_remove(folder);
    return err;
}

static enum err try_tokenizer(struct str bytes, struct error *error) {
    struct tokenizer *tokenizer;
    enum err err = tokenizer_open_json(&tokenizer, bytes, error);
    if (err != OK) return err;
    use_tokenizer(tokenizer);
    tokenizer_close(tokenizer);
    return err;
}

static enum err try_template(struct str bytes, struct error *error) {
    struct jinja_template *template;
    enum err err = jinja_template_open(&template, bytes, error);
    if (err != OK) return err;
    use_template(template);
    jinja_template_close(template);
    return err;
}

/* A file in memory, because the reader of a model maps a path. */
static enum err try_file(struct str bytes, struct error *error) {
    char path[32];
    int fd = memfd_create("mutated", MFD_CLOEXEC);
    if (fd < 0 || os_write_all(fd, bytes.at, bytes.bytes, error) != OK) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    enum err err = try_model(path, error);
    close(fd);
    return err;
}

static bool is_sentence(const char *text) {
    for (const char *at = text; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7F) return false;
    return *text && utf8_is_valid(str_from(text));
}

void trial_run(enum base_kind kind, const char *path, struct str bytes, struct trial *ret_trial) {
    struct error error = {0};
    enum err err = OK;
    switch (kind) {
    case BASE_GGUF: err = try_file(bytes, &error); break;
    case BASE_FOLDER: err = try_folder(path, bytes, &error); break;
    case BASE_TOKENIZER: err = try_tokenizer(bytes, &error); break;
    case BASE_TEMPLATE: err = try_template(bytes, &error); break;
    case BASE_KIND_COUNT: abort();
    }
    ret_trial->is_refused = err != OK;
    ret_trial->is_sentence = is_sentence(error.text);
    memcpy(ret_trial->text, error.text, sizeof ret_trial->text);
}
