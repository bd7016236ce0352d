/* SPDX-License-Identifier: Apache-2.0 */
#include "answer/by_index.h"

bool by_index_take(struct by_index *list, struct str index) {
    uint64_t own = list->count;
    (void)str_to_u64(index, &own);
    bool is_first = list->count++ == 0 || own < list->lowest;
    if (is_first) list->lowest = own;
    return is_first;
}

bool by_index_is_settled(const struct by_index *list) {
    return list->count > 0 && list->lowest == 0;
}
