"""The two ends of jobs/warehouse.sh: applications into a Delta table, counterfactuals out of another.

    lake.py put LAKE FOLDER NIGHT...     a version for each night, from FOLDER/NIGHT/*.parquet
    lake.py show LAKE ROWS               counts of LAKE/recourse by night and status; each night must have ROWS
"""

import sys
from datetime import date

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake


def put(lake, folder, *nights):
    for night in nights:
        rows = pq.read_table(f"{folder}/{night}")
        rows = rows.append_column("night", pa.array([date.fromisoformat(night)] * rows.num_rows))
        write_deltalake(f"{lake}/applications", rows, partition_by=["night"], mode="append")
    print(f"version {DeltaTable(f'{lake}/applications').version()}")


def show(lake, rows):
    table = DeltaTable(f"{lake}/recourse")
    recourse = table.to_pyarrow_table()
    database = duckdb.connect()
    database.register("recourse", recourse)
    print(f"version {table.version()}")
    database.sql("""SELECT night, status, count(*) AS n, round(avg(n_changed), 2) AS changed
                    FROM recourse GROUP BY ALL ORDER BY ALL""").show()
    nights = database.execute("SELECT night, count(*), count(DISTINCT application_id) FROM recourse GROUP BY ALL")
    wrong = [night for night in nights.fetchall() if night[1:] != (int(rows), int(rows))]
    if wrong:
        raise SystemExit(f"error: not every application once: {wrong}")


if __name__ == "__main__":
    {"put": put, "show": show}[sys.argv[1]](*sys.argv[2:])
