"""Weights in fewer bits (-w): the formats by name, and the copies that each engine makes for itself."""
