/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tool_tags: what an answer with calls of tools may be, as a format of grammar/tags.h.
 *
 * A call is written in the JSON form of the family: between the family's marks, where it has some,
 * as {"name": …, "arguments": …}. That is also so for families whose own form is no JSON;
 * tool_calls.h reads both. The arguments are values of the schema of the tool's parameters.
 *
 * Thread: any; pure.
 * Memory: the result is the caller's. */

#include "chat/tool_format.h"

#include <jansson.h>

#define TOOLS_MAX 512
/* The most calls in a list that an answer is held to. A model may never end the list by itself; an
 * answer that max_tokens cuts inside its arguments is of no use. OpenAI takes 128 tools per
 * request, so each of them can still be called. */
#define TOOL_CALLS_MAX 128

struct tool_set {
    uint64_t words[TOOLS_MAX / 64];
};

static inline bool tool_set_has(const struct tool_set *set, size_t tool) {
    return set->words[tool / 64] >> (tool % 64) & 1;
}

static inline void tool_set_add(struct tool_set *set, size_t tool) {
    set->words[tool / 64] |= (uint64_t)1 << (tool % 64);
}

struct tool_tags {
    enum tool_format format; /* HERMES or behind it */
    const json_t *tools;     /* the checked array of a request; borrowed */
    struct tool_set callable;
    bool is_forced;  /* the answer is calls and nothing else */
    bool only_one;   /* one call at most */
    uint64_t marks;  /* the set of marks that are control tokens of the vocabulary */
    json_t *instead; /* in place of an answer that is no call; NULL: any text. Borrowed */
};

/* The format, new. Where the call is not forced, a tool that is not `strict` and has a schema that
 * cannot be held takes any object. */
json_t *tool_tags_format(const struct tool_tags *from);

/* The schemas that calls are held to by any model, as a format of grammar/tags.h, new: of the tools
 * that tool_choice forces and of the tools that are `strict`. NULL: no tool has one. Fields that
 * are wrong in another way are left out, for the engine to refuse. *ret_param is the field that
 * asks for the calls. */
json_t *tool_tags_schemas(const json_t *body, const char **ret_param);
