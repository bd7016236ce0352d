/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* doctor: what is wrong with an installation, as findings: a sentence each, and what to do about
 * it.
 *
 * A finding is good, a hint or wrong. Hints are facts that a person may want to change and that
 * stop nothing. The checks change nothing: they take no lock for longer than a look, load no model
 * and write no file. The room knows no option and prints nothing.
 *
 * Thread: main; models are read in a process of their own, in the sandbox.
 * Memory: doctor_release frees the findings; the settings are borrowed. */

#include "client/remote_place.h"

enum doctor_verdict { DOCTOR_GOOD, DOCTOR_HINT, DOCTOR_WRONG };

#define DOCTOR_TEXT_BYTES 1024

struct doctor_finding {
    enum doctor_verdict verdict;
    const char *area; /* "state directory": a constant */
    char text[DOCTOR_TEXT_BYTES];
    char remedy[DOCTOR_TEXT_BYTES]; /* empty: nothing to do */
};

/* The settings of `quern serve`, as files and variables give them. A text that is NULL or empty is
 * not set. */
struct doctor_settings {
    const char *const *models;    /* (model_count) */
    const char *const *upstreams; /* (upstream_count) */
    size_t model_count, upstream_count;
    const char *state_dir;
    const char *device, *device_plugin;
    const char *host;
    int64_t port;
    const char *certificate, *certificate_key; /* files of TLS */
    const char *api_key_file, *webhook_secret_file, *env_file;
    const char *copy_to;
    const char *queue, *queue_password_file, *queue_ca_file, *queue_cert_file;
};

/* Zero but for the first three is a valid start. */
struct doctor {
    struct doctor_settings settings;
    struct remote_choice remote; /* base_url NULL: the server of the settings */
    const volatile bool *stop;
    struct doctor_finding *findings;
    size_t count, capacity;
    bool holds_server; /* a server runs with the state directory */
};

/* Looks at everything but the settings themselves, and adds what it finds. */
void doctor_check(struct doctor *doctor);
/* Adds a finding; control characters of its text become blanks. `remedy` NULL or "": none. */
void doctor_find(struct doctor *doctor, enum doctor_verdict verdict, const char *area,
                 const char *remedy, const char *format, ...) PRINTF_LIKE(5, 6);
void doctor_release(struct doctor *doctor);
