"""A person's own text in place of random token ids."""
