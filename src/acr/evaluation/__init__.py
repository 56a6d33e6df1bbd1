"""Evaluation: counting what a model gets right, and the metrics computed from those counts."""
