"""The continual-learning methods, and the mathematics they share."""
