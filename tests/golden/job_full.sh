#!/bin/bash
# Needs 8 cores, 5 GB of memory, 2 GPUs, at most 30 h 00 min

set -e

export OMP_NUM_THREADS=8
export GREETING='hello `whoami`'
export FORETELL_RUN_DIR='/home/ada/my project/run'
mkdir -p -- '/home/ada/my project/run'
cd -- '/home/ada/my project'

cleanup() {
  rm -rf 'scratch dir' || true
}
trap cleanup EXIT

module-load cuda
mkdir -p 'scratch dir'

timeout --kill-after=10s 108001s python train.py --name 'it'"'"'s $HOME' --note 'two
lines'
