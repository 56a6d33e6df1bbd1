"""Data: labelled 8-bit images, and the streams of tasks made of them."""

from acr.data.images import DataSet, ImageSet

__all__ = ["DataSet", "ImageSet"]
