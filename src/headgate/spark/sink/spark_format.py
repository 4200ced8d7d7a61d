"""A place that Spark writes itself: a table of Delta or Iceberg, JDBC, or any other format it has a writer for.

Tasks stage Parquet files beside the checkpoint. The driver has Spark append them, with the number of the batch as the
transaction where the format has transactions (Delta, Headgate); for any other format it records the number after the write. A
kill between the write and the record repeats the write.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.errors import SparkOptionsError
from headgate.files import replace_file
from headgate.pipelines import SparkPlace, TableLayout
from headgate.spark.sink.destination import BatchMark, Owner
from headgate.spark.sink.staging import (
    StagedPart,
    delete_files,
    delete_folder,
    delete_orphans,
    make_folder,
    missing_file,
)
from headgate.spark.sink.table_files import SUFFIX, table_schema, write_files
from headgate.streams.write import read_staged

if TYPE_CHECKING:
    from pyspark.sql import DataFrameWriter, SparkSession

TRANSACTIONAL: Final = ("delta", "headgate")  # formats that take txnAppId and txnVersion


@dataclass(frozen=True, slots=True)
class SparkDestination:
    """A format and where it writes. `commit` only deletes staged files: `append` has stored their rows before."""

    place: SparkPlace
    owner: Owner
    layout: TableLayout

    @property
    def staging(self) -> str:
        name = hashlib.sha256(self.place.text.encode()).hexdigest()[:20]
        return str(Path(self.owner.scratch) / name)

    def check(self) -> None:
        table_schema(self._unpartitioned())

    def open(self) -> None:
        self.check()
        make_folder(self.staging)

    def _unpartitioned(self) -> TableLayout:
        """The layout of staged files: Spark itself makes the folders."""
        return replace(self.layout, partition_by=())

    def prepare(self, staged: StagedPart) -> tuple[StagedPart, ...]:
        path = Path(staged.file)
        if path.suffix == SUFFIX:
            return (staged,)
        batches = read_staged(path, staged.nbytes, staged.crc)
        written = write_files(table_schema(self._unpartitioned()), path.parent, batches)
        path.unlink()
        return tuple(
            StagedPart(staged.destination, str(one.path), one.rows, one.path.stat().st_size)
            for one in written
        )

    def append(
        self,
        spark: SparkSession,
        mark: BatchMark,
        staged: Sequence[StagedPart],
        options: Mapping[str, str],
    ) -> None:
        """Let Spark append the rows of these files, unless this batch was appended before."""
        record = Path(self.staging) / "batches" / f"{mark.query}.json"
        if not staged or mark.batch <= _read_record(record):
            return
        for each in staged:
            if not Path(each.file).is_file():
                raise missing_file(each.file)
        rows = spark.read.parquet(*[Path(each.file).as_uri() for each in staged])
        writer = rows.write.format(self.place.format).mode("append")
        if self.place.format.lower() in TRANSACTIONAL:
            writer = writer.options(txnAppId=f"headgate-{mark.query}", txnVersion=str(mark.batch))
        writer = writer.options(**options)
        if self.layout.partition_by:
            writer = writer.partitionBy(*self.layout.partition_by)
        self._save(writer)
        record.parent.mkdir(exist_ok=True)
        replace_file(record, json.dumps(mark.batch).encode())

    def _save(self, writer: DataFrameWriter) -> None:
        if self.place.kind == "table":
            writer.saveAsTable(self.place.name)
        elif self.place.kind == "path":
            writer.save(self.place.name)
        else:
            writer.save()

    def commit(self, mark: BatchMark, staged: Sequence[StagedPart]) -> None:
        delete_files(staged)

    def discard(self, staged: Sequence[StagedPart]) -> None:
        delete_files(staged)

    def collect_orphans(self) -> None:
        for suffix in (SUFFIX, ".arrow"):
            delete_orphans(self.staging, (), suffix)

    def leave(self) -> None:
        delete_folder(self.staging)


def _read_record(path: Path) -> int:
    with suppress(FileNotFoundError):
        return int(json.loads(path.read_bytes()))
    return -1


def require_format(spark: SparkSession, format: str) -> None:
    """Raise when the session has no such format; the error names the package of a known one."""
    java = getattr(spark, "_jvm", None)
    if java is None:  # Spark Connect: the server knows
        return
    lookup = java.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource
    try:
        lookup(format, spark._jsparkSession.sessionState().conf())
    except Exception:
        hint = package_hint(format, spark.version)
        raise SparkOptionsError(f"Spark has no format {format!r} here; {hint}") from None


def package_hint(format: str, spark_version: str) -> str:
    """Say which package has this format: its name contains the version of Spark that it is made for."""
    hint = _PACKAGES.get(format.lower(), "add its jar with --conf spark.jars.packages=…")
    return hint.format(spark=".".join(spark_version.split(".")[:2]))


_PACKAGES: Final = {
    "delta": "run with --conf spark.jars.packages=io.delta:delta-spark_{spark}_2.13:VERSION "
    "--conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension "
    "--conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog, "
    "where VERSION is a release of Delta Lake for Spark {spark}",
    "iceberg": "run with --conf spark.jars.packages=org.apache.iceberg:iceberg-spark-runtime-{spark}_2.13:VERSION, where "
    "VERSION is a release of Iceberg for Spark {spark}, and the settings of your catalog",
}
