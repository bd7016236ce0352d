/* SPDX-License-Identifier: Apache-2.0 */
#include "host_kernels.h"

#include "gpu/cuda/pages.h"

#include <assert.h>
#include <string.h>

struct page_copy {
    struct cuda_pages pages;
    uint32_t from, to;
};

static enum err again_copy_page(const void *call, const void *more, struct error *error) {
    const struct page_copy *copy = call;
    (void)more;
    return cuda_copy_page(&copy->pages, copy->from, copy->to, NULL, error);
}

/* A step's copies come before its operations, so no graph has them. */
enum err cuda_copy_page(const struct cuda_pages *pages, uint32_t from, uint32_t to,
                        struct CUstream_st *stream, struct error *error) {
    const struct page_copy copy = {*pages, from, to};
    (void)error;
    assert(!host_is_captured(stream) && from != to);
    if (host_record(stream, again_copy_page, &copy, sizeof copy, NULL, 0)) return OK;
    char *const bases[] = {pages->k, pages->v, pages->scales};
    const size_t bytes[] = {pages->bytes, pages->bytes, pages->scale_bytes};
    for (size_t place = 0; place < pages->places; place++)
        for (int i = 0; i < 3; i++) {
            if (bytes[i] == 0 || !bases[i]) continue;
            char *base = bases[i] + place * pages->place_stride;
            memcpy(base + to * bytes[i], base + from * bytes[i], bytes[i]);
        }
    return OK;
}
