"""Rows: their schema, the append-only store, and what can be said where rows meet. Knows no engine."""
