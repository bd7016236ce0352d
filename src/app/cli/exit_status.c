/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/exit_status.h"

enum exit_status exit_status_of(enum err err) {
    switch (err) {
    case OK: return EXIT_GOOD;
    case ERR_INVALID:
    case ERR_LIMIT:
    case ERR_CORRUPT: return EXIT_UNUSABLE;
    case ERR_NOT_FOUND: return EXIT_NOT_FOUND;
    case ERR_CONFLICT: return EXIT_CONFLICT;
    case ERR_CANCELLED: return EXIT_INTERRUPTED;
    case ERR_UNAVAILABLE:
    case ERR_EXHAUSTED: return EXIT_UNAVAILABLE;
    case ERR_DENIED: return EXIT_AUTHENTICATION;
    case ERR_IO: break;
    }
    return EXIT_FAILED;
}
