/* SPDX-License-Identifier: Apache-2.0 */
#include "net/file_body.h"

#include "base/os.h"

#include <stdio.h>
#include <string.h>

uint64_t file_body_bytes(const struct net_file *file) {
    return file->before.bytes + file->bytes + file->after.bytes;
}

/* Copies at most `room` bytes of a part, from the offset `at` on. */
static size_t copy_part(struct str part, uint64_t at, char *ret_bytes, size_t room) {
    struct str rest = str_skip(part, (size_t)at);
    size_t count = rest.bytes < room ? rest.bytes : room;
    if (count > 0) memcpy(ret_bytes, rest.at, count);
    return count;
}

/* Gives the next bytes, from one of the three parts per call: before, the file, after. */
size_t file_body_read(char *bytes, size_t size, size_t count, void *user) {
    struct file_body *body = user;
    const struct net_file *file = body->file;
    uint64_t at = body->at, end = file->before.bytes + file->bytes;
    size_t room = size * count, given;
    struct error error;
    if (at < file->before.bytes) {
        given = copy_part(file->before, at, bytes, room);
    } else if (at < end) {
        given = room < end - at ? room : (size_t)(end - at);
        uint64_t offset = file->from + (at - file->before.bytes);
        if (os_pread_all(file->fd, bytes, given, offset, &error) != OK) return CURL_READFUNC_ABORT;
    } else {
        given = copy_part(file->after, at - end, bytes, room);
    }
    body->at += given;
    return given;
}

int file_body_seek(void *user, curl_off_t offset, int origin) {
    struct file_body *body = user;
    if (origin != SEEK_SET || offset < 0) return CURL_SEEKFUNC_FAIL;
    body->at = (uint64_t)offset;
    return CURL_SEEKFUNC_OK;
}
