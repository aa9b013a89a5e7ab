"""Iceberg tables by other hands: written by pyiceberg, read back by it and by DuckDB's extension.

    iceberg_tables.py write CATALOG TABLE PARQUET [FORMAT]  two nights of the rows of a file, a snapshot each, with
                                                            partitions of every type; the third adds a column
    iceberg_tables.py append CATALOG TABLE PARQUET          one more snapshot, of the rows of a file as they are
    iceberg_tables.py rename CATALOG TABLE OLD NEW          gives a column another name
    iceberg_tables.py renew CATALOG TABLE COLUMN            drops a column, and makes it anew
    iceberg_tables.py noise CATALOG TABLE SECONDS           appends a row after the other, as another writer would
    iceberg_tables.py read CATALOG TABLE [SNAPSHOT]         what both readers find, which must be the same
    iceberg_tables.py same CATALOG TABLE RUN...             whether a table has the rows of published runs, each once
    iceberg_tables.py where CATALOG TABLE                   the file of the table's metadata

CATALOG is the address of a REST catalogue. The last line is a JSON object.
"""

import json
import os
import sys
import time
from pathlib import Path

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType

from delta_tables import NIGHTS, TYPES


def opened(catalog, table):
    return RestCatalog("main", uri=catalog).load_table(table)


def nullable(rows):
    return rows.cast(pa.schema([field.with_nullable(True) for field in rows.schema]))


def write(catalog, table, parquet, version="2"):
    rows = nullable(pq.read_table(parquet))
    half = rows.num_rows // 2
    rest = RestCatalog("main", uri=catalog)
    snapshots = []
    for part, values in zip([rows.slice(0, half), rows.slice(half)], NIGHTS):
        for name, data_type in TYPES.items():
            part = part.append_column(name, pa.array([values[name]] * part.num_rows, data_type))
        if not snapshots:
            made = rest.create_table(table, part.schema, properties={"format-version": version})
            with made.update_spec() as update:
                for name in TYPES:
                    update.add_field(name, IdentityTransform(), name)
        made = rest.load_table(table)
        made.append(part)
        snapshots.append(made.current_snapshot().snapshot_id)
        time.sleep(0.05)
    with made.update_schema() as update:
        update.add_column("later", DoubleType())
    later = part.slice(0, 1).append_column("later", pa.array([1.5]))
    key = later.column("application_id")
    later = later.set_column(0, "application_id", pa.array([10**9], key.type))
    made = rest.load_table(table)
    made.append(later)
    snapshots.append(made.current_snapshot().snapshot_id)
    moments = [entry.timestamp_ms for entry in made.metadata.snapshot_log]
    return {"snapshots": snapshots, "moments": moments[-3:], "metadata": made.metadata_location}


def append(catalog, table, parquet):
    rest = RestCatalog("main", uri=catalog)
    rows = nullable(pq.read_table(parquet))
    made = rest.create_table_if_not_exists(table, rows.schema)
    made.append(rows)
    return {"snapshot": made.current_snapshot().snapshot_id}


def rename(catalog, table, old, new):
    with opened(catalog, table).update_schema() as update:
        update.rename_column(old, new)
    return {}


def renew(catalog, table, column):
    made = opened(catalog, table)
    kind = made.schema().find_field(column).field_type
    with made.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column(column)
    with opened(catalog, table).update_schema() as update:
        update.add_column(column, kind)
    # A snapshot in the schema that has the new column.
    made = opened(catalog, table)
    made.append(made.scan(limit=1).to_arrow())
    return {}


def noise(catalog, table, seconds):
    """Rows of another writer: as the table's first, under keys of their own."""
    row = opened(catalog, table).scan(limit=1).to_arrow()
    written, refused, unknown, end = 0, 0, 0, time.monotonic() + float(seconds)
    while time.monotonic() < end:
        number = -1 - written - refused - unknown
        mine = row.set_column(0, row.schema.field(0), pa.array([number], row.schema.field(0).type))
        try:
            opened(catalog, table).append(mine)
            written += 1
        except CommitFailedException:
            refused += 1
        except Exception:
            # The catalogue loses answers: whether the row is there, this writer does not know.
            unknown += 1
    return {"written": written, "refused": refused, "unknown": unknown}


def connection():
    database = duckdb.connect()
    for extension in (duckdb_extension_avro, duckdb_extension_iceberg):
        found = next(Path(extension.__file__).parent.glob("extensions/*/*.duckdb_extension"))
        database.execute(f"LOAD '{found}'")
    database.execute("SET TimeZone = 'UTC'")
    return database


def scanned(made, database):
    """The table in DuckDB's words; none where it is in a store, whose extension cannot be had offline."""
    address = made.metadata_location
    return None if address.startswith("s3") else f"iceberg_scan('{address.removeprefix('file://')}')"


def read(catalog, table, snapshot=None):
    made = opened(catalog, table)
    rows = made.scan(snapshot_id=int(snapshot) if snapshot else None).to_arrow()
    database = connection()
    source = scanned(made, database)
    if source and not snapshot:
        others = database.execute(f"SELECT count(*) FROM {source}").fetchone()[0]
        assert others == rows.num_rows, f"DuckDB finds {others} rows, pyiceberg {rows.num_rows}"
    last = made.current_snapshot()
    return {
        "snapshot": last and last.snapshot_id, "rows": rows.num_rows, "snapshots": len(made.snapshots()),
        "types": {field.name: str(field.type) for field in rows.schema},
        "partitions": [field.name for field in made.spec().fields],
        "summary": last and {key: last.summary[key] for key in last.summary.additional_properties},
    }


def same(catalog, table, *runs):
    """Every row of the runs is in the table as often as in them, by both readers; what else it has is counted."""
    made = opened(catalog, table)
    database = connection()
    database.register("python", made.scan().to_arrow())
    files = [f"{run}/counterfactuals/**/*.parquet" for run in runs]
    database.execute(
        f"CREATE TABLE runs AS SELECT * FROM read_parquet({files}, hive_partitioning = true, union_by_name = true)")
    columns = ", ".join(f'"{name}"' for name, *_ in database.execute("DESCRIBE runs").fetchall())
    found = {"rows": database.execute("SELECT count(*) FROM runs").fetchone()[0]}
    for name, source in (("duckdb", scanned(made, database)), ("pyiceberg", "python")):
        if source is None:
            continue
        database.execute(f"CREATE OR REPLACE TABLE found AS SELECT {columns} FROM {source}")
        count = lambda query: database.execute(f"SELECT count(*) FROM ({query})").fetchone()[0]
        found[name] = {
            "missing": count("FROM runs EXCEPT ALL FROM found"),
            "others": count("FROM found EXCEPT ALL FROM runs"),
        }
    return found


def where(catalog, table):
    return {"metadata": opened(catalog, table).metadata_location}


if __name__ == "__main__":
    commands = {"write": write, "append": append, "rename": rename, "renew": renew, "noise": noise, "read": read,
                "same": same, "where": where}
    print(json.dumps(commands[sys.argv[1]](*sys.argv[2:]), default=str))
