/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests read back, and no byte of one can change unseen. */
#include "proof/manifest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static json_t *content_of(int version) {
    return json_pack("{s:s,s:i,s:{s:s,s:s},s:[s,i]}", "object", MANIFEST_OBJECT, "version", version,
                     "input", "name", "caf\u00e9.jsonl", "signature", "no signature", "computed_by",
                     ",\n  \"signature\": \"", 7);
}

static void write_one(struct buf *out, struct ssh_key *ret_key, bool is_signed, int version) {
    json_t *content = content_of(version);
    buf_init(out, BUF_UNLIMITED);
    ssh_key_make(ret_key);
    manifest_write(out, content, is_signed ? ret_key : NULL);
    json_decref(content);
}

static void a_manifest_reads_back_with_its_signer(void **state) {
    (void)state;
    struct buf text;
    struct ssh_key key;
    struct manifest manifest;
    struct error error;
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        write_one(&text, &key, is_signed, MANIFEST_VERSION);
        json_t *content = content_of(MANIFEST_VERSION);
        assert_true(manifest_is_one(buf_str(&text)));
        if (manifest_read(&manifest, buf_str(&text), &error) != OK) fail_msg("%s", error.text);
        assert_true(json_equal(manifest.content, content));
        assert_int_equal(manifest.is_signed, is_signed);
        if (is_signed) assert_memory_equal(manifest.public, key.public, sizeof key.public);
        manifest_release(&manifest);
        json_decref(content);
        buf_release(&text);
    }
}

/* A text that is read, and signed. */
static bool counts(struct str text) {
    struct manifest manifest;
    struct error error;
    if (manifest_read(&manifest, text, &error) != OK) return false;
    bool is_signed = manifest.is_signed;
    manifest_release(&manifest);
    return is_signed;
}

/* Every byte, to a drawn other one, and every length. */
static void no_byte_of_a_signed_manifest_changes_unseen(void **state) {
    (void)state;
    struct buf text;
    struct ssh_key key;
    struct manifest manifest;
    struct error error;
    write_one(&text, &key, true, MANIFEST_VERSION);
    srand(1);
    for (size_t i = 0; i < text.bytes; i++) {
        char was = text.at[i];
        text.at[i] = (char)(was ^ (1 + rand() % 255));
        if (counts(buf_str(&text))) fail_msg("byte %zu, %d to %d", i, was, text.at[i]);
        text.at[i] = was;
        if (counts((struct str){text.at, i})) fail_msg("cut to %zu bytes", i);
    }
    /* A line end in the place of its two characters is no JSON, and no other spelling either. */
    char *end = strstr(text.at, "\\n");
    memmove(end + 1, end + 2, text.bytes - (size_t)(end + 2 - text.at));
    *end = '\n';
    assert_int_equal(manifest_read(&manifest, (struct str){text.at, text.bytes - 1}, &error),
                     ERR_CORRUPT);
    buf_release(&text);
}

/* It would be read as one that was never signed. */
static void a_signature_that_stands_elsewhere_is_damage(void **state) {
    (void)state;
    struct manifest manifest;
    struct error error;
    assert_int_equal(manifest_read(&manifest,
                                   STR("{\n  \"object\": \"quern.manifest\",\n  \"version\": 1,\n "
                                       "\n  \"signature\": \"\\n\"\n}\n"),
                                   &error),
                     ERR_CORRUPT);
    assert_non_null(strstr(error.text, "its signature"));
}

static void a_later_version_is_told_apart_from_damage(void **state) {
    (void)state;
    struct buf text;
    struct ssh_key key;
    struct manifest manifest;
    struct error error;
    write_one(&text, &key, true, MANIFEST_VERSION + 1);
    assert_int_equal(manifest_read(&manifest, buf_str(&text), &error), ERR_INVALID);
    buf_release(&text);
    assert_int_equal(manifest_read(&manifest, STR("{}\n"), &error), ERR_CORRUPT);
    assert_int_equal(manifest_read(&manifest,
                                   STR("{\n  \"object\": \"quern.manifest\",\n  \"version\": "
                                       "1,\n  \"version\": 1\n}\n"),
                                   &error),
                     ERR_CORRUPT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_manifest_reads_back_with_its_signer),
        cmocka_unit_test(no_byte_of_a_signed_manifest_changes_unseen),
        cmocka_unit_test(a_signature_that_stands_elsewhere_is_damage),
        cmocka_unit_test(a_later_version_is_told_apart_from_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
