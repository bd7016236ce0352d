/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/harmony_format.h"

#include "chat/tag_words.h"

json_t *harmony_ends(void) {
    return json_pack("[s,s,s,s]", HARMONY_END, "<|start|>", "<|return|>", "<|call|>");
}

static json_t *any_text(void) {
    return tag_format("any_text", "excludes", harmony_ends());
}

json_t *harmony_final(uint64_t marks, json_t *text) {
    json_t *list = json_array(), *type = json_array();
    tag_add_words(list, marks, HARMONY_FINAL);
    if (text) { /* Models name the type of a text that is JSON. */
        tag_add_words(type, marks, HARMONY_JSON);
        json_t *named = tag_format("sequence", "elements", type);
        json_array_append_new(list, tag_format("optional", "content", named));
    } else {
        json_decref(type);
    }
    tag_add_words(list, marks, HARMONY_BODY);
    json_array_append_new(list, text ? text : any_text());
    return tag_format("sequence", "elements", list);
}

json_t *harmony_with_preamble(uint64_t marks, json_t *messages) {
    json_t *preamble = json_array(), *list = json_array();
    tag_add_words(preamble, marks, "<|channel|>commentary" HARMONY_BODY);
    json_array_append_new(preamble, any_text());
    tag_add_words(preamble, marks, HARMONY_END HARMONY_NEXT);
    json_t *one = tag_format("sequence", "elements", preamble);
    json_array_append_new(list, tag_format("optional", "content", one));
    json_array_append_new(list, messages);
    return tag_format("sequence", "elements", list);
}
