"""From a model in Hugging Face's names to the GGUF file that llama.cpp reads, with the same numbers in it."""

from harness.models.gguf_export.checkpoint import synthetic
from harness.models.gguf_export.mixture import Quantiser
from harness.models.gguf_export.writer import check_exportable, export, write

__all__ = ["Quantiser", "check_exportable", "export", "synthetic", "write"]
