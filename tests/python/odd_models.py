"""Small ONNX models that are odd in one way each, over two numbers `x` and `y` as one matrix.

    odd_models.py KIND FILE

`plain` decides `yes` where x + y > 0; `external` is the same with its weights in `weights.bin` beside it.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import set_external_data


def model(kind):
    inputs = [helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, 2])]
    weights = np.array([[-1, 1], [-1, 1]], np.float32)
    initializers = [numpy_helper.from_array(weights, "W"),
                    numpy_helper.from_array(np.array(["no", "yes"]).astype(object), "classes")]
    nodes, features, scores = [], "X", "probabilities"
    if kind == "batch":  # what is above the mean of its batch
        nodes += [helper.make_node("ReduceMean", ["X"], ["mean"], axes=[0], keepdims=1),
                  helper.make_node("Sub", ["X", "mean"], ["centred"])]
        features = "centred"
    if kind == "random":
        nodes += [helper.make_node("RandomNormalLike", ["X"], ["noise"], scale=3.0),
                  helper.make_node("Add", ["X", "noise"], ["noisy"])]
        features = "noisy"
    nodes.append(helper.make_node("MatMul", [features, "W"], ["margins"]))
    if kind in ("nan", "infinite"):
        # Logarithms of negative numbers; or one divided by nought.
        if kind == "infinite":
            initializers.append(numpy_helper.from_array(np.array(0, np.float32), "nought"))
            nodes.append(helper.make_node("Mul", ["margins", "nought"], ["product"]))
            nodes.append(helper.make_node("Reciprocal", ["product"], ["raw"]))
            nodes.append(helper.make_node("Abs", ["raw"], ["scores"]))
        else:
            nodes.append(helper.make_node("Log", ["margins"], ["scores"]))
        scores = "scores"
    else:
        nodes.append(helper.make_node("Softmax", ["margins"], ["probabilities"], axis=1))
    nodes += [helper.make_node("ArgMax", [scores], ["best"], axis=1, keepdims=0),
              helper.make_node("ArrayFeatureExtractor", ["classes", "best"], ["row"], domain="ai.onnx.ml"),
              helper.make_node("Flatten", ["row"], ["flat"], axis=0),
              helper.make_node("Reshape", ["flat", "all"], ["label"])]
    initializers.append(numpy_helper.from_array(np.array([-1], np.int64), "all"))
    outputs = [helper.make_tensor_value_info("label", TensorProto.STRING, [None]),
               helper.make_tensor_value_info(scores, TensorProto.FLOAT, [None, 2])]
    graph = helper.make_graph(nodes, kind, inputs, outputs, initializers)
    return helper.make_model(graph, ir_version=8, opset_imports=[
        helper.make_opsetid("", 13), helper.make_opsetid("ai.onnx.ml", 2)])


def many_classes(count):
    node = helper.make_node("LinearClassifier", ["X"], ["label", "scores"], domain="ai.onnx.ml",
                            coefficients=[0.0] * (2 * count), intercepts=[0.0] * count,
                            classlabels_ints=list(range(count)))
    graph = helper.make_graph([node], "many", [helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, 2])],
                              [helper.make_tensor_value_info("label", TensorProto.INT64, [None])])
    return helper.make_model(graph, ir_version=8, opset_imports=[
        helper.make_opsetid("", 13), helper.make_opsetid("ai.onnx.ml", 2)])


kind, file = sys.argv[1:]
if kind == "many":
    onnx.save(many_classes(200_000), file)
elif kind == "external":
    built = model(kind)
    # The weights alone: what shapes are inferred from must stand in the file.
    weights = built.graph.initializer[0]
    Path(file).with_name("weights.bin").write_bytes(weights.raw_data)
    set_external_data(weights, "weights.bin")
    weights.ClearField("raw_data")
    onnx.save(built, file)
elif kind.startswith("elsewhere="):
    # The weights in a file of any name, which need not be there.
    built = model("plain")
    weights = built.graph.initializer[0]
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL
    weights.external_data.add(key="location", value=kind.split("=", 1)[1])
    onnx.save(built, file)
else:
    onnx.save(model(kind), file)
