"""Exported QONNX files in the package qonnx.

  python qonnx_client.py MANIFEST.json

The manifest is a list of {"file", "inputs": raw fp32, "shape": [n, sample...], "outputs": raw fp32}. Writes a JSON list:
{"difference": largest of an output, "largest", "bits": [of each weight]}. Exit status
77: a package is not installed.
"""
import json
import sys

try:
    import numpy as np
    import qonnx.core.onnx_exec as execution
    from qonnx.core.modelwrapper import ModelWrapper
    from qonnx.transformation.infer_shapes import InferShapes
    from qonnx.transformation.infer_datatypes import InferDataTypes
except ImportError:
    sys.exit(77)


def check(entry):
    model = ModelWrapper(entry["file"])
    model.set_tensor_shape("input", [1] + entry["shape"][1:])
    model = model.transform(InferShapes()).transform(InferDataTypes())
    x = np.fromfile(entry["inputs"], np.float32).reshape(entry["shape"])
    ours = np.fromfile(entry["outputs"], np.float32).reshape(len(x), -1)
    worst = 0.0
    for i in range(len(x)):
        y = execution.execute_onnx(model, {"input": x[i : i + 1]})["output"]
        worst = max(worst, float(np.max(np.abs(y.astype(np.float64).ravel() - ours[i]))))
    bits = []
    for node in model.graph.node:
        if node.op_type in ("Quant", "BipolarQuant") and node.input[0].endswith(".weight"):
            bits.append("BIPOLAR" if node.op_type == "BipolarQuant" else "INT%d" % model.get_initializer(node.input[3]))
    return {"difference": worst, "largest": float(np.max(np.abs(ours))), "bits": bits}


with open(sys.argv[1]) as file:
    print(json.dumps([check(entry) for entry in json.load(file)]))
