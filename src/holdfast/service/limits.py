"""What one request may ask for, so that no client can take the service from the others."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """body: bytes. bodies: bytes of all bodies that are held at once; more are sent away with 503. pixels: of one
    image, by its header. k: hits. batch: items or ids in one request. url: bytes of a query string. seconds: for a body
    to arrive, and again for the answer. in_flight: requests at once; more are sent away with 503. thumbnail: its longer
    side. encoder_batch, encoder_wait_ms: how many images are embedded together (None: as many as suit the device), and
    how long the first of them waits for others."""

    body: int = 16 * 1024 * 1024
    bodies: int = 512 * 1024 * 1024
    pixels: int = 32 * 1024 * 1024
    k: int = 1000
    batch: int = 256
    url: int = 32 * 1024
    seconds: float = 30.0
    in_flight: int = 256
    thumbnail: int = 512
    encoder_batch: int | None = None
    encoder_wait_ms: float = 2.0
