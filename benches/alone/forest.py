"""A scikit-learn model without pipes: python forest.py model.joblib table.parquet

Times nothing but the model's own calls on data frames that are ready. Each line on standard input has the
rows per batch of the next pass over the table; mod.rs beside this file says what is answered.
"""
import json
import sys
import time

import joblib
import numpy as np
import pyarrow.parquet

model = joblib.load(sys.argv[1])
table = pyarrow.parquet.read_table(sys.argv[2], columns=list(model.feature_names_in_))


def score(frame):
    probabilities = model.predict_proba(frame)
    return model.classes_[np.argmax(probabilities, axis=1)]


def say(**answer):
    print(json.dumps(answer), flush=True)


say(approved=int(np.sum(score(table.to_pandas()) == "approved")))
for line in sys.stdin:
    rows = int(line)
    frames = [table.slice(first, rows).to_pandas() for first in range(0, table.num_rows, rows)]
    began = time.perf_counter()
    for frame in frames:
        score(frame)
    say(seconds=time.perf_counter() - began)
