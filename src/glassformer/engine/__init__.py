"""The native engine: int8 or int4 weights, int8 activations, a small C++ core, no torch."""
