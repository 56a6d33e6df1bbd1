"""An encoder of your own: a small MLP-Mixer, of patches. Run it: python examples/own_encoder.py

The same from the command line: acr run --network examples/own_encoder.py:patch_mixer --width 16
"""

import tempfile

from torch import Tensor, nn

import acr


class MixerBlock(nn.Module):
    """Mixes the patches of each channel, then the channels of each patch (Tolstikhin et al. 2021)."""

    def __init__(self, patches: int, channels: int) -> None:
        super().__init__()
        self.before_patches, self.before_channels = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.patches = nn.Sequential(nn.Linear(patches, 2 * patches), nn.GELU(), nn.Linear(2 * patches, patches))
        self.channels = nn.Sequential(nn.Linear(channels, 2 * channels), nn.GELU(), nn.Linear(2 * channels, channels))

    def forward(self, x: Tensor) -> Tensor:
        """n x patches x channels, as it came."""
        x = x + self.patches(self.before_patches(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.before_channels(x))


class PatchMixer(nn.Module):
    """Cuts images into 16 patches, embeds each in ``width`` numbers, mixes them, and takes the mean."""

    def __init__(self, channels: int, image_size: int, width: int, blocks: int = 2) -> None:
        super().__init__()
        side = image_size // 4
        self.cut = nn.PixelUnshuffle(side)
        self.embed = nn.Linear(channels * side * side, width)
        self.drop = nn.Dropout(0.1)
        self.blocks = nn.Sequential(*(MixerBlock(16, width) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)

    def forward(self, images: Tensor) -> Tensor:
        """n x width vectors of normalised images."""
        patches = self.cut(images).flatten(2).transpose(1, 2)
        return self.norm(self.blocks(self.drop(self.embed(patches)))).mean(1)


def patch_mixer(channels: int, image_size: int, width: int) -> nn.Module:
    """Called for every network of a run, with those of these three arguments that it names."""
    return PatchMixer(channels, image_size, width)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as out:
        run = acr.run(method="er", dataset="split-digits", network=patch_mixer, epochs=1, width=16, out=out)
        print(f"average accuracy on split-digits after one epoch per task: {run.summary()['acc']:.2f}")
