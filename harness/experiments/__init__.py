"""Questions that are asked with the same parts: cases of a plan, run by the ordinary runner."""
