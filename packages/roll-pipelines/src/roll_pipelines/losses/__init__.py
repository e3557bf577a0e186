"""Losses as pure functions of tensors: import the module of the family that you need."""
