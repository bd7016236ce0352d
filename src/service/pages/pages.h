/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pages: the files of the pages that quern shows in a browser (web/), kept inside the binary.
 *
 * tools/embed_files.py makes the table when quern is built. The pages are static and know no batch:
 * their scripts ask the routes of the API, with the key that the user gives them. They need nothing
 * from another server. api/pages.c serves them, and says which headers they have.
 *
 * Thread: any.
 * Memory: static. */

#include "base/str.h"

struct pages_file {
    const char *name; /* without a folder: index.html is the first page */
    const char *content_type;
    const char *etag; /* with its quotes; another one for other bytes */
    struct str body;
};

extern const struct pages_file pages_files[];
extern const size_t pages_file_count;
