/* SPDX-License-Identifier: Apache-2.0 */
#include "doctor/doctor.h"

#include "doctor/doctor_internal.h"

void doctor_check(struct doctor *doctor) {
    doctor_check_machine(doctor);
    doctor_check_speed(doctor);
    doctor_check_state(doctor);
    doctor_check_secrets(doctor);
    doctor_check_models(doctor);
    doctor_check_service(doctor);
    doctor_check_upstreams(doctor);
    doctor_check_queue(doctor);
    doctor_check_copy(doctor);
    doctor_check_server(doctor);
    doctor_check_device(doctor); /* at last: a driver may start threads */
}
