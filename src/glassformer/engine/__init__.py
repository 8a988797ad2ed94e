"""The native engine: int8 weights and int8 activations, a small C++ core, no torch."""
