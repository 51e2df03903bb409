"""The time of a training step on a device, from its operators."""
