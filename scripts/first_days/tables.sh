# A day with tables, Python and C++. Sourced by first_days.sh.
write_tables() {
  awk 'function table(file, from, to, order,   i, n, k, cell) {
         split(order, columns, " "); n = split(order, columns, " ")
         for (k = 1; k <= n; ++k) printf "%s%s", columns[k], k < n ? ";" : "\n" > file
         for (i = from; i < to; ++i)
           for (k = 1; k <= n; ++k) printf "%s%s", cells[i, columns[k]], k < n ? ";" : "\n" > file
       }
       function comma(x) { sub(/\./, ",", x); return x }
       BEGIN {
         srand(3); split("Köln Berlin München", cities, " ")
         for (i = 0; i < 1500; ++i) {
           city = cities[1 + int(3 * rand())]; age = 18 + 60 * rand(); income = 1000 + 8000 * rand(); gold = rand() < 0.5
           sum = 0.03 * (age - 50) + (income - 5000) / 2500 + (city == "Köln" ? 1.2 : 0) + (gold ? 0.8 : 0) + rand() - 0.5
           cells[i, "id"] = i; cells[i, "city"] = city; cells[i, "member"] = gold ? "gold" : rand() < 0.5 ? "silver" : ""
           cells[i, "age"] = rand() < 0.05 ? "" : comma(sprintf("%.1f", age))
           cells[i, "income"] = rand() < 0.03 ? "n/a" : comma(sprintf("%.2f", income))
           cells[i, "joined"] = sprintf("20%02d-%02d-%02d", 20 + int(4 * rand()), 1 + int(12 * rand()), 1 + int(28 * rand()))
           cells[i, "bought"] = sum > 0.8 ? "yes" : "no"
         }
         table("train.csv", 0, 1200, "id city age income joined member bought")
         table("test.csv", 1200, 1500, "id city age income joined member bought")
         table("new.csv", 1200, 1500, "joined income member id age city")
       }'
}

own_table() {
  write_tables
  run bitgrad data info train.csv
  run bitgrad new table -o mine.yaml
  local form='target: bought, separator: semicolon, decimal: comma, fill: mean, ignore: "id,joined"}'
  sed -i "s/^  train: .*/  train: {format: csv, file: train.csv, $form/; s/^  valid: .*/&\n  test: {format: csv, file: test.csv, $form/" mine.yaml
  run bitgrad check mine.yaml
  run bitgrad train mine.yaml --out runs/mine
  run bitgrad eval runs/mine --json
  above "accuracy (chance about 50)" "$(value accuracy)" 75
  run bitgrad predict runs/mine test.csv
  sed 1d out | tr -s ' ' | cut -d' ' -f2- > ordered
  run bitgrad predict runs/mine new.csv
  equal "columns in another order" "$(sed 1d out | tr -s ' ' | cut -d' ' -f2-)" "$(cat ordered)"
  run bitgrad sweep mine.yaml optim.lr=1e-3,3e-3 batch.global=16,32 "train.stop=10 epochs" --out runs/sweep
  run bitgrad report runs/mine runs/sweep/*/ -o compared.html
  run bitgrad quantize runs/mine -o small.safetensors --recipe int8wo
  run bitgrad export runs/mine -o mine.onnx
  grep -q 'city=Köln' out || fail "the export does not say what its inputs are"
  run bitgrad export runs/mine -o mine.c --check
}

python_package() {
  has numpy || { skip "Python: no numpy in $python"; return; }
  [ -f "$build/lib/libbitgrad_c.so" ] || { skip "Python: no libbitgrad_c.so in $build/lib (make wheel)"; return; }
  run python3 "$source_dir/apps/python/build_wheel.py" --library "$build/lib/libbitgrad_c.so" --version 0.1.0 --out wheel
  run "$python" -m venv venv
  run venv/bin/pip install --quiet --no-index wheel/bitgrad-*.whl
  cat > train.py << 'P'
import os
import signal
import threading

import bitgrad
import numpy as np

rng = np.random.default_rng(0)
x = rng.normal(size=(600, 8)).astype("float32")
y = (x[:, 0] * x[:, 1] + x[:, 2] > 0).astype("int32")
layers = [{"linear": {"out": 32}}, {"relu": {}}, {"linear": {"out": 2}}]
config = {
    "version": 1,
    "data": {"train": {"format": "memory"}},
    "model": {"layers": layers},
    "quant": {"recipe": "w8a8_static"},
    "batch": {"global": 20},
    "optim": {"name": "adam", "lr": 0.005},
    "train": {"stop": "400 epochs"},
}


def trainer():
    return bitgrad.Trainer(config, x[:500], y[:500], x[500:], y[500:])


whole = trainer().run("runs/whole", progress=False)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in the background
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    trainer().run("runs/python", progress=False)
    raise SystemExit("Ctrl-C did not end the run")
except KeyboardInterrupt:
    pass
result = trainer().run("runs/python", resume=True, progress=False)
assert result.state_hash == whole.state_hash, "a resumed run ended in another state"
model = bitgrad.open("runs/python")
try:
    import pandas

    samples = pandas.DataFrame(x[500:])
except ImportError:
    samples = x[500:]
accuracy = 100 * np.mean(model.predict(samples).argmax(1) == y[500:])
model.export("python.onnx")
model.export("python.c")
print(accuracy)
P
  run env PYTHONPATH="$packages" venv/bin/python train.py
  above "accuracy after Ctrl-C and resume" "$(cat out)" 80
  cat > table.py << 'P'
import bitgrad
import numpy as np

print(" ".join(str(c) for c in np.asarray(bitgrad.open("runs/mine").predict_csv("new.csv")).argmax(1)))
P
  run env PYTHONPATH="$packages" venv/bin/python table.py
  equal "classes of predict_csv and of bitgrad predict" "$(cat out)" "$(cut -d' ' -f2 ordered | tr '\n' ' ' | sed 's/ $//')"
}

own_program() {
  mkdir app
  cp "$folder/prefix/share/doc/bitgrad-dev/examples/csv_program.cpp" app/ 2> /dev/null \
    || { skip "C++: the prefix has no examples"; return; }
  cat > app/CMakeLists.txt << 'C'
cmake_minimum_required(VERSION 3.20)
project(app CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(bitgrad REQUIRED)
add_executable(app csv_program.cpp)
target_link_libraries(app PRIVATE bitgrad::bitgrad)
C
  run cmake -S app -B app/build -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$folder/prefix"
  run cmake --build app/build
  run app/build/app
  grep -q 'inside: yes, no' out || fail "the C++ program predicts otherwise than it should"
  result "$(grep accuracy out)"
  run bitgrad inspect points.safetensors
}

own_table
python_package
own_program
