"""The gallery: items embedded by successive models, searched together by the newest one."""

from holdfast.gallery.attached.attached_gallery import AttachedGallery, open_gallery
from holdfast.gallery.attached.source import Address
from holdfast.gallery.backfill import Backfill
from holdfast.gallery.engines import ENGINES, open_engine
from holdfast.gallery.engines.engine import Engine, EngineHit
from holdfast.gallery.gallery import Gallery
from holdfast.gallery.gallery_base import BaseGallery
from holdfast.gallery.gallery_items import Hit, Item
from holdfast.gallery.gallery_versions import Version
from holdfast.gallery.open_gallery import OpenGallery

__all__ = [
    "ENGINES",
    "Address",
    "AttachedGallery",
    "Backfill",
    "BaseGallery",
    "Engine",
    "EngineHit",
    "Gallery",
    "Hit",
    "Item",
    "OpenGallery",
    "Version",
    "open_engine",
    "open_gallery",
]
