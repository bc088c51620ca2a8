"""Exported ONNX files in ONNX Runtime.

  python onnx_client.py MANIFEST.json

The manifest is a list of {"file", "inputs": raw fp32 [n, sample...], or int32 if "ids", "shape": [n, sample...], "outputs": raw fp32,
"weights": {layer: {"o", "k", "kernel": [kh, kw] or null, "codes": [of o rows of k], "scales": [...]}}}. Writes a JSON list:
{"difference": largest of an output, "agree": arg-maxes that are equal, "samples", "codes": names of weights that are not
ours, "unused": initializers that no node reads, "lengths": of ids, what fewer and more positions give, "passed":
onnx.checker's word}. Exit status 77: a package is not installed.
"""
import json
import sys

try:
    import numpy as np
    import onnx
    import onnxruntime as ort
except ImportError:
    sys.exit(77)


def file_codes(model, layer, weight):
    """The codes of a layer as [o, k], and its scales, from the constants of the file."""
    constants = {t.name: t for t in model.graph.initializer}
    stored = constants[layer + ".weight"]
    values = onnx.numpy_helper.to_array(stored)
    o, k = weight["o"], weight["k"]
    scale = constants.get(layer + ".weight_scale")
    scales = np.ravel(onnx.numpy_helper.to_array(scale)) if scale is not None else None
    nodes = [n for n in model.graph.node if n.op_type == "MatMulNBits" and stored.name in n.input]
    if nodes:
        bits = {a.name: a.i for a in nodes[0].attribute}["bits"]
        per = 8 // bits
        raw = np.stack([(values >> (bits * i)) & (2**bits - 1) for i in range(per)], axis=-1).reshape(o, -1)
        return raw[:, :k].astype(np.int64) - 2 ** (bits - 1), scales
    values = values.astype(np.int64)
    for node in model.graph.node:
        if node.op_type == "ConvInteger" and node.input[1] == stored.name and len(node.input) == 4:
            values -= int(onnx.numpy_helper.to_array(constants[node.input[3]]))
    if weight["kernel"]:
        if values.ndim == 2:
            return values[:, :k], scales
        return values.transpose(0, 2, 3, 1).reshape(o, k), scales
    if layer in model_rows(model):
        return values[:, :k], scales
    return values.T, scales


def model_rows(model):
    """Layers whose weight is [o, k] in the file: a Transpose or Gather follows, or Gemm with transB."""
    gemm = {n.name.rsplit("/", 1)[0] for n in model.graph.node if n.op_type in ("Gather", "Gemm")}
    return gemm | {n.name.rsplit("/", 1)[0] for n in model.graph.node if n.op_type == "Transpose" and list(n.attribute[0].ints) == [1, 0]}


def lengths(session, x, y):
    if session.get_inputs()[0].shape[1] != "T":
        return "fixed"
    few = x.shape[1] // 3
    part = session.run(None, {"input": x[:, :few]})[0]
    if np.mean(np.isclose(part, y[:, :few], rtol=1e-4, atol=1e-4)) < 0.95:
        return "fewer positions give other rows"
    try:
        session.run(None, {"input": np.tile(x, (1, 2))})
    except Exception:
        return "up to the context"
    return "more positions than the context"


def check(entry):
    model = onnx.load(entry["file"])
    result = {"passed": "yes"}
    try:
        onnx.checker.check_model(model, full_check=not any(n.domain for n in model.graph.node))
    except Exception as error:  # the message is what the test prints
        result["passed"] = str(error)[:2000]
    bad = []
    for layer, weight in entry["weights"].items():
        codes, scales = file_codes(model, layer, weight)
        ours = np.array(weight["codes"]).reshape(weight["o"], weight["k"])
        if not np.array_equal(codes, ours):
            bad.append(layer + ": codes")
        if scales is not None and not np.array_equal(scales, np.array(weight["scales"], np.float32)):
            bad.append(layer + ": scales")
    result["codes"] = bad
    read = {name for node in model.graph.node for name in node.input}
    result["unused"] = [t.name for t in model.graph.initializer if t.name not in read]
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(entry["file"], options, providers=["CPUExecutionProvider"])
    ids = entry.get("ids", False)
    x = np.fromfile(entry["inputs"], np.int32 if ids else np.float32).reshape(entry["shape"])
    x = x.astype(np.int64) if ids else x
    y = session.run(None, {"input": x})[0]
    ours = np.fromfile(entry["outputs"], np.float32).reshape(y.shape)
    one = session.run(None, {"input": x[:1]})[0]
    result["one"] = bool(np.allclose(one, y[:1], rtol=1e-5, atol=1e-6 * (1 + np.abs(y).max())))
    if ids:
        result["lengths"] = lengths(session, x, y)
    result["difference"] = float(np.max(np.abs(y.astype(np.float64) - ours)))
    result["largest"] = float(np.max(np.abs(ours)))
    result["agree"] = int(np.sum(np.argmax(y, -1) == np.argmax(ours, -1)))
    result["samples"] = len(x)
    result["rows"] = int(np.prod(y.shape[:-1]))
    return result


with open(sys.argv[1]) as file:
    print(json.dumps([check(entry) for entry in json.load(file)]))
