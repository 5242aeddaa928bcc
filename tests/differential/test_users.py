"""Users move between the brokers with their definitions: hashes of either are good at the other."""

from __future__ import annotations

import json
from pathlib import Path

from harebell.broker.auth.passwords import RABBITMQ_SHA256, RABBITMQ_SHA512
from harebell.broker.auth.users import make_user
from harebell.routing.definitions import Definitions, Permission, emit_definitions, parse_definitions
from harebell.testing.rabbitmq import RabbitMQ
from tests.wire import BrokerThread, Wire

USERS = tuple(make_user(f"mover-{name[-6:]}", "pässword", (), name) for name in (RABBITMQ_SHA256, RABBITMQ_SHA512))
PERMISSIONS = tuple(Permission("/", user.name, ".*", ".*", ".*") for user in USERS)


def test_there_and_back(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    written = emit_definitions(Definitions(users=USERS, permissions=PERMISSIONS))
    file = tmp_path / "definitions.json"
    file.write_text(written if isinstance(written, str) else json.dumps(written))
    rabbitmq.ctl("import_definitions", str(file))
    for user in USERS:
        Wire(rabbitmq.port).log_in(user=user.name, password="pässword").close()
    back = tmp_path / "back.json"
    rabbitmq.ctl("export_definitions", str(back))
    exported = parse_definitions(back.read_text())
    with BrokerThread() as harebell:
        names = {user.name for user in USERS}

        def take() -> None:
            for user in exported.users:
                harebell.broker.node.users.put(user)
            for permission in exported.permissions:
                if permission.user in names:
                    harebell.broker.node.users.set_permission(permission)

        harebell.run(take)
        for user in USERS:
            Wire(harebell.port).log_in(user=user.name, password="pässword").close()
    names_in_erlang = ", ".join(f'<<"{user.name}">>' for user in USERS)
    rabbitmq.evaluate(f"[rabbit_auth_backend_internal:delete_user(N, <<>>) || N <- [{names_in_erlang}]]")
