"""Figures, tables and pages from result rows. Measures nothing, knows no engine."""
