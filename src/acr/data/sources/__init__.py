"""One file per origin of images."""
