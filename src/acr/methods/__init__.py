"""Methods: how a network learns from a stream of tasks. One short file per method."""
