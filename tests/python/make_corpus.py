"""Writes the binary part of the fuzzing corpus: answers of scorers, and small ONNX models.

    make_corpus.py tests/fuzz

The rest of the corpus are the jobs and schemas of this tree, files that stand in `tests/fuzz/`, and the
artefacts of a run that the test makes itself.
"""

import sys
from pathlib import Path

import numpy
import pyarrow
from onnx import TensorProto, helper

CLASSES = {"overturn.protocol": "1", "overturn.classes": '["no", "yes"]'}
REGRESSION = {"overturn.protocol": "1"}


def stream(path, fields, metadata, rows):
    schema = pyarrow.schema(fields, metadata)
    with pyarrow.ipc.new_stream(str(path), schema) as writer:
        for batch in ([], rows):
            columns = [pyarrow.array([row[index] for row in batch], field.type) for index, field in enumerate(schema)]
            writer.write_batch(pyarrow.record_batch(columns, schema=schema))


def answers(folder):
    text, number = pyarrow.string(), pyarrow.float64()
    stream(folder / "label.arrows", [("label", text)], CLASSES, [("no",), ("yes",), (None,)])
    lists = pyarrow.list_(number)
    stream(folder / "probabilities.arrows", [("label", text), ("probabilities", lists)], CLASSES,
           [("no", [0.9, 0.1]), ("yes", [0.2, 0.8])])
    fixed = pyarrow.list_(pyarrow.float32(), 2)
    stream(folder / "fixed.arrows", [("label", pyarrow.int64()), ("probabilities", fixed)],
           CLASSES | {"overturn.classes": "[0, 1]"}, [(0, [0.9, 0.1]), (1, [0.2, 0.8])])
    dictionary = pyarrow.dictionary(pyarrow.int8(), text)
    stream(folder / "dictionary.arrows", [("label", dictionary)], CLASSES, [("no",), ("yes",)])
    stream(folder / "value.arrows", [("value", number), ("extra", pyarrow.bool_())], REGRESSION,
           [(1.5, True), (float("nan"), False)])
    stream(folder / "view.arrows", [("label", pyarrow.string_view())], CLASSES, [("a rather long label text",), ("no",)])
    stream(folder / "small.arrows", [("value", pyarrow.decimal128(9, 2))], REGRESSION, [(None,), (None,)])


def model(path, nodes, outputs, initialisers=()):
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 2])]
    infos = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs]
    graph = helper.make_graph(nodes, "graph", inputs, infos, list(initialisers))
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    path.write_bytes(helper.make_model(graph, opset_imports=opsets).SerializeToString())


def classifier(labels):
    return helper.make_node("LinearClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml",
                            coefficients=[1.0, -1.0, -1.0, 1.0], intercepts=[0.0, 0.0], post_transform="SOFTMAX", **labels)


def models(folder):
    text, whole, real = TensorProto.STRING, TensorProto.INT64, TensorProto.FLOAT
    zipmap = helper.make_node("ZipMap", ["scores"], ["maps"], domain="ai.onnx.ml", classlabels_strings=["no", "yes"])
    named = classifier({"classlabels_strings": ["no", "yes"]})
    model(folder / "zipmap.onnx", [named, zipmap], [("label", text), ("maps", real)])
    model(folder / "integers.onnx", [classifier({"classlabels_ints": [0, 1]})], [("label", whole), ("scores", real)])
    labels = helper.make_tensor("labels", text, [2], [b"no", b"yes"])
    best = helper.make_node("ArgMax", ["x"], ["best"], axis=1, keepdims=0)
    model(folder / "gather.onnx", [best, helper.make_node("Gather", ["labels", "best"], ["label"])], [("label", text)], [labels])
    numbers = helper.make_tensor("n", whole, [2], numpy.array([3, 4]).tobytes(), raw=True)
    constant = helper.make_node("Constant", [], ["numbers"], value=numbers)
    gather = helper.make_node("ArrayFeatureExtractor", ["numbers", "best"], ["label"], domain="ai.onnx.ml")
    model(folder / "constant.onnx", [constant, best, gather, helper.make_node("Cast", ["label"], ["out"], to=whole)], [("out", whole)])
    outside = helper.make_tensor("w", real, [2, 1], [1.0, 2.0])
    outside.ClearField("float_data")
    outside.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "weights.bin"), ("offset", "0"), ("length", "8")):
        entry = outside.external_data.add()
        entry.key, entry.value = key, value
    model(folder / "external.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], [("y", real)], [outside])
    ring = [helper.make_node("Cast", ["a"], ["b"], to=real), helper.make_node("Add", ["b", "b"], ["a"])]
    model(folder / "ring.onnx", ring, [("a", real), ("b", real)])


def main():
    folder = Path(sys.argv[1])
    for name, make in (("answers", answers), ("onnx", models)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        make(folder / name)


if __name__ == "__main__":
    main()
