#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The command of each pod in job.yaml: start.sh OPTION... with the options of txtrain. Pod 0 starts the job,
# and the others wait for its ssh. If another pod is lost, the rest continues without it until its replacement answers.
# If pod 0 is lost, the others save their last step, and the new pod 0 starts from there.
set -eu
output=${OUTPUT_DIR:-/data/out}
[ "$JOB_COMPLETION_INDEX" -eq 0 ] || exec "$(command -v sshd || echo /usr/sbin/sshd)" -D -e

hosts=
i=0
while [ "$i" -lt "$PODS" ]; do
    hosts=$hosts${hosts:+,}$JOB_NAME-$i.$SERVICE:$RANKS_PER_POD
    i=$((i + 1))
done
resume=
for folder in "$output"/checkpoint-*; do
    [ ! -d "$folder" ] || resume=--resume_from_checkpoint
done
exec txlaunch --hosts "$hosts" --min_ranks $(((PODS - 1) * RANKS_PER_POD)) --max_restarts 100 \
    --launcher_args "-launcher ssh" ${TX_LAUNCH_OPTIONS:-} txtrain "$@" --output_dir "$output" $resume
