/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/catalog_find.h"

#include "hub/catalog_path.h"

#include <stdio.h>
#include <strings.h>

/* The search for a model of a store by its name. */
struct search {
    const char *name;
    bool found;
    struct model_file file;
};

static void match_name(void *context, const struct model_file *file) {
    struct search *search = context;
    if (search->found || strcasecmp(search->name, file->name) != 0) return;
    search->found = true;
    search->file = *file;
}

enum err catalog_find(const char *name, struct model_file *ret_file, struct error *error) {
    struct model_choice model;
    struct search search = {.name = name};
    struct error listing;
    enum err err = catalog_choose(name, &model, error);
    if (err == OK && model.is_echo) return err_set(error, ERR_INVALID, "echo is no file");
    *ret_file = (struct model_file){.source = SOURCE_FOLDER};
    if (err == OK || catalog_is_model_path(name)) {
        const char *path = err == OK ? model.path : name;
        snprintf(ret_file->name, sizeof ret_file->name, "%.255s",
                 err == OK ? model.names[0] : name);
        snprintf(ret_file->path, sizeof ret_file->path, "%s", path);
        ret_file->source = catalog_source_of(path);
        return OK;
    }
    if (catalog_list(match_name, &search, &listing) != OK || !search.found) return err;
    *ret_file = search.file;
    return OK;
}
