"""Serves a scikit-learn or XGBoost model to overturn: python sklearn_scorer.py model.joblib

The model is anything with `predict` that `joblib.load` reads; a pickle is fine. One that was fitted on a
data frame is given a data frame, with the columns it was fitted on. README.md beside it describes the protocol.
"""
import os
import sys

# Standard output belongs to the protocol; whatever prints from here on, Python or C, goes to the log.
answers = os.fdopen(os.dup(1), "wb", 1 << 20)
os.dup2(2, 1)

import json
import warnings

import joblib
import numpy as np
import pyarrow as pa

# Their `predict` is the class of the highest probability by definition. Others are asked for both, since
# thresholds, votes and margins may decide differently.
ARGMAX = {"DecisionTreeClassifier", "ExtraTreesClassifier", "RandomForestClassifier", "XGBClassifier"}

warnings.filterwarnings("ignore", message="X has feature names")
batches = pa.ipc.open_stream(sys.stdin.buffer)
model = joblib.load(sys.argv[1])
# The transformers of a pipeline run once a batch, whatever is then asked of its last step.
pipeline = hasattr(model, "steps") and len(model.steps) > 1
last = model.steps[-1][1] if hasattr(model, "steps") else model
names = list(getattr(model, "feature_names_in_", batches.schema.names))
if not set(names) <= set(batches.schema.names):
    sys.exit(f"the model was fitted on {names}, but the columns are {batches.schema.names}")
numeric = not any(pa.types.is_string(t) or pa.types.is_temporal(t) for t in batches.schema.types)
frame = pipeline or hasattr(model, "feature_names_in_") or not numeric
classify = batches.schema.metadata[b"overturn.task"] == b"classification"
probable = classify and hasattr(last, "predict_proba")


def label_text(label):
    if isinstance(label, bool):
        return str(label).lower()
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)


def inputs(batch):
    columns = [c.cast(pa.float64()) if pa.types.is_decimal(c.type) else c for c in batch.columns]
    if frame:
        rows = pa.table(columns, batch.schema.names).to_pandas(date_as_object=False)[names]
    else:
        rows = np.column_stack([c.cast(pa.float64()).to_numpy(zero_copy_only=False) for c in columns])
    return model[:-1].transform(rows) if pipeline else rows


def answer(rows):
    if not classify:
        return [pa.array(np.asarray(last.predict(rows), np.float64).ravel())]
    scores = last.predict_proba(rows) if probable else None
    if probable and type(last).__name__ in ARGMAX:
        codes = np.argmax(scores, axis=1)
    else:
        codes = np.searchsorted(model.classes_, last.predict(rows))
    columns = [pa.DictionaryArray.from_arrays(codes.astype(np.int32), labels)]
    if probable:
        scores = pa.array(np.ascontiguousarray(scores, np.float64).ravel())
        columns.append(pa.FixedSizeListArray.from_arrays(scores, len(labels)))
    return columns


fields, metadata = [("value", pa.float64())], {"overturn.protocol": "1"}
if classify:
    labels = pa.array([label_text(label) for label in np.asarray(model.classes_).tolist()])
    metadata["overturn.classes"] = json.dumps(labels.to_pylist())
    fields = [("label", pa.dictionary(pa.int32(), pa.string()))]
    fields += [("probabilities", pa.list_(pa.float64(), len(labels)))] if probable else []
schema = pa.schema(fields, metadata)

with pa.ipc.new_stream(answers, schema) as stream:
    for batch in batches:
        empty = [pa.array([], field.type) for field in schema]
        columns = answer(inputs(batch)) if batch.num_rows else empty
        stream.write_batch(pa.record_batch(columns, schema=schema))
        answers.flush()
