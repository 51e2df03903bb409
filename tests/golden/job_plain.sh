#!/bin/bash
# Needs 1 core

set -e

export FORETELL_RUN_DIR=/home/ada/project/run
mkdir -p -- /home/ada/project/run
cd -- /home/ada/project

python train.py --epochs 100
