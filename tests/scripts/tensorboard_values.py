"""The scalars of a folder of event files, as TensorBoard reads them (pip package tensorboard).

  python tensorboard_values.py FOLDER

Writes JSON: {tag: [[step, value], ...]}. Exit status 77: the package is missing.
"""
import json
import sys

try:
    from tensorboard.backend.event_processing import event_accumulator
except ImportError:
    sys.exit(77)

events = event_accumulator.EventAccumulator(sys.argv[1], size_guidance={event_accumulator.SCALARS: 0, event_accumulator.TENSORS: 0})
events.Reload()
out = {tag: [[e.step, e.value] for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
json.dump(out, sys.stdout)
