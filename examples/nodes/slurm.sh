#!/bin/bash
# Nodes of a quern server as an array of SLURM jobs, one per GPU:
#
#   QUERN_QUEUE=rediss://node@queue.lan/?cluster=prod QUERN_QUEUE_PASSWORD_FILE=~/.quern-queue \
#     QUERN_MODEL=/models/m.gguf sbatch --array=1-8 examples/nodes/slurm.sh
#
# Jobs come and go as the scheduler likes. SLURM sends SIGTERM two minutes before the time is up,
# and on preemption; the node then finishes what it can and gives the rest back.
#SBATCH --job-name=quern-node
#SBATCH --gpus=1
#SBATCH --cpus-per-task=8
#SBATCH --time=08:00:00
#SBATCH --signal=B:TERM@120
#SBATCH --requeue
set -euo pipefail
: "${QUERN_QUEUE:?the URL of the queue}" "${QUERN_MODEL:?a model}"
export QUERN_QUEUE QUERN_MODEL
# The shell gets the signal and hands it on; `exec` makes the node the shell's process.
exec quern worker --name "$(hostname -s)-${SLURM_ARRAY_TASK_ID:-0}" --drain-seconds 100
