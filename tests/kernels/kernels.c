/* SPDX-License-Identifier: Apache-2.0 */

/* Checks and times every kernel table this CPU can run.
 *
 *   kernels --check [TABLE]   TAP; each table against ref and against itself in other batches
 *   kernels --bench [TABLE]   one line a kernel and shape, with its share of the measured peak */

#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int usage(void) {
    (void)fprintf(stderr, "usage: kernels --check|--bench [TABLE]\n");
    return 2;
}

/* An operation that a table shares with the one before is checked there. */
static void check(const struct kernels *kernels, const struct kernels *before) {
    check_matmul(kernels);
    if (!before || before->rms_norm != kernels->rms_norm) check_rows(kernels);
    check_attention(kernels, kernels->kv_type);
    /* avx512-bf16 has avx512's attention over a cache of 8 bits. */
    if (!before || kernels->kv_type != TENSOR_BF16) check_attention(kernels, TENSOR_KV_INT8);
    if (!before || before->latent_attend != kernels->latent_attend) check_latent(kernels);
    if (!before || before->mamba != kernels->mamba) check_recurrent(kernels);
    if (!before || before->top_k != kernels->top_k) check_logits(kernels);
}

int main(int count, char **words) {
    if (count < 2 || count > 3) return usage();
    bool is_check = strcmp(words[1], "--check") == 0;
    if (!is_check && strcmp(words[1], "--bench") != 0) return usage();
    const char *only = count == 3 ? words[2] : NULL;
    if (only && !kernels_choose(only)) {
        (void)fprintf(stderr, "kernels: no table %s on this CPU\n", only);
        return 2;
    }
    const struct kernels *before = NULL;
    for (size_t i = 0; kernels_at(i); i++) {
        const struct kernels *kernels = kernels_at(i);
        if (only && strcmp(kernels->name, only) != 0) continue;
        if (is_check)
            check(kernels, before);
        else
            bench(kernels);
        before = kernels;
    }
    return is_check ? report_end() : EXIT_SUCCESS;
}
