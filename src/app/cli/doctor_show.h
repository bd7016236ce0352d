/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* doctor_show: the findings of the doctor on standard output, as text or as one JSON object.
 *
 * Thread: main.
 * Memory: none of its own. */

#include "doctor/doctor.h"

/* Prints the findings; returns how many are wrong. */
size_t doctor_show(const struct doctor *doctor, bool json);
