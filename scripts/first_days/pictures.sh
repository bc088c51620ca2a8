# A day with pictures: a folder of JPEG files, idx files, a float model of another program. Sourced by first_days.sh.
own_pictures() {
  local archive=$data/cifar10/cifar10-jpeg.tar.xz
  [ -f "$archive" ] || { skip "own pictures: no cifar10/cifar10-jpeg.tar.xz"; return; }
  mkdir pictures
  run tar xJf "$archive" -C pictures --wildcards 'train/*/0[01][0-9][0-9].jpg' 'test/*/00[0-9][0-9].jpg'
  run bitgrad data info pictures/train
  run bitgrad new pictures -o mine.yaml
  run bitgrad data pack pictures/train -o train --size 32
  run bitgrad data pack pictures/test -o test --size 32 --classes train.classes.txt
  run bitgrad check mine.yaml
  run bitgrad train mine.yaml --out runs/mine
  run bitgrad eval runs/mine --json
  above "accuracy (chance 10)" "$(value accuracy)" 20
  local accuracy
  accuracy=$(value accuracy)
  run bitgrad predict runs/mine pictures/test/ship/0000.jpg pictures/test/cat/0001.jpg
  run bitgrad train mine.yaml quant.recipe=none '~quant.first' '~quant.last' --out runs/float
  run bitgrad quantize runs/float -o ptq.safetensors --recipe w8a8_static
  run bitgrad eval ptq.safetensors --json
  above "accuracy after training" "$(value accuracy)" 20
  run bitgrad train mine.yaml model.init_from=runs/float optim.lr=5e-4 "train.stop=3 epochs" --out runs/qat
  run bitgrad eval runs/qat --json
  above "accuracy of QAT" "$(value accuracy)" 20
  run bitgrad convert runs/mine -o small.safetensors --check
  run bitgrad export runs/mine -o model.onnx --with-normalization
  run bitgrad export runs/mine -o model.c --with-normalization --check
  cat > main.c << 'C'
#include <stdio.h>
#include "model.h"
static model_input in[model_inputs];
static model_output out[model_outputs];
int main(void) {
  FILE *x = fopen("x.bin", "rb"), *y = fopen("y.bin", "rb"), *scores = fopen("c.bin", "wb");
  int right = 0, samples = 0, best, i;
  for (; fread(in, sizeof in, 1, x) == 1; ++samples) {
    if (model_predict(in, out) != 0) return 1;
    fwrite(out, sizeof out, 1, scores);
    for (best = 0, i = 1; i < model_outputs; ++i)
      if (out[i] > out[best]) best = i;
    right += best == fgetc(y);
  }
  printf("%g\n", 100.0 * right / samples);
  return fclose(scores);
}
C
  run cc -std=c99 -Wall -Wextra -Werror -O2 main.c model.c -o classify
  tail -c +129 test.images.npy > x.bin
  tail -c +129 test.labels.npy > y.bin
  run ./classify
  awk "BEGIN { exit !($(cat out) == $accuracy) }" || fail "accuracy: C has $(cat out), bitgrad $accuracy"
  result "accuracy of the C program: $(cat out), as bitgrad"
  has numpy onnxruntime || { skip "ONNX Runtime: no numpy, onnxruntime in $python"; return; }
  cat > onnx.check.py << 'P'
import numpy as np
import onnxruntime as ort

scores = ort.InferenceSession("model.onnx").run(None, {"input": np.load("test.images.npy")})[0]
c = np.fromfile("c.bin", np.float32).reshape(scores.shape)
print(abs(scores - c).max() / abs(scores).max())
P
  run "$python" onnx.check.py
  awk "BEGIN { exit !($(cat out) < 1e-5) }" || fail "C and ONNX Runtime differ by $(cat out) of the largest output"
  result "C and ONNX Runtime differ by $(cat out)"
}

idx_files() {
  [ -d "$data/mnist" ] || { skip "idx files: no mnist"; return; }
  run bitgrad data info "$data/mnist/train-images-idx3-ubyte.gz"
  run bitgrad new images -o mnist.yaml
  run bitgrad check mnist.yaml --data "$data"
  run bitgrad train mnist.yaml --data "$data" "train.stop=1 epochs" --out runs/mnist
  run bitgrad eval runs/mnist --json
  above "accuracy (chance 10)" "$(value accuracy)" 90
  run bitgrad predict runs/mnist "$data/mnist/t10k-images-idx3-ubyte.gz"
}

float_model() {
  local weights=$data/mlperf_tiny/resnet8_float.npz
  { [ -f "$weights" ] && [ -d pictures ]; } || { skip "a float model of others: no mlperf_tiny, or no pictures"; return; }
  cat > resnet8.yaml << 'Y'
version: 1
data:
  train: {format: image_folder, path: pictures/train}
  test: {format: image_folder, path: pictures/test}
  affine: [255, 0]
model: {preset: resnet8}
batch: {global: 50}
optim: {name: adam, lr: 0.0005}
train: {stop: 1 epochs}
Y
  run bitgrad import "$weights" --config resnet8.yaml -o resnet8.safetensors
  run bitgrad eval resnet8.safetensors --json
  above "accuracy" "$(value accuracy)" 65
  run bitgrad quantize resnet8.safetensors -o resnet8_w8a8.safetensors --recipe w8a8_static
  run bitgrad eval resnet8_w8a8.safetensors --json
  above "accuracy" "$(value accuracy)" 65
  run bitgrad predict resnet8_w8a8.safetensors pictures/test/ship/0001.jpg
  grep -q ship out || fail "predict prints no name of a class"
  run bitgrad export resnet8_w8a8.safetensors -o resnet8.c --with-normalization --check
}

own_pictures
idx_files
float_model
