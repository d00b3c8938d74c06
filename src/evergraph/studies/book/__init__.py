"""The results book: what every method came to on every dataset, a JSON file a row."""

from evergraph.studies.book.row import BookRow, rows_in

__all__ = ["BookRow", "rows_in"]
