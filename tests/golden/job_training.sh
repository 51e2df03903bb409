#!/bin/bash

# Predicted: 2 min 23 s (90 %: 1 min 23 s to 4 min 16 s), at most $0.34
# Memory of each GPU: 10 GB
# A step has 64 examples: 16 on each of 4 copies of the model, by ddp on 4 GPUs

set -e

# CHECK THE NEXT LINE: no command was given. Does this one train the model?
# If not, write the one that does, or name it: foretell advise --run 'COMMAND'
# CHECK THE COMMAND: each copy of the model must be given a batch of 16
torchrun --standalone --nproc-per-node=4 net.py
