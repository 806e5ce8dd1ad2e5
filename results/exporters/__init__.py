"""Rows in the formats of other tools, one module a format."""
