/* SPDX-License-Identifier: Apache-2.0 */
/* Keys and signatures against those that OpenSSH's ssh-keygen has made. */
#include "proof/signing_key.h"
#include "proof/ssh_signature.h"

#include "../../tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* `ssh-keygen -t ed25519 -N ''`, for this test alone. */
#define KEY_BEGIN                                                                                  \
    "-----BEGIN OPENSSH PRIVATE "                                                                  \
    "KEY-----\n"
#define KEY_END                                                                                    \
    "-----END OPENSSH PRIVATE "                                                                    \
    "KEY-----\n"
#define KEY_BODY                                                                                   \
    "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW\n"                     \
    "QyNTUxOQAAACCuKmNw04bgiU3AW27RCrcY9+V4HndfGECnLeYgXDiZ+QAAAIg8CI3qPAiN\n"                     \
    "6gAAAAtzc2gtZWQyNTUxOQAAACCuKmNw04bgiU3AW27RCrcY9+V4HndfGECnLeYgXDiZ+Q\n"                     \
    "AAAEDbgoninS8tDnSCXOPJu7Co/myJaf+CghV9vrLj9k9JPK4qY3DThuCJTcBbbtEKtxj3\n"                     \
    "5Xged18YQKct5iBcOJn5AAAAAAECAwQF\n"
#define PUBLIC "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIK4qY3DThuCJTcBbbtEKtxj35Xged18YQKct5iBcOJn5"
#define TEXT "{\n  \"object\": \"x\"\n}\n"
/* `ssh-keygen -Y sign -n quern-manifest` of TEXT by that key. */
static const char signature_of_text[] =
    "-----BEGIN SSH SIGNATURE-----\n"
    "U1NIU0lHAAAAAQAAADMAAAALc3NoLWVkMjU1MTkAAAAgripjcNOG4IlNwFtu0Qq3GPfleB\n"
    "53XxhApy3mIFw4mfkAAAAOcXVlcm4tbWFuaWZlc3QAAAAAAAAABnNoYTUxMgAAAFMAAAAL\n"
    "c3NoLWVkMjU1MTkAAABAx5i1i5tTr59i8CdtugVVMb6yOdQH5HKsxwFar+5CK0kuZmxUSa\n"
    "yie8ZN5eK9Eu/nEhmnuS6QR7KSWzyjiiAUCg==\n"
    "-----END SSH SIGNATURE-----\n";

static struct ssh_key read_known(void) {
    struct ssh_key key;
    struct error error;
    if (ssh_key_read(&key, STR(KEY_BEGIN KEY_BODY KEY_END), &error) != OK)
        fail_msg("%s", error.text);
    return key;
}

static void a_key_and_a_signature_are_those_of_openssh(void **state) {
    (void)state;
    struct ssh_key key = read_known();
    char public[SSH_PUBLIC_TEXT_BYTES];
    unsigned char read[SSH_PUBLIC_BYTES];
    struct error error;
    struct buf signature;
    ssh_public_write(key.public, public);
    assert_string_equal(public, PUBLIC);
    assert_int_equal(ssh_public_read(read, STR(PUBLIC " somebody's key\n"), &error), OK);
    assert_memory_equal(read, key.public, sizeof read);
    buf_init(&signature, BUF_UNLIMITED);
    ssh_sign(&signature, &key, STR(TEXT));
    assert_string_equal(signature.at, signature_of_text);
    buf_release(&signature);
}

static void a_made_key_reads_back(void **state) {
    (void)state;
    struct ssh_key key, again;
    struct error error;
    struct buf file;
    buf_init(&file, BUF_UNLIMITED);
    ssh_key_make(&key);
    ssh_key_write(&file, &key);
    assert_int_equal(ssh_key_read(&again, buf_str(&file), &error), OK);
    assert_memory_equal(&again, &key, sizeof key);
    buf_release(&file);
}

/* A change of any character makes it no key, or leaves the same key: the comment and the random
 * number decide nothing. */
static void a_damaged_key_is_refused_or_the_same(void **state) {
    (void)state;
    struct ssh_key key = read_known(), other;
    struct error error;
    char text[] = KEY_BEGIN KEY_BODY KEY_END;
    size_t refused = 0;
    for (size_t i = 0; i + 1 < sizeof text; i++) {
        char was = text[i];
        text[i] = was == 'A' ? 'B' : 'A';
        if (ssh_key_read(&other, str_from(text), &error) != OK)
            refused++;
        else
            assert_memory_equal(&other, &key, sizeof key);
        text[i] = was;
    }
    assert_true(refused > sizeof text * 8 / 10);
    assert_int_equal(ssh_public_read(other.public, STR("ssh-rsa AAAA"), &error), ERR_INVALID);
    assert_int_equal(ssh_public_read(other.public, STR("ssh-ed25519 AAAA"), &error), ERR_INVALID);
}

static void every_changed_character_of_a_signature_or_its_text_is_found(void **state) {
    (void)state;
    unsigned char public[SSH_PUBLIC_BYTES];
    struct error error;
    char signature[sizeof signature_of_text], text[] = TEXT;
    memcpy(signature, signature_of_text, sizeof signature);
    assert_int_equal(ssh_verify(str_from(signature), str_from(text), public, &error), OK);
    for (size_t i = 0; i + 1 < sizeof signature; i++) {
        char was = signature[i];
        signature[i] = was == 'A' ? 'B' : 'A';
        if (ssh_verify(str_from(signature), str_from(text), public, &error) != ERR_CORRUPT)
            fail_msg("character %zu", i);
        signature[i] = was;
    }
    for (size_t i = 0; i + 1 < sizeof text; i++) {
        text[i] ^= 1;
        assert_int_equal(ssh_verify(str_from(signature), str_from(text), public, &error),
                         ERR_CORRUPT);
        text[i] ^= 1;
    }
    /* One that says the same in another spelling. */
    struct str longer = STR("\n");
    char spelled[sizeof signature + 2];
    snprintf(spelled, sizeof spelled, "%s%s", longer.at, signature);
    assert_int_equal(ssh_verify(str_from(spelled), str_from(text), public, &error), ERR_CORRUPT);
}

static void a_key_file_is_made_once_and_is_its_owners(void **state) {
    (void)state;
    char folder[] = "/tmp/quern-signing-XXXXXX", path[128];
    struct ssh_key first, second;
    struct error error;
    struct stat status;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/state/" SIGNING_KEY_NAME, folder);
    assert_int_equal(signing_key_read(&first, path, &error), ERR_NOT_FOUND);
    assert_int_equal(signing_key_get(&first, path, &error), OK);
    assert_int_equal(signing_key_get(&second, path, &error), OK);
    assert_memory_equal(&first, &second, sizeof first);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(signing_key_get(&second, path, &error), ERR_INVALID);
    assert_non_null(strstr(error.text, "chmod 600"));
    tree_remove(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_and_a_signature_are_those_of_openssh),
        cmocka_unit_test(a_made_key_reads_back),
        cmocka_unit_test(a_damaged_key_is_refused_or_the_same),
        cmocka_unit_test(every_changed_character_of_a_signature_or_its_text_is_found),
        cmocka_unit_test(a_key_file_is_made_once_and_is_its_owners),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
