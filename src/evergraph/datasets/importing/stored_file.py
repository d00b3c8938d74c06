"""A table in object storage, read from there piece by piece."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evergraph.core.errors import DataError
from evergraph.core.extras import require
from evergraph.datasets.download import reason


@dataclass(frozen=True)
class StoredFile:
    """A Parquet file by its address: s3://, gs://, abfss://, hdfs:// or file://.

    Arrow's own file systems read it: only the row groups that are asked for, and none twice.
    Who may read it is what the storage's usual settings say, such as AWS_PROFILE.

    >>> StoredFile("s3://bucket/papers/nodes.parquet").suffix
    '.parquet'
    """

    address: str

    def __post_init__(self) -> None:
        if self.suffix != ".parquet":
            raise DataError(
                f"{self.address}: only .parquet is read from object storage: copy the file here"
            )

    @property
    def suffix(self) -> str:
        """How its name ends."""
        return Path(self.name).suffix

    @property
    def name(self) -> str:
        """What it is called."""
        return self.address.rpartition("/")[2]

    def open(self) -> Any:
        """Return it opened for reading, anywhere in it."""
        system, path = self._found()
        return system.open_input_file(path)

    def state(self) -> tuple[int, int]:
        """Return its size and when it was changed, in nanoseconds."""
        system, path = self._found()
        about = system.get_file_info(path)
        if not about.is_file:
            raise DataError(f"{self.address}: no such file")
        return about.size, about.mtime_ns

    def _found(self) -> tuple[Any, str]:
        require("pyarrow", extra="tables", why=f"reading {self.address}")
        from pyarrow import fs

        try:
            found: tuple[Any, str] = fs.FileSystem.from_uri(self.address)
        except (ValueError, OSError) as error:
            raise DataError(f"{self.address}: cannot be reached ({reason(error)})") from error
        return found

    def __str__(self) -> str:
        return self.address


def table_at(text: str) -> Path | StoredFile:
    """Return a file by its path, or by its address in object storage.

    >>> table_at("edges.csv"), table_at("s3://b/e.parquet")
    (PosixPath('edges.csv'), StoredFile(address='s3://b/e.parquet'))
    """
    return StoredFile(text) if "://" in text else Path(text)
