"""Delta tables by other hands: written by Python's `deltalake`, read back by it and by DuckDB's extension.

    delta_tables.py write TABLE PARQUET       two nights of the rows of a file, a version each, with partitions of
                                              every type; the third version adds a column
    delta_tables.py append TABLE PARQUET      one more version, of the rows of a file as they are
    delta_tables.py noise TABLE SECONDS       appends a row after the other, as another writer would; says how many
    delta_tables.py read TABLE [VERSION]      what both readers find, which must be the same
    delta_tables.py same TABLE RUN...         whether a table has the rows of published runs, each once

The last line is a JSON object.
"""

import contextlib
import json
import sys
import tempfile
import time
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path

import duckdb
import duckdb_extension_delta
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

NIGHTS = [
    {"night": date(2026, 11, 18), "zone": "São/Paulo 100% a=b", "level": 1, "fine": True, "share": Decimal("1.50"),
     "at": datetime(2026, 11, 18, 22, 30, 0, 500_000, timezone.utc)},
    {"night": date(2026, 11, 19), "zone": None, "level": -2, "fine": False, "share": None, "at": None},
]
TYPES = {"night": pa.date32(), "zone": pa.string(), "level": pa.int32(), "fine": pa.bool_(),
         "share": pa.decimal128(5, 2), "at": pa.timestamp("us", "UTC")}


def write(table, parquet):
    rows = pq.read_table(parquet)
    half = rows.num_rows // 2
    parts = [rows.slice(0, half), rows.slice(half)]
    for part, values in zip(parts, NIGHTS):
        for name, data_type in TYPES.items():
            part = part.append_column(name, pa.array([values[name]] * part.num_rows, data_type))
        write_deltalake(table, part, mode="append", partition_by=list(TYPES))
    later = part.slice(0, 1).append_column("later", pa.array([1.5]))
    key = later.column("application_id")
    later = later.set_column(0, "application_id", pa.array([10**9], key.type))
    write_deltalake(table, later, mode="append", schema_mode="merge")
    return {"version": DeltaTable(table).version()}


def append(table, parquet):
    rows = pq.read_table(parquet)
    nullable = pa.schema([field.with_nullable(True) for field in rows.schema])
    write_deltalake(table, rows.cast(nullable), mode="append")
    return {"version": DeltaTable(table).version()}


def noise(table, seconds):
    """Rows of another writer: as the table's first, under keys of their own."""
    row = DeltaTable(table).to_pyarrow_table().slice(0, 1)
    written, refused, end = 0, 0, time.monotonic() + float(seconds)
    while time.monotonic() < end:
        mine = row.set_column(0, row.schema.field(0), pa.array([-1 - written], row.schema.field(0).type))
        try:
            write_deltalake(table, mine, mode="append")
            written += 1
        except CommitFailedError:
            refused += 1
    return {"written": written, "refused": refused}


def connection():
    found = Path(duckdb_extension_delta.__file__).parent.glob("extensions/*/delta.duckdb_extension")
    database = duckdb.connect()
    database.execute(f"LOAD '{next(found)}'")
    database.execute("SET TimeZone = 'UTC'")
    return database


@contextlib.contextmanager
def local(table):
    """The table as a folder of this machine: DuckDB's extension for stores cannot be had offline."""
    if not table.startswith("s3://"):
        yield table
        return
    import stores

    with tempfile.TemporaryDirectory() as folder:
        yield stores.copied(table, folder)


def read(table, version=None):
    with local(table) as table:
        return read_here(table, None if version is None else int(version))


def read_here(table, version):
    delta = DeltaTable(table, version=version)
    rows = delta.to_pyarrow_table()
    database = connection()
    # DuckDB reads the latest version only.
    others = None
    if version is None:
        others = database.execute(f"SELECT count(*) FROM delta_scan('{table}')").fetchone()[0]
        assert others == rows.num_rows, f"DuckDB finds {others} rows, deltalake {rows.num_rows}"
    protocol = delta.protocol()
    # `history` of an old version numbers commits as if it were the latest.
    log = (Path(table) / "_delta_log" / f"{delta.version():020}.json").read_text()
    last = next(json.loads(line)["commitInfo"] for line in log.splitlines() if "commitInfo" in line)
    return {
        "version": delta.version(), "rows": rows.num_rows, "files": len(delta.file_uris()),
        "types": {field.name: str(field.type) for field in rows.schema},
        "protocol": [protocol.min_reader_version, protocol.min_writer_version],
        "partitions": delta.metadata().partition_columns, "operation": last["operation"],
        "run_id": last.get("overturn.runId"),
    }


def same(table, *runs):
    """Every row of the runs is in the table as often as in them, by both readers; what else it has is counted."""
    with local(table) as here:
        return same_here(table, here, runs)


def same_here(table, here, runs):
    database = connection()
    database.register("python", DeltaTable(table).to_pyarrow_table())
    files = [f"{run}/counterfactuals/**/*.parquet" for run in runs]
    database.execute(
        f"CREATE TABLE runs AS SELECT * FROM read_parquet({files}, hive_partitioning = true, union_by_name = true)")
    columns = ", ".join(f'"{name}"' for name, *_ in database.execute("DESCRIBE runs").fetchall())
    found = {"rows": database.execute("SELECT count(*) FROM runs").fetchone()[0]}
    for name, source in (("duckdb", f"delta_scan('{here}')"), ("deltalake", "python")):
        database.execute(f"CREATE OR REPLACE TABLE found AS SELECT {columns} FROM {source}")
        count = lambda query: database.execute(f"SELECT count(*) FROM ({query})").fetchone()[0]
        found[name] = {
            "missing": count("FROM runs EXCEPT ALL FROM found"),
            "others": count("FROM found EXCEPT ALL FROM runs"),
        }
    return found


if __name__ == "__main__":
    commands = {"write": write, "append": append, "noise": noise, "read": read, "same": same}
    print(json.dumps(commands[sys.argv[1]](*sys.argv[2:]), default=str))
