"""A request that is turned down, and where the service writes down what went wrong on its own side."""

import logging

LOG = logging.getLogger("holdfast.service")


class RefusedError(Exception):
    """A request that is turned down: with which status, and why."""

    def __init__(self, status: int, reason: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.headers = status, reason, headers
