"""The engines behind one contract: see `backends.base`. This package imports nothing of the project."""
