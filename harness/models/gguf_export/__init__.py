"""From a Hugging Face directory to the GGUF file that llama.cpp reads, with the same numbers in it."""

from harness.models.gguf_export.writer import check_exportable, export

__all__ = ["check_exportable", "export"]
