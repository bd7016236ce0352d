/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* bucket: objects of S3 as files of a client's command.
 *
 * An object has a local file while the command works on it: `quern-SUM.jsonl` in the folder for
 * such files. The same command after a break finds it by its name, and goes on. `quern run` has
 * offline_places.h for this.
 *
 * Thread: main.
 * Memory: see s3/s3.h. */

#include "cli/session.h"
#include "s3/s3.h"

#include <limits.h>

/* The name of the local file. SUM is made of the object's name and of `rest`, such as a batch that
 * it belongs to. `folder` NULL: the current directory. ERR_INVALID for a name that is none. */
enum err bucket_name(const char *name, const char *rest, const char *folder,
                     char ret_path[PATH_MAX], struct error *error) MUST_CHECK;
/* Before any work: ERR_CONFLICT if the object exists and `may_replace` is false; ERR_DENIED without
 * credentials. */
enum err bucket_check(struct session *session, const char *name, bool may_replace,
                      struct error *error) MUST_CHECK;
/* Errors of s3_get and s3_put. */
enum err bucket_fetch(struct session *session, const char *name, const char *path,
                      struct error *error) MUST_CHECK;
enum err bucket_send(struct session *session, const char *name, const char *path,
                     struct error *error) MUST_CHECK;
