"""Batches of tensors and objects that can be split, joined, checked and sent between processes."""
