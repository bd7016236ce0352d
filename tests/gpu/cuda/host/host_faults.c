/* SPDX-License-Identifier: Apache-2.0 */
#include "host_faults.h"

#include <stdlib.h>
#include <string.h>

static unsigned long tries; /* at the place that is full */
static bool was_full;

static bool has_variable(const char *name, const char *value) {
    const char *asked = getenv(name);
    return asked && strcmp(asked, value) == 0;
}

bool host_machine_is(const char *kind) {
    return has_variable("QUERN_HOST_MACHINE", kind);
}

int host_cards(void) {
    const char *asked = getenv("QUERN_HOST_CARDS");
    const int count = asked ? (int)strtol(asked, NULL, 10) : 1;
    return count >= 1 && count <= HOST_CARDS_MAX ? count : 1;
}

bool host_fault_is(const char *kind) {
    return has_variable("QUERN_HOST_FAULT", kind);
}

bool host_has_fault(int card) {
    const char *asked = getenv("QUERN_HOST_FAULT_ON");
    return !asked || strtol(asked, NULL, 10) == card;
}

bool host_is_full(const char *place) {
    const char *asked = getenv("QUERN_HOST_FULL");
    const size_t bytes = strlen(place);
    if (!asked || strncmp(asked, place, bytes) != 0 || asked[bytes] != ':') return false;
    was_full = tries < strtoul(asked + bytes + 1, NULL, 10);
    tries++;
    return was_full;
}

bool host_was_full(void) {
    return was_full;
}
