/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "s3/sigv4.h"

#include <stdio.h>
#include <string.h>

#define NO_BODY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* The examples of AWS's page "Signature Calculations for the Authorization Header" of S3. */
static const struct sigv4_signer of_s3 = {"AKIAIOSFODNN7EXAMPLE",
                                          "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "us-east-1",
                                          "s3", "20130524T000000Z"};
/* AWS's test suite of Signature Version 4. */
static const struct sigv4_signer of_suite = {"AKIDEXAMPLE",
                                             "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
                                             "us-east-1", "service", "20150830T123600Z"};
#define S3_HOST                                                                                    \
    { "host", "examplebucket.s3.amazonaws.com" }
#define S3_DATE                                                                                    \
    { "x-amz-date", "20130524T000000Z" }
#define SUITE_HOST                                                                                 \
    { "host", "example.amazonaws.com" }
#define SUITE_DATE                                                                                 \
    { "x-amz-date", "20150830T123600Z" }

static const struct {
    const char *name;
    const struct sigv4_signer *signer;
    const char *method, *path; /* not encoded */
    struct sigv4_field query[2], headers[5];
    const char *payload_hex, *signed_names, *signature;
} examples[] = {
    {"S3, GET object",
     &of_s3,
     "GET",
     "/test.txt",
     {{0}},
     {S3_HOST, {"range", "bytes=0-9"}, {"x-amz-content-sha256", NO_BODY}, S3_DATE},
     NO_BODY,
     "host;range;x-amz-content-sha256;x-amz-date",
     "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
    {"S3, PUT object",
     &of_s3,
     "PUT",
     "/test$file.text",
     {{0}},
     {{"x-amz-storage-class", "REDUCED_REDUNDANCY"},
      S3_HOST,
      S3_DATE,
      {"date", "Fri, 24 May 2013 00:00:00 GMT"},
      {"x-amz-content-sha256", "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"}},
     "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
     "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
     "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
    {"S3, GET bucket lifecycle",
     &of_s3,
     "GET",
     "/",
     {{"lifecycle", ""}},
     {S3_HOST, {"x-amz-content-sha256", NO_BODY}, S3_DATE},
     NO_BODY,
     "host;x-amz-content-sha256;x-amz-date",
     "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
    {"S3, list objects",
     &of_s3,
     "GET",
     "/",
     {{"prefix", "J"}, {"max-keys", "2"}},
     {S3_HOST, {"x-amz-content-sha256", NO_BODY}, S3_DATE},
     NO_BODY,
     "host;x-amz-content-sha256;x-amz-date",
     "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
    {"get-vanilla",
     &of_suite,
     "GET",
     "/",
     {{0}},
     {SUITE_HOST, SUITE_DATE},
     NO_BODY,
     "host;x-amz-date",
     "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
    {"post-vanilla",
     &of_suite,
     "POST",
     "/",
     {{0}},
     {SUITE_DATE, SUITE_HOST},
     NO_BODY,
     "host;x-amz-date",
     "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
    {"get-vanilla-query-order-key-case",
     &of_suite,
     "GET",
     "/",
     {{"Param2", "value2"}, {"Param1", "value1"}},
     {SUITE_HOST, SUITE_DATE},
     NO_BODY,
     "host;x-amz-date",
     "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
    {"get-header-value-trim",
     &of_suite,
     "GET",
     "/",
     {{0}},
     {SUITE_HOST, {"my-header1", " value1"}, {"my-header2", " \"a   b   c\""}, SUITE_DATE},
     NO_BODY,
     "host;my-header1;my-header2;x-amz-date",
     "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"},
    {"get-utf8",
     &of_suite,
     "GET",
     "/\xe1\x88\xb4",
     {{0}},
     {SUITE_HOST, SUITE_DATE},
     NO_BODY,
     "host;x-amz-date",
     "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"},
};

static void the_published_examples_have_their_published_signatures(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        struct buf path, query, out;
        char wanted[512];
        size_t query_count = 0, header_count = 0;
        buf_init(&path, BUF_UNLIMITED);
        buf_init(&query, BUF_UNLIMITED);
        buf_init(&out, BUF_UNLIMITED);
        while (query_count < 2 && examples[i].query[query_count].name) query_count++;
        while (header_count < 5 && examples[i].headers[header_count].name) header_count++;
        sigv4_encode(&path, str_from(examples[i].path), true);
        sigv4_query(&query, examples[i].query, query_count);
        const struct sigv4_request request = {.method = examples[i].method,
                                              .path = buf_str(&path),
                                              .query = buf_str(&query),
                                              .headers = examples[i].headers,
                                              .header_count = header_count,
                                              .payload_hex = examples[i].payload_hex};
        sigv4_sign(&out, examples[i].signer, &request);
        snprintf(wanted, sizeof wanted,
                 "AWS4-HMAC-SHA256 Credential=%s/%.8s/us-east-1/%s/aws4_request, "
                 "SignedHeaders=%s, Signature=%s",
                 examples[i].signer->key_id, examples[i].signer->time, examples[i].signer->service,
                 examples[i].signed_names, examples[i].signature);
        if (strcmp(out.at, wanted) != 0) print_error("%s\n", examples[i].name);
        assert_string_equal(out.at, wanted);
        buf_release(&path);
        buf_release(&query);
        buf_release(&out);
    }
}

static void a_text_is_encoded_but_for_letters_digits_and_four_marks(void **state) {
    struct buf out;
    (void)state;
    buf_init(&out, BUF_UNLIMITED);
    sigv4_encode(&out, STR("aZ09-._~/ +%\"\xc3\xa4"), true);
    assert_string_equal(out.at, "aZ09-._~/%20%2B%25%22%C3%A4");
    buf_clear(&out);
    sigv4_encode(&out, STR("a/b=c&d"), false);
    assert_string_equal(out.at, "a%2Fb%3Dc%26d");
    buf_release(&out);
}

static void a_time_is_that_of_utc(void **state) {
    char time[SIGV4_TIME_BYTES];
    (void)state;
    sigv4_time(1440938160, time);
    assert_string_equal(time, "20150830T123600Z");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_published_examples_have_their_published_signatures),
        cmocka_unit_test(a_text_is_encoded_but_for_letters_digits_and_four_marks),
        cmocka_unit_test(a_time_is_that_of_utc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
