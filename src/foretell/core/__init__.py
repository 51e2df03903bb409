"""What every feature uses: values, units, errors, intervals, model files."""
