"""Logits of a folder of Hugging Face with adapters of PEFT: peft_logits.py IDS.json BASE ADAPTERS SAVED.

Writes a JSON list [samples][rows][ids] to standard output, and the adapters as PEFT saves them to SAVED. Exit status 77:
no peft, transformers or torch.
"""
import json
import sys

try:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM
except ImportError:
    sys.exit(77)

with open(sys.argv[1]) as file:
    ids = torch.tensor(json.load(file))
model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(sys.argv[2], dtype=torch.float32), sys.argv[3])
model.eval()
with torch.no_grad():
    logits = model(ids).logits
model.save_pretrained(sys.argv[4])
json.dump(logits.tolist(), sys.stdout)
