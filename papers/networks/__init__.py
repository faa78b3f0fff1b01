"""Networks that only studies use. Importing them makes them known by name."""

from holdfast.train.encoders import BACKBONES
from papers.networks.squeeze_excite import regnety_400mf, senet18

BACKBONES["senet18"] = senet18
BACKBONES["regnety_400mf"] = regnety_400mf
