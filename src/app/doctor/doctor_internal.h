/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* doctor_internal: the checks that doctor_check makes, one file per place that is looked at.
 *
 * Thread: main.
 * Memory: as doctor.h. */

#include "doctor/doctor.h"

#include <stdio.h>

/* doctor_place.c: the machine, the state directory, files of secrets. */
void doctor_check_machine(struct doctor *doctor);
void doctor_check_state(struct doctor *doctor);
void doctor_check_secrets(struct doctor *doctor);
/* doctor_speed.c: what the processor reaches, and what limits it. */
void doctor_check_speed(struct doctor *doctor);
/* doctor_models.c: models and GPUs. */
void doctor_check_models(struct doctor *doctor);
void doctor_check_device(struct doctor *doctor);
/* doctor_server.c: the port, a running server, its service, upstreams. */
void doctor_check_server(struct doctor *doctor);
void doctor_check_upstreams(struct doctor *doctor);
void doctor_check_service(struct doctor *doctor);
/* doctor_queue.c: the server between machines. */
void doctor_check_queue(struct doctor *doctor);
/* doctor_copy.c: the storage of the copy. */
void doctor_check_copy(struct doctor *doctor);
