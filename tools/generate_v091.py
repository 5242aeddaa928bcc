"""Write methods.py and property_flags.py of src/harebell/protocol/v091/ from the specification files under spec/.

    python -m tools.generate_v091            # writes the files
    python -m tools.generate_v091 --check    # exits 1 when a committed file differs

methods.py has one class per method with its fields as slots, `encode` and `decode`; the basic properties; and the
tables of the engine: the methods that each role may send, those that carry content, the replies to each, and the
short strings among its arguments.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field

from tools.generated import ROOT, camel, identifier, table_of

SPECS = [ROOT / "spec" / "amqp0-9-1.stripped.extended.xml", ROOT / "spec" / "harebell-additions.0-9-1.xml"]
TARGET = ROOT / "src" / "harebell" / "protocol" / "v091" / "methods.py"
FLAGS_TARGET = TARGET.with_name("property_flags.py")

FIXED = {"octet": ("B", 1), "short": ("H", 2), "long": ("I", 4), "longlong": ("Q", 8)}
PYTHON_TYPE = {
    "bit": "bool",
    "octet": "int",
    "short": "int",
    "long": "int",
    "longlong": "int",
    "shortstr": "str",
    "longstr": "bytes",
    "table": "Table | None",
    "timestamp": "Timestamp",
}
# The types of arguments: wider than those of attributes for tables.
GIVEN_TYPE = {**PYTHON_TYPE, "table": "TableLike | None"}
# A mapping that is no dict stays what it is: a copy into a dict would cost every message.
GIVEN_AS_IS = "  # type: ignore[assignment]"
DEFAULT = {
    "bit": "False",
    "octet": "0",
    "short": "0",
    "long": "0",
    "longlong": "0",
    "shortstr": '""',
    "longstr": 'b""',
    "table": "None",
}
# The specification's text says that recover-ok answers recover; its XML does not.
FORGOTTEN_REPLIES = {("basic", "recover"): "recover-ok"}


@dataclass
class Field:
    name: str
    type: str
    reserved: bool


@dataclass
class Method:
    class_name: str
    name: str
    class_id: int
    method_id: int
    fields: list[Field]
    to_server: bool
    to_client: bool
    content: bool
    replies: list[str]

    @property
    def python_name(self) -> str:
        return camel(self.class_name, self.name)

    @property
    def ids(self) -> bytes:
        return self.class_id.to_bytes(2, "big") + self.method_id.to_bytes(2, "big")

    @property
    def visible(self) -> list[Field]:
        return [f for f in self.fields if not f.reserved]


@dataclass
class Spec:
    methods: list[Method] = field(default_factory=list)
    properties: list[Field] = field(default_factory=list)
    constants: list[tuple[str, int]] = field(default_factory=list)


def read_specs() -> Spec:
    spec, domains = Spec(), {}
    for path in SPECS:
        root = ET.parse(path).getroot()
        spec.constants += [(c.attrib["name"], int(c.attrib["value"])) for c in root.findall("constant")]
        domains.update({d.attrib["name"]: d.attrib["type"] for d in root.findall("domain")})

        def read_field(element: ET.Element) -> Field:
            domain = element.attrib.get("domain") or element.attrib["type"]
            reserved = element.attrib.get("reserved") == "1"
            return Field(identifier(element.attrib["name"]), domains.get(domain, domain), reserved)

        for cls in root.findall("class"):
            class_name, class_id = cls.attrib["name"], int(cls.attrib["index"])
            spec.properties += [read_field(f) for f in cls.findall("field")]
            for m in cls.findall("method"):
                replies = [r.attrib["name"] for r in m.findall("response")]
                if forgotten := FORGOTTEN_REPLIES.get((class_name, m.attrib["name"])):
                    replies.append(forgotten)
                chassis = {c.attrib["name"] for c in m.findall("chassis")}
                spec.methods.append(
                    Method(
                        class_name,
                        m.attrib["name"],
                        class_id,
                        int(m.attrib["index"]),
                        [read_field(f) for f in m.findall("field")],
                        "server" in chassis,
                        "client" in chassis,
                        m.attrib.get("content") == "1",
                        [camel(class_name, reply) for reply in replies],
                    )
                )
    return spec


def groups(fields: list[Field]) -> list[list[Field]]:
    """Runs of fields that one struct reads and writes: fixed-size ones together, bits together."""
    runs: list[list[Field]] = []
    for f in fields:
        kind = "fixed" if f.type in FIXED else f.type
        previous = runs[-1][-1] if runs else None
        previous_kind = None if previous is None else ("fixed" if previous.type in FIXED else previous.type)
        if kind == previous_kind and kind in ("fixed", "bit") and not (kind == "bit" and len(runs[-1]) == 8):
            runs[-1].append(f)
        else:
            runs.append([f])
    return runs


def struct_name(run: list[Field]) -> str:
    return "_" + "".join(FIXED[f.type][0] for f in run)


def write_encode(method: Method, structs: set[str]) -> list[str]:
    pieces, constant = [], method.ids
    for run in groups(method.fields):
        kind = run[0].type
        if all(f.reserved for f in run):
            sizes = {"bit": 1, "shortstr": 1, "longstr": 4, "table": 4}
            constant += bytes(sum(FIXED[f.type][1] for f in run) if kind in FIXED else sizes[kind])
            continue
        if constant:
            pieces.append(repr(constant))
            constant = b""
        if kind in FIXED:
            structs.add(struct_name(run)[1:])
            values = ", ".join("0" if f.reserved else f"self.{f.name}" for f in run)
            pieces.append(f"{struct_name(run)}.pack({values})")
        elif kind == "bit":
            # `if`, not a shift of the value: a caller's 2 for one flag must not set the next one
            flags = [f"{1 << i} if self.{f.name} else 0" for i, f in enumerate(run) if not f.reserved]
            bits = " | ".join(f"({bit})" for bit in flags) if len(flags) > 1 else flags[0]
            pieces.append(f"_B.pack({bits})")
            structs.add("B")
        else:
            name = run[0].name
            pieces.append(
                {
                    "shortstr": f'write_shortstr(self.{name}, "{name}")',
                    "longstr": f"write_longstr(self.{name})",
                    "table": f"write_table(self.{name})",
                }[kind]
            )
    if constant:
        pieces.append(repr(constant))
    if len(pieces) == 1:
        return [f"        return {pieces[0]}"]
    return ['        return b"".join((', *[f"            {p}," for p in pieces], "        ))"]


def write_decode(method: Method, structs: set[str]) -> list[str]:
    lines = ["        self = cls.__new__(cls)"]
    offset = 4
    fixed_at: str | None = "4"

    def at() -> str:
        return fixed_at if fixed_at is not None else "at"

    for run in groups(method.fields):
        kind = run[0].type
        if kind in FIXED:
            structs.add(struct_name(run)[1:])
            size = sum(FIXED[f.type][1] for f in run)
            targets = ", ".join("_" if f.reserved else f"self.{f.name}" for f in run)
            if not all(f.reserved for f in run):
                comma = "," if len(run) == 1 else ""
                lines.append(f"        {targets}{comma} = {struct_name(run)}.unpack_from(data, {at()})")
            if fixed_at is not None:
                offset += size
                fixed_at = str(offset)
            else:
                lines.append(f"        at += {size}")
        elif kind == "bit":
            if not all(f.reserved for f in run):
                lines.append(f"        bits = data[{at()}]")
                lines += [f"        self.{f.name} = bits & {1 << i} != 0" for i, f in enumerate(run) if not f.reserved]
            if fixed_at is not None:
                offset += 1
                fixed_at = str(offset)
            else:
                lines.append("        at += 1")
        else:
            target = "_" if run[0].reserved else f"self.{run[0].name}"
            lines.append(f"        {target}, at = read_{kind}(data, {at()})")
            fixed_at = None
    lines.append(f"        check_end(data, {at()})")
    lines.append("        return self")
    return lines


def write_method(method: Method, structs: set[str]) -> list[str]:
    name, visible = method.python_name, method.visible
    slots = ", ".join(f'"{f.name}"' for f in visible) + ("," if len(visible) == 1 else "")
    lines = ["", "", f"class {name}(Method):", f'    """{method.class_name}.{method.name}"""', ""]
    lines.append(f"    __slots__ = ({slots})")
    lines.append(f"    CLASS_ID: ClassVar[int] = {method.class_id}")
    lines.append(f"    METHOD_ID: ClassVar[int] = {method.method_id}")
    lines.append(f'    NAME: ClassVar[str] = "{method.class_name}.{method.name}"')
    lines.append("")
    if visible:
        arguments = [f"{f.name}: {GIVEN_TYPE[f.type]} = {DEFAULT[f.type]}" for f in visible]
        lines += ["    def __init__(", "        self,", *[f"        {a}," for a in arguments], "    ) -> None:"]
        for f in visible:
            value = f"{f.name} if {f.name} is not None else {{}}" if f.type == "table" else f.name
            annotation, ignore = (": Table", GIVEN_AS_IS) if f.type == "table" else ("", "")
            lines.append(f"        self.{f.name}{annotation} = {value}{ignore}")
    else:
        lines.append("    def __init__(self) -> None:")
        lines.append("        pass")
    lines += ["", "    def encode(self) -> bytes:", *write_encode(method, structs)]
    lines += ["", "    @classmethod", f"    def decode(cls, data: bytes) -> {name}:", *write_decode(method, structs)]
    return lines


def write_properties(properties: list[Field]) -> list[str]:
    flagged = [(15 - i, f) for i, f in enumerate(properties)]
    given = {**GIVEN_TYPE, "table": "TableLike"}
    lines = ["", "", "class Properties:"]
    lines.append('    """The basic properties of a message; None means absent, which differs from empty on the wire.')
    lines += ["", "    `timestamp` is an aware datetime in UTC (whole seconds), or an int where a peer sent"]
    lines += ["    seconds that no datetime can hold.", '    """', ""]
    lines.append("    __slots__ = (")
    lines += [f'        "{f.name}",' for _, f in flagged]
    lines += ["    )", "", "    def __init__(", "        self,", "        *,"]
    lines += [f"        {f.name}: {given[f.type]} | None = None," for _, f in flagged]
    lines += ["    ) -> None:"]
    for _, f in flagged:
        annotation, ignore = (": Table | None", GIVEN_AS_IS) if f.type == "table" else ("", "")
        lines.append(f"        self.{f.name}{annotation} = {f.name}{ignore}")
    lines += ["", "    def encode(self) -> bytes:", '        """The flags and the values, as in a content header."""']
    lines += ["        flags = 0", '        pieces = [b""]']
    for bit, f in flagged:
        writer = {
            "shortstr": f'write_shortstr(self.{f.name}, "{f.name}")',
            "octet": f'write_octet(self.{f.name}, "{f.name}")',
            "table": f"write_table(self.{f.name})",
            "timestamp": f"write_timestamp(self.{f.name})",
        }[f.type]
        lines += [f"        if self.{f.name} is not None:", f"            flags |= {1 << bit:#06x}"]
        lines += [f"            pieces.append({writer})"]
    lines += ["        pieces[0] = _H.pack(flags)", '        return b"".join(pieces)', ""]
    lines += ["    @classmethod", "    def decode(cls, data: bytes, at: int = 0) -> Properties:"]
    lines += ['        """The properties that start (with their flags) at `at` and end with the data."""']
    lines += ["        self = cls()", "        flags = data[at] << 8 | data[at + 1]", "        at += 2"]
    for bit, f in flagged:
        lines.append(f"        if flags & {1 << bit:#06x}:")
        if f.type == "octet":
            lines += [f"            self.{f.name} = data[at]", "            at += 1"]
        else:
            lines.append(f"            self.{f.name}, at = read_{f.type}(data, at)")
    lines += ["        if flags & 0x0003:", '            raise ValueError("unknown property flags")']
    lines += ["        check_end(data, at)", "        return self", ""]
    lines += ["    def __eq__(self, other: object) -> bool:"]
    lines += ["        if not isinstance(other, Properties):", "            return NotImplemented"]
    lines += ["        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)", ""]
    lines += ["    __hash__ = None  # type: ignore[assignment]  # mutable", ""]
    lines += ["    def __repr__(self) -> str:"]
    lines += ["        held = ((name, getattr(self, name)) for name in self.__slots__)"]
    lines += ["        return f\"Properties({', '.join(f'{n}={v!r}' for n, v in held if v is not None)})\""]
    return lines


# Bytes of a property's value. 0 and -1 stand for values that begin with their length: a short string, a table.
WIDTHS = {"shortstr": 0, "table": -1, "octet": 1, "timestamp": 8}
STEPS = {0: "1 + data[at]", -1: '4 + int.from_bytes(data[at : at + 4], "big")'}
# Properties that have a function to find them in an encoded message; their flags are in the first octet.
LOCATED = ("headers", "delivery_mode", "priority", "reply_to", "expiration")


def generate_flags() -> str:
    fields = [(1 << 15 - i, f.name, WIDTHS[f.type]) for i, f in enumerate(read_specs().properties)]
    lines = [
        '"""The basic properties on the wire: their flags in order, and the position of a value among the others.',
        "",
        "Generated by tools/generate_v091.py from spec/; do not edit. Properties are two octets of flags and the",
        "values of those that are set, from the highest flag down. `FIELDS` is the table for a walk over all of them.",
        "Each function is that walk, unrolled for one property: a broker reads single properties of many messages.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import Final",
        "",
        "SHORT_STRING: Final = 0",
        "TABLE: Final = -1",
        "",
    ]
    lines += [f"{name.upper()}: Final = {flag:#06x}" for flag, name, _ in fields]
    lines += ["UNUSED: Final = 0x0003", ""]
    lines += ["FIELDS: Final = (", *[f'    ({name.upper()}, "{name}", {width}),' for _, name, width in fields], ")"]
    lines += ['"""Flag, name, and size of the value: a number of bytes, SHORT_STRING or TABLE."""']
    for wanted in LOCATED:
        lines += ["", "", f"def {wanted}_at(data: bytes, at: int) -> int:"]
        lines += [f'    """The position of {wanted}, present or not, in properties whose flags are at `at`."""']
        lines += ["    flags = data[at]", "    at += 2"]
        for flag, name, width in fields:
            if name == wanted:
                break
            lines += [f"    if flags & {flag >> 8:#04x}:  # {name}", f"        at += {STEPS.get(width, width)}"]
        lines += ["    return at"]
    return "\n".join(lines) + "\n"


def generate() -> str:
    spec, structs = read_specs(), {"H", "B"}
    classes: list[str] = []
    for method in spec.methods:
        classes += write_method(method, structs)
    used_constants = [(n, v) for n, v in spec.constants if n.startswith("frame-") and n != "frame-error"]
    lines = [
        '"""The methods and the basic properties of AMQP 0-9-1 with RabbitMQ\'s extensions.',
        "",
        "Generated by tools/generate_v091.py from spec/; do not edit. It is long because the protocol has that many",
        "methods, each a class of the same shape: slots, encode (class id, method id, arguments), decode (the same).",
        "Decoding raises ValueError, IndexError or struct.error on malformed bytes; `codec.decode_method` turns these",
        "into RemoteProtocolError.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from struct import Struct",
        "from typing import ClassVar, Final",
        "",
        "from harebell.protocol.v091.fields import (",
        "    Table,",
        "    TableLike,",
        "    Timestamp,",
        "    check_end,",
        "    read_longstr,",
        "    read_shortstr,",
        "    read_table,",
        "    read_timestamp,",
        "    write_longstr,",
        "    write_octet,",
        "    write_shortstr,",
        "    write_table,",
        "    write_timestamp,",
        ")",
        "",
    ]
    lines += [f"{identifier(n).upper()}: Final = {v}" for n, v in used_constants]
    lines += ["", "@@STRUCTS@@", "", ""]
    lines += [
        "class Method:",
        '    """The base of all methods: ids, name, `encode` and `decode`, equality by value."""',
        "",
        "    __slots__: tuple[str, ...] = ()",
        "    CLASS_ID: ClassVar[int]",
        "    METHOD_ID: ClassVar[int]",
        "    NAME: ClassVar[str]",
        "",
        "    def encode(self) -> bytes:",
        "        raise NotImplementedError",
        "",
        "    @classmethod",
        "    def decode(cls, data: bytes) -> Method:",
        "        raise NotImplementedError",
        "",
        "    def __eq__(self, other: object) -> bool:",
        "        if type(self) is not type(other):",
        "            return False",
        "        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)",
        "",
        "    __hash__ = None  # type: ignore[assignment]  # mutable",
        "",
        "    def __repr__(self) -> str:",
        '        """All fields but those with passwords, which must not get into a log."""',
        '        shown = [n if n not in ("response", "new_secret") else "" for n in self.__slots__]',
        '        fields = ", ".join(f"{n}={getattr(self, n)!r}" if n else "..." for n in shown)',
        '        return f"{type(self).__name__}({fields})"',
    ]
    lines += classes + write_properties(spec.properties) + [""]
    lines += table_of(
        "METHODS",
        "dict[bytes, type[Method]]",
        [f"{m.ids!r}: {m.python_name}" for m in spec.methods],
        "{",
        "}",
    )
    lines += table_of("CARRIES_CONTENT", "frozenset[type[Method]]", [m.python_name for m in spec.methods if m.content])
    lines += table_of("CLIENT_SENDS", "frozenset[type[Method]]", [m.python_name for m in spec.methods if m.to_server])
    lines += table_of("SERVER_SENDS", "frozenset[type[Method]]", [m.python_name for m in spec.methods if m.to_client])
    lines += table_of(
        "REPLIES",
        "dict[type[Method], tuple[type[Method], ...]]",
        [f"{m.python_name}: ({', '.join(m.replies)},)" for m in spec.methods if m.replies],
        "{",
        "}",
    )
    texts = {m.python_name: [f'"{f.name}",' for f in m.visible if f.type == "shortstr"] for m in spec.methods}
    lines += table_of(
        "SHORT_STRINGS",
        "dict[type[Method], tuple[str, ...]]",
        [f"{name}: ({' '.join(names)})" for name, names in texts.items() if names],
        "{",
        "}",
    )
    text = "\n".join(lines) + "\n"
    struct_lines = "\n".join(f'_{s} = Struct(">{s}")' for s in sorted(structs))
    return text.replace("@@STRUCTS@@", struct_lines)


def main() -> int:
    files = {TARGET: generate(), FLAGS_TARGET: generate_flags()}
    if "--check" in sys.argv[1:]:
        differing = [path for path, text in files.items() if path.read_text() != text]
        for path in differing:
            print(
                f"{path.relative_to(ROOT)} differs from what the specification gives: run python -m tools.generate_v091"
            )
        return 1 if differing else 0
    for path, text in files.items():
        path.write_text(text)
        print(f"wrote {path.relative_to(ROOT)}: {text.count(chr(10))} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
