#!/usr/bin/env python3
"""The rival of bench_generate --gguf: one run of llama.cpp (pip package xllamacpp), on the thread that it is given.

    scripts/bench_generate.py MODEL.gguf PROMPT TOKENS VOCABULARY [THREADS]

The prompt is PROMPT ids below VOCABULARY, then TOKENS greedy ones. Prints a JSON object: "engine", and seconds, with one
thread those of the processor: "prompt_s" of the prompt and one token, "decode_s" of TOKENS more. Exit status 77: no such
package.
"""
import importlib.metadata
import json
import os
import resource
import sys
import time

try:
    import xllamacpp as xl
except ImportError:
    print("the Python package xllamacpp is not installed", file=sys.stderr)
    sys.exit(77)

path, prompt, tokens, vocabulary = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
threads = int(sys.argv[5]) if len(sys.argv) > 5 else 1
out = os.dup(1)
os.dup2(2, 1)  # what the client logs is no result

params = xl.CommonParams()
params.model.path, params.n_parallel, params.warmup, params.fit_params, params.verbosity = path, 1, True, False, 0
params.n_ctx = prompt + tokens + 1
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
server = xl.Server(params)
ids = [i * 7 % vocabulary for i in range(prompt)]


def now():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return time.perf_counter() if threads > 1 else usage.ru_utime + usage.ru_stime


def seconds(predict):
    before = now()
    server.handle_completions({"prompt": ids, "n_predict": predict, "temperature": 0, "cache_prompt": False,
                               "ignore_eos": True})
    return now() - before


seconds(1)
first = seconds(1)
row = {"engine": "llama.cpp (xllamacpp " + importlib.metadata.version("xllamacpp") + ")", "prompt_s": first,
       "decode_s": seconds(tokens + 1) - first}
with os.fdopen(out, "w") as file:
    print(json.dumps(row), file=file)
os._exit(0)
