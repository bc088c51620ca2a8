#!/usr/bin/env python3
"""From PyTorch and back out: a float MLP and a float CNN, trained here, come into bitgrad by their names, give the same
outputs, are trained on to 4-bit weights, and go out to ONNX.

    roundtrip.py BITGRAD FOLDER        BITGRAD: the program; FOLDER: for the files that it writes

It needs torch, numpy and safetensors; with onnxruntime the ONNX file is run too. Exit status 77: a package is absent.
"""

import json
import pathlib
import subprocess
import sys

try:
    import numpy as np
    import torch
    from safetensors.torch import save_file
    from torch import nn
except ImportError as missing:
    print(missing, file=sys.stderr)
    sys.exit(77)

HERE = pathlib.Path(__file__).resolve().parent
program, folder = sys.argv[1], pathlib.Path(sys.argv[2])


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.head = nn.Linear(784, 64), nn.Linear(64, 32), nn.Linear(32, 10)

    def forward(self, x):
        return self.head(torch.relu(self.fc2(torch.relu(self.fc1(x.flatten(1))))))


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv2, self.head = nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.Linear(16 * 7 * 7, 10)

    def forward(self, x):
        x = torch.max_pool2d(torch.relu(self.bn1(self.conv1(x.unsqueeze(1)))), 2)
        return self.head(torch.relu(self.conv2(x)).flatten(1))


def bitgrad(*arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"bitgrad {' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}")
    return done.stdout


def make_data(count, seed):
    """Images whose bright row says their class."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 10, count)
    images = random.integers(0, 120, (count, 28, 28))
    for image, label in zip(images, labels):
        image[2 * label + 3 : 2 * label + 6] += 100
    return images.astype(np.uint8), labels.astype(np.uint8)


def train(model, images, labels):
    x, y = torch.from_numpy(images).float() / 255, torch.from_numpy(labels).long()
    optimizer = torch.optim.Adam(model.parameters(), 0.002)
    for epoch in range(6):
        for batch in torch.randperm(len(x)).split(50):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
    return model.eval()


def probabilities(file, images):
    predictions = json.loads(bitgrad("predict", file, images, "--json", "--top", 10))["predictions"]
    out = np.zeros((len(predictions), 10))
    for row, prediction in zip(out, predictions):
        for label, p in prediction["top"]:
            row[label] = p
    return out


def run_onnx(file, images):
    try:
        import onnxruntime
    except ImportError:
        return None
    session = onnxruntime.InferenceSession(str(file))
    (entry,) = session.get_inputs()
    x = (images / 255).astype(np.float32)
    shape = [len(x) if not isinstance(size, int) else size for size in entry.shape]
    return session.run(None, {entry.name: x.reshape(shape if shape[0] == len(x) else [len(x), *shape[1:]])})[0]


def round_trip(name, model, test):
    weights, imported = folder / f"{name}.safetensors", folder / f"{name}_float.safetensors"
    save_file(model.state_dict(), str(weights))
    config = HERE / f"{name}.yaml"
    data = f"data.root={folder}"

    # In: the same outputs as PyTorch's.
    bitgrad("import", weights, "--config", config, data, "-o", imported, "--force")
    with torch.no_grad():
        expected = torch.softmax(model(torch.from_numpy(test[0]).float() / 255).double(), 1).numpy()
    error = np.abs(probabilities(imported, folder / "test_x.npy") - expected).max()
    assert error < 1e-5, f"{name}: outputs differ by {error}"
    float_accuracy = json.loads(bitgrad("eval", imported, data, "--json"))["accuracy"]

    # On: weights of 4 bits, from the float ones.
    run = folder / f"{name}_int4"
    bitgrad("train", config, "--out", run, "-q", data, f"model.init_from={weights}", "quant.recipe=int4wo", "quant.last=none")
    accuracy = json.loads(bitgrad("eval", run, data, "--json"))["accuracy"]
    assert accuracy > float_accuracy - 5, f"{name}: int4 has {accuracy} %, float {float_accuracy} %"

    # Out.
    file = folder / f"{name}_int4.onnx"
    bitgrad("export", run, "-o", file, "--force")
    outputs = run_onnx(file, test[0])
    text = "onnxruntime is not here"
    if outputs is not None:
        same = np.mean(np.argmax(outputs, 1) == np.argmax(probabilities(run, folder / "test_x.npy"), 1))
        assert same == 1, f"{name}: ONNX Runtime agrees on {100 * same} % of the samples"
        text = "the same classes in ONNX Runtime"
    print(f"{name}: outputs within {error:.1e}; float {float_accuracy} %, int4 {accuracy} %; {text}")


torch.manual_seed(1)
torch.set_num_threads(1)
folder.mkdir(parents=True, exist_ok=True)
train_set, test_set = make_data(500, 1), make_data(100, 2)
for part, (images, labels) in (("train", train_set), ("test", test_set)):
    np.save(folder / f"{part}_x.npy", images)
    np.save(folder / f"{part}_y.npy", labels)
round_trip("mlp", train(Mlp(), *train_set), test_set)
round_trip("cnn", train(Cnn(), *train_set), test_set)
