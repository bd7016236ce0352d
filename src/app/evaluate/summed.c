/* SPDX-License-Identifier: Apache-2.0 */
#include "evaluate/summed.h"

#include "base/os.h"
#include "json/json.h"

#include <math.h>

static const char *const cost_names[] = {"watt_hours", "electricity", "rented_gpu", "managed_api"};

/* The sum of a figure of the bill; NAN if one part lacks it. */
static double sum_of(const struct summed_part *parts, size_t count, const char *name) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        const json_t *summary = parts[i].candidate->summary;
        const json_t *once = json_object_get(json_object_get(summary, "costs"), "once");
        const json_t *figure = json_object_get(once, name);
        sum += json_is_number(figure) ? json_number_value(figure) : (double)NAN;
    }
    return sum;
}

/* All requests by the time that the parts need for theirs; NAN: a rate is not known. */
static double rate_of(uint64_t lines, const struct summed_part *parts, size_t count) {
    double seconds = 0;
    for (size_t i = 0; i < count; i++)
        seconds += (double)parts[i].requests / parts[i].candidate->requests_per_s;
    return seconds > 0 ? (double)lines / seconds : (double)NAN;
}

static void set_known(json_t *object, const char *name, double value) {
    if (isfinite(value)) json_object_set_new(object, name, json_real(value));
}

enum err summed_write(const char *path, uint64_t lines, const struct summed_part *parts,
                      size_t count, struct error *error) {
    double load = 0;
    json_t *once = json_object(), *whole = json_object();
    struct buf out;
    for (size_t i = 0; i < count; i++) load += parts[i].candidate->load_seconds;
    json_object_set_new(whole, "requests", json_integer((json_int_t)lines));
    json_object_set_new(whole, "load_seconds", json_real(load));
    set_known(whole, "req_s", rate_of(lines, parts, count));
    set_known(once, "seconds", sum_of(parts, count, "seconds"));
    for (size_t i = 0; i < sizeof cost_names / sizeof *cost_names; i++)
        set_known(once, cost_names[i], sum_of(parts, count, cost_names[i]));
    json_object_set_new(whole, "costs", json_pack("{s:o}", "once", once));
    buf_init(&out, BUF_UNLIMITED);
    json_write(&out, whole);
    buf_add_byte(&out, '\n');
    enum err err = os_write_file(path, 0600, out.at, out.bytes, error);
    buf_release(&out);
    json_decref(whole);
    return err;
}
