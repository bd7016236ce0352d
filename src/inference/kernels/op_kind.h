/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* op_kind: the kinds of operations of a forward pass, and the choices within a kind.
 *
 * program/op.h says which fields of an operation each kind has. The numbers are part of the table
 * of a device (gpu/table.h), so a new kind or choice goes to the end of its list.
 *
 * Thread: any; constants.
 * Memory: none. */

enum op_kind {
    OP_EMBED,     /* x = row `token` of matrix · scale, and the row's angles of rotation */
    OP_NORM,      /* x += as `add` names; h = RMSNorm(x) · weight; prepared for next */
    OP_MATMUL,    /* `to` = prepared · matrixᵀ + bias */
    OP_HEADS,     /* q and k of wide: RMSNorm per head, rotation; k and v go into the KV cache */
    OP_ATTENTION, /* attended = softmax(scale · q kᵀ) v over the KV cache; prepared for next */
    OP_GATE,      /* wide = gate(first half) · second half; prepared for next */
    OP_KEEP,   /* leaves only the wanted rows of x, wide and attended: the last layer has stored its
                  keys, or its states */
    OP_LOGITS, /* logits = prepared · matrixᵀ, capped; runs for as many rows at once as fit */
    OP_ROUTE,  /* each row's experts and their weights, from the logits in wide; h prepared for the
                  experts */
    OP_EXPERTS, /* `to` = Σ weight · (gate(first half) · second half · downᵀ) over a row's experts
                 */
    OP_PREPARE, /* h, or attended, prepared for next */
    OP_CONV,    /* the channels of wide: silu of a convolution over the rows of a sequence; or
                   attended = after · the convolution of before · channels */
    OP_DELTA, /* attended = Gated DeltaNet of the channels, by the rates in narrow; the state of the
                   sequence goes on */
    OP_GATED_NORM, /* attended = RMSNorm per head · weight · silu(gate in wide); then prepared */
    OP_INPUTS, /* inputs = (the token's row of matrix · scale + RMSNorm(inputs / √width) · weight) /
                  √2, norm by norm of a layer's part */
    OP_ASIDE, /* side = RMSNorm(h) · weight */
    OP_JOIN,  /* h = RMSNorm(h) · weight + side */
    OP_MAMBA, /* attended = Mamba-2 of the channels, by the steps in narrow; the state goes on */
    OP_LATENT_ENTRY, /* the entry of wide: RMSNorm, rotation, into the KV cache; RMSNorm of what is
                        before q's second product, prepared for next */
    OP_LATENT_Q,   /* queries = q of wide, by head: what does not turn · its matrix | what turns */
    OP_LATENT,     /* attended = softmax(scale · queries entryᵀ) entry over the KV cache */
    OP_LATENT_OUT, /* wide = attended, by head, · its matrix; prepared for next */
    OP_ADD,        /* x += factor · shared (a device) */
    OP_POOL, /* a text's vector = the sum of its rows of what NORM before prepared (a device) */
};
#define OP_KINDS (OP_POOL + 1)

/* NORM: the sum that the half layer before it left open. */
enum op_add {
    ADD_NOTHING,  /* the product went into x (TO_X), or none came before */
    ADD_H,        /* x += h */
    ADD_NORMED_H, /* x += RMSNorm(h) · post (Gemma) */
};

/* MATMUL: the buffer of the product. */
enum op_to {
    TO_WIDE,   /* wide = product */
    TO_H,      /* h = product */
    TO_X,      /* x += product */
    TO_NARROW, /* narrow = product */
    TO_INPUTS, /* inputs = product */
    TO_SHARED, /* shared = product, which EXPERTS or ADD adds (a device) */
};

enum op_gate {
    GATE_SILU,
    GATE_GELU_TANH,
    GATE_CLAMPED,    /* clamped_mul of kernels.h (EXPERTS) */
    GATE_RELU2,      /* no second half: relu2 of kernels.h */
    GATE_XIELU,      /* likewise: xielu */
    GATE_GELU,       /* gelu_erf of the first half */
    GATE_GELU_ALONE, /* no second half: gelu_erf (an encoder on a device) */
};
