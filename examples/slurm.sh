#!/bin/bash
# Networks over eight nodes of eight GPUs, one process a node: sbatch examples/slurm.sh
#SBATCH --job-name=replicax
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --output=%x-%j.log

# The folder must be on a file system that all nodes see.
RUN_DIR=${RUN_DIR:-runs/cifar100}

# JAX finds out from SLURM which process is which: no addresses are needed.
# What was started and has saved nothing is started again.
if ls "$RUN_DIR"/commits/*.json > /dev/null 2>&1; then
    srun --kill-on-bad-exit=1 replicax resume "$RUN_DIR" --devices all
else
    srun --kill-on-bad-exit=1 replicax train --data cifar100 --bf16 --replicas 64 \
        --init-from runs/starts --out "$RUN_DIR" --devices all
fi
