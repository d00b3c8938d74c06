"""Columns as they are: numbers, categories, texts, dates, lists, with gaps, as features."""

from evergraph.datasets.columns.choices import Columns
from evergraph.datasets.columns.own import Encoder
from evergraph.datasets.columns.scheme import Scheme

__all__ = ["Columns", "Encoder", "Scheme"]
