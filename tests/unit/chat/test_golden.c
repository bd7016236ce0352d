/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The text of a template file; an empty buf when it is not there. */
static void read_template(const char *name, struct buf *ret_source) {
    char *folder = case_path("QUERN_SHARED", "templates"), *path = NULL;
    FILE *file = NULL;
    if (folder && asprintf(&path, "%s/%s", folder, name) > 0) file = fopen(path, "rb");
    char chunk[4096];
    for (size_t count; file && (count = fread(chunk, 1, sizeof chunk, file)) > 0;)
        buf_add(ret_source, chunk, count);
    if (file) fclose(file);
    free(path);
    free(folder);
}

static void every_published_template_renders_as_jinja_does(void **state) {
    (void)state;
    char *path = case_path("QUERN_SHARED", "templates/golden.json");
    json_t *root = path ? json_load_file(path, 0, NULL) : NULL;
    free(path);
    if (!root) skip();
    json_t *item;
    size_t index, failed = 0;
    json_array_foreach(json_object_get(root, "cases"), index, item) {
        struct buf source;
        buf_init(&source, (size_t)1 << 20);
        read_template(json_string_value(json_object_get(item, "template")), &source);
        if (!case_holds(item, buf_str(&source), json_object_get(item, "context"))) failed++;
        buf_release(&source);
    }
    assert_true(index >= 706);
    json_decref(root);
    assert_int_equal(failed, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_published_template_renders_as_jinja_does)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
