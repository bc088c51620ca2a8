#!/usr/bin/env python3
"""Drawn stand-ins of spoken words, in the shape of MLPerf Tiny's keyword spotting: 49 frames of 10 numbers, 12 classes.

    scripts/drawn_words.py TRAIN.npz TEST.npz [SAMPLES OF TRAIN] [SAMPLES OF TEST]

No sounds: a word is four smooth tracks of 10 numbers. A sample says it in a voice (numbers added to all frames), at a
speed, somewhere in the window, with noise. Class 10 is other words, 11 noise without a word. No voice is in both files.
The same arguments give the same files. Exit status 77: no NumPy.
"""
import sys

try:
    import numpy as np
except ImportError:
    print("the Python package numpy is not installed", file=sys.stderr)
    sys.exit(77)

FRAMES, NUMBERS, WORDS, UNKNOWN, SILENCE = 49, 10, 10, 10, 11
POINTS, OTHERS, VOICES = 5, 40, 200  # points of a track; words of class 10; voices of each file


def tracks(rng, n):
    """n words [n, POINTS, NUMBERS], later numbers smaller, as coefficients of a cosine transform are."""
    return rng.normal(size=(n, POINTS, NUMBERS)) / np.sqrt(1 + np.arange(NUMBERS))


def drawn(rng, words, voices, n):
    labels = np.arange(n) % 12
    x = np.empty((n, FRAMES, NUMBERS, 1), np.float32)
    for i, label in enumerate(labels):
        level = rng.uniform(0.2, 0.6)
        frames = rng.normal(size=(FRAMES, NUMBERS)) * level + voices[rng.integers(len(voices))]
        if label != SILENCE:
            word = words[label] if label < WORDS else words[rng.integers(WORDS, len(words))]
            length = int(rng.integers(20, 38))
            begin = int(rng.integers(0, FRAMES - length + 1))
            at = np.linspace(0, POINTS - 1, length) ** rng.uniform(0.9, 1.1)
            at = np.minimum(at, POINTS - 1)
            loud = rng.uniform(0.7, 1.3)
            for k in range(NUMBERS):
                frames[begin : begin + length, k] += loud * np.interp(at, np.arange(POINTS), word[:, k])
        x[i, :, :, 0] = frames
    return {"images": x, "labels": labels.astype(np.int32)}


def main(arguments):
    if not 2 <= len(arguments) <= 4 or not all(a.isdecimal() and int(a) > 0 for a in arguments[2:]):
        sys.exit(__doc__)
    sizes = [int(a) for a in arguments[2:]]
    rng = np.random.default_rng(1)
    words = tracks(rng, WORDS + OTHERS)
    for file, n in zip(arguments, (sizes + [12000, 3000][len(sizes) :])):
        voices = rng.normal(size=(VOICES, NUMBERS)) * 0.3
        np.savez(file, **drawn(rng, words, voices, n))


main(sys.argv[1:])
