"""Reads PTX text: entries, parameters, shared variables, statements and operands.

PTX ISA, chapters "Syntax" and "State Spaces, Types, and Variables". Statements become records of `Instruction`; nothing is
executed here. What the reader does not know is a `Fault`.
"""
import dataclasses
import re

from memory import Fault

# Operands.
Register = dataclasses.make_dataclass("Register", ["index"], frozen=True)
Immediate = dataclasses.make_dataclass("Immediate", ["value"], frozen=True)
Symbol = dataclasses.make_dataclass("Symbol", ["name", "offset"], frozen=True)
Special = dataclasses.make_dataclass("Special", ["name"], frozen=True)
Vector = dataclasses.make_dataclass("Vector", ["items"], frozen=True)
Address = dataclasses.make_dataclass("Address", ["base", "offset"], frozen=True)
TensorAddress = dataclasses.make_dataclass("TensorAddress", ["base", "coordinates"], frozen=True)
Pair = dataclasses.make_dataclass("Pair", ["first", "second"], frozen=True)  # d|p
SINK = "_"

SPECIAL = re.compile(r"%(?:(?:tid|ntid|ctaid|nctaid)\.[xyz]|laneid|cluster_ctarank)")
BITS = {"pred": 1, "b8": 8, "u8": 8, "s8": 8, "b16": 16, "u16": 16, "s16": 16, "b32": 32, "u32": 32, "s32": 32, "f32": 32,
        "b64": 64, "u64": 64, "s64": 64, "bf16x2": 32}
EVERY_BIT = (1 << 64) - 1


@dataclasses.dataclass
class Instruction:
    """One statement. `parts` are the pieces of the opcode between dots, without its first one, `base`."""
    text: str
    op: str
    base: str
    parts: tuple
    guard: tuple  # (register, negated), or None
    operands: list
    label: tuple = None  # of a branch: its name and the scopes around it
    target: int = -1
    run: object = None  # what executes it, None if no one does

    @property
    def type(self):
        return self.parts[-1]

    @property
    def bits(self):
        return BITS[self.parts[-1]]


@dataclasses.dataclass
class Entry:
    """The text of a kernel in a PTX file."""
    name: str
    head: str  # parameters and performance directives
    body: str
    begin: int  # where the body begins in the file's text, behind its brace
    module: str  # what the file has before its first entry


def without_comments(text):
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    return re.sub(r"//[^\n]*", "", text)


def find_entry(text, kernel):
    """The entry of which the mangled name holds `kernel`; there must be exactly one."""
    found = [m for m in re.finditer(r"\.entry\s+(\w+)\s*\(", text) if is_named(m[1], kernel)]
    if len(found) != 1:
        raise Fault(f"{len(found)} entries are named {kernel}")
    begin = text.index("{", text.index(")", found[0].end()))
    depth, end = 0, begin
    for brace in re.finditer(r"[{}]", text[begin:]):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            end = begin + brace.start()
            break
    module = text[:re.search(r"\.entry\b", text).start()]
    return Entry(found[0][1], text[found[0].start():begin], text[begin + 1:end], begin + 1, module)


def is_named(mangled, kernel):
    """Itanium names hold an identifier as its length and its letters."""
    name, _, template = kernel.partition("<")
    return f"{len(name)}{name}{template}" in mangled


class Program:
    """A kernel: instructions, the place of every label, parameter and shared variable."""

    def __init__(self, text, kernel, shared_begin):
        entry = find_entry(without_comments(text), kernel)
        self.name = kernel
        threads = re.search(r"\.maxntid\s+(\d+)", entry.head)
        self.threads = int(threads[1]) if threads else None
        self.parameters, self.parameter_bytes = parameters_of(entry.head)
        self.shared, self.dynamic_at = shared_variables(entry, shared_begin)
        self.registers = {}
        self.instructions, self.labels = [], {}
        Reader(self, entry.body).read()
        for instruction in self.instructions:
            if instruction.label is not None:
                instruction.target = self.place_of(*instruction.label)

    def place_of(self, name, scopes):
        for scope in reversed(scopes):
            if (scope, name) in self.labels:
                return self.labels[scope, name]
        raise Fault(f"no label {name}")


def parameters_of(head):
    """Offsets of parameters by name, and the bytes of all (PTX ISA, "Kernel Function Parameters")."""
    offsets, at = {}, 0
    pattern = r"\.param\s+(?:\.align\s+(\d+)\s+\.b8\s+(\w+)\[(\d+)\]|\.[busf](\d+)(?:\s+\.ptr[^,)]*?)?\s+(\w+)\s*[,)\n])"
    found = list(re.finditer(pattern, head))
    if len(found) != len(re.findall(r"\.param\b", head)):
        raise Fault("a kernel parameter of a form that is not known")
    for m in found:
        size = int(m[3]) if m[1] else int(m[4]) // 8
        align = int(m[1]) if m[1] else size
        at = (at + align - 1) // align * align
        offsets[m[2] if m[1] else m[5]] = at
        at += size
    return offsets, at


def shared_variables(entry, begin):
    """Addresses of shared variables by name, and where dynamic shared memory begins: on its declared alignment, no more."""
    addresses, at, dynamic = {}, begin, None
    for m in re.finditer(r"(\.extern\s+)?\.shared\s+\.align\s+(\d+)\s+\.b8\s+([\w$]+)\[(\d*)\]", entry.module + entry.body):
        align = int(m[2])
        if m[1]:
            dynamic = (m[3], align)
        elif m[3] in entry.body:
            at = (at + align - 1) // align * align
            addresses[m[3]] = at
            at += int(m[4])
    if dynamic is not None:
        at = (at + dynamic[1] - 1) // dynamic[1] * dynamic[1]
        addresses[dynamic[0]] = at
    return addresses, at


class Reader:
    """Reads a body into its program: statements end with ';', braces at their begin open and close scopes of names."""
    LABEL = re.compile(r"\s*([\w$]+):(?!:)")
    STATEMENT = re.compile(r"\s*([^;]*);")
    REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+(.*)", re.S)

    def __init__(self, program, body):
        self.program, self.body = program, body
        self.scopes, self.serial = [0], 0
        self.prefixes, self.names = set(), set()  # of registers: "%r", and (scope, name)

    def read(self):
        at = 0
        while at < len(self.body):
            first = self.body[at]
            if first.isspace():
                at += 1
            elif first == "{":
                self.serial += 1
                self.scopes.append(self.serial)
                at += 1
            elif first == "}":
                self.scopes.pop()
                at += 1
            elif m := self.LABEL.match(self.body, at):
                self.program.labels[self.scopes[-1], m[1]] = len(self.program.instructions)
                at = m.end()
            elif m := self.STATEMENT.match(self.body, at):
                self.statement(m[1].strip())
                at = m.end()
            else:
                raise Fault(f"a statement without an end: {self.body[at:at + 60]}")

    def statement(self, text):
        if m := self.REGISTERS.match(text):
            for name in m[2].split(","):
                counted = re.fullmatch(r"(%\w+?)<\d+>", name.strip())
                if counted:
                    self.prefixes.add(counted[1])
                else:
                    self.names.add((self.scopes[-1], name.strip()))
        elif text.startswith("."):
            if not text.startswith((".shared", ".pragma")):
                raise Fault(f"unknown directive {text}")
        else:
            self.program.instructions.append(self.instruction(text))

    def instruction(self, text):
        guard, rest = None, text
        if m := re.match(r"@(!?)([%\w]+)\s+", text):
            guard, rest = (self.register(m[2]).index, bool(m[1])), text[m.end():]
        op, *tail = rest.split(None, 1)
        base, *parts = op.split(".")
        operands = split_operands("".join(tail))
        if base == "bra":
            return Instruction(text, op, base, tuple(parts), guard, [], (operands[0], list(self.scopes)))
        return Instruction(text, op, base, tuple(parts), guard, [self.operand(x) for x in operands])

    def register(self, name):
        for scope in reversed(self.scopes):
            if (scope, name) in self.names:
                return self.numbered((scope, name))
        m = re.fullmatch(r"(%[A-Za-z]+)\d+", name)
        if m is None or m[1] not in self.prefixes:
            raise Fault(f"unknown name {name}")
        return self.numbered(name)

    def numbered(self, key):
        registers = self.program.registers
        return Register(registers.setdefault(key, len(registers)))

    def operand(self, text):
        if text.startswith("{"):
            return Vector(tuple(self.operand(x) for x in split_operands(text[1:-1])))
        if text.startswith("["):
            return self.address(text[1:-1].strip())
        if "|" in text:
            return Pair(*(self.operand(x.strip()) for x in text.split("|")))
        if text == SINK:
            return SINK
        if SPECIAL.fullmatch(text):
            return Special(text[1:])
        if re.fullmatch(r"0[fF][0-9A-Fa-f]{8}", text):
            return Immediate(int(text[2:], 16))
        if re.fullmatch(r"-?(0[xX][0-9A-Fa-f]+|\d+)U?", text):
            return Immediate(int(text.rstrip("U"), 0) & EVERY_BIT)
        name, _, offset = text.partition("+")
        if name in self.program.parameters or name in self.program.shared:
            return Symbol(name, int(offset or "0", 0))
        return self.register(text)

    def address(self, text):
        if "{" in text:
            base, _, coordinates = text.partition(",")
            return TensorAddress(self.operand(base.strip()), self.operand(coordinates.strip()))
        base, _, offset = text.partition("+")
        return Address(self.operand(base.strip()), int(offset.strip() or "0", 0))


def split_operands(text):
    """At the commas outside of braces and brackets."""
    operands, depth, current = [], 0, ""
    for c in text:
        depth += (c in "{[") - (c in "}]")
        if c == "," and depth == 0:
            operands.append(current.strip())
            current = ""
        else:
            current += c
    if current.strip():
        operands.append(current.strip())
    return operands
