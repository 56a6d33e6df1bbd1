"""What every other package builds on: atomic files, locks, a cache of arrays, worker processes, signals, progress."""
