"""bitgrad.tokenize_chat beside transformers, and a run on what it wrote: python_chat.py FOLDER BITGRAD TOKENIZER.json

Exit status 77: no numpy or no transformers.
"""
import json
import pathlib
import random
import subprocess
import sys

try:
    import numpy as np
    from transformers import PreTrainedTokenizerFast
except ImportError:
    sys.exit(77)
import bitgrad

folder, program, file = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
tokenizer = PreTrainedTokenizerFast(tokenizer_file=file)
MARKED = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' %}{% generation %}"
    "{{ m.content + '<|im_end|>' }}{% endgeneration %}{% else %}{{ m.content + '<|im_end|>' }}{% endif %}{{ '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
PLAIN = MARKED.replace("{% generation %}", "").replace("{% endgeneration %}", "")
# What no table of roles says: the system text is part of the first turn.
MERGED = (
    "{% set first = messages[0].content + ' ' if messages[0].role == 'system' else '' %}"
    "{% for m in messages if m.role != 'system' %}[{{ m.role }}]{{ (first if loop.first else '') + m.content }}[end]"
    "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}")
CHANGING = "{% for m in messages %}{{ m.role + m.content + ('!' if loop.last else ';') }}{% endfor %}"

draw = random.Random(5)
conversations = []
for _ in range(40):
    text = lambda: "".join(draw.choice("abc de<|im_end|>\n.") for _ in range(draw.randrange(1, 12))) + "x"
    turns = [{"role": "system", "content": text()}] if draw.random() < 0.4 else []
    for _ in range(draw.randrange(1, 4)):
        turns += [{"role": "user", "content": text()}, {"role": "assistant", "content": text()}]
    conversations.append(turns)
half = len(conversations) // 2
for name, part in (("a.jsonl", conversations[:half]), ("b.jsonl", conversations[half:])):
    (folder / name).write_text("".join(json.dumps({"messages": turns}) + "\n" for turns in part) + "\n")
files = [folder / "a.jsonl", str(folder / "b.jsonl")]


def wrote(template, **more):
    tokenizer.chat_template = template
    found = bitgrad.tokenize_chat(files, tokenizer, folder / "set.npz", **more)
    arrays = np.load(folder / "set.npz")
    ids, labels = arrays["ids"].tolist(), arrays["labels"].tolist()
    assert found == {"conversations": 40, "ids": len(ids), "targets": sum(x != -100 for x in labels)}, found
    assert all(label in (-100, i) for i, label in zip(ids, labels))
    return ids, labels


def refused(call, kind, text):
    try:
        call()
    except kind as error:
        assert text in str(error), error
        return
    raise AssertionError(f"not refused: {text}")


# Without the tags it finds what the tags mark.
ids, labels = wrote(MARKED)
expected = []
for turns in conversations:
    row = tokenizer.apply_chat_template(turns, return_dict=True, return_assistant_tokens_mask=True)
    expected += [i if m else -100 for i, m in zip(row["input_ids"], row["assistant_masks"])]
assert labels == expected
plain_ids, plain = wrote(PLAIN)
assert plain_ids == ids
assert plain == labels
assert wrote(PLAIN, loss_on="all") == (ids, ids)

# The last answer alone, by hand.
last_ids, last = wrote(MERGED, loss_on="last_answer")
by_hand = []
for turns in conversations:
    answer = turns[-1]["content"] + "[end]"
    row = tokenizer(tokenizer.apply_chat_template(turns, tokenize=False), add_special_tokens=False,
                    return_offsets_mapping=True)
    end = row["offset_mapping"][-1][1]
    by_hand += [i if stop > end - len(answer) else -100 for i, (_, stop) in zip(row["input_ids"], row["offset_mapping"])]
assert last == by_hand

refused(lambda: wrote(CHANGING), bitgrad.DataError, "a.jsonl, line 1, message")
refused(lambda: wrote(PLAIN, loss_on="some"), bitgrad.UsageError, "loss_on: got 'some', expected answers, last_answer or all")
refused(lambda: wrote(None), bitgrad.UsageError, "got one without a chat_template")
(folder / "bad.jsonl").write_text('{"messages": []}\n')
refused(lambda: bitgrad.tokenize_chat(folder / "bad.jsonl", tokenizer, folder / "n.npz"), bitgrad.UsageError, "chat_template")
tokenizer.chat_template = PLAIN
refused(lambda: bitgrad.tokenize_chat(folder / "bad.jsonl", tokenizer, folder / "n.npz"), bitgrad.DataError,
        "bad.jsonl, line 1: got no conversation")
(folder / "bad.jsonl").write_text('\n{"messages": \n')
refused(lambda: bitgrad.tokenize_chat(folder / "bad.jsonl", tokenizer, folder / "n.npz"), bitgrad.DataError, "bad.jsonl, line 2")
(folder / "bad.jsonl").write_text("\n")
refused(lambda: bitgrad.tokenize_chat(folder / "bad.jsonl", tokenizer, folder / "n.npz"), bitgrad.DataError, "got no conversation")

# A run reads it.
wrote(PLAIN)
(folder / "c.yaml").write_text(f"""version: 1
data: {{tokenizer: {file}, train: {{format: tokens, stored: npz, file: set.npz, context: 16}}}}
model: {{preset: llama, keys: {{layers: 1, heads: 2, dim: 16, ffn: 32}}}}
batch: {{global: 4}}
optim: {{name: adamw, lr: 0.01}}
train: {{stop: 2 steps}}
""")
subprocess.run([program, "train", folder / "c.yaml", "-q", "--data", folder, "--out", folder / "run"], check=True)
