#!/usr/bin/env python3
"""Makes the files of this folder with the Python packages tokenizers 0.23 and sentencepiece 0.2.

usage: make.py            the small tokenizers, text.txt, ids.json, and trained.json: what BpeTrainer makes
                          of text.txt
       make.py --big DIR  the same, and in DIR a text of 1 MB with its ids by each tokenizer (NAME.ids, int32), to
                          compare with `bitgrad tokenize`
Ids are those without special tokens added at the ends (add_special_tokens=False).
"""
import array
import io
import json
import pathlib
import random
import sys
import unicodedata

import sentencepiece
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).parent
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
WORDS = ("the of and to in he was that it his her with as had for she not at on by which be this from is 's I'll "
         "DON'T we've They'D O'Neil naïve façade Ünïcödé Größe straße año привет мир Ελλάδα 你好世界 東京 日本語 한국어 "
         "עברית العربية हिन्दी ไทย 12 345 6789 3.14 1e-9 ٣٤٥ Ⅻ ½ x² a_b foo(bar) {\"k\": [1]} #! // --> … “q” — ’s "
         "🙂 👩‍👩‍👧 🇩🇪 ✨ <|endoftext|> <mask>").split(" ")
SPACES = [" "] * 24 + ["  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n ", "\u00a0", "\u2003", "\u3000", "\u180e", "\u0085"]


def mixed_text(size, seed):
    """Words, drawn characters of the whole of Unicode that this Python knows, and white space."""
    draw = random.Random(seed)
    parts, length = [], 0
    while length < size:
        word = draw.choice(WORDS)
        if draw.random() < 0.06:
            word = unicodedata.normalize(draw.choice(["NFD", "NFKD", "NFC"]), word)
        if draw.random() < 0.04:
            word = ""
            while len(word) < draw.randint(1, 5):
                c = chr(draw.choice([draw.randrange(0x20, 0x800), draw.randrange(0x800, 0xD800),
                                     draw.randrange(0x1F300, 0x1FB00)]))
                if unicodedata.category(c) not in ("Cn", "Cs", "Co"):
                    word += c
        part = word + draw.choice(SPACES)
        parts.append(part)
        length += len(part.encode())
    return "".join(parts)


def bpe(text, vocabulary, normalizer, pre, ignore_merges):
    t = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = pre
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=vocabulary, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|endoftext|>"],
        show_progress=False))
    return t


def split(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def pieces(text, **keys):
    out = io.BytesIO()
    lines = [line for line in text.replace("<|endoftext|>", "").split("\n") if line.strip()]
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=out, num_threads=1,
                                             hard_vocab_limit=False, minloglevel=2, **keys)
    return out.getvalue()


def trained(text):
    """Vocabulary (by id) and merges of BpeTrainer, for each way to split texts of `bitgrad tokenizer train`."""
    special = ["<|endoftext|>", "<|im_start|>", "the"]
    out = {}
    for name, normalizer, pre in [("gpt2", None, pre_tokenizers.ByteLevel(add_prefix_space=False)),
                                  ("qwen2", normalizers.NFC(), split(QWEN2))]:
        t = Tokenizer(models.BPE())
        t.normalizer = normalizer
        t.pre_tokenizer = pre
        t.train_from_iterator([text], trainers.BpeTrainer(
            vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=special,
            show_progress=False))
        model = json.loads(t.to_str())["model"]
        vocab = sorted(model["vocab"], key=model["vocab"].get)
        out[name] = {"special": special, "vocab": vocab, "merges": model["merges"]}
    return out


def main():
    text = mixed_text(5000, 1)
    train = mixed_text(60000, 2)
    made = {
        "gpt2": bpe(train, 480, None, pre_tokenizers.ByteLevel(add_prefix_space=False), False),
        "prefix": bpe(train, 300, normalizers.NFKC(), pre_tokenizers.ByteLevel(add_prefix_space=True), False),
        "llama3": bpe(train, 420, None, split(LLAMA3), True),
        "qwen2": bpe(train, 420, normalizers.NFC(), split(QWEN2), False),
    }
    from tokenizers import AddedToken
    made["gpt2"].add_tokens([AddedToken("<mask>", lstrip=True, rstrip=True), AddedToken("<ma", special=True)])
    made["qwen2"].add_tokens([AddedToken("naïve", normalized=True)])
    models_ = {
        "pieces_bpe": pieces(train, model_type="bpe", vocab_size=700, character_coverage=0.98, byte_fallback=True,
                             normalization_rule_name="identity", remove_extra_whitespaces=False),
        "pieces_unigram": pieces(train, model_type="unigram", vocab_size=500, character_coverage=0.98,
                                 normalization_rule_name="identity"),
    }
    encoders = {}
    for name, t in made.items():
        (HERE / f"{name}.json").write_text(t.to_str())
        encoders[name] = lambda s, t=t: t.encode(s, add_special_tokens=False).ids
    for name, m in models_.items():
        (HERE / f"{name}.model").write_bytes(m)
        p = sentencepiece.SentencePieceProcessor(model_proto=m)
        encoders[name] = p.encode
    (HERE / "text.txt").write_bytes(text.encode())
    (HERE / "trained.json").write_text(json.dumps(trained(text), ensure_ascii=False))
    (HERE / "ids.json").write_text(json.dumps({name: e(text) for name, e in encoders.items()}).replace("], ", "],\n"))
    if len(sys.argv) == 3 and sys.argv[1] == "--big":
        folder = pathlib.Path(sys.argv[2])
        folder.mkdir(parents=True, exist_ok=True)
        big = mixed_text(1 << 20, 3)
        (folder / "big.txt").write_bytes(big.encode())
        nfkc = pieces(train, model_type="bpe", vocab_size=700, character_coverage=0.98, byte_fallback=True)
        (folder / "pieces_nfkc.model").write_bytes(nfkc)
        encoders["pieces_nfkc"] = sentencepiece.SentencePieceProcessor(model_proto=nfkc).encode
        for name, e in encoders.items():
            (folder / f"{name}.ids").write_bytes(array.array("i", e(big)).tobytes())


if __name__ == "__main__":
    main()
