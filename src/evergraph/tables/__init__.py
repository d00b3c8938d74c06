"""Raw columns of tables (numbers, categories, texts, dates, lists, gaps) encoded as features."""

from evergraph.tables.choices import Columns, Encoder
from evergraph.tables.scheme import Scheme

__all__ = ["Columns", "Encoder", "Scheme"]
