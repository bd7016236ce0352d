/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/doctor_show.h"

#include "base/printable.h"
#include "cli/terminal.h"
#include "json/json.h"

#include <stdlib.h>
#include <unistd.h>

static const char *const verdict_names[] = {"good", "hint", "wrong"};

static void print_text(const struct doctor_finding *finding, bool has_colours) {
    static const char *const colours[] = {"\033[32m", "\033[33m", "\033[31m"};
    const char *colour = has_colours ? colours[finding->verdict] : "";
    printf("%s%-5s%s  %-16s  %s\n", colour, verdict_names[finding->verdict],
           has_colours ? "\033[0m" : "", finding->area, printable(finding->text).text);
    if (*finding->remedy) printf("%-5s  %-16s  -> %s\n", "", "", printable(finding->remedy).text);
}

static void add_member(struct buf *line, const char *name, const char *text) {
    buf_printf(line, "\"%s\":", name);
    json_write_string(line, str_from(text));
}

static void print_json(const struct doctor *doctor, size_t wrong) {
    struct buf line;
    buf_init(&line, BUF_UNLIMITED);
    buf_printf(&line, "{\"version\":\"%s\",\"wrong\":%zu,\"findings\":[", QUERN_VERSION, wrong);
    for (size_t i = 0; i < doctor->count; i++) {
        const struct doctor_finding *finding = &doctor->findings[i];
        buf_add_text(&line, i > 0 ? ",{" : "{");
        add_member(&line, "verdict", verdict_names[finding->verdict]);
        buf_add_byte(&line, ',');
        add_member(&line, "area", finding->area);
        buf_add_byte(&line, ',');
        add_member(&line, "text", finding->text);
        buf_add_text(&line, ",\"remedy\":");
        if (*finding->remedy)
            json_write_string(&line, str_from(finding->remedy));
        else
            buf_add_text(&line, "null");
        buf_add_byte(&line, '}');
    }
    buf_add_text(&line, "]}");
    puts(line.at);
    buf_release(&line);
}

size_t doctor_show(const struct doctor *doctor, bool json) {
    const char *no_colour = getenv("NO_COLOR");
    bool has_colours = terminal_obeys(STDOUT_FILENO) && !(no_colour && *no_colour);
    size_t wrong = 0, hints = 0;
    for (size_t i = 0; i < doctor->count; i++) {
        wrong += doctor->findings[i].verdict == DOCTOR_WRONG;
        hints += doctor->findings[i].verdict == DOCTOR_HINT;
    }
    if (json) {
        print_json(doctor, wrong);
        return wrong;
    }
    for (size_t i = 0; i < doctor->count; i++) print_text(&doctor->findings[i], has_colours);
    printf("\n%zu wrong, %zu to know, %zu good\n", wrong, hints, doctor->count - wrong - hints);
    return wrong;
}
