"""Measured read bandwidth as a function of the working set, and matrix rates, of this machine's devices."""
