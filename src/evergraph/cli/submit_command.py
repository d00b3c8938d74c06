"""``evergraph submit``: a finished run of your own as a row of the results book."""

from __future__ import annotations

from pathlib import Path

import typer

from evergraph.cli.output import say
from evergraph.cli.progress import spinner


def submit_command(
    run: Path = typer.Argument(..., metavar="RUN|BOOK", help="A run's results folder, or a book."),
    book: Path = typer.Option(Path("book"), help="Where the row goes."),
    label: str | None = typer.Option(
        None, help="What the book is to call the method (default: its name)."
    ),
    commit: str | None = typer.Option(
        None, help="Of the code that ran it (default: $EVERGRAPH_COMMIT, or what git says)."
    ),
    check: bool = typer.Option(False, "--check", help="Say what is wrong, and write nothing."),
) -> None:
    """Check a finished run against the book and write its row.

    Its dataset, stream and seeds must be the book's, and its numbers follow from its accuracy
    matrices. With --check and a book, all of its rows are checked.
    """
    with spinner("loading torch and the plan of the book"):
        from evergraph.experiments.store import CONFIG
        from evergraph.studies.book_rows import check_book
        from evergraph.studies.submitting import commit_here, submitted

    if check and not (run / CONFIG).exists():
        rows = check_book(run)
        failed = sum(row.failure is not None for row in rows)
        say(f"{run}: {len(rows)} rows are sound, {failed} of them say why they failed")
        return
    row = submitted(run, book=book, commit=commit_here(commit), label=label)
    if check:
        say(f"{run}: sound: it would be {book / row.place}")
    else:
        say(f"{run}: written to {row.write(book)}")
