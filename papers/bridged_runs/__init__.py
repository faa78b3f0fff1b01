"""A run searched with bridged queries, and a gallery that holds items of several of its models.

Importing this package makes ``evaluation.protocols = ["mixed"]`` known to runs. ``python -m papers.bridged_runs RUN``
measures a finished run.
"""

from holdfast.train.evaluation import FURTHER_EVALUATIONS
from papers.bridged_runs.mixed_gallery import mixed_gallery

FURTHER_EVALUATIONS["mixed"] = mixed_gallery
