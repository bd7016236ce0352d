/* SPDX-License-Identifier: Apache-2.0 */
#include "evaluate/names.h"

#include "batch/jsonl_file.h"
#include "json/json.h"

/* The custom_id of a line; NULL: it has none. The caller gives the tree back. */
static json_t *read_line(struct str line, struct str *ret_name) {
    struct error ignored;
    json_t *tree = NULL;
    *ret_name = (struct str){0};
    if (json_read(&tree, line, &ignored) == OK) *ret_name = json_member_str(tree, "custom_id");
    return tree;
}

enum err names_read(struct names *names, const char *path, struct error *error) {
    struct jsonl_file file;
    struct str line, name;
    names->set = json_object();
    enum err err = jsonl_file_open(&file, path, error);
    while (err == OK && json_object_size(names->set) < NAMES_MAX && jsonl_file_next(&file, &line)) {
        json_t *tree = read_line(line, &name);
        if (name.at) json_object_setn_new_nocheck(names->set, name.at, name.bytes, json_true());
        json_decref(tree);
    }
    return jsonl_file_end(&file, path, err, error);
}

bool names_has(const struct names *names, struct str line) {
    struct str name;
    json_t *tree = read_line(line, &name);
    bool has = name.at && json_object_getn(names->set, name.at, name.bytes);
    json_decref(tree);
    return has;
}

void names_release(struct names *names) {
    json_decref(names->set);
    names->set = NULL;
}
