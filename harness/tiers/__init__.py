"""Memories that hold parts of a model: where the parts really are, and other machines that lend theirs."""
