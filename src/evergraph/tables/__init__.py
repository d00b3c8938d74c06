"""Columns as they are: numbers, categories, texts, dates, lists, with gaps, as features."""

from evergraph.tables.choices import Columns
from evergraph.tables.own import Encoder
from evergraph.tables.scheme import Scheme

__all__ = ["Columns", "Encoder", "Scheme"]
