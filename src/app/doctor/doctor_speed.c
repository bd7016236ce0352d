/* SPDX-License-Identifier: Apache-2.0 */

/* What the processor reaches, measured in a tenth of a second, and what limits it: instructions
 * that it lacks, other work, control groups, the host of a virtual machine. */

#include "doctor/doctor_internal.h"

#include "base/cpu_share.h"
#include "kernels/kernels.h"
#include "kernels/peak.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AREA "speed"
#define MEMORY_BYTES ((size_t)64 << 20)
#define LOAD_SHARE 0.5 /* share of the cores: less other work is hardly felt */
#define STOLEN_SHARE 0.03

/* How much slower the lack makes a run was measured with the tables of kernels on one CPU that has
 * all instructions (docs/internals/inference/cpu.md). */
static void check_instructions(struct doctor *doctor, const struct kernels *kernels) {
    if (strcmp(kernels->name, "avx2") == 0)
        doctor_find(doctor, DOCTOR_HINT, AREA, "use a CPU with AVX-512 VNNI, or a GPU",
                    "this CPU has no AVX-512 VNNI: products take two to four times as long as on "
                    "one that has it");
    else if (strcmp(kernels->name, "avx512") == 0)
        doctor_find(doctor, DOCTOR_HINT, AREA, "use a CPU with AVX-512 BF16, or a GPU",
                    "this CPU has no bf16 instructions: attention takes 1.2 to 1.7 times as long "
                    "as on one that has them");
}

static void check_peaks(struct doctor *doctor, const struct kernels *kernels, long cores) {
    const struct peak peak = peak_of(kernels, MATRIX_BYTES);
    const double ghz = peak_frequency_ghz(), gb_s = peak_read_gb_s(MEMORY_BYTES);
    if (gb_s <= 0) return;
    doctor_find(
        doctor, DOCTOR_GOOD, AREA, NULL,
        "each of %ld cores does %.0f billion operations of %s per second at %.1f GHz, which "
        "limits batches and long prompts",
        cores, peak.gop_s, peak.what, ghz);
    doctor_find(
        doctor, DOCTOR_GOOD, AREA, NULL,
        "a core reads %.1f GB/s of memory, which limits a chat alone: with weights of 1 GB, "
        "%.0f tokens per second and core at most; `quern bench kernels` measures more",
        gb_s, gb_s);
}

static void check_load(struct doctor *doctor, long cores) {
    double load;
    if (getloadavg(&load, 1) != 1) return;
    if (load < LOAD_SHARE * (double)cores)
        doctor_find(doctor, DOCTOR_GOOD, AREA, NULL,
                    "little other work: a load of %.1f on %ld cores", load, cores);
    else
        doctor_find(
            doctor, DOCTOR_HINT, AREA, "stop it, or let it run at a lower priority (nice)",
            "other work (a server of quern that computes is some of it): with a load of %.1f "
            "on %ld cores, an engine started now gets about %.0f %% of the processor",
            load, cores, 100 * (double)cores / ((double)cores + load));
}

static void check_group(struct doctor *doctor, long cores) {
    const double allowed = cpu_share_cores();
    if (allowed <= 0 || allowed >= (double)cores) return;
    doctor_find(
        doctor, DOCTOR_HINT, AREA,
        "raise CPUQuota= or the container's limit, or set --threads to the cores allowed",
        "a control group allows %.2f of %ld cores: threads beyond that stop in the middle of "
        "a step, and the others wait for them",
        allowed, cores);
}

static void check_host(struct doctor *doctor) {
    const double stolen = cpu_share_stolen();
    if (stolen < STOLEN_SHARE) return;
    doctor_find(doctor, DOCTOR_HINT, AREA, "use a machine whose cores are not shared",
                "the host took %.0f %% of this machine's processor time since it started (steal): "
                "an engine is slower by as much",
                100 * stolen);
}

void doctor_check_speed(struct doctor *doctor) {
    const struct kernels *kernels = kernels_choose(NULL);
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (kernels->keeps_blocks || cores < 1)
        return; /* portable C: the processor's finding says so */
    check_peaks(doctor, kernels, cores);
    check_instructions(doctor, kernels);
    check_load(doctor, cores);
    check_group(doctor, cores);
    check_host(doctor);
}
