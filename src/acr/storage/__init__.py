"""What every other room stands on: files written whole, locks, a cache of arrays, worker processes, signals, progress."""
