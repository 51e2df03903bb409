"""Models of what distributed training consumes."""
