/* SPDX-License-Identifier: Apache-2.0 */
/* The formats of strings, each as regular expressions of the whole string. If a rule of a format
 * fits no expression, the expression allows less: host names without labels of the form xn--…,
 * whose characters only the arithmetic of Punycode tells. The year 0000 is excluded: RFC 3339 has
 * it, but validators and clients written in Python refuse it. A fraction of a second has at most 18
 * digits, and a number of a duration at most 80, because a model may never end its digits by
 * itself. */
#include "grammar/schema_internal.h"

#define FOURTHS "(?:0[48]|[2468][048]|[13579][26])"
#define LEAP_YEARS "(?:\\d\\d" FOURTHS "|" FOURTHS "00)"
#define YEAR "(?:\\d{3}[1-9]|\\d{2}[1-9]0|\\d[1-9]00|[1-9]000)"
#define DATE                                                                                       \
    "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])"                                   \
    "|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))|" LEAP_YEARS "-02-29)"
#define FRACTION "(?:\\.\\d{1,18})"
#define MINUTE "(?:[01]\\d|2[0-3]):[0-5]\\d"
#define TIME                                                                                       \
    "(?:" MINUTE ":[0-5]\\d" FRACTION "?(?:[zZ]|[+-]" MINUTE ")"                                   \
    "|(?:23:59:60" FRACTION "?[zZ]|" MINUTE ":60" FRACTION "?[+-]" MINUTE "))"
/* A leap second is 23:59:60 in UTC. With an offset, the local hour and minute follow from the
 * offset: 01:29:60+01:30, 15:59:60-08:00. East of UTC the minute of the offset is the next minute.
 * Its hour is the same, or the next hour after minute 59. West of UTC the two minutes make 59, and
 * the two hours 23. Three expressions check this digit by digit, in addition to TIME. Each of them
 * takes every time without a leap second, and every leap second in UTC. */
#define DD "[0-9]{2}"
#define LEAP ":60[0-9.]*"
#define NO_LEAP DD ":" DD ":(?:[0-5][0-9.zZ:+-]*|60[0-9.zZ]*)"
/* The last digit of a minute, the next digit, and the digit that makes 9 with it. */
#define UNIT(unit, next, rest)                                                                     \
    "|" DD ":[0-5]" unit LEAP "(?:\\+" DD ":[0-5]" next "|-" DD ":[0-5]" rest ")"
/* The first digit of a minute, the next digit, and the digit that makes 5 with it. */
#define TEN(ten, next, rest)                                                                       \
    "|" DD ":" ten "(?:[0-8]" LEAP "\\+" DD ":" ten "|9" LEAP "\\+" DD ":" next "|[0-9]" LEAP      \
    "-" DD ":" rest ")[0-9]"
/* An hour, the next hour, and the hour that makes 23 with it. */
#define HOUR(hour, next, rest)                                                                     \
    "|" hour ":(?:59" LEAP "\\+" next "|(?:[0-4][0-9]|5[0-8])" LEAP "\\+" hour "|" DD LEAP         \
    "-" rest "):" DD
/* clang-format off */
#define LEAP_UNITS                                                                                 \
    "(?:" NO_LEAP                                                                                  \
    UNIT("0", "1", "9") UNIT("1", "2", "8") UNIT("2", "3", "7") UNIT("3", "4", "6")                \
    UNIT("4", "5", "5") UNIT("5", "6", "4") UNIT("6", "7", "3") UNIT("7", "8", "2")                \
    UNIT("8", "9", "1") UNIT("9", "0", "0") ")"
#define LEAP_TENS                                                                                  \
    "(?:" NO_LEAP                                                                                  \
    TEN("0", "1", "5") TEN("1", "2", "4") TEN("2", "3", "3")                                       \
    TEN("3", "4", "2") TEN("4", "5", "1") TEN("5", "0", "0") ")"
#define LEAP_HOURS                                                                                 \
    "(?:" NO_LEAP                                                                                  \
    HOUR("00", "01", "23") HOUR("01", "02", "22") HOUR("02", "03", "21") HOUR("03", "04", "20")    \
    HOUR("04", "05", "19") HOUR("05", "06", "18") HOUR("06", "07", "17") HOUR("07", "08", "16")    \
    HOUR("08", "09", "15") HOUR("09", "10", "14") HOUR("10", "11", "13") HOUR("11", "12", "12")    \
    HOUR("12", "13", "11") HOUR("13", "14", "10") HOUR("14", "15", "09") HOUR("15", "16", "08")    \
    HOUR("16", "17", "07") HOUR("17", "18", "06") HOUR("18", "19", "05") HOUR("19", "20", "04")    \
    HOUR("20", "21", "03") HOUR("21", "22", "02") HOUR("22", "23", "01") HOUR("23", "00", "00") ")"
/* clang-format on */
#define DAY "[0-9-]{10}[tT]"
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
/* RFC 9562: a digit of the version, and the variant that versions belong to. */
#define UUID_OF(version)                                                                           \
    HEX4 HEX4 "-" HEX4 "-" version "[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-" HEX4 HEX4 HEX4
#define PREFIX4 "/(?:3[0-2]|[12]?[0-9])"
#define PREFIX6 "/(?:12[0-8]|1[01][0-9]|[1-9]?[0-9])"
#define BASE64(signs)                                                                              \
    "(?:[A-Za-z0-9" signs "]{4})*(?:[A-Za-z0-9" signs "]{2}==|[A-Za-z0-9" signs "]{3}=)?"
#define POINTER "(?:/(?:[^~/]|~[01])*)*"
/* RFC 3986, with an authority of a host name or an address. */
#define ESCAPED "%[0-9a-fA-F]{2}"
#define PCHAR "(?:[a-zA-Z0-9._~!$&'()*+,;=:@-]|" ESCAPED ")"
#define AUTHORITY                                                                                  \
    "//(?:(?:[a-zA-Z0-9._~!$&'()*+,;=:-]|" ESCAPED ")*@)?"                                         \
    "(?:\\[" IPV6 "\\]|(?:[a-zA-Z0-9._~!$&'()*+,;=-]|" ESCAPED ")*)(?::[0-9]*)?(?:/" PCHAR "*)*"
#define QUERY "(?:\\?(?:" PCHAR "|[/?])*)?(?:#(?:" PCHAR "|[/?])*)?"
#define URI                                                                                        \
    "[a-zA-Z][a-zA-Z0-9+.-]*:(?:" AUTHORITY "|/(?:" PCHAR "+(?:/" PCHAR "*)*)?|" PCHAR             \
    "+(?:/" PCHAR "*)*|)" QUERY
#define NO_COLON "(?:[a-zA-Z0-9._~!$&'()*+,;=@-]|" ESCAPED ")"
#define RELATIVE                                                                                   \
    "(?:" AUTHORITY "|/(?:" PCHAR "+(?:/" PCHAR "*)*)?|" NO_COLON "+(?:/" PCHAR "*)*|)" QUERY
#define ANY_TEXT "(?:.|\\n|\\r|\\u2028|\\u2029)*" /* the format restricts nothing */

struct string_format schema_format(struct str name) {
    static const struct {
        const char *name;
        struct string_format format;
    } formats[] = {
        {"date", {{DATE}}},
        {"time", {{TIME, LEAP_UNITS, LEAP_TENS, LEAP_HOURS}}},
        {"date-time", {{DATE "[tT]" TIME, DAY LEAP_UNITS, DAY LEAP_TENS, DAY LEAP_HOURS}}},
        {"duration", {{DURATION}}},
        {"email", {{EMAIL, ".{1,64}@[^@]{1,253}"}}},
        {"hostname", {{HOSTNAME, ".{1,253}"}}},
        {"ipv4", {{IPV4}}},
        {"ipv6", {{IPV6}}},
        {"uuid", {{UUID}}},
        {"uri", {{URI}}},
        {"uri-reference", {{"(?:" URI "|" RELATIVE ")"}}},
        {"json-pointer", {{POINTER}}},
        {"relative-json-pointer", {{"(?:0|[1-9][0-9]{0,80})(?:#|" POINTER ")"}}},
        /* pydantic's */
        {"uuid1", {{UUID_OF("1")}}},
        {"uuid3", {{UUID_OF("3")}}},
        {"uuid4", {{UUID_OF("4")}}},
        {"uuid5", {{UUID_OF("5")}}},
        {"uuid6", {{UUID_OF("6")}}},
        {"uuid7", {{UUID_OF("7")}}},
        {"uuid8", {{UUID_OF("8")}}},
        {"ipvanyaddress", {{"(?:" IPV4 "|" IPV6 ")"}}},
        {"ipvanynetwork", {{"(?:" IPV4 "(?:" PREFIX4 ")?|" IPV6 "(?:" PREFIX6 ")?)"}}},
        {"ipvanyinterface", {{"(?:" IPV4 "(?:" PREFIX4 ")?|" IPV6 "(?:" PREFIX6 ")?)"}}},
        {"ipv4network", {{IPV4 "(?:" PREFIX4 ")?"}}},
        {"ipv4interface", {{IPV4 "(?:" PREFIX4 ")?"}}},
        {"ipv6network", {{IPV6 "(?:" PREFIX6 ")?"}}},
        {"ipv6interface", {{IPV6 "(?:" PREFIX6 ")?"}}},
        {"base64", {{BASE64("+/")}}},
        {"base64url", {{BASE64("_-")}}},
        {"byte", {{BASE64("+/")}}}, /* OpenAPI's */
        /* Notes for readers and forms: every string has them. */
        {"password", {{ANY_TEXT}}},
        {"binary", {{ANY_TEXT}}},
        {"path", {{ANY_TEXT}}},
        {"file-path", {{ANY_TEXT}}},
        {"directory-path", {{ANY_TEXT}}},
        {"new-path", {{ANY_TEXT}}},
        {"json-string", {{ANY_TEXT}}},
        {"regex", {{ANY_TEXT}}},
        {"textarea", {{ANY_TEXT}}},
        {"markdown", {{ANY_TEXT}}},
        {"html", {{ANY_TEXT}}},
    };
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (str_is(name, formats[i].name)) return formats[i].format;
    return (struct string_format){{NULL}};
}
