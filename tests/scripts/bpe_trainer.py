"""usage: bpe_trainer.py CASES.json [PATTERN]: what the Python package tokenizers makes of the same texts.

CASES: [{"texts": [paths], "file": the tokenizer.json to compare with, "special": [...], "vocabulary": N}]. Prints a line
for each: "equal", or what differs. The pre-tokenizer and normalizer are those of the file. PATTERN, if given, is a text
whose ids by the file are printed in a last line. Exits with 77 without the package.
"""
import json
import sys

try:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
except ImportError:
    sys.exit(77)


def compared(case):
    ours = json.load(open(case["file"], encoding="utf-8"))["model"]
    opened = Tokenizer.from_file(case["file"])
    peer = Tokenizer(models.BPE())
    if opened.normalizer is not None:
        peer.normalizer = opened.normalizer
    peer.pre_tokenizer = opened.pre_tokenizer
    texts = [open(path, encoding="utf-8", newline="").read() for path in case["texts"]]
    peer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=case["vocabulary"], special_tokens=case["special"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    theirs = json.loads(peer.to_str())["model"]
    if ours["vocab"] != theirs["vocab"]:
        own = sorted(set(ours["vocab"].items()) ^ set(theirs["vocab"].items()), key=lambda item: item[1])
        return f"vocabularies of {len(ours['vocab'])} and {len(theirs['vocab'])} differ: {own[:6]}"
    if ours["merges"] != theirs["merges"]:
        first = next((i for i, (a, b) in enumerate(zip(ours["merges"], theirs["merges"])) if a != b), "the last")
        return f"{len(ours['merges'])} and {len(theirs['merges'])} merges differ from {first} on"
    for text in texts:
        if opened.encode(text, add_special_tokens=False).ids != peer.encode(text, add_special_tokens=False).ids:
            return "the ids of a text differ"
    return "equal"


cases = json.load(open(sys.argv[1], encoding="utf-8"))
for case in cases:
    print(compared(case))
if len(sys.argv) > 2:
    opened = Tokenizer.from_file(cases[0]["file"])
    print(" ".join(map(str, opened.encode(sys.argv[2], add_special_tokens=False).ids)))
