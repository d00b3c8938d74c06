"""The page of a report."""

from evergraph.reports.page.document import page

__all__ = ["page"]
