"""Evaluation: counting what a model gets right, and the scenarios under which it is evaluated."""
