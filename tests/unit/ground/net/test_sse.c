/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net/sse.h"

#include <stdio.h>

struct heard {
    char text[256];
    size_t bytes;
    int left; /* events until the reading ends */
};

static bool hear(void *context, struct str data) {
    struct heard *heard = context;
    heard->bytes += (size_t)snprintf(heard->text + heard->bytes, sizeof heard->text - heard->bytes,
                                     "[%.*s]", STR_ARGS(data));
    return --heard->left != 0;
}

static void events_are_found_however_the_bytes_are_cut(void **state) {
    (void)state;
    const struct str stream =
        STR("\xEF\xBB\xBF: hi\n\ndata: one\r\n\r\nevent: x\ndata:two\rdata: 2\r\r"
            "\n\nid: 7\n\ndata:\n\ndata: three");
    for (size_t cut = 0; cut <= stream.bytes; cut++) {
        struct net_sse sse = {.has_data = false};
        struct heard heard = {.left = 100};
        buf_init(&sse.line, 64);
        buf_init(&sse.data, 64);
        assert_true(net_sse_feed(&sse, (struct str){stream.at, cut}, hear, &heard));
        assert_true(net_sse_feed(&sse, str_skip(stream, cut), hear, &heard));
        assert_string_equal(heard.text, "[one][two\n2][]");
        buf_release(&sse.line);
        buf_release(&sse.data);
    }
}

static void a_stream_without_line_ends_is_given_up(void **state) {
    (void)state;
    struct net_sse sse = {.has_data = false};
    struct heard heard = {.left = 1};
    buf_init(&sse.line, 16);
    buf_init(&sse.data, 16);
    assert_false(net_sse_feed(&sse, STR("data: 01234567890123456789"), hear, &heard));
    buf_clear(&sse.line);
    assert_false(net_sse_feed(&sse, STR("data: x\n\ndata: y\n\n"), hear, &heard));
    assert_string_equal(heard.text, "[x]");
    buf_release(&sse.line);
    buf_release(&sse.data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_found_however_the_bytes_are_cut),
        cmocka_unit_test(a_stream_without_line_ends_is_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
