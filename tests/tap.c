/* SPDX-License-Identifier: Apache-2.0 */
#include "tap.h"

#include "draws.h"

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

double report_share(uint64_t *seed) {
    const char *words = getenv("QUERN_SHARE");
    const double share = words ? strtod(words, NULL) : 1;
    if (!(share > 0 && share < 1)) return 1;
    *seed = draws_seed();
    note("QUERN_SHARE=%g QUERN_SEED=%llu", share, (unsigned long long)*seed);
    return share;
}

int report_end(void) {
    (void)printf("1..%u\n", reported);
    if (failed) (void)printf("# %u of %u failed\n", failed, reported);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
