"""Fitting `efficiency`'s coefficients to the published rates, and the error for devices left out.

    python -m harness.prediction.fit        # writes coefficients.json anew

The logarithm of the time a token is fitted: a robust loss (a rate that is off by much counts by its distance, not by
its square), each device weighing as the root of its number of rates, and every coefficient drawn to a prior, so that a
class with two devices stays near the others.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from harness.machine.catalog import load_catalog
from harness.prediction.coefficients import ClassDecode, Coefficients, Decode, DeviceDecode, Spread
from harness.prediction.efficiency import REFERENCE_BANDWIDTH_BYTES_S, REFERENCE_YEAR, is_mlx_format
from harness.prediction.fit_prefill import fit_prefill
from harness.prediction.hardware import Hardware, from_device
from results.published import PublishedRate, load_published

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

# Priors: mean and standard deviation, of logarithms except the exponent. The first line is hardly held by its own.
_EXCESS, _LAYER_S = (math.log(0.3), 1.0), (math.log(1e-4), 1.0)
_EXPONENT, _YEAR = (0.25, 0.25), (-0.1, 0.1)
_CLASS_EXCESS_SD, _CLASS_LAYER_SD, _DEVICE_EXCESS_SD, _MLX_SD = 0.3, 0.5, 0.4, 0.5

_NOISE = 0.15  # of a logarithm: beyond it a residual counts linearly
_POOLED_DEVICES = 3  # as many devices' weight have the other classes in a class's spread
_TAIL = 0.1  # of the rates below low, and above high


@dataclass(frozen=True)
class Prediction:
    """A published rate and what was predicted for it without its device."""

    rate: PublishedRate
    device_class: str
    predicted_tok_s: float
    spread: Spread  # from other devices' residuals only

    @property
    def relative_error(self) -> float:
        """Of the predicted rate, of what was published."""
        return abs(self.predicted_tok_s / self.rate.decode_tok_s - 1)

    @property
    def is_covered(self) -> bool:
        """Whether the published rate lies in the predicted range."""
        return self.spread.low <= self.rate.decode_tok_s / self.predicted_tok_s <= self.spread.high


def fit() -> Coefficients:
    """The coefficients from the published rates that come with tokenroof."""
    rates = load_published()
    return Coefficients(_fit_decode(rates), fit_prefill(rates, catalog_hardware()))


def cross_validation() -> list[Prediction]:
    """Every published rate as predicted by a fit that saw no rate of its device, in the file's order."""
    rates = load_published()
    problem = _Problem(rates, catalog_hardware())
    residuals = _left_out_residuals(problem)
    classes = [problem.classes[k] for k in problem.class_index]
    found = []
    for row, rate in enumerate(rates):
        others = problem.device_index != problem.device_index[row]
        spread = _spread(
            residuals[others], problem.device_index[others], problem.class_index[others] == problem.class_index[row]
        )
        found.append(Prediction(rate, classes[row], rate.decode_tok_s / math.exp(residuals[row]), spread))
    return found


def catalog_hardware() -> dict[str, Hardware]:
    """The devices of the catalog whose bandwidth is known, by id."""
    return {device.id: from_device(device) for device in load_catalog() if device.bandwidth_bytes_s is not None}


class _Problem:
    """Rates as arrays: log excess = `excess @ parameters`, log layer time = `layer @ parameters`."""

    def __init__(self, rates: Sequence[PublishedRate], hardware: dict[str, Hardware]) -> None:
        of_rate = [hardware[rate.device_id] for rate in rates]
        self.classes = sorted({str(one.device_class) for one in of_rate})
        self.devices = sorted({rate.device_id for rate in rates})
        self.class_index = np.array([self.classes.index(str(one.device_class)) for one in of_rate])
        self.device_index = np.array([self.devices.index(rate.device_id) for rate in rates])
        bandwidth = np.array([one.bandwidth_bytes_s for one in of_rate])
        self.years = [one.release_year for one in of_rate if one.release_year is not None]
        year = np.array([float(one.release_year or REFERENCE_YEAR) for one in of_rate])

        self.at_full_bandwidth_s = np.array([float(rate.step_bytes) for rate in rates]) / bandwidth
        self.n_layers = np.array([float(rate.n_layers) for rate in rates])
        self.log_time = -np.log([rate.decode_tok_s for rate in rates])
        self.weight = 1 / np.sqrt(np.bincount(self.device_index)[self.device_index])

        is_class = np.eye(len(self.classes))[self.class_index]
        is_device = np.eye(len(self.devices))[self.device_index]
        ones = np.ones((len(rates), 1))
        trends = np.stack([np.log(bandwidth / REFERENCE_BANDWIDTH_BYTES_S), year - REFERENCE_YEAR], axis=1)
        excess = np.hstack([ones, trends, is_class, is_device])
        layer = np.hstack([ones, is_class])
        is_mlx = np.array(
            [
                [float(one.device_class == "apple" and is_mlx_format(rate.quant))]
                for one, rate in zip(of_rate, rates, strict=True)
            ]
        )
        self.excess = np.hstack([excess, np.zeros_like(layer), is_mlx])
        self.layer = np.hstack([np.zeros_like(excess), layer, is_mlx])
        priors = [_EXCESS, _EXPONENT, _YEAR]
        priors += [(0, _CLASS_EXCESS_SD)] * len(self.classes) + [(0, _DEVICE_EXCESS_SD)] * len(self.devices)
        priors += [_LAYER_S] + [(0, _CLASS_LAYER_SD)] * len(self.classes) + [(0, _MLX_SD)]
        self.prior_mean, self.prior_sd = np.array(priors, dtype=float).T

    def predicted(self, parameters: Array) -> tuple[Array, Array]:
        """Log time of every rate, and its derivatives by the parameters."""
        beyond = self.at_full_bandwidth_s * np.exp(self.excess @ parameters)
        layers = self.n_layers * np.exp(self.layer @ parameters)
        time = self.at_full_bandwidth_s + beyond + layers
        slope = self.excess * (beyond / time)[:, None] + self.layer * (layers / time)[:, None]
        return np.log(time), slope

    def solve(self, rows: NDArray[np.bool_]) -> Array:
        """The parameters that fit the chosen rows best: Gauss-Newton steps, damped until each lowers the loss."""
        parameters: Array = self.prior_mean.copy()
        damping = 1e-3
        loss = self._loss(parameters, rows)
        for _ in range(100):
            log_time, slope = self.predicted(parameters)
            residual = (self.log_time - log_time)[rows] / _NOISE
            slope = slope[rows] / _NOISE
            weight = self.weight[rows] / np.sqrt(1 + residual**2)
            curvature = slope.T @ (slope * weight[:, None]) + np.diag(1 / self.prior_sd**2)
            downhill = slope.T @ (weight * residual) - (parameters - self.prior_mean) / self.prior_sd**2
            step = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), downhill)
            lower = self._loss(parameters + step, rows)
            if lower > loss:
                damping *= 5
                continue
            gain, loss, parameters, damping = loss - lower, lower, parameters + step, damping / 5
            if gain < 1e-12 * loss:
                break
        return parameters

    def _loss(self, parameters: Array, rows: NDArray[np.bool_]) -> float:
        residual = (self.log_time - self.predicted(parameters)[0])[rows] / _NOISE
        data = self.weight[rows] * 2 * (np.sqrt(1 + residual**2) - 1)
        return float(data.sum() + (((parameters - self.prior_mean) / self.prior_sd) ** 2).sum())


def _fit_decode(rates: Sequence[PublishedRate]) -> Decode:
    problem = _Problem(rates, catalog_hardware())
    parameters = problem.solve(np.ones(len(rates), dtype=bool))
    n_classes, n_devices = len(problem.classes), len(problem.devices)
    (excess, exponent, year), of_class, of_device, (layer_s,), layer_of_class, (mlx,) = np.split(
        parameters, np.cumsum([3, n_classes, n_devices, 1, n_classes])
    )
    residuals = _left_out_residuals(problem)
    n_rates = Counter(rate.device_id for rate in rates)
    class_of_device = {
        device: problem.class_index[problem.device_index == k][0] for k, device in enumerate(problem.devices)
    }
    return Decode(
        excess=_rounded(math.exp(excess)),
        bandwidth_exponent=_rounded(exponent),
        year_factor=_rounded(math.exp(year)),
        first_year=min(problem.years),
        last_year=max(problem.years),
        layer_s=_rounded(math.exp(layer_s)),
        mlx=_rounded(math.exp(mlx)),
        classes={
            name: ClassDecode(
                excess=_rounded(math.exp(of_class[k])),
                layer=_rounded(math.exp(layer_of_class[k])),
                spread=_spread(residuals, problem.device_index, problem.class_index == k),
                n_devices=list(class_of_device.values()).count(k),
            )
            for k, name in enumerate(problem.classes)
        },
        devices={
            name: DeviceDecode(_rounded(math.exp(of_device[k])), n_rates[name])
            for k, name in enumerate(problem.devices)
        },
        spread=_spread(residuals, problem.device_index, np.zeros(len(rates), dtype=bool)),
    )


def _left_out_residuals(problem: _Problem) -> Array:
    """log(published / predicted) of every rate, predicted without its device."""
    residuals = np.empty_like(problem.log_time)
    for device in range(len(problem.devices)):
        left_out = problem.device_index == device
        log_time, _ = problem.predicted(problem.solve(~left_out))
        residuals[left_out] = (log_time - problem.log_time)[left_out]
    return residuals


def _spread(residuals: Array, device_index: NDArray[np.int64], is_own: NDArray[np.bool_]) -> Spread:
    """The tails of a class's residuals, every device weighing the same, the other classes as a few devices together.

    The fewer devices a class has, the wider: the next one differs from all of them.
    """
    weight = 1 / np.bincount(device_index)[device_index]
    n_own = weight[is_own].sum()
    n_other = weight[~is_own].sum()
    weight = np.where(is_own, weight, weight * _POOLED_DEVICES / n_other)
    widening = math.sqrt(1 + 1 / (n_own + _POOLED_DEVICES))
    low, high = (_quantile(residuals, weight, share) * widening for share in (_TAIL, 1 - _TAIL))
    return Spread(_rounded(min(math.exp(low), 1.0)), _rounded(max(math.exp(high), 1.0)))


def _quantile(values: Array, weight: Array, share: float) -> float:
    order = np.argsort(values)
    below = np.cumsum(weight[order]) - weight[order] / 2
    return float(np.interp(share * weight.sum(), below, values[order]))


def _rounded(number: float) -> float:
    return float(f"{number:.4g}")


def main() -> None:
    """Write the coefficients file that is shipped."""
    path = Path(__file__).with_name("coefficients.json")
    path.write_text(json.dumps(asdict(fit()), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
