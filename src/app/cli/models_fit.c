/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/models_fit.h"

#include "base/str.h"
#include "cli/models_card.h"
#include "cli/pull_show.h"
#include "hub/known_shapes.h"
#include "json/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A model in the types of one file. */
struct form_fit {
    enum shape_types types;
    struct inspection is;
    struct fit fit;
    uint64_t memory_bytes; /* weights, the engine, and the sequences asked for */
    uint64_t missing_bytes;
    uint64_t in_file_bytes; /* experts that would stay in the file; 0: none, or it does not fit */
    bool is_in_memory;
    struct models_card card;
    const struct models_card_form *on_card; /* that an engine without options would take; NULL */
};

struct model_fit {
    const struct known_name *name;
    struct form_fit forms[KNOWN_FORMS]; /* (count) the most exact first */
    size_t count;
};

/* Where models are to run; it is looked at once, so that all figures are of one moment. */
struct place {
    const struct models_fit *query;
    struct known_shapes *shapes;
    struct machine machine;
};

static uint64_t above(uint64_t bytes, uint64_t limit) {
    return bytes > limit ? bytes - limit : 0;
}

/* The first form with such weights that an engine tries on a GPU and that has room; NULL: any. It
 * keeps 16-bit weights as they are, and changes others. */
static void find_on_card(struct form_fit *form, uint32_t sequences, const char *weights) {
    for (size_t i = 0; i < form->card.form_count; i++) {
        const struct models_card_form *is = &form->card.forms[i];
        if (strcmp(is->kv, "bfloat16") != 0 || !is->is.is_fitting || is->is.sequences < sequences)
            continue;
        if (form->types == SHAPE_BF16 && strcmp(is->weights, "bfloat16") != 0) continue;
        if (weights && strcmp(is->weights, weights) != 0) continue;
        if (!form->on_card || models_card_is_better(is, form->on_card)) form->on_card = is;
    }
}

static void choose_on_card(struct form_fit *form, uint32_t sequences) {
    if (form->card.usual) find_on_card(form, sequences, form->card.usual);
    if (!form->on_card) find_on_card(form, sequences, NULL);
}

static void fit_form(struct form_fit *form, const struct place *place,
                     const struct known_name *name) {
    struct checkpoint *checkpoint;
    const struct models_fit *query = place->query;
    const enum shape_types types = form->types;
    *form = (struct form_fit){.types = types};
    if (!known_shape_read(place->shapes, name, types, &checkpoint)) return;
    known_shape_inspect(&form->is, checkpoint);
    form->fit = inspect_fit(&form->is, &place->machine, query->sequence_tokens);
    form->memory_bytes = form->fit.needed_bytes + query->sequences * form->fit.sequence_bytes;
    form->missing_bytes = above(form->memory_bytes, place->machine.free_bytes);
    form->is_in_memory = form->missing_bytes == 0;
    if (form->missing_bytes > 0 && form->missing_bytes < form->is.expert_bytes)
        form->in_file_bytes = form->missing_bytes;
    if (query->card_bytes > 0) {
        const struct models_card_query card = {.memory_bytes = query->card_bytes,
                                               .host_bytes = place->machine.free_bytes,
                                               .ranks = 1,
                                               .sequence_tokens = form->fit.sequence_tokens};
        models_card_of(&form->card, checkpoint, &card);
        choose_on_card(form, query->sequences);
    }
    checkpoint_close(checkpoint);
}

static void fit_model(struct model_fit *ret_model, const struct place *place,
                      const struct known_name *name) {
    enum shape_types types[KNOWN_FORMS];
    *ret_model =
        (struct model_fit){.name = name, .count = known_shape_forms(place->shapes, name, types)};
    for (size_t i = 0; i < ret_model->count; i++) {
        ret_model->forms[i].types = types[i];
        fit_form(&ret_model->forms[i], place, name);
    }
}

static void release_model(struct model_fit *model) {
    for (size_t i = 0; i < model->count; i++) inspect_release(&model->forms[i].is);
}

/* --- the table --- */

#define CELL_BYTES 64

/* The form that the CPU would run: the most exact that fits, else one whose experts stay in the
 * file, else the smallest. */
static const struct form_fit *on_cpu(const struct model_fit *model) {
    for (size_t i = 0; i < model->count; i++)
        if (model->forms[i].is_in_memory) return &model->forms[i];
    return &model->forms[model->count - 1];
}

static void write_cpu(const struct form_fit *form, char ret_text[CELL_BYTES]) {
    const char *name = known_shape_form_name(form->types);
    if (form->is_in_memory)
        snprintf(ret_text, CELL_BYTES, "%s, %" PRIu64 " at once", name, form->fit.sequences);
    else if (form->in_file_bytes > 0)
        snprintf(ret_text, CELL_BYTES, "%s, %s from the file", name,
                 pull_show_bytes(form->in_file_bytes).text);
    else
        snprintf(ret_text, CELL_BYTES, "no: %s is short of %s", name,
                 pull_show_bytes(form->missing_bytes).text);
}

/* The least that a GPU lacks for this form of a file. */
static void write_missing(const struct form_fit *form, uint32_t sequences,
                          char ret_text[CELL_BYTES]) {
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < form->card.form_count; i++) {
        const struct models_card_form *is = &form->card.forms[i];
        if (strcmp(is->kv, "bfloat16") != 0 || is->is.is_refused) continue;
        const uint64_t missing = is->is.is_fitting
                                     ? (sequences - is->is.sequences) * is->is.kv_bytes_per_token *
                                           is->is.sequence_tokens
                                     : is->is.missing_bytes;
        if (missing < least) least = missing;
    }
    if (least == UINT64_MAX)
        snprintf(ret_text, CELL_BYTES, "no");
    else
        snprintf(ret_text, CELL_BYTES, "no: %s is short of %s", known_shape_form_name(form->types),
                 pull_show_bytes(least).text);
}

static void write_card(const struct model_fit *model, uint32_t sequences,
                       char ret_text[CELL_BYTES]) {
    const struct form_fit *chosen = NULL;
    for (size_t i = 0; i < model->count; i++) {
        const struct form_fit *form = &model->forms[i];
        if (!form->on_card) continue;
        if (!chosen || models_card_is_better(form->on_card, chosen->on_card)) chosen = form;
    }
    if (chosen) {
        const struct card_fit *fit = &chosen->on_card->is;
        const int end = snprintf(ret_text, CELL_BYTES, "%s, %" PRIu64 " at once",
                                 known_shape_form_name(chosen->types), fit->sequences);
        if (fit->away_bytes > 0)
            snprintf(ret_text + end, CELL_BYTES - (size_t)end, ", %s on the host",
                     pull_show_bytes(fit->away_bytes).text);
        return;
    }
    if (!model->forms[0].card.is_for_card)
        snprintf(ret_text, CELL_BYTES, "no: the CPU computes it");
    else
        write_missing(&model->forms[model->count - 1], sequences, ret_text);
}

static void print_head(const struct place *place) {
    const struct models_fit *query = place->query;
    printf("%s of %s memory are free", pull_show_bytes(place->machine.free_bytes).text,
           pull_show_bytes(place->machine.memory_bytes).text);
    if (query->card_bytes > 0) printf("; a GPU gives %s", pull_show_bytes(query->card_bytes).text);
    printf(". Memory is that of the form under \"on the CPU\", with %" PRIu32 " %s of %" PRIu32
           " tokens.\n",
           query->sequences, plural(query->sequences, "sequence", "sequences"),
           query->sequence_tokens);
    printf("%-22s %10s  %-52s %8s %9s %10s  %-32s %s\n", "model", "parameters", "files", "KV/token",
           "state", "memory", "on the CPU", query->card_bytes > 0 ? "on the GPU" : "");
}

static void print_model(const struct model_fit *model, const struct models_fit *query) {
    const struct form_fit *first = &model->forms[0], *cpu = on_cpu(model);
    char files[128] = "", on_cpu_text[CELL_BYTES], on_card_text[CELL_BYTES] = "", state[32] = "-";
    size_t used = 0;
    for (size_t i = 0; i < model->count; i++)
        used += (size_t)snprintf(files + used, sizeof files - used, "%s%s %s", i ? ", " : "",
                                 known_shape_form_name(model->forms[i].types),
                                 pull_show_bytes(model->forms[i].is.file_bytes).text);
    write_cpu(cpu, on_cpu_text);
    if (query->card_bytes > 0) write_card(model, query->sequences, on_card_text);
    if (first->is.state_bytes > 0)
        snprintf(state, sizeof state, "%s", pull_show_bytes(first->is.state_bytes).text);
    printf("%-22s %8.1f M  %-52s %8" PRIu64 " %9s %10s  %-32s %s\n", model->name->ollama[0],
           (double)first->is.parameters / 1e6, files, first->is.kv_bytes_per_token, state,
           pull_show_bytes(cpu->memory_bytes).text, on_cpu_text, on_card_text);
}

/* --- JSON --- */

static void add_form(struct buf *line, const struct form_fit *form) {
    buf_printf(line,
               "{\"form\": \"%s\", \"bytes\": %" PRIu64 ", \"memory_needed_bytes\": %" PRIu64
               ", \"fits\": %s, \"missing_bytes\": %" PRIu64 ", \"experts_in_file_bytes\": %" PRIu64
               ", \"sequences\": %" PRIu64,
               known_shape_form_name(form->types), form->is.file_bytes, form->memory_bytes,
               form->is_in_memory ? "true" : "false", form->missing_bytes, form->in_file_bytes,
               form->fit.sequences);
    if (form->card.memory_bytes > 0) {
        buf_printf(line, ", \"fits_card\": %s", form->on_card ? "true" : "false");
        models_card_add_json(line, &form->card);
    }
    buf_add_text(line, "}");
}

static void print_json(const struct model_fit *model, const struct models_fit *query) {
    const struct form_fit *first = &model->forms[0];
    struct buf line;
    buf_init(&line, BUF_UNLIMITED);
    buf_printf(&line,
               "{\"model\": \"%s\", \"repository\": \"%s\", \"parameters\": %" PRIu64
               ", \"context\": %" PRIu32 ", \"kv_bytes_per_token\": %" PRIu64
               ", \"kv_far_bytes_per_token\": %" PRIu64 ", \"window\": %" PRIu32
               ", \"state_bytes\": %" PRIu64 ", \"sequences_wanted\": %" PRIu32
               ", \"sequence_tokens\": %" PRIu32 ", \"forms\": [",
               model->name->ollama[0], model->name->repository, first->is.parameters,
               first->is.context, first->is.kv_bytes_per_token, first->is.kv_far_bytes_per_token,
               first->is.window, first->is.state_bytes, query->sequences,
               first->fit.sequence_tokens);
    for (size_t i = 0; i < model->count; i++) {
        if (i > 0) buf_add_text(&line, ", ");
        add_form(&line, &model->forms[i]);
    }
    buf_add_text(&line, "]}");
    puts(line.at);
    buf_release(&line);
}

/* --- the command --- */

static bool show(const struct place *place, const struct known_name *name) {
    struct model_fit model;
    fit_model(&model, place, name);
    if (model.count == 0) return false;
    if (place->query->json)
        print_json(&model, place->query);
    else
        print_model(&model, place->query);
    release_model(&model);
    return true;
}

enum err models_fit_show(const struct models_fit *query, struct error *error) {
    const struct known_name *only = query->name ? names_known(str_from(query->name)) : NULL;
    if (query->name && !only)
        return err_set(error, ERR_NOT_FOUND,
                       "'%.200s' is no name that quern knows before a model is fetched",
                       query->name);
    const struct place place = {
        .query = query, .shapes = known_shapes_open(), .machine = inspect_machine()};
    bool is_shown = false;
    if (!query->json) print_head(&place);
    for (size_t i = 0; i < names_table_count; i++)
        if ((!only || only == &names_table[i]) && show(&place, &names_table[i])) is_shown = true;
    known_shapes_close(place.shapes);
    if (is_shown) return OK;
    return err_set(error, ERR_NOT_FOUND, "the sizes of %.200s are not known before it is fetched",
                   query->name);
}
