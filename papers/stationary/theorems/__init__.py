"""The paper's theory: Theorem 1, Propositions 2 and 3, and measurements of their assumptions on trained models."""

from papers.stationary.theorems.caps import sample_cap, sample_polar_angles
from papers.stationary.theorems.closed_form import Distances, different_class, mean_cosine, same_class
from papers.stationary.theorems.propositions import expected_angle, log_angle_density
from papers.stationary.theorems.stationarity import Update, compare_models
from papers.stationary.theorems.theorem1 import CapStudy, study_caps

__all__ = [
    "CapStudy",
    "Distances",
    "Update",
    "compare_models",
    "different_class",
    "expected_angle",
    "log_angle_density",
    "mean_cosine",
    "same_class",
    "sample_cap",
    "sample_polar_angles",
    "study_caps",
]
