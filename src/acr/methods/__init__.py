"""Methods: how a network learns from a stream. One short file each."""
