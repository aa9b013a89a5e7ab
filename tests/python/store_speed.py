"""A run from and to an S3 server on loopback against the same run on local files: rows per second, memory, and bytes
read by ranges against the bytes of the columns that are needed.

    store_speed.py PROGRAM [--rows 1000000] [--threads 0]

The server is a Python program on the same cores: what it takes is part of the figures.
"""

import argparse
import json
import pathlib
import re
import tempfile
import tomllib

import pyarrow.parquet as pq

from stores import BUCKET, PROJECT, Bench, same, server, tables


def needed_bytes(folder, columns):
    """Compressed bytes of the columns in all files of a table."""
    total = 0
    for path in sorted(folder.glob("*.parquet")):
        metadata = pq.ParquetFile(path).metadata
        for group in range(metadata.num_row_groups):
            row_group = metadata.row_group(group)
            chunks = (row_group.column(index) for index in range(row_group.num_columns))
            total += sum(chunk.total_compressed_size for chunk in chunks if chunk.path_in_schema in columns)
    return total


def measured(bench, out, threads, **options):
    code, stdout, stderr = bench.run(out, "--threads", str(threads), **options)
    assert code == 0, stderr
    summary = json.loads(stdout.splitlines()[-1])
    read = re.search(r'"message":"read from [^"]*"[^}]*', stderr)
    read = re.search(r'"bytes":(\d+)', read.group(0)) if read else None
    return summary, int(read.group(1)) if read else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, default=0)
    arguments = parser.parse_args()
    with server() as port, tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments.program, folder, port, arguments.rows, unit=65_536)
        local, _ = measured(bench, str(bench.folder / "local"), arguments.threads, local=True)
        store, read = measured(bench, f"s3://{BUCKET}/out/speed", arguments.threads)
        assert same(tables(bench.fetch("out/speed", bench.folder / "found")), tables(bench.folder / "local"))
        schema = tomllib.loads((PROJECT / "schemas/credit.toml").read_text())
        columns = {feature["name"] for feature in schema["feature"]} | {"application_id"}
        result = {
            "rows": arguments.rows,
            "rows_per_second": [round(of["rows_per_second"]) for of in (local, store)],
            "seconds": [round(of["seconds"]["total"], 1) for of in (local, store)],
            "cpu_seconds": [round(of["cpu_seconds"], 1) for of in (local, store)],
            "peak_mib": [of["peak_bytes"] >> 20 for of in (local, store)],
            "bytes_read": read,
            "bytes_needed": needed_bytes(bench.folder / "table", columns),
        }
        result["read_share"] = round(read / result["bytes_needed"], 3)
        print(json.dumps(result))


if __name__ == "__main__":
    main()
