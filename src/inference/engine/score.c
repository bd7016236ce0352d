/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/score.h"

#include "base/mem.h"
#include "json/json.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES_MAX ((size_t)32 * 1024 * 1024)

/* Qwen3-Reranker's question, as its authors publish it. */
#define JUDGE_HEAD                                                                                 \
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query "    \
    "and "                                                                                         \
    "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"       \
    "<|im_start|>user\n"
#define JUDGE_TAIL "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
#define JUDGE_INSTRUCTION                                                                          \
    "Given a web search query, retrieve relevant passages that answer the query"
#define EMBED_HEAD "<|embed|>\n" /* GritLM's, before a text without instruction */

/* The state while the pairs of one request become tokens. */
struct preparation {
    const struct score_question *question;
    struct score *score;
    struct embedding *embedding;
    struct ids first, second; /* tokens of the pair at hand */
    struct ids head, tail;    /* tokens that stand in every pair */
    struct buf text;          /* scratch */
    struct refusal *refusal;
};

/* ---- tokens ---- */

static bool encode(const struct preparation *is, const char *param, struct str text,
                   struct encode_options options, struct ids *ids) {
    const struct served_model *model = is->question->model;
    options.scratch_bytes_max = request_body_scratch(is->score->request.memory_left);
    struct error error;
    size_t first = ids->count;
    if (tokenizer_encode(model->vocabulary.tokenizer, text, options, ids, &error) != OK)
        return refuse(is->refusal, "invalid_value", param,
                      "Invalid '%s': it cannot be turned into tokens: %s.", param, error.text);
    for (size_t i = first; i < ids->count; i++)
        if ((uint32_t)ids->at[i] >= model->embedder.vocab)
            return refuse(is->refusal, "invalid_value", param,
                          "Invalid '%s': it has a token (%d) that this model does not have.", param,
                          ids->at[i]);
    return true;
}

static bool encode_side(const struct preparation *is, const struct score_side *side, uint32_t index,
                        bool with_marks, struct ids *ids) {
    char param[SCORE_PARAM_BYTES];
    ids->count = 0;
    return encode(is, score_side_param(side, index, param), score_side_text(side, index),
                  (struct encode_options){.add_bos = with_marks}, ids);
}

static void add_ids(struct ids *to, const struct ids *from) {
    for (size_t i = 0; i < from->count; i++) ids_add(to, from->at[i]);
}

/* Cuts the longer text first; cuts both to equal lengths if that is not enough. */
static void cut_pair(struct ids *first, struct ids *second, size_t keep) {
    struct ids *shorter = first->count <= second->count ? first : second;
    struct ids *longer = shorter == first ? second : first;
    if (first->count + second->count <= keep) return;
    if (2 * shorter->count <= keep) {
        longer->count = keep - shorter->count;
        return;
    }
    shorter->count = keep / 2;
    longer->count = keep - keep / 2;
}

static bool check_length(const struct preparation *is, const struct score_side *side,
                         uint32_t index, size_t count) {
    char param[SCORE_PARAM_BYTES];
    score_side_param(side, index, param);
    if (count == 0)
        return refuse(is->refusal, "invalid_value", param, "Invalid '%s': it has no tokens.",
                      param);
    if (count > is->question->text_tokens_max)
        return refuse(is->refusal, "context_length_exceeded", param,
                      "Invalid '%s': this model's maximum context length is %u tokens. However, "
                      "this text and what goes with it resulted in %zu tokens. Please reduce its "
                      "length, or set 'truncate_prompt_tokens' (-1 keeps what fits).",
                      param, is->question->text_tokens_max, count);
    if (is->embedding->ids.count > SCORE_TOKENS_MAX)
        return refuse(is->refusal, "max_tokens_per_request", param,
                      "Invalid '%s': up to this text the pairs have %zu tokens, at most %d are "
                      "taken with one request.",
                      param, is->embedding->ids.count, SCORE_TOKENS_MAX);
    return true;
}

/* Cuts the texts at hand so that they fit next to `marks` tokens. */
static bool cut(struct preparation *is, size_t marks) {
    const struct score_request *request = &is->score->request;
    if (request->cut_tokens == 0) return true;
    if (request->cut_tokens <= marks)
        return refuse(is->refusal, "invalid_value", "truncate_prompt_tokens",
                      "Invalid 'truncate_prompt_tokens': %u tokens leave none of the texts.",
                      request->cut_tokens);
    cut_pair(&is->first, &is->second, request->cut_tokens - marks);
    return true;
}

/* ---- cross-encoders ---- */

static bool add_marked_pair(struct preparation *is, uint32_t index) {
    const struct served_model *model = is->question->model;
    const struct score_request *request = &is->score->request;
    const struct tokenizer *tokenizer = model->vocabulary.tokenizer;
    const int32_t begin = tokenizer_bos(tokenizer), end = tokenizer_eos(tokenizer);
    const bool has_two = model->embedder.head.pair_form == PAIR_TWO_MARKS;
    struct ids *ids = &is->embedding->ids;
    const size_t from = ids->count;
    /* A query that goes with many documents is encoded for each, because it may have been cut. */
    if (!encode_side(is, &request->first, request->first.count > 1 ? index : 0, false,
                     &is->first) ||
        !encode_side(is, &request->second, index, false, &is->second))
        return false;
    if (request->document_tokens > 0 && is->second.count > request->document_tokens)
        is->second.count = request->document_tokens;
    if (!cut(is, has_two ? 4 : 3)) return false;
    ids_add(ids, begin);
    add_ids(ids, &is->first);
    ids_add(ids, end);
    if (has_two) ids_add(ids, end);
    const size_t second = ids->count - from;
    add_ids(ids, &is->second);
    ids_add(ids, end);
    is->embedding->sequences[index] = (struct embed_sequence){
        .count = (uint32_t)(ids->count - from), .second_first = (uint32_t)second};
    return check_length(is, &request->second, index, ids->count - from);
}

static bool add_marked_pairs(struct preparation *is) {
    const struct tokenizer *tokenizer = is->question->model->vocabulary.tokenizer;
    if (tokenizer_bos(tokenizer) == TOKEN_NONE || tokenizer_eos(tokenizer) == TOKEN_NONE)
        return refuse(is->refusal, "unsupported_endpoint", NULL,
                      "This model's tokenizer has no marks for pairs of texts.");
    for (uint32_t i = 0; i < is->score->pairs; i++)
        if (!add_marked_pair(is, i)) return false;
    return true;
}

/* ---- a judge ---- */

static bool add_judged_pair(struct preparation *is, uint32_t index) {
    const struct score_request *request = &is->score->request;
    const struct str instruction =
        request->instruction.bytes > 0 ? request->instruction : STR(JUDGE_INSTRUCTION);
    struct ids *ids = &is->embedding->ids;
    const size_t from = ids->count, marks = is->head.count + is->tail.count;
    char param[SCORE_PARAM_BYTES];
    buf_clear(&is->text);
    buf_printf(&is->text, "<Instruct>: ");
    buf_add_str(&is->text, instruction);
    buf_add_text(&is->text, "\n<Query>: ");
    buf_add_str(&is->text, score_side_text(&request->first, request->first.count > 1 ? index : 0));
    buf_add_text(&is->text, "\n<Document>: ");
    buf_add_str(&is->text, score_side_text(&request->second, index));
    is->first.count = is->second.count = 0;
    if (!encode(is, score_side_param(&request->second, index, param), buf_str(&is->text),
                (struct encode_options){.continues = true}, &is->second) ||
        !cut(is, marks))
        return false;
    add_ids(ids, &is->head);
    add_ids(ids, &is->second);
    add_ids(ids, &is->tail);
    is->embedding->sequences[index] =
        (struct embed_sequence){.count = (uint32_t)(ids->count - from)};
    return check_length(is, &request->second, index, ids->count - from);
}

static bool add_judged_pairs(struct preparation *is) {
    const struct encode_options own = {.parse_special = true};
    if (is->score->request.document_tokens > 0)
        return refuse_unsupported(is->refusal, "max_tokens_per_doc",
                                  "this model reads query and document in one text; "
                                  "'truncate_prompt_tokens' cuts it");
    if (!encode(is, "query", STR(JUDGE_HEAD), own, &is->head) ||
        !encode(is, "query", STR(JUDGE_TAIL), own, &is->tail))
        return false;
    for (uint32_t i = 0; i < is->score->pairs; i++)
        if (!add_judged_pair(is, i)) return false;
    return true;
}

/* ---- vectors ---- */

/* One text of a model that makes vectors, with the tokens that its vocabulary adds. */
static bool add_text(struct preparation *is, const struct score_side *side, uint32_t index,
                     uint32_t place) {
    const struct score_request *request = &is->score->request;
    const struct ids *head = &is->head;
    struct ids *ids = &is->embedding->ids;
    const size_t from = ids->count;
    if (!encode_side(is, side, index, head->count == 0, &is->second)) return false;
    is->first.count = 0;
    const size_t count = is->second.count;
    const int32_t last = count > 0 ? is->second.at[count - 1] : TOKEN_NONE;
    const int32_t end = tokenizer_eos(is->question->model->vocabulary.tokenizer);
    if (side == &request->second && request->document_tokens > 0 &&
        is->second.count > request->document_tokens)
        is->second.count = request->document_tokens;
    if (!cut(is, head->count)) return false;
    /* A text that is cut keeps its closing token. */
    if (is->second.count > 0 && is->second.count < count && last == end && end != TOKEN_NONE)
        is->second.at[is->second.count - 1] = end;
    add_ids(ids, head);
    add_ids(ids, &is->second);
    is->embedding->sequences[place] = (struct embed_sequence){
        .count = (uint32_t)(ids->count - from), .pool_first = (uint32_t)head->count};
    return check_length(is, side, index, is->second.count == 0 ? 0 : ids->count - from);
}

static bool add_texts(struct preparation *is) {
    const struct score_request *request = &is->score->request;
    const struct encode_options own = {.parse_special = true, .add_bos = true};
    if (is->question->model->embedder.takes_instruction &&
        !encode(is, request->first.name, STR(EMBED_HEAD), own, &is->head))
        return false;
    for (uint32_t i = 0; i < request->first.count; i++)
        if (!add_text(is, &request->first, i, i)) return false;
    for (uint32_t i = 0; i < request->second.count; i++)
        if (!add_text(is, &request->second, i, request->first.count + i)) return false;
    return true;
}

/* ---- the request ---- */

static bool add_all(struct preparation *is) {
    struct score *score = is->score;
    struct embedding *embedding = is->embedding;
    const struct served_head *head = &is->question->model->embedder.head;
    score->is_by_vectors = head->labels == 0;
    score->pairs = score->request.second.count;
    embedding->request.count =
        score->is_by_vectors ? score->request.first.count + score->pairs : score->pairs;
    embedding->sequences = mem_new(embedding->request.count, sizeof *embedding->sequences);
    if (score->request.instruction.bytes > 0 && !head->is_judge)
        return refuse_unsupported(is->refusal, "instruction",
                                  "this model takes none; put what it was trained to see before "
                                  "the texts into them");
    bool is_good = head->is_judge         ? add_judged_pairs(is)
                   : score->is_by_vectors ? add_texts(is)
                                          : add_marked_pairs(is);
    /* The list has moved while it grew, so the pointers are taken now. */
    const int32_t *at = embedding->ids.at;
    for (uint32_t i = 0; is_good && i < embedding->request.count; i++) {
        embedding->sequences[i].ids = at;
        at += embedding->sequences[i].count;
    }
    return is_good;
}

bool score_prepare(struct score *score, struct embedding *embedding,
                   const struct score_question *question, struct refusal *ret_refusal) {
    if (!score_request_parse(&score->request, question->endpoint, question->body,
                             question->text_tokens_max, ret_refusal))
        return false;
    struct preparation is = {
        .question = question, .score = score, .embedding = embedding, .refusal = ret_refusal};
    buf_init(&is.text, TEXT_BYTES_MAX);
    bool is_good = add_all(&is);
    buf_release(&is.text);
    ids_release(&is.first);
    ids_release(&is.second);
    ids_release(&is.head);
    ids_release(&is.tail);
    return is_good;
}

void score_release(struct score *score) {
    score_request_release(&score->request);
}

/* ---- the answer ---- */

struct ranked {
    uint32_t index;
    float score;
};

static float cosine(const float *a, const float *b, uint32_t width) {
    double sum = 0; /* both have length 1 */
    for (uint32_t i = 0; i < width; i++) sum += (double)a[i] * (double)b[i];
    return (float)sum;
}

static float score_of(const struct score_answer *answer, const struct score *score,
                      const struct embedding *embedding, uint32_t index) {
    const uint32_t width = answer->width, firsts = score->request.first.count;
    const float *vectors = embedding->vectors;
    if (score->is_by_vectors)
        return cosine(vectors + (size_t)(firsts > 1 ? index : 0) * width,
                      vectors + (size_t)(firsts + index) * width, width);
    const float number = vectors[(size_t)index * width];
    const bool is_raw = answer->head->is_raw || score->request.is_raw;
    return is_raw ? number : 1.0f / (1.0f + expf(-number));
}

/* The best first; of equal ones the first one. */
static int compare(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static void write_usage(struct buf *out, size_t tokens) {
    buf_printf(out, "\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu}", tokens, tokens);
}

static void write_scores(struct buf *out, const struct score_answer *answer,
                         const struct ranked *ranked, uint32_t count, size_t tokens) {
    buf_printf(out,
               "{\"id\":\"%s\",\"object\":\"list\",\"created\":%" PRId64 ",\"model\":", answer->id,
               answer->created_unix_s);
    json_write_string(out, answer->model_name);
    buf_add_text(out, ",\"data\":[");
    for (uint32_t i = 0; i < count; i++) {
        buf_printf(out, "%s{\"index\":%u,\"object\":\"score\",\"score\":", i ? "," : "", i);
        json_write_float(out, ranked[i].score);
        buf_add_byte(out, '}');
    }
    buf_add_text(out, "],");
    write_usage(out, tokens);
    buf_add_byte(out, '}');
}

static void write_results(struct buf *out, const struct score_answer *answer,
                          const struct score *score, const struct ranked *ranked, uint32_t count,
                          size_t tokens) {
    const struct score_request *request = &score->request;
    if (request->top_n > 0 && request->top_n < count) count = request->top_n;
    buf_printf(out, "{\"id\":\"%s\",\"object\":\"list\",\"model\":", answer->id);
    json_write_string(out, answer->model_name);
    buf_add_text(out, ",\"results\":[");
    for (uint32_t i = 0; i < count; i++) {
        buf_printf(out, "%s{\"index\":%u,\"relevance_score\":", i ? "," : "", ranked[i].index);
        json_write_float(out, ranked[i].score);
        if (request->returns_documents) {
            buf_add_text(out, ",\"document\":{\"text\":");
            json_write_string(out, score_side_text(&request->second, ranked[i].index));
            buf_add_byte(out, '}');
        }
        buf_add_byte(out, '}');
    }
    buf_add_text(out, "],");
    write_usage(out, tokens);
    buf_add_text(out, ",\"meta\":{\"api_version\":{\"version\":\"2\"},\"billed_units\":"
                      "{\"search_units\":1}}}");
}

void score_write_body(struct buf *out, const struct score_answer *answer, const struct score *score,
                      const struct embedding *embedding) {
    struct ranked *ranked = mem_new(score->pairs, sizeof *ranked);
    assert(embedding->done == embedding->request.count);
    for (uint32_t i = 0; i < score->pairs; i++)
        ranked[i] = (struct ranked){i, score_of(answer, score, embedding, i)};
    if (score->request.is_rerank) {
        qsort(ranked, score->pairs, sizeof *ranked, compare);
        write_results(out, answer, score, ranked, score->pairs, embedding->ids.count);
    } else {
        write_scores(out, answer, ranked, score->pairs, embedding->ids.count);
    }
    free(ranked);
}

/* ---- labels ---- */

/* One label: its sigmoid; several: their softmax. */
static void make_probabilities(const struct served_head *head, float *numbers) {
    float most = numbers[0], sum = 0.0f;
    if (head->is_raw) return;
    if (head->labels == 1) {
        numbers[0] = 1.0f / (1.0f + expf(-numbers[0]));
        return;
    }
    for (uint32_t i = 1; i < head->labels; i++)
        if (numbers[i] > most) most = numbers[i];
    for (uint32_t i = 0; i < head->labels; i++) sum += numbers[i] = expf(numbers[i] - most);
    for (uint32_t i = 0; i < head->labels; i++) numbers[i] /= sum;
}

static void write_label(struct buf *out, const struct vocabulary *vocabulary, uint32_t index) {
    const char *name = index < vocabulary->label_count ? vocabulary->labels[index] : NULL;
    if (name)
        json_write_string(out, str_from(name));
    else
        buf_printf(out, "\"LABEL_%u\"", index);
}

void score_write_labels(struct buf *out, const struct score_answer *answer,
                        const struct embedding *embedding) {
    const uint32_t labels = answer->head->labels;
    buf_printf(out,
               "{\"id\":\"%s\",\"object\":\"list\",\"created\":%" PRId64 ",\"model\":", answer->id,
               answer->created_unix_s);
    json_write_string(out, answer->model_name);
    buf_add_text(out, ",\"data\":[");
    for (uint32_t i = 0; i < embedding->request.count; i++) {
        float *numbers = embedding->vectors + (size_t)i * labels;
        uint32_t best = 0;
        make_probabilities(answer->head, numbers);
        for (uint32_t j = 1; j < labels; j++)
            if (numbers[j] > numbers[best]) best = j;
        buf_printf(out, "%s{\"index\":%u,\"label\":", i ? "," : "", i);
        write_label(out, answer->vocabulary, best);
        buf_add_text(out, ",\"probs\":[");
        for (uint32_t j = 0; j < labels; j++) {
            if (j > 0) buf_add_byte(out, ',');
            json_write_float(out, numbers[j]);
        }
        buf_printf(out, "],\"num_classes\":%u}", labels);
    }
    buf_add_text(out, "],");
    write_usage(out, embedding->ids.count);
    buf_add_byte(out, '}');
}
