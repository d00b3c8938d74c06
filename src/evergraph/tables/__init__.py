"""Raw columns of tables (numbers, categories, texts, dates, lists, gaps) encoded as features."""

from evergraph.tables import hashed, measured  # register kinds of columns
from evergraph.tables.choices import Columns, Encoder
from evergraph.tables.scheme import Scheme

__all__ = ["Columns", "Encoder", "Scheme", "hashed", "measured"]
