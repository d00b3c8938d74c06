"""Formats of a table: one file each."""

from evergraph.reports.formats.csv_text import csv_text
from evergraph.reports.formats.html_table import html_table
from evergraph.reports.formats.latex import latex
from evergraph.reports.formats.markdown import markdown

__all__ = ["csv_text", "html_table", "latex", "markdown"]
