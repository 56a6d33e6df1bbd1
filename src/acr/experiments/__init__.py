"""Experiments: run folders, and launching one run or many."""
