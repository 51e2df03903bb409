"""Steps of data-parallel training on GPU clusters that others measured."""
