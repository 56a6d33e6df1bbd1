"""What a run costs: time, CPU, memory, GPU memory."""

from __future__ import annotations

import time
from typing import Any

import psutil
import torch


class Telemetry:
    """Measures speed and use of resources from one reading to the next."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.process = psutil.Process()
        self.process.cpu_percent()  # starts the measurement; the first value means nothing
        self.started = self.last = time.monotonic()
        self.images = 0

    def count(self, images: int) -> None:
        """Record that this many more images have been trained on."""
        self.images += images

    def read(self) -> dict[str, Any]:
        """Images per second and CPU use since the last reading, current memory, seconds since the start."""
        now = time.monotonic()
        reading = {
            "seconds": round(now - self.started, 3),
            "images_per_second": round(self.images / max(now - self.last, 1e-9), 1),
            "cpu_percent": self.process.cpu_percent(),
            "rss_mib": round(self.process.memory_info().rss / 2**20, 1),
        }
        if self.device.type == "cuda":
            reading["gpu_mib"] = round(torch.cuda.max_memory_allocated(self.device) / 2**20, 1)
        self.last, self.images = now, 0
        return reading
