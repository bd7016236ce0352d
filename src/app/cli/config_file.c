/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/config_file.h"

#include "base/utf8.h"

/* The next line, trimmed; false at the end of the text. */
static bool next_line(struct config_reader *reader, struct str *ret_line) {
    if (reader->rest.bytes == 0) return false;
    size_t end = str_find_byte(reader->rest, '\n', 0);
    struct str line = {reader->rest.at, end == SIZE_MAX ? reader->rest.bytes : end};
    reader->rest = str_skip(reader->rest, end == SIZE_MAX ? reader->rest.bytes : end + 1);
    if (line.bytes > 0 && line.at[line.bytes - 1] == '\r') line.bytes--;
    reader->line++;
    *ret_line = str_trim(line);
    return true;
}

static bool is_key(struct str key) {
    if (key.bytes == 0 || key.bytes > CONFIG_KEY_BYTES_MAX) return false;
    for (size_t i = 0; i < key.bytes; i++) {
        char c = key.at[i];
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c == '-' && i > 0)))
            return false;
    }
    return true;
}

static bool is_clean(struct str value) {
    for (size_t i = 0; i < value.bytes; i++) {
        unsigned char byte = (unsigned char)value.at[i];
        if ((byte < 0x20 && byte != '\t') || byte == 0x7F) return false;
    }
    return utf8_valid_prefix(value) == value.bytes;
}

static enum err read_setting(struct str line, struct config_setting *ret_setting,
                             struct error *error) {
    size_t equals = str_find_byte(line, '=', 0);
    if (equals == SIZE_MAX)
        return err_set(error, ERR_INVALID, "this line is not 'key = value'%s",
                       line.at[0] == '[' ? "; there are no sections" : "");
    struct str key = str_trim((struct str){line.at, equals});
    struct str value = str_trim(str_skip(line, equals + 1));
    if (!is_key(key))
        return err_set(error, ERR_INVALID,
                       "what stands before '=' is not the name of an option: lower-case letters, "
                       "digits and '-', without dashes in front");
    if (value.bytes == 0) return err_set(error, ERR_INVALID, "'%.*s' has no value", STR_ARGS(key));
    if (value.bytes > CONFIG_VALUE_BYTES_MAX)
        return err_set(error, ERR_LIMIT, "the value of '%.*s' has %zu bytes, at most %d",
                       STR_ARGS(key), value.bytes, CONFIG_VALUE_BYTES_MAX);
    if (!is_clean(value))
        return err_set(error, ERR_INVALID, "the value of '%.*s' is not clean UTF-8 text",
                       STR_ARGS(key));
    *ret_setting = (struct config_setting){key, value};
    return OK;
}

bool config_next(struct config_reader *reader, struct config_setting *ret_setting,
                 enum err *ret_err, struct error *error) {
    struct str line;
    *ret_err = OK;
    while (next_line(reader, &line)) {
        if (line.bytes == 0 || line.at[0] == '#') continue;
        *ret_err = read_setting(line, ret_setting, error);
        return *ret_err == OK;
    }
    return false;
}
