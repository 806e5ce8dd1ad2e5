"""What fewer bits cost, of the weights and of the KV cache: an engine's answers beside its own with all bits."""
