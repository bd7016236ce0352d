/* SPDX-License-Identifier: Apache-2.0 */
/* A hub's answers: its list of files, its commit, its header of the next page. For any bytes, no
 * path leads out of its folder, every sum is valid, and the chosen files are in the list. */
#include "hub/pull_choose.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_listing(struct str text) {
    struct pull_listing listing;
    struct error error = {0};
    pull_listing_init(&listing);
    if (pull_listing_read(&listing, text, &error) != OK) assert(*error.text);
    for (size_t i = 0; i < listing.count; i++) {
        const struct pull_file *file = &listing.files[i];
        size_t digits = strlen(file->digest);
        assert(file->path[0] != '/' && strncmp(file->path, "../", 3) != 0);
        assert(!strstr(file->path, "/../") && !strchr(file->path, '\n'));
        assert(strlen(file->path) <= PULL_PATH_BYTES_MAX);
        assert((digits == 40 || digits == 64) &&
               strspn(file->digest, "0123456789abcdef") == digits);
    }
    struct pull_wish wish = {.quantisation = STR("Q4_0")};
    if (pull_choose(&listing, &wish, &error) != OK) assert(*error.text);
    wish.quantisation = STR("");
    if (pull_choose(&listing, &wish, &error) != OK) assert(*error.text);
    pull_listing_release(&listing);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char *copy = malloc(bytes ? bytes : 1), commit[PULL_COMMIT_BYTES], url[PULL_URL_BYTES];
    struct error error = {0};
    if (!copy) abort();
    if (bytes) memcpy(copy, data, bytes);
    struct str text = {copy, bytes};
    check_listing(text);
    if (pull_commit_read(text, commit, &error) == OK) assert(strlen(commit) == 40);
    if (pull_next_read(text, url)) assert(*url);
    free(copy);
    return 0;
}
