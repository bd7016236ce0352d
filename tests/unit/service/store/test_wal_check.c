/* SPDX-License-Identifier: Apache-2.0 */

/* Damage in SQLite's log is told from a transaction that a power cut has torn. */

#include "scratch.h"

#include "store/wal_check.h"

#include <sqlite3.h>

#define FRAME_BYTES 4120
#define HEADER_BYTES 32

/* The log of a database with two transactions of several frames each, after the first that made the
 * table. Returns the number of its frames; *ret_last is the first frame of the last transaction. */
static unsigned make_log(const char *path, unsigned *ret_last) {
    char database[160], blob[] = "INSERT INTO t VALUES (zeroblob(20000))";
    snprintf(database, sizeof database, "%.*s", (int)(strlen(path) - 4), path);
    sqlite3 *db;
    assert_int_equal(sqlite3_open(database, &db), SQLITE_OK);
    sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    assert_int_equal(sqlite3_exec(db,
                                  "PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0;"
                                  "CREATE TABLE t (b BLOB)",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    struct stat status;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(stat(path, &status), 0);
        *ret_last = (unsigned)((status.st_size - HEADER_BYTES) / FRAME_BYTES) + 1;
        assert_int_equal(sqlite3_exec(db, blob, NULL, NULL, NULL), SQLITE_OK);
    }
    sqlite3_close(db);
    assert_int_equal(stat(path, &status), 0);
    return (unsigned)((status.st_size - HEADER_BYTES) / FRAME_BYTES);
}

static void flip(const char *path, unsigned frame, unsigned in_frame) {
    unsigned char byte;
    off_t at = HEADER_BYTES + (off_t)(frame - 1) * FRAME_BYTES + in_frame;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void a_torn_last_transaction_is_no_damage_and_a_bad_frame_before_it_is(void **state) {
    (void)state;
    struct scratch s;
    struct wal_found found;
    struct error error;
    char path[160];
    unsigned last;
    scratch_open(&s);
    snprintf(path, sizeof path, "%s/tmp/db-wal", s.dir);
    unsigned frames = make_log(path, &last);
    assert_true(last > 2 && frames > last + 2);
    for (unsigned frame = 1; frame <= frames; frame++) {
        flip(path, frame, 2000);
        assert_int_equal(wal_check(path, &found, &error), OK);
        assert_int_equal(found.bad_frame, frame);
        if (frame >= last)
            assert_int_equal(found.commits_after, 0);
        else
            assert_true(found.commits_after >= 1);
        flip(path, frame, 2000);
    }
    assert_int_equal(wal_check(path, &found, &error), OK);
    assert_int_equal(found.bad_frame, 0);
    scratch_remove(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_torn_last_transaction_is_no_damage_and_a_bad_frame_before_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
