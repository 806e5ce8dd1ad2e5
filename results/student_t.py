"""Student's t distribution for arrays, with degrees of freedom that need not be whole.

Source: the incomplete beta function by its continued fraction, Abramowitz and Stegun, Handbook of Mathematical
Functions, 26.5.8 and 26.7.1, evaluated by Lentz's method.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

MOST_DEGREES = 1e4  # beyond, t is the normal distribution to four digits
_TERMS, _PRECISION, _TINY = 500, 1e-12, 1e-300
_log_gamma = np.vectorize(math.lgamma, otypes=[float])


def two_sided_p(t: ArrayLike, degrees: ArrayLike) -> Floats:
    """The probability of being at least `t` standard errors from zero, on either side.

    Args:
        t: `[n]`.
        degrees: `[n]`, of freedom, above zero, infinity allowed.
    """
    size, n = np.broadcast_arrays(np.minimum(np.abs(np.asarray(t, float)), 1e100), _finite(degrees))
    return _beta(n / (n + size**2), n / 2, size**2 / (n + size**2))


def half_width(degrees: ArrayLike, confidence: float = 0.95) -> Floats:
    """Half the width of a two-sided interval, in standard errors.

    Args:
        degrees: `[n]`, of freedom, from 1, infinity allowed.
        confidence: between 0 and 1.
    """
    n = _finite(degrees)
    log_density = _log_gamma((n + 1) / 2) - _log_gamma(n / 2) - np.log(n * np.pi) / 2
    t = np.zeros_like(n)
    for _ in range(_TERMS):  # Newton from the left of a convex, falling curve: it never overshoots
        density = np.exp(log_density - (n + 1) / 2 * np.log1p(t**2 / n))
        step = (two_sided_p(t, n) - (1 - confidence)) / (2 * density)
        t = t + step
        if np.all(np.abs(step) <= 1e-9 * np.maximum(t, 1)):
            break
    return t


def _finite(degrees: ArrayLike) -> Floats:
    finite: Floats = np.minimum(np.asarray(degrees, float), MOST_DEGREES)
    return finite


def _beta(x: Floats, a: Floats, y: Floats) -> Floats:
    """The regularised incomplete beta function I_x(a, 1/2), with y = 1 - x."""
    b = np.full_like(a, 0.5)
    swap = x > (a + 1) / (a + b + 2)  # there the fraction of the complement converges faster
    x, y, a, b = np.where(swap, y, x), np.where(swap, x, y), np.where(swap, b, a), np.where(swap, a, b)
    with np.errstate(divide="ignore"):
        log_front = _log_gamma(a + b) - _log_gamma(a) - _log_gamma(b) + a * np.log(x) + b * np.log(y)
    part: Floats = np.exp(log_front) / a / _fraction(x, a, b)
    return np.where(swap, 1 - part, part)


def _fraction(x: Floats, a: Floats, b: Floats) -> Floats:
    """The continued fraction 1 + d_1/(1 + d_2/(1 + …)) of 26.5.8."""
    value = above = np.ones_like(x)
    below = np.zeros_like(x)
    for term in range(1, _TERMS):
        m = term // 2
        if term % 2:
            d = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            d = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        below = 1 / _away_from_zero(1 + d * below)
        above = _away_from_zero(1 + d / above)
        value = value * above * below
        if np.all(np.abs(above * below - 1) < _PRECISION):
            break
    return value


def _away_from_zero(x: Floats) -> Floats:
    return np.where(np.abs(x) < _TINY, _TINY, x)
