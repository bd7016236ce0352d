/* SPDX-License-Identifier: Apache-2.0 */

/* The storage that holds a copy of the server (--copy-to). */

#include "doctor/doctor_internal.h"

#include "copy/bucket.h"
#include "copy/chain.h"

#include <string.h>

#define COPY "copy"

static void tell(struct doctor *doctor, const char *place, enum err err,
                 const struct error *error) {
    bool is_clock = strstr(error->text, "RequestTimeTooSkewed") != NULL;
    const char *remedy =
        is_clock            ? "set the clock of this machine, such as with chrony: S3 refuses a "
                              "request that is signed more than 15 minutes off"
        : err == ERR_DENIED ? "correct the account (AWS_ACCESS_KEY_ID, AWS_PROFILE), or allow it "
                              "s3:GetObject, s3:PutObject and s3:DeleteObject below the prefix"
        : err == ERR_NOT_FOUND ? "make the bucket, or correct --copy-to"
        : err == ERR_INVALID   ? "correct --copy-to, or the region and endpoint of the account"
                               : "until it is reached, changes get 503 and batches pause: look at "
                                 "the network and at AWS_ENDPOINT_URL";
    doctor_find(doctor, DOCTOR_WRONG, COPY, remedy, "%.300s: %s", place, error->text);
}

/* The first entry of a copy is never removed. Its own bytes are written again, if it does not
 * exist: a storage that keeps two servers apart refuses that, and any other changes nothing. */
static void check_refusal(struct doctor *doctor, const char *place, struct bucket *bucket,
                          const char *name, struct str bytes) {
    struct error error;
    enum err err = bucket_write(bucket, name, bytes, true, &error);
    if (err == OK)
        doctor_find(
            doctor, DOCTOR_WRONG, COPY, "name a storage with conditional writes",
            "%.300s: the storage wrote over an object in spite of 'If-None-Match: *', so it "
            "cannot keep two servers apart",
            place);
    else if (err == ERR_CONFLICT)
        doctor_find(doctor, DOCTOR_GOOD, COPY, NULL,
                    "%.300s has a copy, and refuses to write over what exists", place);
    else
        tell(doctor, place, err, &error);
}

void doctor_check_copy(struct doctor *doctor) {
    const char *place = doctor->settings.copy_to;
    char name[ENTRY_NAME_BYTES];
    struct bucket *bucket;
    struct error error;
    struct buf bytes;
    if (!place || !*place) return;
    enum err err = bucket_open(&bucket, place, doctor->stop, &error);
    if (err != OK) {
        tell(doctor, place, ERR_INVALID, &error);
        return;
    }
    buf_init(&bytes, ENTRY_BYTES_MAX);
    chain_log_name(1, name);
    err = bucket_read(bucket, name, &bytes, &error);
    if (err == OK)
        check_refusal(doctor, place, bucket, name, buf_str(&bytes));
    else if (err == ERR_NOT_FOUND && !strstr(error.text, "NoSuchBucket"))
        doctor_find(doctor, DOCTOR_GOOD, COPY, NULL,
                    "%.300s is reached and has no copy yet; the first start makes it, if the "
                    "storage takes conditional writes",
                    place);
    else
        tell(doctor, place, err, &error);
    buf_release(&bytes);
    bucket_close(bucket);
}
