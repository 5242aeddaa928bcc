"""AMQP 0-10 with Qpid's errata: controls, commands and structs, segments, sessions, and the engine for both roles."""

from harebell.protocol.v010.compounds import Command, Control, Struct
from harebell.protocol.v010.content import Content, OversizedContent, encode_content, encode_header
from harebell.protocol.v010.engine import Engine, Event
from harebell.protocol.v010.states import AttachmentState, ConnectionState, Role
from harebell.protocol.v010.structs import DeliveryProperties, MessageProperties
from harebell.protocol.v010.values import FieldValue, Map, MapLike, Timestamp

__all__ = [
    "AttachmentState",
    "Command",
    "ConnectionState",
    "Content",
    "Control",
    "DeliveryProperties",
    "Engine",
    "Event",
    "FieldValue",
    "Map",
    "MapLike",
    "MessageProperties",
    "OversizedContent",
    "Role",
    "Struct",
    "Timestamp",
    "encode_content",
    "encode_header",
]
