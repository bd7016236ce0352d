/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* file_body: the body of a request for libcurl, made of a piece of a file and bytes around it.
 *
 * Thread: one.
 * Memory: borrows the file and the bytes around it. */

#include "net/client.h"

#include <curl/curl.h>

struct file_body {
    const struct net_file *file;
    uint64_t at; /* number of bytes that libcurl has read */
};

/* The size of the body. */
uint64_t file_body_bytes(const struct net_file *file);
/* Callbacks for CURLOPT_READFUNCTION and CURLOPT_SEEKFUNCTION; `user` is a struct file_body. */
size_t file_body_read(char *bytes, size_t size, size_t count, void *user);
int file_body_seek(void *user, curl_off_t offset, int origin);
