/* SPDX-License-Identifier: Apache-2.0 */
#include "answer/embedding.h"

#include "answer/by_index.h"
#include "json/span.h"

struct str embedding_first(struct str data, uint64_t *ret_count) {
    const struct str nothing = {NULL, 0};
    struct by_index order = {0};
    struct json_span_iter iter;
    struct str element, first = nothing;
    bool is_inside = data.bytes > 0 && *data.at == '[' && json_span_enter(&iter, data);
    while (is_inside && json_span_element(&iter, &element))
        if (by_index_take(&order, json_span_get(element, "index"))) first = element;
    *ret_count = order.count;
    first = json_span_get(first, "embedding");
    return str_is(first, "null") ? nothing : first;
}
