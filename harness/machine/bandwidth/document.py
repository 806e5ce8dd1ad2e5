"""`Measured` as JSON: what a worker sends and what the cache keeps, every sample of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.machine.bandwidth.curve import Curve, Measured, Point, Rate

if TYPE_CHECKING:
    from collections.abc import Mapping

_VERSION = 1


def to_document(measured: Measured) -> dict[str, Any]:
    """Rates in bytes or FLOP a second, working sets in bytes."""
    return {
        "version": _VERSION,
        "measured_at": measured.measured_at,
        "points": [
            {"working_set_bytes": point.working_set_bytes, "bytes_s": _samples(point.kernels)}
            for point in measured.curve.points
        ],
        "flops_s": _samples(measured.matrix),
        "unavailable": dict(measured.unavailable),
    }


def from_document(document: Any) -> Measured:
    """The inverse.

    Raises:
        ValueError: the document is damaged, or of another version.
    """
    try:
        if document["version"] != _VERSION:
            raise ValueError(f"version {document['version']}, not {_VERSION}")
        points = tuple(Point(int(point["working_set_bytes"]), _rates(point["bytes_s"])) for point in document["points"])
        return Measured(
            Curve(points), _rates(document["flops_s"]), str(document["measured_at"]), dict(document["unavailable"])
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no measurement: {error!r}") from error


def _samples(rates: Mapping[str, Rate]) -> dict[str, list[float]]:
    return {name: list(rate.samples) for name, rate in rates.items()}


def _rates(samples: dict[str, list[float]]) -> dict[str, Rate]:
    return {name: Rate(tuple(map(float, each))) for name, each in samples.items()}
