/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* certificate: the files that --ssl-certfile and --ssl-keyfile name, read for HTTPS.
 *
 * Thread: main.
 * Memory: the text of the key is wiped once OpenSSL has the key. */

#include "http/tls.h"

/* `key_file` NULL: the private key is in the certificate's file, too. A file with the key must not
 * be readable by group or others (secret.h). */
enum err certificate_open(struct tls **ret_tls, const char *certificate_file, const char *key_file,
                          struct error *error) MUST_CHECK;
