/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* account: who asks S3, and where: credentials, region and endpoint, from the places that AWS's
 * own tools read.
 *
 *   credentials   AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN; else the profile
 *   region        AWS_REGION; AWS_DEFAULT_REGION; the profile's `region`; us-east-1
 *   endpoint      AWS_ENDPOINT_URL_S3; AWS_ENDPOINT_URL; the profile's `endpoint_url`; AWS's own
 *   profile       AWS_PROFILE, else `default`, in AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials)
 *                 and in AWS_CONFIG_FILE (~/.aws/config)
 *
 * It asks no machine of a cloud for credentials, and runs no program for them.
 *
 * Thread: any; reads the environment.
 * Memory: the caller's struct, which s3_account_wipe clears. */

#include "base/err.h"

struct s3_account {
    char key_id[256], secret[256];
    char token[8192]; /* for temporary credentials; empty: none */
    char region[64];
    char endpoint[512]; /* a URL; empty: AWS's own */
};

/* ERR_DENIED without credentials; ERR_INVALID for a profile that neither file has, a file that
 * cannot be read as one, or a value that is too long. */
enum err s3_account_read(struct s3_account *ret_account, struct error *error) MUST_CHECK;
void s3_account_wipe(struct s3_account *account);
