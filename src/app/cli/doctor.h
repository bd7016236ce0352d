/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* doctor: what is wrong with an installation, as findings: a sentence each, and what to do about
 * it.
 *
 * A finding is good, a hint or wrong. Hints are facts that a person may want to change and that
 * stop nothing. The checks change nothing: they take no lock for longer than a look, load no model
 * and write no file.
 *
 * Thread: main; models are read in a process of their own, in the sandbox.
 * Memory: doctor_release frees the findings. */

#include "cli/options.h"
#include "cli/remote_options.h"

#include <stdio.h>

enum doctor_verdict { DOCTOR_GOOD, DOCTOR_HINT, DOCTOR_WRONG };

#define DOCTOR_TEXT_BYTES 512

struct doctor_finding {
    enum doctor_verdict verdict;
    const char *area; /* "state directory": a constant */
    char text[DOCTOR_TEXT_BYTES];
    char remedy[DOCTOR_TEXT_BYTES]; /* empty: nothing to do */
};

struct doctor {
    struct options *settings;    /* the options of `quern serve`, as files and variables set them */
    struct remote_choice remote; /* base_url NULL: the server of the settings */
    const volatile bool *stop;
    struct doctor_finding *findings;
    size_t count, capacity;
    bool holds_server; /* a server runs with the state directory */
};

/* Adds a finding; control characters of its text become blanks. `remedy` NULL or "": none. */
void doctor_find(struct doctor *doctor, enum doctor_verdict verdict, const char *area,
                 const char *remedy, const char *format, ...) PRINTF_LIKE(5, 6);
void doctor_release(struct doctor *doctor);
/* Prints the findings on standard output; returns how many are wrong. */
size_t doctor_print(const struct doctor *doctor, bool json);

/* A setting of `quern serve`: a text (NULL: not set), a list, a number. */
const char *doctor_text(const struct doctor *doctor, const char *name);
const struct option_list *doctor_list(const struct doctor *doctor, const char *name);
int64_t doctor_integer(const struct doctor *doctor, const char *name);

/* doctor_place.c: the machine, the state directory, files of secrets. */
void doctor_check_machine(struct doctor *doctor);
void doctor_check_state(struct doctor *doctor);
void doctor_check_secrets(struct doctor *doctor);
/* doctor_models.c: models and cards. */
void doctor_check_models(struct doctor *doctor);
void doctor_check_device(struct doctor *doctor);
/* doctor_server.c: the port, a running server, its service, upstreams. */
void doctor_check_server(struct doctor *doctor);
void doctor_check_upstreams(struct doctor *doctor);
void doctor_check_service(struct doctor *doctor);
