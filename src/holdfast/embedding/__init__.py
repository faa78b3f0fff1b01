"""Embed images or vectors with a model: in memory, or into shards on several devices or a Ray cluster."""

from holdfast.embedding.embed import Embedded, embed
from holdfast.embedding.shards import EmbeddedShards, embed_shards

__all__ = ["Embedded", "EmbeddedShards", "embed", "embed_shards"]
