"""What an installed Python package of bitgrad does with a language model, without NumPy: texts, streams, interrupts; and with
adapters, pickles and copies.

    python_text.py RUN FOLDER

Prints the texts that `bitgrad generate RUN` is compared with, as JSON.
"""

import copy
import gc
import json
import os
import pathlib
import pickle
import random
import signal
import sys
import threading
import time

import bitgrad
from bitgrad import _calls, _text

run, folder = sys.argv[1], pathlib.Path(sys.argv[2])


def error_of(call, kind=bitgrad.UsageError):
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError("no error")


def near(rows, others):
    return all(abs(a - b) < 1e-4 for row, other in zip(rows, others) for a, b in zip(row, other))


# Texts, as the program writes them.
model = bitgrad.open(run)
context, known = model.input.shape[0], model.input.ids
rows = [[i % known for i in range(context)]]
before = model.predict(rows).tolist()
greedy = model.generate("to be", tokens=40, temperature=0)
assert len(greedy.ids) == 40 and greedy.stop == "tokens" and greedy.prompt_tokens == 5 and greedy.dropped == 0
drawn = {"temperature": 0.8, "top_k": 9, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.1, "seed": 7, "tokens": 30}
texts = model.generate("to be or not", samples=3, stop="end", kv="bf16", **drawn)
assert len({text.text for text in texts}) == 3
assert model.generate("to be or not", stop=["end"], kv="bf16", **drawn) == texts[0]
long = model.generate("to be or not to be, that is the question", tokens=4, temperature=0, kv="none")
assert long.dropped > 0 and long == model.generate("to be or not to be, that is the question", tokens=4, temperature=0)
ids = model.generate(ids=[3, 1, 4], tokens=5, temperature=0)
assert len(ids.ids) == 5 and ids.prompt_tokens == 3
assert model.predict(rows).tolist() == before

# Streams: by an iterator, several at once, with predictions between their tokens; by a function.
streams = [model.stream("to be", tokens=40, temperature=0), model.stream("to be or not", stop="end", kv="bf16", **drawn)]
told = [[], []]
while any(streams):
    for i, stream in enumerate(streams):
        token = next(stream, None) if stream else None
        if token is None:
            streams[i] = None if stream is None else streams[i]
            if stream is not None:
                assert stream.result == (greedy, texts[0])[i]
                stream.close()
                streams[i] = None
            continue
        told[i].append(token)
        assert model.predict(rows).tolist() == before
assert "".join(token.text for token in told[0]) == greedy.text
assert [token.id for token in told[0] if token.id >= 0] == list(greedy.ids)
heard = []
cut = model.generate("to be", tokens=40, temperature=0, on_token=lambda token: heard.append(token) or len(heard) == 3)
assert len(heard) == 3 and cut.ids == greedy.ids[:3] and cut.stop is None
with model.stream("to be", tokens=1000) as stream:
    next(stream)
assert "closed" in error_of(lambda: next(stream))

# Ctrl-C while a token is drawn, or between two: no further token comes, and the model goes on.
seen = []


def interrupt(number, frame):
    seen.append(None)
    raise KeyboardInterrupt


signal.signal(signal.SIGINT, interrupt)
del stream
gc.collect()
gc.disable()  # an interrupted call leaves nothing to the collector, which would close it anywhere
for i in range(12):
    seen.clear()

    def fire():
        while len(seen) < i or not _calls._at_work:
            time.sleep(0)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=fire)
    thread.start()
    error_of(lambda: model.generate("to be", tokens=1 << 40, on_token=seen.append), KeyboardInterrupt)
    thread.join()
    assert seen.index(None) == len(seen) - 1 >= i, seen
    assert signal.getsignal(signal.SIGINT) is interrupt
    assert not any(isinstance(other, _text.Stream) for other in gc.get_objects()), "held by a cycle"
gc.enable()
assert model.generate("to be", tokens=40, temperature=0) == greedy

for options, words in (
    ({"prompt": "a", "ids": [1]}, "either a prompt or ids"), ({}, "either a prompt or ids"), ({"prompt": 3}, "prompt: got 3"),
    ({"prompt": "to", "tokens": -1}, "tokens: got -1"), ({"prompt": "to", "top_p": 2}, "top_p"),
    ({"prompt": "to", "seed": 1 << 70}, "seed: got"), ({"prompt": "to", "kv": "fp8"}, "expected fp32, bf16, int8 or none"),
    ({"ids": [1 << 40]}, "ids: got"), ({"ids": [known]}, f"the model has ids 0 .. {known - 1}"),
    ({"prompt": "to", "stop": ""}, "stop"), ({"prompt": b"to"}, "got bytes"), ({"prompt": "to", "samples": 0}, "samples"),
):  # fmt: skip
    assert words in error_of(lambda: model.generate(**options)), (options, words)
assert "prompt: " in error_of(lambda: model.generate("\u4e2d"), bitgrad.DataError)

# Pickled and copied by the bytes of the model file; what cannot be says what to do.
for other in (pickle.loads(pickle.dumps(model)), copy.copy(model), copy.deepcopy({"m": model})["m"]):
    assert other.predict(rows).tolist() == before and other.info["file"] == model.info["file"]
    assert other.generate("to be", tokens=40, temperature=0) == greedy and other.output == model.output
stream = model.stream("to be", tokens=3)
assert "numpy.array(a) and a.tolist()" in error_of(lambda: pickle.dumps(model.predict(rows)), TypeError)
assert "pickle its result" in error_of(lambda: copy.copy(stream), TypeError)
assert pickle.loads(pickle.dumps(greedy)) == greedy

# Adapters: trained over frozen codes, saved, attached to the base again, merged.
random.seed(3)
x = [[random.uniform(-1, 1) for _ in range(16)] for _ in range(60)]
y = [int(sum(row) > 0) + 2 * int(row[0] > 0) for row in x]
base = {
    "version": 1,
    "data": {"train": {"format": "memory"}},
    "model": {"layers": [{"linear": {"out": 8}}, {"relu": {}}, {"linear": {"out": 4}}]},
    "batch": {"global": 20},
    "optim": {"name": "adam", "lr": 0.02},
    "train": {"stop": "10 epochs"},
}
trainer = bitgrad.Trainer(base, x, y)
trainer.run(None, progress=False)
trainer.save(folder / "base.safetensors")
tuned = copy.deepcopy(base)
tuned["model"]["init_from"] = str(folder / "base.safetensors")
tuned["adapters"] = {"rank": 2, "alpha": 4}
lora = bitgrad.Trainer(tuned, x, y)
lora.run(None, progress=False)
lora.save(folder / "lora.safetensors")
with_adapters = bitgrad.open(folder / "lora.safetensors")
with_adapters.save_adapters(folder / "adapters")
assert (folder / "adapters" / "adapter_config.json").exists()
tuned["adapters"]["init_from"] = str(folder / "adapters")
attached = bitgrad.Learner(tuned, (16,), 4, epoch_samples=60)
expected = with_adapters.predict(x).tolist()
assert near(attached.predict(x).tolist(), expected)
assert not near(bitgrad.open(folder / "base.safetensors").predict(x).tolist(), expected)
with_adapters.merge_adapters(folder / "merged.safetensors", to_float=True)
assert near(bitgrad.open(folder / "merged.safetensors").predict(x).tolist(), expected)
assert "the model was opened from" in error_of(lambda: with_adapters.merge_adapters(folder / "lora.safetensors"))
assert "no adapters" in error_of(lambda: bitgrad.open(folder / "base.safetensors").save_adapters(folder / "none"))
for kind in (attached, lora):
    assert "save(path) writes a checkpoint" in error_of(lambda: pickle.dumps(kind), TypeError)
    assert "copied" in error_of(lambda: copy.deepcopy(kind), TypeError)
assert "not a language model" in error_of(lambda: with_adapters.generate(ids=[1]))
assert "numpy" not in sys.modules
print(json.dumps({"greedy": greedy.text, "texts": [text.text for text in texts], "ids": ids.ids}))
