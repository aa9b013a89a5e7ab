"""Compares two score tables by key: python compare.py ONNX_SCORES PYTHON_SCORES

Every row of the second must stand in the first, with the same class and probabilities within 1e-5.
"""
import sys

import duckdb

LIMIT = 1e-5

left, right = (f"{folder}/*.parquet" for folder in sys.argv[1:3])
rows, unmatched, labels, worst = duckdb.execute(
    """
    SELECT count(*),
           count(*) FILTER (a.application_id IS NULL),
           count(*) FILTER (a.class <> b.class),
           max(greatest(abs(a.score_approved - b.score_approved), abs(a.score_rejected - b.score_rejected)))
    FROM read_parquet(?) b LEFT JOIN read_parquet(?) a USING (application_id)
    """,
    [right, left],
).fetchone()
print(f"{rows:,} rows compared: {unmatched} unmatched, {labels} classes differ, probabilities within {worst:.1e}")
sys.exit(unmatched > 0 or labels > 0 or rows == 0 or worst > LIMIT)
