"""The parts of a layer that an engine may put on memories of their own."""

from enum import Flag, auto


class Part(Flag):
    """Some of what a layer consists of."""

    DENSE = auto()  # every tensor that each token reads; the router too
    EXPERTS = auto()  # of a mixture
    KV = auto()  # the KV cache, or a recurrent state


WHOLE = Part.DENSE | Part.EXPERTS | Part.KV
"""All of a layer."""
