"""The log of the service, and what a client reads when the service itself fails.

Without fastapi: the verbs of ``holdfast gallery`` import it, and they should start fast.
"""

import logging

LOG = logging.getLogger("holdfast.service")
INTERNAL_ERROR = "internal error of the service; see its log"
