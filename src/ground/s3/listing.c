/* SPDX-License-Identifier: Apache-2.0 */
#include "s3/listing.h"

#include "s3/xml.h"

#include <string.h>

enum err s3_listing_read(struct str xml, const char *prefix, s3_name_fn each, void *context,
                         char ret_token[S3_TOKEN_BYTES], struct error *error) {
    char key[S3_KEY_BYTES], is_cut[8], token[S3_TOKEN_BYTES];
    struct str list, object;
    size_t at = 0, prefix_bytes = strlen(prefix);
    if (!xml_next(xml, "ListBucketResult", &at, &list))
        return err_set(error, ERR_CORRUPT, "the answer is no list of objects");
    bool has_more =
        xml_text(list, "IsTruncated", is_cut, sizeof is_cut) && strcmp(is_cut, "true") == 0;
    xml_text(list, "NextContinuationToken", token, sizeof token);
    if (has_more && !*token)
        return err_set(error, ERR_CORRUPT, "the list of objects goes on and does not say where");
    for (at = 0; xml_next(list, "Contents", &at, &object);)
        if (xml_text(object, "Key", key, sizeof key) && strncmp(key, prefix, prefix_bytes) == 0)
            each(context, key + prefix_bytes);
    memcpy(ret_token, has_more ? token : "", has_more ? strlen(token) + 1 : 1);
    return OK;
}
