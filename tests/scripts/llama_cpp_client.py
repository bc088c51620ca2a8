"""Greedy tokens and tokenized texts of a GGUF file in llama.cpp (pip package xllamacpp).

  python llama_cpp_client.py MODEL.gguf VOCABULARY TOKENS REQUEST.json

REQUEST.json: {"prompts": [[id, ...], ...], "texts": [text, ...]}. Writes JSON: {"answers": [{"ids": [...], "logprobs":
[[of each id] a token]} for each prompt], "texts": [{"ids": [...], "text": what these ids say} for each text]}.
Exit status 77: the package is not installed. Keys and values in fp32 and no flash attention, so that the weights and
their inputs are all that is rounded.
"""
import json
import os
import sys
import urllib.request

try:
    import xllamacpp as xl
except ImportError:
    sys.exit(77)

path, vocabulary, tokens = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with open(sys.argv[4]) as file:
    request = json.load(file)
out = os.dup(1)
os.dup2(2, 1)  # what the client logs is no answer

params = xl.CommonParams()
params.model.path, params.n_parallel, params.warmup, params.fit_params, params.verbosity = path, 1, False, False, 0
params.n_ctx = max(len(p) for p in request["prompts"]) + tokens
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.cache_type_k = params.cache_type_v = xl.ggml_type.GGML_TYPE_F32
params.flash_attn_type = xl.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
server = xl.Server(params)


def complete(ids):
    answer = server.handle_completions({"prompt": ids, "n_predict": tokens, "temperature": 0, "n_probs": vocabulary,
                                        "cache_prompt": False, "ignore_eos": True})
    answer = json.loads(answer) if isinstance(answer, (str, bytes)) else answer
    answer = answer["choices"][0] if "choices" in answer else answer
    steps = answer.get("completion_probabilities") or answer["logprobs"]["content"]
    rows = []
    for step in steps:
        row = [None] * vocabulary
        for token in step["top_logprobs"]:
            row[token["id"]] = token["logprob"]
        rows.append(row)
    # Of equal numbers the first: the server sorts.
    return {"ids": [step["id"] for step in steps], "logprobs": rows}


def ask(path, body):
    headers = {"Content-Type": "application/json"}
    question = urllib.request.Request(server.listening_address + path, json.dumps(body).encode(), headers)
    return json.loads(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(question).read())


def tokenize(text):
    ids = ask("/tokenize", {"content": text})["tokens"]
    return {"ids": ids, "text": ask("/detokenize", {"tokens": ids})["content"]}


answer = {"answers": [complete(p) for p in request["prompts"]], "texts": [tokenize(t) for t in request["texts"]]}
os.write(out, (json.dumps(answer) + "\n").encode())
