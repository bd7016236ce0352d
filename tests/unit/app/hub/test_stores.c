/* SPDX-License-Identifier: Apache-2.0 */

/* Ollama's store and the Hugging Face cache, made in a temporary folder: what is found, and what a
 * hostile one does not achieve. */

#include "hub/catalog_path.h"
#include "hub/hub_internal.h"
#include "hub/modelfile.h"

#include "../../tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define DIGEST "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static char root[] = "/tmp/quern-test-stores-XXXXXX";

static void path_of(char ret_path[512], const char *name) {
    snprintf(ret_path, 512, "%s/%s", root, name);
}

/* Also makes the folders above. */
static void put(const char *name, const char *text) {
    char path[512];
    path_of(path, name);
    for (char *c = path + strlen(root) + 1; *c; c++)
        if (*c == '/') {
            *c = '\0';
            mkdir(path, 0700);
            *c = '/';
        }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void put_link(const char *name, const char *target) {
    char path[512];
    put(name, "");
    path_of(path, name);
    unlink(path);
    assert_int_equal(symlink(target, path), 0);
}

static int open_stores(void **state) {
    (void)state;
    char path[512];
    snprintf(root, sizeof root, "/tmp/quern-test-stores-XXXXXX");
    if (!mkdtemp(root)) return -1;
    path_of(path, "ollama");
    setenv("OLLAMA_MODELS", path, 1);
    path_of(path, "hub");
    setenv("HF_HUB_CACHE", path, 1);
    path_of(path, "cache");
    return setenv("XDG_CACHE_HOME", path, 1);
}

static int remove_stores(void **state) {
    (void)state;
    tree_remove(root);
    return 0;
}

/* A model of the Hugging Face cache with one file, as its tools lay it down. */
static void put_hub(const char *repository, const char *file, const char *text) {
    char name[300];
    snprintf(name, sizeof name, "hub/%s/refs/main", repository);
    put(name, COMMIT "\n");
    snprintf(name, sizeof name, "hub/%s/blobs/blob-of-%s", repository, file);
    put(name, text);
    snprintf(name, sizeof name, "hub/%s/snapshots/" COMMIT "/%s", repository, file);
    char target[200];
    snprintf(target, sizeof target, "../../blobs/blob-of-%s", file);
    put_link(name, target);
}

static void put_ollama(const char *name, const char *layers) {
    char path[300], text[1000];
    snprintf(path, sizeof path, "ollama/manifests/%s", name);
    snprintf(text, sizeof text, "{\"schemaVersion\":2,\"layers\":[%s]}", layers);
    put(path, text);
}

#define WEIGHTS(digest, size)                                                                      \
    "{\"mediaType\":\"application/vnd.ollama.image.model\",\"digest\":\"" digest                   \
    "\",\"size\":" size "}"

static struct model_choice chosen;

static enum err choose(const char *name, const char *says) {
    struct error error = {0};
    enum err err = catalog_choose(name, &chosen, &error);
    if (err != OK && !strstr(error.text, says)) fail_msg("%s", error.text);
    return err;
}

static bool ends_with(const char *path, const char *end) {
    return str_ends_with(str_from(path), str_from(end));
}

static bool has_name(const char *name) {
    for (size_t i = 0; i < chosen.name_count; i++)
        if (strcmp(chosen.names[i], name) == 0) return true;
    return false;
}

static void a_model_of_ollama_is_found_by_all_its_names(void **state) {
    (void)state;
    put_ollama("host.example/library/gemma3/12b", WEIGHTS("sha256:" DIGEST, "8"));
    put_ollama("host.example/library/llama3.2/latest", WEIGHTS("sha256-" DIGEST, "8"));
    put_ollama("host.example/someone/own/v1", WEIGHTS("sha256:" DIGEST, "8"));
    put("ollama/blobs/sha256-" DIGEST, "GGUFxxxx");
    assert_int_equal(choose("gemma3:12b", ""), OK);
    assert_true(ends_with(chosen.path, "/ollama/blobs/sha256-" DIGEST));
    assert_string_equal(chosen.names[0], "gemma3:12b");
    assert_int_equal(choose("google/gemma-3-12b-it", ""), OK);
    assert_string_equal(chosen.names[0], "google/gemma-3-12b-it");
    assert_true(has_name("gemma3:12b"));
    assert_int_equal(choose("gpt-4=GEMMA3:12b", ""), OK);
    assert_string_equal(chosen.names[0], "gpt-4");
    assert_int_equal(choose("llama3.2", ""), OK);
    assert_int_equal(choose("llama3.2:latest", ""), OK);
    assert_int_equal(choose("meta-llama/Llama-3.2-3B-Instruct", "nor in Ollama"), OK);
    assert_int_equal(choose("someone/own:v1", ""), OK);
    assert_int_equal(choose("host.example/someone/own:v1", ""), OK);
    assert_int_equal(choose("own:v1", "nor in Ollama"), ERR_NOT_FOUND);
    assert_int_equal(choose("gemma3", "nor in Ollama"), ERR_NOT_FOUND);
}

static void a_model_of_ollama_that_cannot_be_served_says_why(void **state) {
    (void)state;
    put("ollama/blobs/sha256-" DIGEST, "GGUFxxxx");
    put("ollama/blobs/sha256-b" DIGEST, "GGUFxxxx");
    put_ollama("h/library/short/latest", WEIGHTS("sha256:" DIGEST, "9"));
    assert_int_equal(choose("short", "its file is not complete"), ERR_INVALID);
    put_ollama(
        "h/library/gone/latest",
        WEIGHTS("sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", "8"));
    assert_int_equal(choose("gone", "not in the store"), ERR_INVALID);
    put_ollama("h/library/tensors/latest",
               "{\"mediaType\":\"application/vnd.ollama.image.tensor\"}");
    assert_int_equal(choose("tensors", "not a GGUF model"), ERR_INVALID);
    put_ollama("h/library/adapted/latest",
               WEIGHTS("sha256:" DIGEST, "8") ",{\"mediaType\":"
                                              "\"application/vnd.ollama.image.adapter\"}");
    assert_int_equal(choose("adapted", "with an adapter"), ERR_INVALID);
    put("ollama/blobs/sha256-" DIGEST, "PK\x03\x04xxxx");
    put_ollama("h/library/zip/latest", WEIGHTS("sha256:" DIGEST, "8"));
    assert_int_equal(choose("zip", "not GGUF"), ERR_INVALID);
}

static void a_hostile_digest_makes_no_path(void **state) {
    (void)state;
    put("secret", "GGUFxxxx");
    static const char *const layers[] = {
        WEIGHTS("sha256:../../../secret", "8"),
        WEIGHTS("sha256-" DIGEST "/../../../secret", "8"),
        WEIGHTS("sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "8"),
        WEIGHTS("sha512:" DIGEST, "8"),
        WEIGHTS("sha256:" DIGEST, "-1"),
        WEIGHTS("sha256:" DIGEST, "\"8\""),
        WEIGHTS("sha256:" DIGEST, "8") "," WEIGHTS("sha256:" DIGEST, "8"),
        "1",
    };
    put("ollama/blobs/sha256-" DIGEST, "GGUFxxxx");
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        put_ollama("h/library/evil/latest", layers[i]);
        assert_int_equal(choose("evil", "manifest is damaged"), ERR_INVALID);
    }
    put("ollama/manifests/h/library/evil/latest", "[1]");
    assert_int_equal(choose("evil", "manifest is damaged"), ERR_INVALID);
    put("ollama/manifests/h/library/evil/latest", "{");
    assert_int_equal(choose("evil", "manifest is damaged"), ERR_INVALID);
}

static void links_do_not_lead_out_of_a_store(void **state) {
    (void)state;
    char outside[512];
    put("secret", "GGUFxxxx");
    path_of(outside, "secret");
    put_ollama("h/library/linked/latest", WEIGHTS("sha256:" DIGEST, "8"));
    put_link("ollama/blobs/sha256-" DIGEST, outside);
    assert_int_equal(choose("linked", "not in the store"), ERR_INVALID);
    put_link("ollama/manifests/h/library/away/latest", outside);
    assert_int_equal(choose("away", "nor in Ollama"), ERR_NOT_FOUND);
    put_hub("models--org--good", "good.gguf", "GGUF");
    assert_int_equal(choose("org/good", ""), OK);
    put_link("hub/models--org--good/snapshots/" COMMIT "/good.gguf", outside);
    assert_int_equal(choose("org/good", "nor in Ollama"), ERR_NOT_FOUND);
    put_link("hub/models--org--good/snapshots/" COMMIT "/good.gguf", "../../../../secret");
    assert_int_equal(choose("org/good", "nor in Ollama"), ERR_NOT_FOUND);
    put("hub/models--org--other/refs/main", "../../../elsewhere");
    assert_int_equal(choose("org/other", "nor in Ollama"), ERR_NOT_FOUND);
    assert_int_equal(choose("../secret", "nor in Ollama"), ERR_NOT_FOUND);
    assert_int_equal(choose("org/../../secret", "nor in Ollama"), ERR_NOT_FOUND);
}

static void a_repository_is_found_and_the_usual_quantisation_chosen(void **state) {
    (void)state;
    put_hub("models--org--repo", "repo-Q8_0.gguf", "GGUF");
    put_hub("models--org--repo", "repo-Q4_K_M.gguf", "GGUFx");
    put_hub("models--org--repo", "repo.IQ2_XS.gguf", "GGUFxy");
    put_hub("models--org--repo", "mmproj-F16.gguf", "GGUFxyz");
    assert_int_equal(choose("org/repo", ""), OK);
    assert_true(ends_with(chosen.path, "blob-of-repo-Q4_K_M.gguf"));
    assert_string_equal(chosen.names[0], "org/repo");
    assert_true(has_name("org/repo:Q4_K_M"));
    assert_int_equal(choose("org/repo:q8_0", ""), OK);
    assert_true(ends_with(chosen.path, "blob-of-repo-Q8_0.gguf"));
    assert_int_equal(choose("org/repo:IQ2_XS", ""), OK);
    assert_int_equal(choose("org/repo:F16", "nor in Ollama"), ERR_NOT_FOUND);
}

static void a_blob_of_the_whole_cache_is_inside_it(void **state) {
    (void)state;
    put_hub("models--org--xet", "a.gguf", "");
    put("hub/blobs/ab/abcdef", "GGUF");
    put_link("hub/models--org--xet/blobs/blob-of-a.gguf", "../../blobs/ab/abcdef");
    assert_int_equal(choose("org/xet", ""), OK);
    assert_true(ends_with(chosen.path, "/hub/blobs/ab/abcdef"));
}

static void a_repository_that_holds_a_model_as_gguf_stands_for_it(void **state) {
    (void)state;
    put_hub("models--google--gemma-3-12b-it", "model.safetensors", "xxxx");
    put_hub("models--google--gemma-3-12b-it", "config.json", "{}");
    assert_int_equal(choose("gemma3:12b", "it has no tokenizer.json"), ERR_INVALID);
    put_hub("models--someone--gemma-3-12b-it-GGUF", "gemma-3-12b-it-Q4_K_M.gguf", "GGUF");
    assert_int_equal(choose("gemma3:12b", ""), OK);
    assert_true(ends_with(chosen.path, "gemma-3-12b-it-Q4_K_M.gguf"));
    assert_string_equal(chosen.names[0], "gemma3:12b");
}

static void what_is_incomplete_is_not_served(void **state) {
    (void)state;
    put_hub("models--org--parts", "m-Q4_0-00001-of-00002.gguf", "GGUF");
    assert_int_equal(choose("org/parts", "not all of its files"), ERR_INVALID);
    put_hub("models--org--parts", "m-Q4_0-00002-of-00002.gguf", "x");
    assert_int_equal(choose("org/parts", ""), OK);
    /* The parts find each other by their names, so the path is that of the link. */
    assert_true(ends_with(chosen.path, "/snapshots/" COMMIT "/m-Q4_0-00001-of-00002.gguf"));
    put("hub/models--org--half/refs/main", COMMIT);
    put("hub/models--org--half/blobs/abc.incomplete", "GGUF");
    put_link("hub/models--org--half/snapshots/" COMMIT "/m.gguf", "../../blobs/abc.incomplete");
    assert_int_equal(choose("org/half", "nor in Ollama"), ERR_NOT_FOUND);
    put_link("hub/models--org--half/snapshots/" COMMIT "/m.gguf", "../../blobs/gone");
    assert_int_equal(choose("org/half", "nor in Ollama"), ERR_NOT_FOUND);
}

static void a_repository_of_safetensors_is_a_folder_that_is_served(void **state) {
    (void)state;
    put_hub("models--org--whole", "config.json", "{}");
    put_hub("models--org--whole", "tokenizer.json", "{}");
    put_hub("models--org--whole", "model-00001-of-00002.safetensors", "xxxx");
    put_hub("models--org--whole", "model.safetensors.index.json", "{}");
    assert_int_equal(choose("org/whole", "not all of its files are here"), ERR_INVALID);
    put_hub("models--org--whole", "model-00002-of-00002.safetensors", "xx");
    assert_int_equal(choose("ORG/whole", ""), OK);
    assert_true(ends_with(chosen.path, "/hub/models--org--whole/snapshots/" COMMIT));
    assert_true(has_name("org/whole"));
    assert_int_equal(catalog_bytes(chosen.path), 6);
}

static void a_folder_is_found_by_its_path_and_in_the_model_folder(void **state) {
    (void)state;
    char path[512];
    put("cache/quern/models/mine/config.json", "{}");
    put("cache/quern/models/mine/model.safetensors", "xxxx");
    put("cache/quern/models/not-one/readme", "x");
    assert_int_equal(choose("mine", ""), OK);
    assert_true(ends_with(chosen.path, "/quern/models/mine"));
    assert_string_equal(chosen.names[0], "mine");
    path_of(path, "cache/quern/models/mine/");
    assert_int_equal(choose(path, ""), OK);
    assert_true(ends_with(chosen.path, "/quern/models/mine"));
    assert_string_equal(chosen.names[0], "mine");
    assert_int_equal(choose("not-one", "nor in Ollama"), ERR_NOT_FOUND);
    path_of(path, "cache/quern/models/not-one");
    assert_int_equal(choose(path, "nor in Ollama"), ERR_NOT_FOUND);
}

static void count_one(void *context, const struct model_file *file) {
    int *counts = context;
    counts[file->source]++;
    counts[3] += *file->why_not != '\0';
}

static void all_stores_are_listed(void **state) {
    (void)state;
    int counts[4] = {0};
    struct error error;
    put("cache/quern/models/mine.gguf", "GGUF");
    put("cache/quern/models/folder/config.json", "{}");
    put("cache/quern/models/notes/readme", "x");
    put_ollama("h/library/a/latest", WEIGHTS("sha256:" DIGEST, "8"));
    put("ollama/blobs/sha256-" DIGEST, "GGUFxxxx");
    put_hub("models--org--repo", "repo-Q8_0.gguf", "GGUF");
    put_hub("models--org--tensors", "model.safetensors", "xxxx");
    put_hub("models--org--tensors", "config.json", "{}");
    assert_int_equal(catalog_list(count_one, counts, &error), OK);
    assert_int_equal(counts[SOURCE_FOLDER], 2);
    assert_int_equal(counts[SOURCE_OLLAMA], 1);
    assert_int_equal(counts[SOURCE_HUB], 2);
    assert_int_equal(counts[3], 1);
}

/* --- what a Modelfile says --- */

#define LAYER(kind, digest)                                                                        \
    "{\"mediaType\":\"application/vnd.ollama.image." kind "\",\"digest\":\"sha256:" digest "\"}"
#define OTHER "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0"

/* Checks what the store says for a name whose weights have 8 bytes. */
static void check_modelfile(const char *name, const char *params, const char *system) {
    struct ollama_preset preset;
    ollama_preset_init(&preset);
    assert_int_equal(modelfile_read(str_from(name), 8, &preset), *params || *system);
    if (!str_is(buf_str(&preset.params), params) || !str_is(buf_str(&preset.system), system))
        fail_msg("%s: %.*s and %.*s", name, STR_ARGS(buf_str(&preset.params)),
                 STR_ARGS(buf_str(&preset.system)));
    ollama_preset_release(&preset);
}

static void a_modelfile_is_read(void **state) {
    (void)state;
    put_ollama("h/library/own/latest", WEIGHTS("sha256:" DIGEST, "8") "," LAYER("params", OTHER));
    put_ollama("h/me/own/v1", WEIGHTS("sha256:" DIGEST, "8") "," LAYER("system", OTHER));
    put_ollama("h/library/larger/latest",
               WEIGHTS("sha256:" DIGEST, "9") "," LAYER("params", OTHER));
    check_modelfile("own", "", ""); /* the blob is missing */
    put("ollama/blobs/sha256-" OTHER, " {\"top_k\":1}\n");
    check_modelfile("own", "{\"top_k\":1}", "");
    check_modelfile("own:latest", "{\"top_k\":1}", "");
    check_modelfile("me/own:v1", "", "\" {\\\"top_k\\\":1}\\n\"");
    check_modelfile("me/own", "", "");
    check_modelfile("larger", "", ""); /* another model has the name */
    check_modelfile("../own", "", "");
    check_modelfile("a/b/c", "", "");
    check_modelfile("", "", "");
}

static void a_damaged_modelfile_says_nothing(void **state) {
    static const char *const texts[] = {"[1]", "{\"a\":", "", "{\"a\":\"\xff\"}"};
    (void)state;
    put_ollama("h/library/own/latest", WEIGHTS("sha256:" DIGEST, "8") "," LAYER("params", OTHER));
    put_ollama("h/library/talks/latest", WEIGHTS("sha256:" DIGEST, "8") "," LAYER("system", OTHER));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        put("ollama/blobs/sha256-" OTHER, texts[i]);
        check_modelfile("own", "", "");
    }
    check_modelfile("talks", "", ""); /* not UTF-8 */
    put_ollama("h/library/own/latest", WEIGHTS("sha256:" DIGEST, "8") "," LAYER("params", "x"));
    check_modelfile("own", "", "");
    put_ollama("h/library/own/latest", "7");
    check_modelfile("own", "", "");
}

int main(void) {
#define STORE_TEST(name) cmocka_unit_test_setup_teardown(name, open_stores, remove_stores)
    const struct CMUnitTest tests[] = {
        STORE_TEST(a_model_of_ollama_is_found_by_all_its_names),
        STORE_TEST(a_model_of_ollama_that_cannot_be_served_says_why),
        STORE_TEST(a_modelfile_is_read),
        STORE_TEST(a_damaged_modelfile_says_nothing),
        STORE_TEST(a_hostile_digest_makes_no_path),
        STORE_TEST(links_do_not_lead_out_of_a_store),
        STORE_TEST(a_repository_is_found_and_the_usual_quantisation_chosen),
        STORE_TEST(a_blob_of_the_whole_cache_is_inside_it),
        STORE_TEST(a_repository_that_holds_a_model_as_gguf_stands_for_it),
        STORE_TEST(what_is_incomplete_is_not_served),
        STORE_TEST(a_repository_of_safetensors_is_a_folder_that_is_served),
        STORE_TEST(a_folder_is_found_by_its_path_and_in_the_model_folder),
        STORE_TEST(all_stores_are_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
