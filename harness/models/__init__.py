"""Models: presets, synthetic weights, files, and how a word on the command line becomes an artifact."""
