"""What every other room stands on: whole files, locks, a cache of arrays, worker processes, signals, progress."""
