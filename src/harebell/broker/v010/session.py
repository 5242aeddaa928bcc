"""The broker's side of a session: commands are executed once, completed and answered; it outlives its connection.

A handler is found by the type of the command (`HANDLERS`, at the end; `topology` handles declarations,
`message_commands` subscriptions and deliveries). It raises AmqpError to refuse: then the session ends with
execution.exception and session.detach. `publisher` publishes, `deliveries` has the deliveries, `completions` what waits
for the disk, `transactions` what waits for a commit.

While the session has no connection, nothing is delivered to it, its deliveries stay with it, and what it executes goes
on; what it has sent and has yet to report is kept (`protocol.v010.session`), and sent when it is attached again.

The file is long because attaching, executing, sending and ending work on one state; what they do is in the modules
named above.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from harebell.broker.audit import Origin, performing, requested
from harebell.broker.connections.consumer_timeouts import ConsumerTimeouts
from harebell.broker.counts import AMQP010, ChannelCounts
from harebell.broker.forwarding import Sink
from harebell.broker.message import Message
from harebell.broker.operations.leases import LeaseRequest
from harebell.broker.queues.base import Queue
from harebell.broker.slices import Work
from harebell.broker.store.positions import Known
from harebell.broker.timers import Timers
from harebell.broker.v010.commands import LATER, Outcome
from harebell.broker.v010.completions import Completions
from harebell.broker.v010.delivered import Taker
from harebell.broker.v010.deliveries import Deliveries
from harebell.broker.v010.dtx import HANDLERS as DTX_HANDLERS, DistributedTransactions
from harebell.broker.v010.fragments import Fragments, Owner
from harebell.broker.v010.link import Link
from harebell.broker.v010.message_commands import HANDLERS as MESSAGE_HANDLERS, MessageCommands
from harebell.broker.v010.messages import Outgoing
from harebell.broker.v010.outbox import Outbox, Sent
from harebell.broker.v010.publisher import Publisher, Target
from harebell.broker.v010.refusals import exception
from harebell.broker.v010.subscription import FULL, Subscription
from harebell.broker.v010.subscriptions import Subscriptions
from harebell.broker.v010.survival import Survival
from harebell.broker.v010.topology import HANDLERS as TOPOLOGY_HANDLERS, Topology
from harebell.broker.v010.transactions import HANDLERS as TX_HANDLERS, Transactions
from harebell.errors import (
    AmqpError,
    LocalProtocolError,
    NotAllowed,
    NotImplemented as NotImplemented540,
    PreconditionFailed,
    RemoteProtocolError,
    ResourceError,
)
from harebell.protocol.v010 import (
    AttachmentState,
    Command,
    Content,
    Control,
    OversizedContent,
    Struct,
    commands as c,
    controls as k,
)
from harebell.protocol.v010.frames import command_frames
from harebell.protocol.v010.receiving import ReceivingHalf
from harebell.protocol.v010.sending import SendingHalf
from harebell.protocol.v010.serial import narrow
from harebell.protocol.v010.session import Again, Session as State
from harebell.protocol.v010.transfers import Transfers
from harebell.routing.steps import Steps

__all__ = ["Session"]

MOST_UNCOMPLETED: Final = 49_152  # commands not complete at the client, above which it gets no transfers
MOST_COMMANDS: Final = 65_536  # ..., above which it gets no answers either
MOST_BYTES: Final = 64 << 20  # bytes of transfers that are kept to be sent again, above which the client gets no more
RUNS: Final = 256  # runs of deliveries counted in one step
MANY: Final = 4096  # transfers whose completion is processed in slices
REPLAYED: Final = 64  # commands sent again in one step
COMMAND_BYTES: Final = 64  # about the size of a command without content
FEW: Final = 16  # subscriptions that end in one slice for certain

_ATTACHED: Final = AttachmentState.ATTACHED
BINDING: Final = frozenset({c.MessageSubscribe, c.TxSelect, c.DtxSelect})  # after these it holds more than publications
UNDOING: Final = frozenset({c.QueuePurge, c.QueueDelete, c.ExchangeUnbind, c.ExchangeDelete})  # not to be repeated


class Session:
    """One session of one user in one virtual host.

    session_name   its name
    connection     the one that it is attached to, or was attached to last; `number` is the channel there
    attached       whether it has a connection now
    timeout        seconds that it outlives a connection
    ends_at        when it ends without a connection, by the node's timers; None while it is attached
    ended          nothing more is executed or delivered
    working        commands that are executed in slices
    """

    def __init__(
        self,
        connection: Link,
        number: int,
        name: bytes,
        end: Callable[[Session], Work],
        fragments: Fragments,
        known: Known | None = None,
    ) -> None:
        self.node = connection.node
        self.batch = connection.batch
        self.vhost = connection.vhost
        self.access = connection.access
        self.user = connection.user
        self.session_name = name
        self.fragments = fragments
        self.connection: Link = connection
        self.number = number
        self.pid = connection.node.new_pid()
        self.counts = ChannelCounts()
        self.attached = self.ended = False
        self.timeout = 0
        self.ends_at: int | None = None
        self.working = 0
        self.outgoing = Outgoing()
        self.outbox = Outbox(self)
        self.subscriptions = Subscriptions(connection.node.events, self._fail_soon)
        self.deliveries = Deliveries(self.counts)
        self.completions = Completions(self)
        self.publisher = Publisher(self)
        self.transactions = Transactions(self)
        self.dtx = DistributedTransactions(self)
        self.stopped: dict[Subscription, None] = {}  # those that `room` refused because it was full
        self.exclusive_queues: list[Queue] = []
        # Bytes are bounded by `room`: who has room gets a whole share of messages.
        self.state: State[Sent] = State(
            name,
            SendingHalf(max_commands=MOST_COMMANDS, max_bytes=1 << 62),
            None if known is None else ReceivingHalf.load(known.position),
        )
        self.survival = Survival(self, self.node.store.positions, self.node.commits, known)
        self._end = end  # ends it as `Sessions.end` does
        self._new = True  # it had no state when it was attached last
        self._topology = Topology(self)
        self._messages = MessageCommands(self, self._topology)
        self._timeouts = ConsumerTimeouts(self.deliveries)
        self._behind: list[Sent] | None = None  # sent while commands of earlier are being sent again
        self._failure: AmqpError | None = None  # to be told when it is attached again
        self._cut: tuple[int, Callable[[], None]] | None = None  # a command that was cut off, and what takes it back

    @property
    def origin(self) -> Origin:
        """Who asks, for the audit log."""
        connection = self.connection
        return requested(connection.user, connection.peer, connection.protocol)

    # -- as a channel, for lists and events ----------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name in log lines and for services."""
        return f"session {self.session_name!r} of user '{self.user}'"

    @property
    def owner(self) -> Owner:
        """Whose interrupted messages the session may resume."""
        return self.vhost.name, self.user

    @property
    def timers(self) -> Timers:
        return self.node.timers

    @property
    def consumers(self) -> Mapping[str, Subscription]:
        return self.subscriptions.table

    @property
    def confirming(self) -> bool:
        return True

    @property
    def transactional(self) -> bool:
        return self.transactions.selected

    @property
    def unconfirmed(self) -> int:
        return self.completions.outstanding

    @property
    def uncommitted(self) -> int:
        return len(self.transactions.publications)

    @property
    def uncommitted_acks(self) -> int:
        return self.transactions.settled

    @property
    def prefetch_count(self) -> int:
        """None: subscriptions have credit."""
        return 0

    @property
    def global_prefetch_count(self) -> int:
        return 0

    @property
    def unacked_count(self) -> int:
        return self.deliveries.unsettled.count

    @property
    def oldest_unacked(self) -> int | None:
        return next((number for run in self.deliveries.unsettled for number in run.numbers()), None)

    @property
    def last_delivery(self) -> int:
        return self.next_number - 1

    def counting_unacked(self) -> Steps[Mapping[Queue, int]]:
        found = Counter[Queue]()
        for number, run in enumerate(tuple(self.deliveries.unsettled)):
            found.update(run.queues())
            if not number % RUNS:
                yield
        return found

    def unacked_shares(self) -> Iterator[list[tuple[int, Taker]]]:
        for run in tuple(self.deliveries.unsettled):
            yield run.takers()

    def flush_counts(self) -> None:
        """Bring `counts` up to date."""
        self.publisher.flush_counts()
        for subscription in self.subscriptions.table.values():
            subscription.flush_counts()

    @property
    def kept_bytes(self) -> int:
        """About the bytes of memory that the session holds: what may be sent again, and what is not committed."""
        return (
            self.state.sending.pending_bytes
            + sum(message.content.body_size for _, message, _ in self.transactions.publications)
            + self.dtx.size
        )

    # -- attachment ----------------------------------------------------------------------------------------------

    def attach(self, connection: Link, number: int) -> None:
        """Attach the session to a channel whose engine has said so."""
        self.connection, self.number, self.attached = connection, number, True
        self.outgoing.channel, self.outgoing.largest = number, connection.engine.max_frame_size
        self.access = connection.access
        self._new = not self.state.has_state
        for control in self.state.attached():
            self._control(control)
        if self._failure is not None:
            self.fail(self._failure)

    def detach(self) -> None:
        """The session has no connection any more; what it holds stays."""
        self.outbox.flush()
        self.attached = False
        self._behind = None
        self.state.detached()

    def cut_off(self, content: Content) -> None:
        """Keep what has come of a transfer that is cut off with its connection, until it comes again."""
        receiving = self.state.receiving
        number = receiving.next
        if number is None or number < (receiving.received or 0):  # the latter has come whole before
            return
        if self._cut is not None:
            self._comes_again(number, self._cut)
        take_back = self.fragments.interrupted(self.owner, content)
        self._cut = None if take_back is None else (number, take_back)

    def _comes_again(self, number: int, cut: tuple[int, Callable[[], None]]) -> None:
        """Forget what the command that was cut off has left, if this is its number."""
        if number == cut[0]:
            cut[1]()
        if number >= cut[0]:  # else another one that was missing comes first
            self._cut = None

    def receive_control(self, control: Control) -> None:
        """Process a control of the client. Raises RemoteProtocolError for what cannot be."""
        self.outbox.flush()
        if isinstance(control, k.SessionExpected) and not control.commands and self._new:
            # The client may have begun at once, and have been answered: nothing is lost, it expects the first command.
            first = narrow(self.state.sending.first)
            control = k.SessionExpected(((first, first),))
        if (last_commit := self.survival.last_commit(control)) is not None:
            self._say(last_commit)
        if isinstance(control, k.SessionFlush) and control.expected and not control.completed and self._begins():
            self.work_on(control, self._beginning(control))
            return
        self._receive_control(control)

    def _begins(self) -> bool:
        return not self.state.has_state and self.survival.begin()

    def _beginning(self, control: Control) -> Work:
        """The client has no state either: it may send commands when the session survives a kill."""
        for _ in range(2):  # the first time it may be left out, until declarations that it knows of are on disk
            self.batch.cover_earlier()
            self.batch.slices.wait(self.batch.when_safe)
            yield
        if self.attached and not self.ended:
            self._receive_control(control)

    def _receive_control(self, control: Control) -> None:
        was_ready = self.state.ready
        reaction = self.state.receive_control(control)
        if reaction.lost:
            self.connection.work(self.number, control, self._starting_over())
            return
        again = sum(isinstance(said, Again) for said in reaction.to_send)
        if again > REPLAYED:
            self._behind = []
            self.work_on(control, self._replaying(reaction.to_send))
        else:
            for said in reaction.to_send:
                self._say(said)
        if reaction.complete:
            windows = self.deliveries.windows
            if len(windows) > MANY:
                self.work_on(control, windows.completing(reaction.complete, MANY))
            else:
                windows.completed(reaction.complete)
        if self.state.ready and not was_ready:
            self.schedule()
        elif self.stopped and not self.is_full:
            self._go_on()
        self.connection.reports(self.number)

    def _go_on(self) -> None:
        """Let the subscriptions deliver that were stopped by what the client had not completed."""
        stopped, self.stopped = self.stopped, {}
        for subscription in stopped:
            if not subscription.cancelled:
                subscription.queue.schedule()

    def _replaying(self, said: Iterable[Control | Again[Sent]]) -> Work:
        for count, each in enumerate(said, 1):
            if not self.attached:
                return
            self._say(each)
            if count % REPLAYED == 0:
                yield
        behind, self._behind = self._behind or [], None
        for sent in behind:
            self._put(sent)
        self.schedule()

    def _say(self, said: Control | Again[Sent]) -> None:
        """Send it, unless the client has sent detach or close in the same piece of input."""
        if isinstance(said, Control) and self.listens:
            self._control(said)
        elif isinstance(said, Again) and self.listens:
            self._put(said.item)

    def _starting_over(self) -> Work:
        """The client has lost its state of the session: end this one's, and begin again with the numbers going on."""
        yield from self._releasing()
        self.transactions.selected = self.dtx.selected = self.publisher.holds_back = False
        self.survival.start_over()
        self._cut = None  # its number means another command now
        if self.attached and not self.ended:
            for control in self.state.start_over()[0]:
                self._say(control)

    @property
    def next_number(self) -> int:
        """The number of the broker's next command."""
        return self.state.sending.next

    def schedule(self) -> None:
        """Let the queues of all subscriptions deliver."""
        for subscription in self.subscriptions.table.values():
            subscription.queue.schedule()

    def report(self) -> None:
        """Send what is due at the end of a batch: transfers, completions, and the questions for the client's."""
        self.outbox.flush(written=True)
        if self.listens:
            for control in self.state.due():
                self._control(control)

    @property
    def listens(self) -> bool:
        """Whether the client takes commands and controls of the session now: it has not sent detach or close."""
        return self.attached and self.connection.engine.attachments.get(self.number) is AttachmentState.ATTACHED

    def room(self, pressed: bool) -> int:
        """The number of transfers that may be sent now; `pressed`: even if the socket takes no more output now."""
        state, connection, outbox = self.state, self.connection, self.outbox
        sending = state.sending
        if (
            not (connection.writable or pressed) or not state.ready or self._behind is not None or not self.attached
            or connection.engine.attachments.get(self.number) is not _ATTACHED  # as `listens`
        ):  # fmt: skip
            return 0
        if sending.pending_bytes + outbox.size >= MOST_BYTES:
            return FULL
        room = MOST_UNCOMPLETED - sending.incomplete - len(outbox.frames)
        return room if room > 0 else FULL

    @property
    def is_full(self) -> bool:
        """Whether the client has so much to complete that it gets no more transfers."""
        sending, outbox = self.state.sending, self.outbox
        return (
            sending.pending_bytes + outbox.size >= MOST_BYTES
            or sending.incomplete + len(outbox.frames) >= MOST_UNCOMPLETED
        )

    # -- executing -----------------------------------------------------------------------------------------------

    def publish(self, content: Content) -> None:
        """Execute a command with a message, if it has not come before."""
        command, number = content.command, None
        try:
            number = self.state.receiving.receive(command[3:4] == b"\1")
            if number is not None and self._cut is not None:
                self._comes_again(number, self._cut)
            if number is None:
                self.connection.reports(self.number)
            elif command[:2] == c.MessageTransfer.KEY:
                self.publisher.publish(number, content)
            else:
                raise NotImplemented540("the classes file and stream are not implemented")
        except AmqpError as error:
            self.fail(error, number, c.MessageTransfer())
        except RemoteProtocolError as error:
            self.fail(error.answer, number, None if number is None else c.MessageTransfer())

    def publish_run(self, transfers: Transfers) -> bool:
        """Execute transfers that came together, if that can be. Returns whether it could: else they go one by one."""
        known = self.publisher.plan(transfers)
        if known is None or self._cut is not None:
            return False
        number = self.state.receiving.receive_run(len(transfers.bodies), transfers.sync)
        if number is None:
            return False
        self.publisher.publish_run(number, known, transfers)
        return True

    def execute(self, command: Command | OversizedContent) -> None:
        """Execute what the client sent, if it has not come before."""
        self.outbox.flush()
        if isinstance(command, OversizedContent):
            sync = command.command[3:4] == b"\1"
        else:
            sync = command.sync or type(command) is c.ExecutionSync
        try:
            number = self.state.receiving.receive(sync)
            if number is None:
                self.connection.reports(self.number)
                return
        except RemoteProtocolError as error:
            self.fail(error.answer)
            return
        try:
            if isinstance(command, OversizedContent):
                raise ResourceError(f"a message of more than {command.limit} bytes")
            self._handle(number, command)
        except AmqpError as error:
            self.fail(error, number, _known(command))
        except RemoteProtocolError as error:
            self.fail(error.answer, number, _known(command))

    def _handle(self, number: int, command: Command) -> None:
        kind = type(command)
        outcome: Outcome
        if kind in BINDING or (isinstance(command, c.QueueDeclare) and command.exclusive):
            self.survival.give_up()
        elif kind in UNDOING:
            self.survival.pause()
        if (handler := HANDLERS.get(kind)) is not None:
            outcome = handler(self, number, command)
        elif (of_messages := MESSAGE_HANDLERS.get(kind)) is not None:
            outcome = of_messages(self._messages, number, command)
        elif (of_tx := TX_HANDLERS.get(kind)) is not None:
            outcome = of_tx(self.transactions, number, command)
        elif (of_dtx := DTX_HANDLERS.get(kind)) is not None:
            outcome = of_dtx(self.dtx, number, command)
        elif (declaring := TOPOLOGY_HANDLERS.get(kind)) is not None:
            with performing(self.node.events, self.origin, self.vhost.name, command):
                outcome = declaring(self._topology, number, command)
        else:
            raise NotImplemented540(f"{command.NAME} is not implemented")
        if isinstance(outcome, Struct):
            self.result(number, outcome)
        elif outcome is not LATER:
            self.complete(number, number)

    def complete(self, low: int, high: int) -> None:
        """Note that these commands are complete."""
        self.state.receiving.complete(low, high)
        self.survival.moved()
        if self.attached:
            self.connection.reports(self.number)
            self.connection.has_output(0)

    def result(self, number: int, result: Struct) -> None:
        """Send the result of a command, and complete it."""
        self.send_command(c.ExecutionResult(narrow(number), result.packed()))
        self.complete(number, number)

    def work(self, number: int, command: Command, work: Work) -> None:
        """Execute a long command in slices; the connection's input waits until that is done."""
        self.work_on(command, self._executing(number, command, work))

    def work_on(self, event: Control | Command, work: Work) -> None:
        self.working += 1
        self.connection.work(self.number, event, self._working(work))

    def _working(self, work: Work) -> Work:
        try:
            yield from work
        finally:
            self.working -= 1

    def _executing(self, number: int, command: Command, work: Work) -> Work:
        try:
            yield from work
        except AmqpError as error:
            self.fail(error, number, command)

    def spend(self, count: int) -> None:
        self.connection.spend(count)

    # -- sending -------------------------------------------------------------------------------------------------

    def send_command(self, command: Command) -> None:
        """Send a command to the client, now or when the session is attached again."""
        if self.ended:
            return
        self.outbox.flush()
        try:
            self.state.sending.send(command, COMMAND_BYTES)
        except LocalProtocolError:
            self._overrun()
            return
        if self.state.ready and self.listens:
            self._put_or_wait(command)

    def _put_or_wait(self, sent: Sent) -> None:
        if self._behind is not None:
            self._behind.append(sent)
        else:
            self._put(sent)

    def _put(self, sent: Sent) -> None:
        """Write a command on the connection."""
        connection, number = self.connection, self.number
        engine = connection.engine
        if isinstance(sent, Command):
            engine.send_command(number, sent)
            connection.has_output(COMMAND_BYTES)
            return
        frames = self.outgoing.fitted(sent.frames)
        engine.send_pieces((command_frames(number, sent.payload, engine.max_frame_size, content=True), frames))
        connection.has_output(len(frames))

    def _control(self, control: Control) -> None:
        self.connection.engine.send_control(self.number, control)
        self.connection.has_output(COMMAND_BYTES)

    def _overrun(self) -> None:
        """The client completes nothing, and there is no room for another answer to it."""
        error = ResourceError(f"{self.name}: the client does not complete the broker's commands")
        if self.attached:
            self.connection.close(error)
        else:
            self._failure = error

    # -- the end -------------------------------------------------------------------------------------------------

    def fail(self, error: AmqpError, number: int | None = None, command: Command | None = None) -> None:
        """End the session by an exception: what is complete is reported, then the exception, then detach is sent."""
        if self.ended:
            return
        self.outbox.flush()
        self._failure = error
        if not self.attached:
            return
        state = self.state
        if number is None and state.receiving.next is not None and error.class_id:
            number = state.receiving.next  # of a command that could not be read
        if self.listens:
            for control in state.due(idle=True):
                self._control(control)
            if not state.ready:
                self._begin()
            self._put(exception(error, None if number is None else narrow(number), command))
            self._control(k.SessionDetach(self.session_name))
        self.connection.leave(self.number, ended=True)
        self.batch.slices.run(self.ending())

    def _fail_soon(self, error: AmqpError) -> None:
        """End the session by an exception after what is being done now."""
        self.timers.at(self.timers.now(), lambda: self.fail(error))

    def _begin(self) -> None:
        """Send the commands so far, though the client has not said what it expects: the session ends."""
        sending = self.state.sending
        self._control(k.SessionCommandPoint(narrow(sending.first if self._new else sending.next), 0))
        for sent in sending.unsafe() if self._new else ():
            self._put(sent)

    def expel(self, error: AmqpError) -> Work:
        """End the session in somebody else's name; a client that is attached gets the error."""
        if self.attached and self.connection.is_open:
            self.fail(error)
        yield from self._end(self)

    def ending(self) -> Work:
        """End the session: subscriptions, transaction and deliveries, in this order; messages return as redelivered."""
        if self.ended:
            return
        self.ended, self.attached = True, False
        yield from self._releasing()
        self.publisher.flush_counts()
        self.vhost.counts.add(self.counts)
        self.vhost.lasting.closed(AMQP010, self.counts, confirming=self.confirming)
        self.node.churn.channel_closed += 1
        self.node.events.channel_closed(self)

    def _releasing(self) -> Work:
        self.outbox.flush()
        queues = [subscription.queue for subscription in self.subscriptions.table.values()]
        held = queues if len(queues) > FEW else []
        for queue in held:
            queue.hold()  # newer messages must not overtake those that return
        try:
            for subscription in tuple(self.subscriptions.table.values()):
                if not subscription.cancelled:
                    self.subscriptions.remove(subscription)
                    yield
            yield from self.transactions.rolling_back()
            yield from self.dtx.ending()
            deliveries = self.deliveries
            deliveries.windows.clear()
            deliveries.browsed.clear()
            yield from deliveries.releasing(deliveries.all_shares(), failed=True, counted=True, queues=held)
        finally:
            for queue in held:
                queue.release()
        for queue in tuple(self.exclusive_queues):
            if queue.ends_with_owner and queue.settings.auto_delete_delay is not None:
                queue.owner, queue.exclusive, queue.ends_with_owner = None, False, False
                queue.leave()
            elif queue.ends_with_owner:
                yield from self.vhost.deleting((queue,))
            else:
                queue.owner, queue.exclusive = None, False
        self.exclusive_queues.clear()

    # -- acknowledgement timeouts and leases ---------------------------------------------------------------------

    def lease(self, channel: int, asked: LeaseRequest) -> list[int]:
        """Grant deliveries a lease; a delivery tag is a command id. Returns them."""
        self.outbox.flush()
        entries = self.deliveries.entries
        tags = [tag for tag in entries if tag <= asked.delivery_tag] if asked.multiple else [asked.delivery_tag]
        if not all(tag in entries for tag in tags):
            raise PreconditionFailed(f"unknown delivery tag {asked.delivery_tag}")
        self._timeouts.lease(tags, self.timers.now(), asked.timeout)
        return tags

    def give_back_overdue(self, now: int, default: int, least: int) -> Work:
        """End the session, if deliveries were not settled within their queue's consumer timeout."""
        last = self.state.sending.next - 1
        overdue: Generator[None, None, dict[int, int]] = self._timeouts.overdue(now, last, default, least)
        found = yield from overdue
        if found:
            timeout = next(iter(found.values()))
            self.fail(PreconditionFailed(f"a delivery was not accepted, released or rejected within {timeout} ms"))

    # -- the class execution -----------------------------------------------------------------------------------

    def _sync(self, number: int, command: c.ExecutionSync) -> Outcome:
        self.state.receiving.complete_in_order(number)
        self.connection.reports(self.number)
        return LATER

    def _answered(self, number: int, command: c.ExecutionResult) -> Outcome:
        raise NotAllowed(f"{command.NAME}: the broker sends no command that has a result")

    def _failed(self, number: int, command: c.ExecutionException) -> Outcome:
        """The client could not execute a command of the broker: the session ends."""
        raise NotAllowed(f"the client has failed: {command.error_code} {command.description or ''}")

    def hold_back(self, target: Target, message: Message, queues: tuple[Sink, ...]) -> bool:
        """Let a routed message wait for the commit, in a transaction. Returns whether there is one."""
        if self.transactions.selected:
            self.transactions.publications.append((target, message, queues))
            return True
        return self.dtx.hold_back(message, queues)

    # -- for subscriptions ---------------------------------------------------------------------------------------

    def queue_deleted(self, subscription: Subscription) -> None:
        if self.subscriptions.queue_deleted(subscription) and not self.ended:
            self.timers.at(self.timers.now(), lambda: self._release_from(subscription.queue))

    def _release_from(self, queue: Queue) -> None:
        shares = self.deliveries.shares(self.deliveries.unsettled.ranges_of(queue))
        self.batch.slices.run(self.deliveries.releasing(shares, failed=True, counted=True))


def _known(command: Command | OversizedContent) -> Command | None:
    return command if isinstance(command, Command) else c.MessageTransfer()


Handler: TypeAlias = "Callable[[Session, int, Any], Outcome]"  # each takes the command type that is its key

HANDLERS: Final[dict[type[Command], Handler]] = {
    c.ExecutionSync: Session._sync,
    c.ExecutionResult: Session._answered,
    c.ExecutionException: Session._failed,
}
