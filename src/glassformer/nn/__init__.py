"""Equations that two models or more use: numbers and tensors in, tensors out."""
