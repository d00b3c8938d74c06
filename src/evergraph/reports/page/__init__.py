"""The page of a report."""

from evergraph.reports.page.section import page

__all__ = ["page"]
