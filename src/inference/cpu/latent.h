/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* latent: the operations of attention over entries that all heads share (kernels/latent.h), part of
 * cpu/forward.c.
 *
 * Keys and values of a head would be products of an entry. Instead a head's q is multiplied by the
 * matrix of keys once, and what attention leaves by that of values: the cache has the entries
 * alone, in a prompt as well, so that a row has the same bits in every cut.
 *
 * Thread: as forward.h.
 * Memory: none of its own. */

#include "cpu/forward.h"
#include "program/op.h"

void latent_entry(struct forward *forward, const struct op *op);
void latent_q(struct forward *forward, const struct op *op);
void latent_attention(struct forward *forward, const struct op *op);
void latent_out(struct forward *forward, const struct op *op);
