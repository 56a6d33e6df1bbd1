"""A classifier that people keep up to date: new classes and images arrive whenever they arrive."""

from acr.learner.classifier import ContinualClassifier

__all__ = ["ContinualClassifier"]
