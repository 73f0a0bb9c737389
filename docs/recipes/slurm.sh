#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A training job for Slurm: sbatch slurm.sh OPTION... with the options of txtrain, such as a recipe of this folder. If a
# node fails, the others continue without it; if the node returns, it takes part again.
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=2
#SBATCH --no-kill
#SBATCH --signal=B:TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
set -eu
output=${OUTPUT_DIR:-out}

# The launcher starts each node by this command, in a step of its own, so that no node ends the steps of others.
step=$PWD/.tx-step-$SLURM_JOB_ID
cat > "$step" << 'END'
#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
node=$1
shift
exec srun --overlap --mpi=none --nodes=1 --ntasks=1 --nodelist="$node" sh -c "exec $*"
END
chmod +x "$step"

hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed "s/\$/:$SLURM_NTASKS_PER_NODE/" | paste -s -d , -)
least=$(((SLURM_JOB_NUM_NODES - 1) * SLURM_NTASKS_PER_NODE))
resume=
for folder in "$output"/checkpoint-*; do
    [ ! -d "$folder" ] || resume=--resume_from_checkpoint
done
# Slurm sends SIGTERM to txlaunch two minutes before the end of the job's time: it saves a checkpoint.
exec txlaunch --hosts "$hosts" --min_ranks "$least" --max_restarts 100 \
    --launcher_args "-launcher ssh -launcher-exec $step" ${TX_LAUNCH_OPTIONS:-} \
    txtrain "$@" --output_dir "$output" $resume
