/* SPDX-License-Identifier: Apache-2.0 */
/* The formats of strings, each as a regular expression of the whole string. Where a format's own
 * rules cannot be written down so, the expression allows less: host names without labels of the
 * form xn--…, and leap seconds only in UTC. There is no year 0000: RFC 3339 has it, but validators
 * and clients written in Python refuse it. A fraction of a second has at most 18 digits, a number of
 * a duration at most 80: a model may never end its digits by itself. */
#include "grammar/schema_internal.h"

#define FOURTHS "(?:0[48]|[2468][048]|[13579][26])"
#define LEAP_YEARS "(?:\\d\\d" FOURTHS "|" FOURTHS "00)"
#define YEAR "(?:\\d{3}[1-9]|\\d{2}[1-9]0|\\d[1-9]00|[1-9]000)"
#define DATE                                                                                       \
    "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])"                                   \
    "|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))|" LEAP_YEARS "-02-29)"
/* A leap second is written in UTC. */
#define FRACTION "(?:\\.\\d{1,18})"
#define TIME                                                                                       \
    "(?:(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d" FRACTION "?"                                         \
    "(?:[zZ]|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"                                                     \
    "|23:59:60" FRACTION "?(?:[zZ]|[+-]00:00))"
#define OCTET "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4 "(?:" OCTET "(?:\\." OCTET "){3})"
#define H16 "[0-9a-fA-F]{1,4}"
#define LS32 "(?:" H16 ":" H16 "|" IPV4 ")"
#define IPV6                                                                                       \
    "(?:(?:" H16 ":){6}" LS32 "|::(?:" H16 ":){5}" LS32 "|(?:" H16 ")?::(?:" H16 ":){4}" LS32      \
    "|(?:(?:" H16 ":){0,1}" H16 ")?::(?:" H16 ":){3}" LS32 "|(?:(?:" H16 ":){0,2}" H16             \
    ")?::(?:" H16 ":){2}" LS32 "|(?:(?:" H16 ":){0,3}" H16 ")?::" H16 ":" LS32 "|(?:(?:" H16       \
    ":){0,4}" H16 ")?::" LS32 "|(?:(?:" H16 ":){0,5}" H16 ")?::" H16 "|(?:(?:" H16 ":){0,6}" H16   \
    ")?::)"
/* A label has at most 63 characters, no hyphen at its ends, and no two at its third and fourth
 * place. */
#define ALNUM "[a-zA-Z0-9]"
#define INNER "[a-zA-Z0-9-]"
#define LABEL                                                                                      \
    "(?:" ALNUM "(?:" ALNUM "|" INNER ALNUM "|" INNER INNER ALNUM "|" INNER "(?:" ALNUM INNER      \
    "|-" ALNUM ")" INNER "{0,58}" ALNUM ")?)"
#define HOSTNAME LABEL "(?:\\." LABEL ")*"
#define ATEXT "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+"
#define QUOTED "\"(?:[!#-\\[\\]-~ ]|\\\\[ -~])*\""
#define EMAIL                                                                                      \
    "(?:" ATEXT "(?:\\." ATEXT ")*|" QUOTED ")@(?:" HOSTNAME "|\\[(?:" IPV4 "|IPv6:" IPV6 ")\\])"
#define SOME "\\d{1,80}"
#define DURATION                                                                                   \
    "P(?:" SOME "W|(?:" SOME "Y(?:" SOME "M(?:" SOME "D)?)?|" SOME "M(?:" SOME "D)?|" SOME "D)"    \
    "(?:T" TIMES ")?|T" TIMES ")"
#define TIMES "(?:" SOME "H(?:" SOME "M(?:" SOME "S)?)?|" SOME "M(?:" SOME "S)?|" SOME "S)"
#define HEX4 "[0-9a-fA-F]{4}"
#define UUID HEX4 HEX4 "-" HEX4 "-" HEX4 "-" HEX4 "-" HEX4 HEX4 HEX4
/* RFC 3986, with an authority of a host name or an address. */
#define ESCAPED "%[0-9a-fA-F]{2}"
#define PCHAR "(?:[a-zA-Z0-9._~!$&'()*+,;=:@-]|" ESCAPED ")"
#define URI                                                                                        \
    "[a-zA-Z][a-zA-Z0-9+.-]*:(?://(?:(?:[a-zA-Z0-9._~!$&'()*+,;=:-]|" ESCAPED ")*@)?"              \
    "(?:\\[" IPV6 "\\]|(?:[a-zA-Z0-9._~!$&'()*+,;=-]|" ESCAPED ")*)(?::[0-9]*)?(?:/" PCHAR "*)*"   \
    "|/(?:" PCHAR "+(?:/" PCHAR "*)*)?|" PCHAR "+(?:/" PCHAR "*)*|)"                               \
    "(?:\\?(?:" PCHAR "|[/?])*)?(?:#(?:" PCHAR "|[/?])*)?"

struct string_format schema_format(struct str name) {
    static const struct {
        const char *name;
        struct string_format format;
    } formats[] = {{"date", {DATE, NULL}},
                   {"time", {TIME, NULL}},
                   {"date-time", {DATE "[tT]" TIME, NULL}},
                   {"duration", {DURATION, NULL}},
                   {"email", {EMAIL, ".{1,64}@[^@]{1,253}"}},
                   {"hostname", {HOSTNAME, ".{1,253}"}},
                   {"ipv4", {IPV4, NULL}},
                   {"ipv6", {IPV6, NULL}},
                   {"uuid", {UUID, NULL}},
                   {"uri", {URI, NULL}}};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (str_is(name, formats[i].name)) return formats[i].format;
    return (struct string_format){NULL, NULL};
}
