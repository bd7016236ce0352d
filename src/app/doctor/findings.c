/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "client/objects.h"
#include "doctor/doctor_internal.h"

#include <stdlib.h>

void doctor_find(struct doctor *doctor, enum doctor_verdict verdict, const char *area,
                 const char *remedy, const char *format, ...) {
    char text[DOCTOR_TEXT_BYTES * 2];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    doctor->findings =
        vec_grow(doctor->findings, doctor->count, &doctor->capacity, sizeof *doctor->findings);
    struct doctor_finding *finding = &doctor->findings[doctor->count++];
    *finding = (struct doctor_finding){.verdict = verdict, .area = area};
    object_copy_text(str_from(text), finding->text, sizeof finding->text);
    object_copy_text(str_from(remedy), finding->remedy, sizeof finding->remedy);
}

void doctor_release(struct doctor *doctor) {
    free(doctor->findings);
    doctor->findings = NULL;
}
