"""Networks: normalisation, encoder and head in one module."""

from acr.networks.building import NetworkBuilder
from acr.networks.heads import LinearHead, ProxyHead
from acr.networks.network import Network
from acr.networks.resnet import resnet18

__all__ = ["LinearHead", "Network", "NetworkBuilder", "ProxyHead", "resnet18"]
