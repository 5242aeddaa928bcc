"""The administration API of a broker: users, permissions, virtual hosts, policies, parameters, queues, statistics.

It is the part of the public Broker without listeners and sockets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harebell.broker.auth.passwords import SCRYPT
from harebell.broker.auth.users import make_user
from harebell.broker.node import Node
from harebell.broker.operations.definitions import export_definitions, import_definitions
from harebell.broker.operations.firehose import set_tracing
from harebell.broker.operations.statistics import statistics
from harebell.broker.rules.limits import set_user_limits
from harebell.broker.vhost import VirtualHost
from harebell.errors import InvalidArgument, NotFound, NotImplemented as NotImplemented540
from harebell.protocol.v091 import FieldValue
from harebell.routing import definitions as records
from harebell.routing.definitions import Permission, TopicPermission
from harebell.routing.policies import ApplyTo, Policy
from harebell.routing.steps import complete

__all__ = ["Administration"]


class Administration(ABC):
    """The administrative methods of a broker, for its own thread, once it has started.

    Changes apply at once, to open connections too, and are on disk when the call returns. OSError when the disk
    refuses: the broker has closed its connections then.
    """

    @property
    @abstractmethod
    def node(self) -> Node:
        """The node that the calls are about."""

    def _vhost(self, name: str) -> VirtualHost:
        vhost = self.node.vhosts.get(name)
        if vhost is None:
            raise NotFound(f"no vhost '{name}'")
        return vhost

    # -- users and permissions -----------------------------------------------------------------------------------

    def add_user(
        self,
        name: str,
        password: str | None,
        *,
        tags: Sequence[str] = (),
        hashing_algorithm: str = SCRYPT,
        scram: bool = False,
    ) -> None:
        """Add a user, or give the one of that name this password and these tags. A new user has no permissions.

        password           None: it cannot log in with a password (a user of EXTERNAL, by a certificate)
        tags               "administrator", "monitoring", "policymaker", "management": what it may manage;
                           "impersonator": it may publish with any user-id
        hashing_algorithm  the password hash's; "rabbit_password_hashing_sha256" for users whose definitions will be
                           imported by a RabbitMQ, which does not know scrypt
        scram              True: the user may also log in by SCRAM-SHA-256, whose keys are kept beside the hash

        Takes some 50 ms with scrypt, and 0.2 s more with `scram`. InvalidArgument for an empty password or an unknown
        algorithm.
        """
        self.node.users.put(make_user(name, password, tuple(tags), hashing_algorithm, scram=scram))
        self.node.save()

    def remove_user(self, name: str) -> bool:
        """Remove the user, its permissions and its connections (320). Returns whether it existed."""
        there = name in self.node.users.users
        self.node.users.remove(name)
        self.node.save()
        return there

    def set_permissions(
        self, user: str, configure: str = ".*", write: str = ".*", read: str = ".*", *, vhost: str = "/"
    ) -> None:
        """Give the user access to the vhost, and the operations on names that the patterns (regular expressions) match.

        An empty pattern allows nothing, ".*" everything; the default exchange is "amq.default". Raises NotFound for an
        unknown user or vhost, InvalidArgument for a malformed pattern.
        """
        self._vhost(vhost)
        self.node.users.set_permission(Permission(vhost, user, configure, write, read))
        self.node.save()

    def clear_permissions(self, user: str, *, vhost: str = "/") -> None:
        """Remove the user's access to the vhost. Connections stay open, and all their operations are refused."""
        self.node.users.clear_permission(vhost, user)
        self.node.save()

    def set_topic_permissions(self, user: str, exchange: str, write: str, read: str, *, vhost: str = "/") -> None:
        """Restrict the user at a topic exchange to the routing keys that the patterns match.

        `write` is for publishing, `read` for binding; "{username}" and "{vhost}" stand for the connection's. Errors as
        `set_permissions`.
        """
        self._vhost(vhost)
        self.node.users.set_topic_permission(TopicPermission(vhost, user, exchange, write, read))
        self.node.save()

    def clear_topic_permissions(self, user: str, exchange: str | None = None, *, vhost: str = "/") -> None:
        """Remove the user's topic permission for that exchange, or all of the vhost."""
        self.node.users.clear_topic_permission(vhost, user, exchange)
        self.node.save()

    # -- virtual hosts, policies, parameters, queues -------------------------------------------------------------

    def set_policy(
        self,
        name: str,
        pattern: str,
        definition: Mapping[str, object],
        *,
        vhost: str = "/",
        apply_to: ApplyTo = "all",
        priority: float = 0,
        operator: bool = False,
    ) -> None:
        """Put a policy (or an operator policy) in force, as `rabbitmqctl set_policy` does.

        Raises InvalidArgument when it is not valid, NotImplemented for settings that this broker does not have yet,
        NotFound for an unknown vhost.
        """
        policy = Policy(vhost, name, pattern, dict(definition), apply_to, priority)
        self._vhost(vhost).policies.set(policy, operator=operator)
        self.node.save()

    def clear_policy(self, name: str, *, vhost: str = "/", operator: bool = False) -> bool:
        """Remove a policy. Returns whether it existed."""
        there = self._vhost(vhost).policies.clear(name, operator=operator)
        self.node.save()
        return there

    def import_definitions(
        self, source: str | Path | Mapping[str, object], *, vhost: str | None = None
    ) -> tuple[str, ...]:
        """Apply a RabbitMQ definitions file (its path or its object). Returns remarks on parts that were not applied.

        All of it is applied or, after an error, nothing. Nothing is deleted; queues and exchanges that exist stay as
        they are. With a `vhost`, the exchanges, queues, bindings, policies and parameters of the file go into that
        virtual host, and the rest of the file is ignored.

        Raises OSError when the file cannot be read, InvalidArgument for errors in it, NotImplemented for settings that
        this broker does not have, NotFound when `vhost` does not exist.
        """
        if isinstance(source, Mapping):
            remarks = import_definitions(self.node, records.parse_definitions(source, vhost=vhost), vhost)
            self.node.save()
            return remarks
        try:
            definitions = records.parse_definitions(Path(source).read_bytes(), vhost=vhost)
            remarks = import_definitions(self.node, definitions, vhost)
            self.node.save()
            return remarks
        except InvalidArgument as error:
            raise InvalidArgument(f"definitions file {source}: {error}") from None
        except NotImplemented540 as error:
            raise NotImplemented540(f"definitions file {source}: {error.detail}") from None

    def export_definitions(self, *, vhost: str | None = None) -> dict[str, object]:
        """The broker's definitions, as in RabbitMQ's definitions file: an object for `json.dumps`.

        They are virtual hosts, users with the hashes of their passwords, permissions, parameters, policies, queues that
        are not exclusive, exchanges and bindings, without messages. With a `vhost`, only its part. Raises NotFound.
        """
        return records.emit_definitions(export_definitions(self.node, vhost), vhost=vhost)

    def add_vhost(
        self,
        name: str,
        *,
        description: str = "",
        tags: Iterable[str] = (),
        default_queue_type: str | None = None,
        user: str | None = "guest",
    ) -> None:
        """Create a virtual host, or change description, tags and default of an existing one.

        default_queue_type   "classic", "quorum" or "stream": the type of a declaration without x-queue-type, where the
                             queue is durable, not exclusive and not auto-deleted (RabbitMQ's rule)
        user                 the user that gets all permissions in a new one, or None

        Raises InvalidArgument for another queue type, NotFound for an unknown user.
        """
        node, new = self.node, name not in self.node.vhosts
        if user is not None and user not in node.users.users:
            raise NotFound(f"no user '{user}'")
        described = records.VirtualHost(name) if new else node.vhosts[name].definition
        node.add_vhost(
            replace(
                described,
                description=description,
                tags=tuple(tags),
                default_queue_type=default_queue_type,
                metadata=None,
            )
        )
        if new and user is not None:
            node.users.set_permission(records.Permission(name, user, ".*", ".*", ".*"))
        node.save()

    def delete_vhost(self, name: str) -> None:
        """Delete a virtual host and all that is in it; its clients get 320 CONNECTION_FORCED. Raises NotFound."""
        self.node.delete_vhost(name)
        self.node.save()

    def set_vhost_limits(self, name: str, limits: Mapping[str, int]) -> None:
        """Limit a virtual host: "max-connections", "max-queues". These limits replace all that it has.

        0 refuses all; a number below 0, or a missing limit, is no limit. Connections and queues that exist stay. Raises
        InvalidArgument and NotFound.
        """
        self.node.parameters.set_limits(name, limits)
        self.node.save()

    def set_user_limits(self, name: str, limits: Mapping[str, int]) -> None:
        """Limit a user in all virtual hosts: "max-connections", "max-channels". Limits not named stay.

        0 refuses all, a number below 0 is no limit. What is open stays open. Raises InvalidArgument, NotFound.
        """
        set_user_limits(self.node.users, name, limits)
        self.node.save()

    def change_queue(self, name: str, arguments: Mapping[str, FieldValue], *, vhost: str = "/") -> None:
        """Change optional arguments of a queue in place; its messages and consumers stay.

        `arguments` are those to set, as a declaration takes them; None removes one. The others stay. Clients must
        declare the queue with its new arguments from then on. All of the change is made or nothing.

        Raises NotFound for an unknown queue or vhost; PreconditionFailed for arguments that a declaration would refuse,
        for an argument that no queue knows, and for `x-queue-type`, which cannot be changed; AccessRefused for a single
        active consumer while one consumes exclusively.
        """
        self._vhost(vhost).change_queue(name, arguments)
        self.node.save()

    def revoke_delayed(self, exchange: str, message_id: str, *, vhost: str = "/") -> int:
        """Drop the messages that a delayed exchange holds under this id. Returns their number.

        The id is the message's header `x-delay-id`, or else its property message_id. Raises NotFound for an unknown
        exchange or vhost; PreconditionFailed for an exchange that is not a delayed one.
        """
        count = complete(self._vhost(vhost).revoke_delayed(exchange, message_id))
        self.node.batch.end()
        return count

    def set_tracing(self, vhost: str, on: bool) -> None:
        """Switch the firehose of a virtual host on or off. Raises NotFound for an unknown one."""
        set_tracing(self.node, vhost, on)

    def statistics(self) -> dict[str, Any]:
        """The broker's statistics, with RabbitMQ's names, as plain dictionaries, lists, strings and integers.

        node             its name
        alarms           resources that it is low on
        message_stats    totals of all channels since the start: publish, confirm, return_unroutable, drop_unroutable,
                         deliver, deliver_no_ack, get, get_no_ack, deliver_get, get_empty, redeliver, ack
        churn            connection_created, connection_closed, channel_..., queue_declared, _created, _deleted
        object_totals    connections, channels, consumers, exchanges, queues
        queue_totals     messages, messages_ready, messages_unacknowledged
        vhosts           by name: tracing, message_stats, and by name
                         exchanges: type, messages_delayed, message_stats (publish_in, publish_out)
                         queues: type, messages, messages_ready, messages_unacknowledged,
                         messages_delayed (that came back), messages_dlx (that died), consumers, message_stats,
                         and dropped: messages by reason (expired, maxlen, rejected, delivery_limit, discarded, refused)
        connections      name, user, vhost, state (running, flow, blocked, ...), recv_oct, recv_cnt, send_oct, send_cnt,
                         and channels: number, confirm, transactional, consumer_count, messages_unacknowledged,
                         messages_unconfirmed, messages_uncommitted, message_stats

        The call visits every unacknowledged message: call it every few seconds, not every few milliseconds.
        """
        return statistics(self.node)

    def set_parameter(self, component: str, name: str, value: object, *, vhost: str = "/") -> None:
        """Set a parameter, as `rabbitmqctl set_parameter` does; `value` is the decoded JSON.

        A component that this broker has applies it at once; any other parameter is stored and exported. Raises
        InvalidArgument for a value that the component refuses, NotFound for an unknown vhost.
        """
        self.node.parameters.set(records.Parameter(vhost, component, name, value))

    def clear_parameter(self, component: str, name: str, *, vhost: str = "/") -> bool:
        """Remove a parameter. Returns whether it existed."""
        return self.node.parameters.clear(vhost, component, name)

    def parameter_status(self, component: str) -> list[dict[str, object]]:
        """The state of the component's parameters: of "shovel", state, counts and last error of each shovel.

        Raises NotFound for a component that this broker does not have.
        """
        actor = self.node.parameters.components.get(component)
        if actor is None:
            raise NotFound(f"nothing here acts on parameters of component '{component}'")
        return actor.status()
