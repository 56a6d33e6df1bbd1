"""Training: the loop, checkpoints, and what is measured while it runs."""
