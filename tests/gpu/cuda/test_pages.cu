/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include "gpu/cuda/pages.h"

/* Pages of `places` places, each k, v and scales; page 3 becomes a copy of page 1, all else stays.
 */
static bool check_copy_case(struct rng *rng, uint32_t places, uint32_t bytes,
                            uint32_t scale_bytes) {
    const uint32_t pages = 5, from = 1, to = 3;
    const size_t stride = (size_t)pages * (2 * bytes + scale_bytes);
    std::vector<uint8_t> before(places * stride);
    for (uint8_t &byte : before) byte = (uint8_t)rng_next(rng);
    uint8_t *cache = gpu_copy(before);
    struct cuda_pages call = {};
    call.k = cache, call.v = cache + (size_t)pages * bytes;
    call.scales = scale_bytes > 0 ? cache + (size_t)pages * 2 * bytes : NULL;
    call.place_stride = stride, call.places = places;
    call.bytes = bytes, call.scale_bytes = scale_bytes;
    MUST_BE_OK(cuda_copy_page(&call, from, to, stream, error));
    gpu_settle();
    std::vector<uint8_t> got = gpu_read(cache, before.size());
    std::vector<uint8_t> wanted = before;
    for (uint32_t place = 0; place < places; place++) {
        const size_t parts[3] = {0, (size_t)pages * bytes, (size_t)pages * 2 * bytes};
        const uint32_t sizes[3] = {bytes, bytes, scale_bytes};
        for (int i = 0; i < 3; i++) {
            size_t at = place * stride + parts[i];
            memcpy(&wanted[at + (size_t)to * sizes[i]], &before[at + (size_t)from * sizes[i]],
                   sizes[i]);
        }
    }
    gpu_release();
    return got == wanted;
}

static bool is_refused(uint32_t bytes, size_t place_stride) {
    struct cuda_pages call = {};
    struct error error = {};
    call.places = 2, call.bytes = bytes, call.place_stride = place_stride;
    return cuda_copy_page(&call, 0, 1, stream, &error) == ERR_INVALID && error.text[0];
}

void check_pages(void) {
    struct rng rng = random_of("pages");
    report(check_copy_case(&rng, 0, 16, 0) && check_copy_case(&rng, 1, 256, 0) &&
               check_copy_case(&rng, 3, 32768, 0) && check_copy_case(&rng, 32, 16384, 512) &&
               check_copy_case(&rng, 5, 8192, 64),
           "copy_page: keys, values and scales of one page in all places");
    report(is_refused(24, 256) && is_refused(32, 264),
           "copy_page: sizes that are not multiples of 16 are refused");
}

/* A page of Llama-3.1-8B in bf16: 2 MiB read and written. */
void bench_pages(void) {
    const uint32_t places = 32, bytes = 8 * 16 * 128 * 2, pages = 256;
    const size_t stride = (size_t)2 * pages * bytes;
    char *cache = (char *)gpu_take_bytes(places * stride);
    struct cuda_pages call = {};
    call.k = cache, call.v = cache + (size_t)pages * bytes;
    call.place_stride = stride, call.places = places, call.bytes = bytes;
    double us = time_us([&](int i) {
        uint32_t from = (uint32_t)i % (pages / 2);
        MUST_BE_OK(cuda_copy_page(&call, from, pages / 2 + from, stream, error));
    });
    bench_moved("copy_page", us, 4.0 * places * bytes, "%u places of %u bytes", places, bytes);
    gpu_release();
}
