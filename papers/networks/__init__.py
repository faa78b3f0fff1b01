"""Networks that only studies use. Importing them makes them known by name."""

from holdfast.train.encoders import BACKBONES
from papers.networks.lenet import lenet_plus_plus
from papers.networks.squeeze_excite import regnety_400mf, senet18

BACKBONES["lenet_plus_plus"] = lenet_plus_plus
BACKBONES["senet18"] = senet18
BACKBONES["regnety_400mf"] = regnety_400mf
