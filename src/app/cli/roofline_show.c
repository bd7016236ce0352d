/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/roofline_show.h"

#include <stdio.h>

static void print_json(const struct roofline *roofline) {
    printf("{\"kernels\":\"%s\",\"cores\":%u,\"ghz\":%.2f,\"memory_gb_s\":%.1f,"
           "\"memory_all_cores_gb_s\":%.1f,\"l2_gb_s\":%.1f,\"peaks\":[",
           roofline->kernels, roofline->cores, roofline->ghz, roofline->memory_gb_s,
           roofline->all_memory_gb_s, roofline->l2_gb_s);
    for (uint32_t i = 0; i < roofline->peak_count; i++)
        printf("%s{\"instruction\":\"%s\",\"gop_s\":%.1f}", i > 0 ? "," : "",
               roofline->peaks[i].instruction, roofline->peaks[i].gop_s);
    printf("],\"kernel_lines\":[");
    for (uint32_t i = 0; i < roofline->line_count; i++) {
        const struct roofline_line *line = &roofline->lines[i];
        printf(
            "%s{\"what\":\"%s\",\"gop_s\":%.1f,\"gb_s\":%.2f,\"roof\":\"%s\",\"roof_gop_s\":%.1f,"
            "\"share\":%.3f}",
            i > 0 ? "," : "", line->what, line->gop_s, line->gb_s, line->roof_of, line->roof_gop_s,
            line->gop_s / line->roof_gop_s);
    }
    puts("]}");
}

void roofline_show(const struct roofline *roofline, bool json) {
    if (json) {
        print_json(roofline);
        return;
    }
    printf("kernels %s, %u cores at %.2f GHz; a core reads %.1f GB/s of memory (all together %.1f) "
           "and %.1f GB/s of L2\n",
           roofline->kernels, roofline->cores, roofline->ghz, roofline->memory_gb_s,
           roofline->all_memory_gb_s, roofline->l2_gb_s);
    for (uint32_t i = 0; i < roofline->peak_count; i++)
        printf("peak of a core: %-18s %8.1f GOP/s\n", roofline->peaks[i].instruction,
               roofline->peaks[i].gop_s);
    printf("\n%-48s %9s %7s %9s %6s  %s\n", "one core", "GOP/s", "GB/s", "roof", "share",
           "roof of");
    for (uint32_t i = 0; i < roofline->line_count; i++) {
        const struct roofline_line *line = &roofline->lines[i];
        printf("%-48s %9.1f %7.1f %9.1f %4.0f %%  %s\n", line->what, line->gop_s, line->gb_s,
               line->roof_gop_s, 100 * line->gop_s / line->roof_gop_s, line->roof_of);
    }
}
