"""The figures of a report, each drawn from rows by one file."""

from reports.figures.contract import Draw, Drawn, Missing
from reports.figures.drawing import FIGURES, to_png, to_svg

__all__ = ["FIGURES", "Draw", "Drawn", "Missing", "to_png", "to_svg"]
