/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* wire_messages: the payloads of wire.h.
 *
 * A payload is the fields of its struct below, in the order in which wire_put_* writes them.
 * Integers are little-endian. A string is a u32 length and its bytes; a real is the u64 of its
 * IEEE-754 bits; a bool is one byte, 0 or 1; an enum is a u8.
 *
 * Every decoder takes the payload for hostile. A payload is valid if (1) every field lies inside
 * it, (2) every bool, enum and count is in its range, and (3) no byte is left over. Otherwise the
 * decoder returns ERR_CORRUPT with a sentence that names the message.
 *
 * Thread: any.
 * Memory: decoded strings are borrowed from the payload; encoders append to a buffer. */

#include "protocol/card.h"
#include "protocol/model_about.h"
#include "protocol/request.h"
#include "protocol/timings.h"
#include "protocol/wire.h"

#define WIRE_NAMES_MAX 16

/* A position in a payload. Reading past the end sets `bad` and gives zeros, so that a decoder
 * checks once. */
struct wire_cursor {
    struct str bytes;
    size_t at;
    bool bad;
};

uint8_t wire_get_u8(struct wire_cursor *cursor);
uint16_t wire_get_u16(struct wire_cursor *cursor);
uint32_t wire_get_u32(struct wire_cursor *cursor);
uint64_t wire_get_u64(struct wire_cursor *cursor);

void wire_put_u8(struct buf *out, uint8_t value);
void wire_put_u16(struct buf *out, uint16_t value);
void wire_put_u32(struct buf *out, uint32_t value);
void wire_put_u64(struct buf *out, uint64_t value);

struct wire_names {
    struct str at[WIRE_NAMES_MAX];
    size_t count;
};

/* The options about a device, as texts and numbers of the command line (gpu/gpu_settings.h).
 * An empty text or a 0 was not given. */
struct wire_device {
    struct str name; /* auto, cpu, cuda, cuda:N or cuda:UUID */
    struct str plugin;
    struct str dtype;
    struct str kv_cache_dtype;
    struct str state_dtype;
    struct str quantization;
    double memory_share; /* share of the GPU's memory, 0..1 */
    uint64_t memory_bytes;
    uint32_t tensor_parallel_size; /* GPUs that compute together */
};

/* HELLO. A number 0 lets the engine choose. */
struct wire_hello {
    uint32_t version;
    struct str model_path;
    struct wire_names names; /* the first is the served name; none: made from the file's name */
    uint32_t threads;        /* threads that compute */
    uint32_t prep_threads;
    uint32_t max_num_seqs;
    uint32_t max_num_batched_tokens;
    uint32_t num_speculative_tokens; /* most tokens guessed per sequence and step; 0: none */
    struct str speculative_model; /* path of the model that guesses them; empty: the text alone */
    uint32_t max_model_len;
    uint64_t kv_bytes;
    uint64_t state_bytes;  /* memory for the states of recurrent layers */
    uint64_t weight_bytes; /* memory for weights; experts beyond it stay in the file */
    bool prefix_caching;
    bool reference;     /* plain C kernels, exact and slow */
    struct str kernels; /* name of a kernel table; empty: the best this CPU runs */
    struct str pooling; /* pooling of embeddings: mean, cls or last; empty: the model's */
    bool trust_request_chat_template;
    struct str chat_template;    /* text of a template instead of the model's; empty: the model's */
    struct str tool_call_parser; /* name of a form of calls; empty: the template tells it */
    bool dummy_weights;          /* invented, for a folder with a config.json alone */
    struct str packed_dir;       /* keeps files of packed weights; empty: none are kept */
    uint64_t packed_bytes_max;   /* the sum of all these files */
    struct wire_device device;
    bool is_careful; /* the engine before this one ended by an error of its GPU */
};

/* READY. */
struct wire_ready {
    uint32_t version;
    struct wire_names names;
    int64_t created_unix_s;
    uint32_t context_tokens_max;
    uint32_t vocabulary_count;
    uint64_t kv_tokens;
    bool generates, embeds;    /* at least one of them */
    bool decides;              /* takes questions: it generates, and has a chat template */
    struct str description;    /* one line for the log */
    struct str device;         /* the GPU that it runs on, as --device names it; empty: the CPU */
    struct card_ledger ledger; /* account of its memory there */
    struct model_about about;
};

/* JOB. */
struct wire_job {
    enum endpoint endpoint;
    enum tier tier;
    bool stream;
    bool is_line; /* a line of a batch: no client waits for this one answer */
    int32_t priority;
    struct str body;
    struct str owner; /* cached prefixes are shared inside one owner only; empty: the default */
};

/* RESULT. */
struct wire_result {
    int32_t status;
    enum outcome outcome; /* never OUTCOME_RETURNED, which is the worker's word */
    struct usage usage;   /* each count below 2^32; the reused counts do not travel */
    struct str body;
    enum shape_end
        shape; /* SHAPE_VALID or SHAPE_TRUNCATED of an answer held to a shape, else NONE */
    struct request_times times; /* none below 0; wait_ns does not travel */
};

#define WIRE_STATS_BYTES_MAX ((size_t)16 * 1024)

/* STATS. The counters only ever grow. A histogram travels as its counts, one per range of its
 * bounds, and its sum. */
struct wire_stats {
    uint64_t steps;
    uint64_t prompt_tokens;
    uint64_t prefix_queries; /* prompt tokens that were looked up in the prefix cache */
    uint64_t cached_tokens;
    uint64_t completion_tokens;
    uint64_t preemptions;
    uint64_t nonfinite_rows;  /* rows whose logits had NaN or +inf */
    uint64_t drafts;          /* guesses of next tokens that the model checked */
    uint64_t draft_tokens;    /* their tokens */
    uint64_t accepted_tokens; /* tokens of these that were right */
    uint64_t state_saves;     /* states of prefixes that were stored */
    uint64_t state_hits;      /* sequences that began at one of them */
    uint64_t state_evictions;
    uint32_t states_stored;
    uint32_t running;
    uint32_t waiting;
    double kv_used;        /* 0..1 */
    uint32_t step_age_ms;  /* since the last step ended; 0 without jobs */
    uint32_t step_ms_max;  /* the longest step so far */
    uint32_t token_age_ms; /* since the oldest last token of a running request; 0: none runs */
    struct timings timings;
};

void wire_put_hello(struct buf *out, const struct wire_hello *hello);
void wire_put_ready(struct buf *out, const struct wire_ready *ready);
void wire_put_job(struct buf *out, const struct wire_job *job);
void wire_put_result(struct buf *out, const struct wire_result *result);
void wire_put_stats(struct buf *out, const struct wire_stats *stats);

/* ERR_CORRUPT for a payload that is not valid. ERR_INVALID for a version other than WIRE_VERSION:
 * the other members are not read then. */
enum err wire_get_hello(struct str payload, struct wire_hello *ret_hello,
                        struct error *error) MUST_CHECK;
enum err wire_get_ready(struct str payload, struct wire_ready *ret_ready,
                        struct error *error) MUST_CHECK;
enum err wire_get_job(struct str payload, struct wire_job *ret_job, struct error *error) MUST_CHECK;
enum err wire_get_result(struct str payload, struct wire_result *ret_result,
                         struct error *error) MUST_CHECK;
enum err wire_get_stats(struct str payload, struct wire_stats *ret_stats,
                        struct error *error) MUST_CHECK;
/* The payload of DELTA is the chunk itself, that of FATAL the sentence. CANCEL, PING and DRAIN have
 * none. */
