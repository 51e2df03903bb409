"""What a running job consumes over time: samples and the cycles in them."""
