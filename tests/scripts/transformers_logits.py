"""Logits of folders of Hugging Face by its own program (pip packages transformers and torch).

  python transformers_logits.py IDS.json FOLDER...

IDS.json: [[id, ...], ...], all of one length. Writes JSON: for each folder [of each list [after each of its ids [of each
id]]], in fp32. Exit status 77: a package is missing.
"""
import json
import os
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1")
try:
    import torch
    from transformers import AutoModelForCausalLM
except ImportError:
    sys.exit(77)

torch.set_num_threads(1)
with open(sys.argv[1]) as file:
    ids = torch.tensor(json.load(file))
logits = []
with torch.no_grad():
    for folder in sys.argv[2:]:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        logits.append(model(ids).logits.tolist())
json.dump(logits, sys.stdout)
