/* SPDX-License-Identifier: Apache-2.0 */
#include "tap.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned reported;
static unsigned failed;

void report(bool is_ok, const char *format, ...) {
    va_list arguments;
    reported++;
    if (!is_ok) failed++;
    (void)printf("%sok %u - ", is_ok ? "" : "not ", reported);
    va_start(arguments, format);
    (void)vprintf(format, arguments);
    va_end(arguments);
    (void)printf("\n");
    (void)fflush(stdout);
}

void note(const char *format, ...) {
    va_list arguments;
    (void)printf("# ");
    va_start(arguments, format);
    (void)vprintf(format, arguments);
    va_end(arguments);
    (void)printf("\n");
}

int report_end(void) {
    (void)printf("1..%u\n", reported);
    if (failed) (void)printf("# %u of %u failed\n", failed, reported);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
