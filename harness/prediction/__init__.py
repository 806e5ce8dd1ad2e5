"""How fast a device will be, from its data sheet and the rates that others published.

The arithmetic reads `coefficients.json` and nothing else; `fit` makes that file from `results/published.csv`.
"""
