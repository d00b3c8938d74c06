"""Raw columns of tables (numbers, categories, texts, dates, lists, gaps) encoded as features."""

from evergraph.tables.choices import Columns
from evergraph.tables.own import Encoder
from evergraph.tables.scheme import Scheme

__all__ = ["Columns", "Encoder", "Scheme"]
