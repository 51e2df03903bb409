"""Memory of steps on GPUs, predicted from the models' code, against what others measured."""
