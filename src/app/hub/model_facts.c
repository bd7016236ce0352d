/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/model_facts.h"

#include "hub/inspect_verdict.h"

#include <stdio.h>

void model_facts_read(struct model_facts *ret_facts, const struct model_file *file,
                      uint32_t sequence_tokens) {
    struct error error = {0};
    *ret_facts = (struct model_facts){.file = file, .machine = inspect_machine()};
    snprintf(ret_facts->why_not, sizeof ret_facts->why_not, "%s", file->why_not);
    enum err err = inspect_path(&ret_facts->is, file->path, &error);
    ret_facts->is_read = err == OK;
    if (err == OK) {
        err = inspect_verdict(&ret_facts->is, file->path, &error);
        ret_facts->fit = inspect_fit(&ret_facts->is, &ret_facts->machine, sequence_tokens);
    }
    if (err != OK && !*ret_facts->why_not)
        snprintf(ret_facts->why_not, sizeof ret_facts->why_not, "%s", error.text);
}

void model_facts_release(struct model_facts *facts) {
    inspect_release(&facts->is);
}
