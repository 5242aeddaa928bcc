"""AMQP 0-9-1 with RabbitMQ's extensions: methods, field tables, content, and the engine for both roles."""

from harebell.protocol.v091.content import BaseContent, Content, OversizedContent, encode_content
from harebell.protocol.v091.engine import Engine, Event
from harebell.protocol.v091.fields import FieldValue, Table, TableLike, Timestamp
from harebell.protocol.v091.methods import Method, Properties
from harebell.protocol.v091.states import ChannelState, ConnectionState, Role

__all__ = [
    "BaseContent",
    "ChannelState",
    "ConnectionState",
    "Content",
    "Engine",
    "Event",
    "FieldValue",
    "Method",
    "OversizedContent",
    "Properties",
    "Role",
    "Table",
    "TableLike",
    "Timestamp",
    "encode_content",
]
