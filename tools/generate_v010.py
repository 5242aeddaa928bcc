"""Write domains.py, structs.py, controls.py and commands.py of src/harebell/protocol/v010/ from spec/.

    python -m tools.generate_v010            # writes the files
    python -m tools.generate_v010 --check    # exits 1 when a committed file differs

The specification says everything about encodings but four things, which are written by hand: the headers of protocol
and frame, that controls and commands have two octets of packing flags and no size, and that session.header stands
before a command's arguments. Two of its structs are left out: session.header, which is that one octet of flags, and
session.command-fragment, which has no code and so cannot stand in the arrays that are made for it.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

from tools.generated import ROOT, SOURCE, camel, identifier, run, table_of

SPEC = ROOT / "spec" / "amqp.0-10-qpid-errata.stripped.xml"
FOLDER = SOURCE / "harebell" / "protocol" / "v010"
NAMESPACE = "{http://www.amqp.org/schema/amqp.xsd}"

# Required fields that peers leave out, and whose absence means something else than their zero. A broker rejects an
# unroutable message only where accept-mode is there; a tune-ok without channel-max takes what was offered.
OPTIONAL = {
    "message.transfer": {"accept_mode", "acquire_mode"},
    "message.delivery-properties": {"priority", "delivery_mode"},
    "connection.tune-ok": {"channel_max"},
}

FIXED = {"uint8": ("B", 1), "uint16": ("H", 2), "uint32": ("I", 4), "uint64": ("Q", 8), "sequence-no": ("I", 4)}
PYTHON_TYPE = {
    "bit": "bool",
    "str8": "str",
    "str16": "str",
    "vbin8": "bytes",
    "vbin16": "bytes",
    "vbin32": "bytes",
    "uuid": "UUID",
    "datetime": "Timestamp",
    "map": "Map",
    "array": "Sequence[object]",
    "str16-array": "Sequence[object]",
    "sequence-set": "Ranges",
    "struct32": "StructValue",
    **dict.fromkeys(FIXED, "int"),
}
# The types of arguments: wider than those of attributes, because no dict[str, int] is a dict[str, FieldValue].
GIVEN_TYPE = {**PYTHON_TYPE, "map": "MapLike"}
ZERO = {
    "bit": "False",
    "str8": '""',
    "str16": '""',
    "vbin8": 'b""',
    "vbin16": 'b""',
    "vbin32": 'b""',
    "sequence-set": "()",
    **dict.fromkeys(FIXED, "0"),
}
GIVEN_AS_IS = "  # type: ignore[assignment]"


@dataclass
class Field:
    name: str
    type: str  # a type of `PYTHON_TYPE`, or the name of a struct
    required: bool
    default: str | None = None  # of a bit that is set where nothing is said


@dataclass
class Compound:
    kind: str  # control, command or struct
    class_name: str
    name: str
    class_code: int
    code: int | None
    fields: list[Field]
    roles: list[str]
    result: str | None
    header: list[str]
    content: bool

    @property
    def full_name(self) -> str:
        return f"{self.class_name}.{self.name}"

    @property
    def python_name(self) -> str:
        return camel(self.name) if self.kind == "struct" else camel(self.class_name, self.name)

    @property
    def key(self) -> bytes:
        return bytes([self.class_code, self.code or 0])

    @property
    def number(self) -> int:
        return 0 if self.code is None else self.class_code << 8 | self.code


@dataclass
class Enumeration:
    name: str
    full_name: str
    choices: list[tuple[str, int]]


class Spec:
    """The specification: its compounds in order, its enumerations, its constants."""

    def __init__(self) -> None:
        self.compounds: list[Compound] = []
        self.enumerations: list[Enumeration] = []
        self.types: dict[str, int | None] = {}
        root = ET.parse(SPEC).getroot()
        for element in root.iter():
            element.tag = element.tag.removeprefix(NAMESPACE)
        self.constants = [(c.attrib["name"], int(c.attrib["value"])) for c in root.findall("constant")]
        self._types = {t.attrib["name"] for t in root.findall("type")}
        self._domains = {d.attrib["name"]: d.attrib["type"] for d in root.findall("domain")}
        self._structs: dict[str, Compound] = {}
        for domain in root.findall("domain"):
            self._enumeration(domain, "")
        for cls in root.findall("class"):
            class_name = cls.attrib["name"]
            for domain in cls.findall("domain"):
                self._domains[f"{class_name}.{domain.attrib['name']}"] = domain.attrib["type"]
                self._enumeration(domain, class_name)
        for cls in root.findall("class"):
            for struct in cls.iter("struct"):
                if struct.attrib["pack"] != "2":
                    continue
                self._structs[f"{cls.attrib['name']}.{struct.attrib['name']}"] = self._compound(cls, struct)
        for cls in root.findall("class"):
            for kind in ("control", "command"):
                self.compounds += [self._compound(cls, element) for element in cls.findall(kind)]
        self.compounds += self._structs.values()

    def _enumeration(self, domain: ET.Element, class_name: str) -> None:
        choices = [(c.attrib["name"], int(c.attrib["value"], 0)) for c in domain.iter("choice")]
        if choices:
            name = domain.attrib["name"]
            taken = class_name in ("file", "stream")  # both have a return-code
            full_name = f"{class_name}.{name}" if class_name else name
            self.enumerations.append(Enumeration(camel(class_name, name) if taken else camel(name), full_name, choices))

    def _resolve(self, name: str, class_name: str) -> str:
        """The type behind a field's type, which may be a domain of its class, of another one, or a struct."""
        for candidate in (f"{class_name}.{name}", name):
            if candidate in self._domains and candidate != "str16-array":
                base = self._domains[candidate]
                return base if base in self._types or base == "str16-array" else self._resolve(base, class_name)
            if candidate in self._structs or self._is_struct(candidate):
                return candidate
        return name

    def _is_struct(self, name: str) -> bool:
        return name in ("message.reply-to", "dtx.xid")

    def _compound(self, cls: ET.Element, element: ET.Element) -> Compound:
        class_name, name = cls.attrib["name"], element.attrib["name"]
        full_name = f"{class_name}.{name}"
        fields = []
        for f in element.findall("field"):
            own = identifier(f.attrib["name"])
            required = f.attrib.get("required") == "true" and own not in OPTIONAL.get(full_name, ())
            default = "True" if f.attrib.get("default") == "1" else None
            fields.append(Field(own, self._resolve(f.attrib["type"], class_name), required, default))
        result = element.find("result")
        answer = None
        if result is not None:
            inner = result.find("struct")
            answer = inner.attrib["name"] if inner is not None else result.attrib["type"]
        code = element.attrib.get("code")
        return Compound(
            element.tag,
            class_name,
            name,
            int(cls.attrib["code"], 0),
            int(code, 0) if code is not None else None,
            fields,
            [i.attrib["role"] for i in element.findall("implement")],
            answer,
            [e.attrib["type"] for e in element.findall("segments/header/entry")],
            element.find("segments") is not None,
        )


def annotation(f: Field, given: bool) -> str:
    types = GIVEN_TYPE if given else PYTHON_TYPE
    return types.get(f.type) or camel(f.type.partition(".")[2])


def zero(f: Field) -> str:
    """The value of a required field that is absent."""
    if f.type in ZERO:
        return ZERO[f.type]
    return "[]" if f.type.endswith("array") else f"{annotation(f, False)}()"


def write_value(f: Field) -> str:
    """The expression for a field's bytes."""
    value = f"self.{f.name}"
    if f.type in FIXED:
        return f'write_number({value}, _{FIXED[f.type][0]}, "{f.name}")'
    known = f.type if f.type in PYTHON_TYPE else "struct"
    return f'write_{known.replace("-", "_")}({value}, "{f.name}")'


def write_init(compound: Compound) -> list[str]:
    fields, command = compound.fields, compound.kind == "command"
    arguments = []
    for f in fields:
        if f.type == "bit":
            arguments.append(f"{f.name}: bool = {f.default or 'False'}")
        elif f.required:
            default = zero(f) if f.type in ZERO else "None"
            optional = "" if f.type in ZERO else " | None"
            arguments.append(f"{f.name}: {annotation(f, True)}{optional} = {default}")
        else:
            arguments.append(f"{f.name}: {annotation(f, True)} | None = None")
    if command:
        arguments += ["*", "sync: bool = False"] if fields else ["sync: bool = False"]
    if not arguments:
        return []
    lines = ["    def __init__(", "        self,", *[f"        {a}," for a in arguments], "    ) -> None:"]
    for f in fields:
        value, note, ignore = f.name, "", ""
        if annotation(f, True) != annotation(f, False):
            note, ignore = f": {annotation(f, False)}{'' if f.required else ' | None'}", GIVEN_AS_IS
        if f.required and f.type not in ZERO:
            value = f"{f.name} if {f.name} is not None else {zero(f)}"
        lines.append(f"        self.{f.name}{note} = {value}{ignore}")
    if command:
        lines.append("        self.sync = sync")
    return ["", *lines]


def flag_of(index: int) -> str:
    return f"{1 << index:#06x}"


def write_encode(compound: Compound) -> list[str]:
    head = b"" if compound.kind == "struct" else compound.key
    lines = ["", "    def encode(self) -> bytes:"]
    always = sum(1 << i for i, f in enumerate(compound.fields) if f.required and f.type != "bit")
    if compound.kind == "command":
        lines.append(f"        head = {head + bytes([1, 1])!r} if self.sync else {head + bytes([1, 0])!r}")
        prefix = "head + "
    else:
        prefix = f"{head!r} + " if head else ""
    flags = "_FLAGS.pack(flags)"
    if not compound.fields:
        return [*lines, f'        return {prefix}b"\\0\\0"']
    if all(f.required and f.type != "bit" for f in compound.fields):
        values = [repr(always.to_bytes(2, "little")), *[write_value(f) for f in compound.fields]]
        first = "head, " if compound.kind == "command" else (f"{head!r}, " if head else "")
        return [*lines, f'        return b"".join(({first}{", ".join(values)}))']
    bits = [f for f in compound.fields if f.type == "bit"]
    if len(bits) == len(compound.fields):
        lines.append("        flags = 0")
        for i, f in enumerate(compound.fields):
            lines += [f"        if self.{f.name}:", f"            flags |= {flag_of(i)}"]
        return [*lines, f"        return {prefix}{flags}"]
    lines += [f"        flags = {always:#06x}", '        pieces = [b""]']
    for i, f in enumerate(compound.fields):
        if f.type == "bit":
            lines += [f"        if self.{f.name}:", f"            flags |= {flag_of(i)}"]
        elif f.required:
            lines.append(f"        pieces.append({write_value(f)})")
        else:
            lines += [f"        if self.{f.name} is not None:", f"            flags |= {flag_of(i)}"]
            lines.append(f"            pieces.append({write_value(f)})")
    return [*lines, f"        pieces[0] = {prefix}{flags}", '        return b"".join(pieces)']


def read_value(f: Field) -> list[str]:
    target = f"self.{f.name}"
    if f.type in FIXED:
        letter, size = FIXED[f.type]
        if size == 1:
            return [f"{target} = data[at]", "at += 1"]
        return [f"{target} = _{letter}.unpack_from(data, at)[0]", f"at += {size}"]
    if f.type in PYTHON_TYPE:
        kind = "array" if f.type == "str16-array" else f.type.replace("-", "_")
        return [f"{target}, at = read_{kind}(data, at)"]
    return [f"{target}, at = read_struct({annotation(f, False)}, data, at)"]


def write_decode(compound: Compound) -> list[str]:
    struct = compound.kind == "struct"
    lines = ["", "    @classmethod"]
    lines.append(f"    def decode(cls, data: bytes{', at: int = 0' if struct else ''}) -> {compound.python_name}:")
    lines.append("        self = cls.__new__(cls)")
    start = {"control": 2, "command": 4, "struct": 0}[compound.kind]
    if compound.kind == "command":
        lines += ["        self.sync = read_sync(data)"]
    if struct:
        lines += ["        flags = data[at] | data[at + 1] << 8", "        at += 2"]
    else:
        lines += [f"        flags = data[{start}] | data[{start + 1}] << 8"]
        if any(f.type != "bit" for f in compound.fields):
            lines += [f"        at = {start + 2}"]
    for i, f in enumerate(compound.fields):
        if f.type == "bit":
            lines.append(f"        self.{f.name} = flags & {flag_of(i)} != 0")
        else:
            absent = zero(f) if f.required else "None"
            lines += [f"        if flags & {flag_of(i)}:", *[f"            {line}" for line in read_value(f)]]
            lines += ["        else:", f"            self.{f.name} = {absent}"]
    where = "at" if struct or any(f.type != "bit" for f in compound.fields) else str(start + 2)
    most = (1 << len(compound.fields)) - 1
    differs = f"{where} != len(data)" if where == "at" else f"len(data) != {where}"
    lines.append(f"        if flags > {most:#x} or {differs}:")
    lines.append(f"            refuse(flags, {most:#x}, data, {where})")
    return [*lines, "        return self"]


def write_class(compound: Compound, base: str) -> list[str]:
    slots = ", ".join(f'"{f.name}"' for f in compound.fields) + ("," if len(compound.fields) == 1 else "")
    lines = ["", "", f"class {compound.python_name}({base}):", f'    """{compound.full_name}"""', ""]
    lines += [f"    __slots__ = ({slots})"]
    if compound.kind == "struct":
        if compound.code is not None and compound.number:
            lines.append(f"    CODE: ClassVar[int] = {compound.number:#06x}")
    else:
        lines.append(f"    KEY: ClassVar[bytes] = {compound.key!r}")
    lines.append(f'    NAME: ClassVar[str] = "{compound.full_name}"')
    if compound.fields:
        layout = ", ".join(f'("{f.name}", "{f.type}")' for f in compound.fields)
        comma = "," if len(compound.fields) == 1 else ""
        lines.append(f"    LAYOUT: ClassVar[tuple[tuple[str, str], ...]] = ({layout}{comma})")
    return [*lines, *write_init(compound), *write_encode(compound), *write_decode(compound)]


READERS = sorted({t.replace("-", "_") for t in PYTHON_TYPE if t != "bit" and t not in FIXED and t != "str16-array"})
WRITERS = sorted({t.replace("-", "_") for t in PYTHON_TYPE if t != "bit" and t not in FIXED})


def module(what: str, compounds: list[Compound], base: str, more: list[str], structs: list[str]) -> str:
    """The text of a module of compounds; the imports that it does not need are taken out by the formatter."""
    lines = [
        f'"""The {what} of AMQP 0-10, with Qpid\'s errata.',
        "",
        "Generated by tools/generate_v010.py from spec/; do not edit. Each is a class of the same shape: slots,",
        "encode, decode. Decoding raises ValueError, IndexError or struct.error on malformed bytes; `codec` makes",
        "protocol errors of these.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from collections.abc import Sequence",
        "from struct import Struct as Packing",
        "from typing import ClassVar, Final",
        "from uuid import UUID",
        "",
        f"from harebell.protocol.v010.compounds import {base}, read_struct, read_sync, refuse, write_struct",
        *[f"from harebell.protocol.v010.structs import {name}" for name in structs],
        "from harebell.protocol.v010.typed_values import StructValue",
        "from harebell.protocol.v010.values import (",
        "    Map, MapLike, Ranges, Timestamp, write_number,",
        *[f"    read_{name}," for name in READERS],
        *[f"    write_{name}," for name in WRITERS],
        ")",
        "",
    ]
    body: list[str] = []
    for compound in compounds:
        body += write_class(compound, base)
    body += ["", *more]
    text = "\n".join(body)
    used = [line for name, line in PACKINGS.items() if f"{name}." in text or f"{name}," in text]
    return "\n".join([*lines, *used, *body]) + "\n"


PACKINGS = {
    "_FLAGS": '_FLAGS = Packing("<H")  # the first octet is that of the first eight fields',
    **{f"_{letter}": f'_{letter} = Packing(">{letter}")' for letter in "BHIQ"},
}


def ordered(structs: list[Compound]) -> list[Compound]:
    """Structs behind those that they contain."""
    inner = {f.type for s in structs for f in s.fields}
    return sorted(structs, key=lambda s: s.full_name not in inner)


def files() -> dict[Path, str]:
    spec = Spec()
    by_kind: dict[str, list[Compound]] = {"control": [], "command": [], "struct": []}
    for compound in spec.compounds:
        by_kind[compound.kind].append(compound)
    domains = [
        '"""The enumerations and constants of AMQP 0-10.',
        "",
        "Generated by tools/generate_v010.py from spec/; do not edit. Fields hold plain numbers, which equal these.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from enum import IntEnum",
        "from typing import Final",
        "",
        *[f"{name.replace('-', '_')}: Final = {value}" for name, value in spec.constants],
    ]
    for each in spec.enumerations:
        domains += ["", "", f"class {each.name}(IntEnum):", f'    """{each.full_name}"""', ""]
        domains += [f"    {identifier(name).upper()} = {value}" for name, value in each.choices]
    structs = ordered(by_kind["struct"])
    struct_tables = table_of(
        "STRUCTS",
        "dict[int, type[Struct]]",
        [f"{s.number:#06x}: {s.python_name}" for s in structs if s.code is not None],
        "{",
        "}",
    )
    control_tables = table_of(
        "CONTROLS", "dict[bytes, type[Control]]", [f"{c.key!r}: {c.python_name}" for c in by_kind["control"]], "{", "}"
    )
    for role in ("client", "server"):
        # Who handles a control is the receiver; the roles `sender` and `receiver` of a session are both peers'.
        members = [
            c.python_name
            for c in by_kind["control"]
            if any(r != role for r in c.roles) or "sender" in c.roles or "receiver" in c.roles
        ]
        control_tables += table_of(f"{role.upper()}_SENDS", "frozenset[type[Control]]", members)
    commands = by_kind["command"]
    command_tables = table_of(
        "COMMANDS", "dict[bytes, type[Command]]", [f"{c.key!r}: {c.python_name}" for c in commands], "{", "}"
    )
    command_tables += table_of(
        "CARRIES_CONTENT", "frozenset[type[Command]]", [c.python_name for c in commands if c.content]
    )
    command_tables += table_of(
        "RESULTS",
        "dict[type[Command], type[Struct]]",
        [f"{c.python_name}: {camel(c.result)}" for c in commands if c.result],
        "{",
        "}",
    )
    for role in ("client", "server"):
        members = [c.python_name for c in commands if any(r != role for r in c.roles)]
        command_tables += table_of(f"{role.upper()}_SENDS", "frozenset[type[Command]]", members)
    used = sorted({"Xid", *[camel(c.result) for c in commands if c.result]})
    command_module = module("commands", commands, "Command", command_tables, used)
    command_module = command_module.replace("import Command, read", "import Command, Struct, read")
    return {
        FOLDER / "domains.py": "\n".join(domains) + "\n",
        FOLDER / "structs.py": module("structs", structs, "Struct", struct_tables, []),
        FOLDER / "controls.py": module("controls", by_kind["control"], "Control", control_tables, []),
        FOLDER / "commands.py": command_module,
    }


if __name__ == "__main__":
    sys.exit(run(files()))
