"""What all features show their results with."""
