"""A machine's label where nobody chose one: from its hardware alone, so that nothing in it identifies a person."""

from __future__ import annotations

import re

_NOISE = re.compile(r"\((?:R|TM)\)|NVIDIA|GeForce")


def machine_label(product: str) -> str:
    """From the product name of its device: "NVIDIA GeForce RTX 5090" is rtx-5090; empty where nothing is left."""
    return re.sub(r"[^a-z0-9]+", "-", _NOISE.sub("", product).lower()).strip("-")
