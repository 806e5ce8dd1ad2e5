"""The ceiling beside each rate: how fast the memories that a step reads could have been."""
