"""Checks the JSON Schema that `bitgrad schema` prints: it accepts every shipped configuration and no mutated one.

usage: schema_check.py SCHEMA CONFIG_DIR; exits with 77 where jsonschema or PyYAML is missing.
"""
import copy
import json
import pathlib
import sys

try:
    import jsonschema
    import yaml
except ImportError as missing:
    print(missing)
    sys.exit(77)


class Loader(yaml.SafeLoader):
    """Words stay words, as in YAML 1.2: off is no boolean."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, regex) for tag, regex in resolvers if tag != 'tag:yaml.org,2002:bool']
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver('tag:yaml.org,2002:bool', __import__('re').compile('^(true|false)$'), 'tf')


def maps_of(node, path=()):
    """Every map with its path; the values of keys and rename have names of their own."""
    if isinstance(node, dict):
        yield path
        for key, value in node.items():
            if key not in ('keys', 'rename', 'blocks'):
                yield from maps_of(value, path + (key,))
    if isinstance(node, list):
        for i, item in enumerate(node):
            yield from maps_of(item, path + (i,))


def at(node, path):
    for part in path:
        node = node[part]
    return node


def mutants(config):
    """One fault each: a key misspelt in every map, required keys removed, values of another type."""
    blocks = config.get('model', {}).get('blocks') or {}
    for path in maps_of(config):
        if not at(config, path) or set(path) & set(blocks):
            continue  # keys of a block
        if blocks and path and isinstance(path[-1], int) and 'layers' in path:
            continue  # beside blocks any word may be the name of one
        wrong = copy.deepcopy(config)
        map_ = at(wrong, path)
        key = next(iter(map_))
        map_[key + 'x'] = map_.pop(key)
        yield '.'.join(map(str, path + (key,))) + ' misspelt', wrong
    for path in (('version',), ('data', 'train'), ('model',), ('optim', 'name'), ('optim', 'lr'), ('train', 'stop')):
        wrong = copy.deepcopy(config)
        del at(wrong, path[:-1])[path[-1]]
        yield '.'.join(path) + ' missing', wrong
    for path, value in ((('version',), 2), (('optim', 'lr'), 'fast'), (('optim', 'lr'), -1), (('train', 'stop'), 3),
                        (('train', 'stop'), '3 weeks'), (('optim', 'name'), 'adamm'), (('data', 'train', 'format'), 'idxx'),
                        (('data', 'train', 'limit'), -1), (('model',), [])):
        wrong = copy.deepcopy(config)
        at(wrong, path[:-1])[path[-1]] = value
        yield f'{".".join(path)}: {value}', wrong


def main():
    schema = json.loads(pathlib.Path(sys.argv[1]).read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    validator = jsonschema.Draft7Validator(schema)
    configs = sorted(pathlib.Path(sys.argv[2]).glob('*.yaml'))
    tried = failed = 0
    for path in configs:
        # bitgrad reads the comma of uniform(-1,1) as part of the value; other readers want quotes there.
        text = path.read_text().replace('init: uniform(-1,1)', 'init: "uniform(-1,1)"')
        config = yaml.load(text, Loader)
        for error in validator.iter_errors(config):
            print(f'{path.name}: {"/".join(map(str, error.absolute_path))}: {error.message[:300]}')
            failed += 1
        for what, wrong in mutants(config):
            tried += 1
            if validator.is_valid(wrong):
                print(f'{path.name}: accepted with {what}')
                failed += 1
    print(f'{len(configs)} configurations, {tried} mutants, {failed} wrong')
    return 1 if failed or not configs or tried < 10 * len(configs) else 0


sys.exit(main())
