"""The metrics under the short name people import: ``acr.metrics.average_accuracy(matrix)``."""

from acr.evaluation.metrics import (
    average_accuracy,
    average_incremental_accuracy,
    backward_transfer,
    coefficient_of_variation,
    expected_calibration_error,
    final_transfer,
    forgetting,
    stage_accuracy,
    stage_backward_transfer,
)

__all__ = [
    "average_accuracy",
    "average_incremental_accuracy",
    "backward_transfer",
    "coefficient_of_variation",
    "expected_calibration_error",
    "final_transfer",
    "forgetting",
    "stage_accuracy",
    "stage_backward_transfer",
]
