"""How far predicted decode rates lie from published ones, for devices that the fit has not seen.

    python benchmarks/prediction_error.py

Every row of results/published.csv that can be used is predicted by a fit without any row of its device. The error is
|predicted / published - 1|; "inside" is the share of rows in the predicted range, whose aim is 0.8.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import mean, median
from typing import TYPE_CHECKING

from harness.prediction.coefficients import load_coefficients
from harness.prediction.fit import Prediction, cross_validation

if TYPE_CHECKING:
    from collections.abc import Callable

WORST = 15


def main() -> None:
    """Print errors by class, by kind of model, by engine, and the worst rows."""
    predictions = cross_validation()
    print(f"{'':38s}{'rows':>5s}{'devices':>8s}{'median':>8s}{'mean':>7s}{'inside':>7s}{'bias':>7s}")
    print_line("all", predictions)
    by_device = group(predictions, lambda one: one.rate.device_id)
    print(f"median over devices of their median error: {median(map(median_error, by_device.values())):.3f}\n")
    print_groups(predictions, lambda one: one.device_class)
    print_groups(predictions, lambda one: "mixture of experts" if one.rate.is_moe else "dense")
    print_groups(predictions, lambda one: "MLX" if "mlx" in one.rate.engine.lower() else one.rate.engine.split()[0])
    print_groups(predictions, lambda one: one.rate.quant)
    print("worst rows: predicted / published")
    for one in sorted(predictions, key=lambda one: one.relative_error, reverse=True)[:WORST]:
        rate = one.rate
        print(
            f"  {one.predicted_tok_s / rate.decode_tok_s:5.2f}  {one.predicted_tok_s:6.1f} for {rate.decode_tok_s:6.1f}"
            f"  {rate.device_id}, {rate.engine}, {rate.model} {rate.quant}"
        )
    prefill = load_coefficients().prefill
    for name, scale in (("FP16 rate and bandwidth", prefill.by_matrix_rate), ("bandwidth", prefill.by_bandwidth)):
        print(f"prefill from {name}: median error {scale.median_error:.3f} on {scale.n_devices} devices left out")


def group(predictions: list[Prediction], key: Callable[[Prediction], str]) -> dict[str, list[Prediction]]:
    """The predictions by a key, in the keys' order."""
    groups = defaultdict(list)
    for one in sorted(predictions, key=key):
        groups[key(one)].append(one)
    return dict(groups)


def print_groups(predictions: list[Prediction], key: Callable[[Prediction], str]) -> None:
    """One line a group of two rows or more."""
    for name, members in group(predictions, key).items():
        if len(members) > 1:
            print_line(name, members)
    print()


def print_line(name: str, predictions: list[Prediction]) -> None:
    """Number, errors, coverage, and the median of predicted / published."""
    n_devices = len({one.rate.device_id for one in predictions})
    errors = mean(one.relative_error for one in predictions)
    inside = mean(one.is_covered for one in predictions)
    bias = median(one.predicted_tok_s / one.rate.decode_tok_s for one in predictions)
    print(
        f"{name:38s}{len(predictions):5d}{n_devices:8d}{median_error(predictions):8.3f}{errors:7.3f}{inside:7.2f}{bias:7.2f}"
    )


def median_error(predictions: list[Prediction]) -> float:
    """Of the relative errors."""
    return median(one.relative_error for one in predictions)


if __name__ == "__main__":
    main()
