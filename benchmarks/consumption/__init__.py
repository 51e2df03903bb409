"""Compares methods for distributed training on measured ones, held back by family or setting."""
