"""Writes docs/results/clients.md: what each version of ONNX Runtime, OpenVINO, and a C compiler compute from our files.

  python clients_table.py --bitgrad PROGRAM --folder ENVIRONMENTS --ort 1.20.1 ... --openvino 2026.4.1 ... --out FILE.md

scripts/clients.sh calls it. Every recipe is trained for a few steps, as an MLP, as a network of convolutions, and as a small
network of odd sizes on a table, exported in every form, and run in a session of ONNX Runtime without options, and in
OpenVINO in fp32. Exit status 1: a cell is wrong (an output off by more than 1e-5 of the largest, or 2e-3 where the export's
report says that floats are summed before a quantizer, another predicted class, a file that does not run; in OpenVINO, which
divides otherwise, more than 2 % of such samples).
"""
import argparse
import json
import os
import shutil
import subprocess
import sys

import numpy as np

SAMPLES = 300
LIMIT = 1e-5
CODE = 2e-3  # of files that round a sum of floats before a quantizer: another code now and then
TIES = 0.02  # samples in OpenVINO of which a value lies at the middle of two codes
NETS = {
    "mlp": "[linear: {out: 96}, relu: {}, linear: {out: 64}, relu: {}, linear: {out: 10}]",
    "conv": "[unsqueeze: {}, conv2d: {out: 8, kernel: 3, stride: 2}, batch_norm: {}, relu: {}, conv2d: {out: 16, kernel: 3}, "
    "batch_norm: {}, relu: {}, max_pool: {size: 2}, flatten: {}, linear: {out: 10}]",
    "odd": "[linear: {out: 37}, relu: {}, linear: {out: 8}, relu: {}, linear: {out: 5}]",
}
COLUMNS = 13  # of the table of "odd": fewer than a group; 37 are one and a part
# Digits whose values have both signs, so that signs carry information; the table has both.
DATA = {
    "mlp": "train: {format: digits, size: 600}, affine: [2, -1]",
    "conv": "train: {format: digits, size: 600}, affine: [2, -1]",
    "odd": "train: {format: npy, images: odd.npy, labels: labels.npy, classes: 5}",
}
CONFIG = """version: 1
run: {name: %s, seed: 1}
data: {%s}
model: {layers: %s}
quant: {recipe: %s}
batch: {global: 30}
optim: {name: adam, lr: 0.01}
train: {stop: 2 epochs}
"""
RUN = """
import sys, numpy as np, onnxruntime as ort
x = np.load(sys.argv[1])
for path in sys.argv[2:]:
    try:
        options = ort.SessionOptions()
        options.log_severity_level = 4
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        shape = [len(x)] + session.get_inputs()[0].shape[1:]
        np.save(path + ".y.npy", session.run(None, {"input": x.reshape(shape)})[0])
    except Exception as error:
        print(path, str(error).replace(chr(10), " ")[-160:], file=sys.stderr)
"""


# By default OpenVINO computes in bf16 where the CPU can, and quantizes the inputs of products with stored int8 weights.
RUN_OPENVINO = """
import sys, numpy as np, openvino as ov
x = np.load(sys.argv[1])
core = ov.Core()
exact = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
for path in sys.argv[2:]:
    try:
        model = core.read_model(path)
        shape = [len(x)] + [d.get_length() for d in list(model.inputs[0].partial_shape)[1:]]
        np.save(path + ".y.npy", core.compile_model(model, "CPU", exact)([x.reshape(shape)])[0])
    except Exception as error:
        print(path, str(error).replace(chr(10), " ")[-160:], file=sys.stderr)
"""


def run(arguments, check=True):
    result = subprocess.run(arguments, capture_output=True, text=True)
    if check and result.returncode != 0:
        sys.exit(f"{' '.join(arguments)} ended with {result.returncode}:\n{result.stderr}")
    return result


def limit_of(report):
    """What a file may differ by, from the report of its export."""
    rounded = False
    for layer in report["layers"]:
        quantizes = any(word in layer["operation"] for word in ("scales of", "QuantizeLinear", "Round, Clip"))
        if quantizes and (rounded or layer["fate"] == "rounded"):
            return CODE
        rounded = rounded or layer["fate"] == "rounded"
    return LIMIT


def compared(y, right, limit):
    """The text of a cell, and whether it is right."""
    worst = float(np.abs(y - right).max() / np.abs(right).max())
    changed = int((y.argmax(1) != right.argmax(1)).sum())
    text = "0" if worst == 0 else f"{worst:.0e}".replace("e-0", "e-")
    return (text if changed == 0 else f"{text}, {changed} classes"), worst <= limit and changed == 0


def compared_in_openvino(y, right):
    """The text of a cell, and whether it is right: nearly all samples are."""
    off = np.abs(y - right).max(1) / np.abs(right).max()
    text = "0" if off.max() == 0 else f"{off.max():.0e}".replace("e-0", "e-")
    samples = int((off > LIMIT).sum())
    return (f"{text}, {samples} of {len(y)}" if samples else text), samples <= TIES * len(y)


def inputs_of(work):
    """Writes the samples of each net, before and behind data.affine, and the table to train on."""
    random = np.random.default_rng(1)
    digits = random.random((SAMPLES, 28, 28)).astype(np.float32)
    for net in ("mlp", "conv"):
        np.save(os.path.join(work, f"{net}.raw.npy"), digits)
        np.save(os.path.join(work, f"{net}.x.npy"), digits * np.float32(2) + np.float32(-1))
    table = random.normal(size=(SAMPLES, COLUMNS)).astype(np.float32)
    for name in ("odd", "odd.raw", "odd.x"):
        np.save(os.path.join(work, f"{name}.npy"), table)
    np.save(os.path.join(work, "labels.npy"), table[:, :5].argmax(1).astype(np.int32))


def main():
    parser = argparse.ArgumentParser()
    for name in ("--bitgrad", "--folder", "--out"):
        parser.add_argument(name, required=True)
    for name in ("--ort", "--openvino"):
        parser.add_argument(name, nargs="+", default=[])
    options = parser.parse_args()
    work = os.path.join(options.folder, "table")
    os.makedirs(work, exist_ok=True)
    inputs_of(work)
    table = run([options.bitgrad, "recipes"]).stdout.split("\n\n")[0]
    recipes = [line.split()[0] for line in table.splitlines()[1:]]
    cells, wrong, right, refusals, limits = {}, [], {}, [], {}
    for net, layers in NETS.items():
        for recipe in recipes:
            name = f"{net}.{recipe}"
            folder = os.path.join(work, name)
            with open(os.path.join(work, "c.yaml"), "w") as file:
                file.write(CONFIG % (name, DATA[net], layers, recipe))
            shutil.rmtree(folder, ignore_errors=True)
            run([options.bitgrad, "train", os.path.join(work, "c.yaml"), "--out", folder, "--quiet"])
            raw = os.path.join(work, f"{net}.raw.npy")
            answers = json.loads(run([options.bitgrad, "predict", folder, raw, "--task", "values", "--json"]).stdout)
            right[name] = np.array([p["values"] for p in answers["predictions"]])
            for form in ("integer", "qdq"):
                path = os.path.join(work, f"{name}.{form}.onnx")
                done = run([options.bitgrad, "export", folder, "-o", path, "--form", form, "--force", "--json"], check=False)
                if done.returncode != 0:
                    refusals.append((name, form, done.stderr.strip().splitlines()[-1].strip()))
                    if os.path.exists(path):
                        os.remove(path)
                else:
                    limits[name, form] = limit_of(json.loads(done.stdout))
            path = os.path.join(work, f"{net}_{recipe}.c")
            done = run([options.bitgrad, "export", folder, "-o", path, "--check", "--force", "--json"], check=False)
            if done.returncode == 0:
                cells[name, "C"] = json.loads(done.stdout)["check"]
            else:
                reason = done.stderr.strip().splitlines()[-1].strip()
                refusals.append((name, "C", reason))
    options.clients = [f"ort_{v}" for v in options.ort] + [f"openvino_{v}" for v in options.openvino]
    for client in options.clients:
        paths = [os.path.join(work, f"{n}.{f}.onnx") for n in right for f in ("integer", "qdq")]
        paths = [p for p in paths if os.path.exists(p)]
        for path in paths:
            if os.path.exists(path + ".y.npy"):
                os.remove(path + ".y.npy")
        python = os.path.join(options.folder, client, "bin", "python")
        openvino = client.startswith("openvino")
        failed = ""
        for net in NETS:
            of_net = [p for p in paths if os.path.basename(p).startswith(f"{net}.")]
            failed += run([python, "-c", RUN_OPENVINO if openvino else RUN, os.path.join(work, f"{net}.x.npy"), *of_net]).stderr
        for path in paths:
            name, form = os.path.basename(path)[: -len(".onnx")].rsplit(".", 1)
            if not os.path.exists(path + ".y.npy"):
                text, good = "does not run", False
            elif openvino:
                text, good = compared_in_openvino(np.load(path + ".y.npy"), right[name])
            else:
                text, good = compared(np.load(path + ".y.npy"), right[name], limits[name, form])
            cells[name, form, client] = text if good else f"**{text}**"
            if not good:
                wrong.append(f"{name} {form} {client}: {text}")
        if failed:
            print(failed, file=sys.stderr)
    write(options, recipes, cells, refusals, wrong)
    for line in wrong:
        print(line)
    print(f"{len(wrong)} of {len([c for c in cells if len(c) == 3])} cells are wrong")
    return 1 if wrong else 0


def write(options, recipes, cells, refusals, wrong):
    version = run([options.bitgrad, "version"]).stdout.splitlines()[0]
    compiler = run([os.environ.get("CC", "cc"), "--version"]).stdout.splitlines()[0]
    lines = [
        "# Our files in the programs of others",
        "",
        "Written by `scripts/clients.sh FOLDER --table`; `scripts/clients.txt` has the versions of all clients.",
        "",
        f"- {version}; C: {compiler}",
        f"- Every recipe, trained for a few steps: on `digits` as an MLP and with convolutions, on a table of {COLUMNS} columns as a small",
        f"  network of odd sizes; {SAMPLES} samples in ONNX Runtime,",
        "  in a session **without options**, and in OpenVINO with `INFERENCE_PRECISION_HINT: f32` and",
        "  `DYNAMIC_QUANTIZATION_GROUP_SIZE: 0`: by default it computes in bf16 where the CPU can and quantizes inputs of int8 weights.",
        "- A cell is the largest difference of an output, as part of the largest output. \"-\": the export refuses the recipe with a reason.",
        f"- Right is at most {LIMIT:.0e}, or {CODE:.0e} where the report of the export says that floats are summed before a quantizer (a sum",
        "  near the middle of two codes may then become the other one), and no other predicted class. What is not right is bold:",
        f"  {len(wrong)} of {len([c for c in cells if len(c) == 3])} cells.",
        f"- OpenVINO: with how many samples are off by more than {LIMIT:.0e}, right is at most {TIES:.0%} of them (values at the middle of two",
        "  codes).",
        "",
    ]
    for net, layers in NETS.items():
        lines += [f"## {net}: `{layers}`", "", "| recipe | form | " + " | ".join(c.replace("_", " ") for c in options.clients) + " |"]
        lines += ["|---|---|" + "---|" * len(options.clients)]
        for recipe in recipes:
            for form in ("integer", "qdq"):
                row = [cells.get((f"{net}.{recipe}", form, c), "-") for c in options.clients]
                lines.append(f"| `{recipe}` | {form} | " + " | ".join(row) + " |")
        lines += ["", "In C:", "", "| recipe | `export --check` |", "|---|---|"]
        lines += [f"| `{r}` | {cells.get((f'{net}.{r}', 'C'), '-')} |" for r in recipes]
        lines += [""]
    if refusals:
        lines += ["## Refused", ""]
        grouped = {}
        for name, form, reason in refusals:
            grouped.setdefault(reason.split("): ")[-1], []).append(f"{name} ({form})")
        lines += [f"- {', '.join(names)}: {reason}" for reason, names in grouped.items()]
        lines += [""]
    with open(options.out, "w") as file:
        file.write("\n".join(lines).rstrip() + "\n")


sys.exit(main())
