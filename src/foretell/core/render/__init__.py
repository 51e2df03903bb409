"""What all features show their results with: tables, phrases, figures."""
