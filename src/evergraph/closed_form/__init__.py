"""Heads solved in closed form from sums over nodes, for batch and live learning."""

from evergraph.closed_form.codes import ClassCodes
from evergraph.closed_form.landmarks import LandmarkFeatures
from evergraph.closed_form.statistics import ClassStatistics
from evergraph.closed_form.targets import TargetStatistics
from evergraph.closed_form.view_features import ViewFeatures

__all__ = ["ClassCodes", "ClassStatistics", "LandmarkFeatures", "TargetStatistics", "ViewFeatures"]
