"""Two peers with an engine and a session each, over a transport that can be cut after any octet."""

from __future__ import annotations

from harebell.protocol.v010 import Command, Control, Engine, Role, commands as c, controls as k
from harebell.protocol.v010.sending import SendingHalf
from harebell.protocol.v010.serial import narrow
from harebell.protocol.v010.session import Again, Session
from tests.protocol.v010.samples import opened

NAME = b"pair"


class Peer:
    """One peer. Its commands carry a number of their own, so that the other one can say what it executed.

    sent      the numbers of the commands that it sent, in order
    executed  the numbers of the commands of the other peer that it executed, in order
    running   ids of commands that it executes and that are not complete
    complete  how many of its own commands it knows to be complete
    eager     after a loss it sends again all that is not complete, also what the other peer has received
    """

    def __init__(self, role: Role, first: int = 0) -> None:
        self.role = role
        self.engine = Engine(role)
        self.channel = 0
        self.session: Session[Command] = Session(NAME, SendingHalf(first), first=first)
        self.sent: list[int] = []
        self.executed: list[int] = []
        self.running: list[int] = []
        self.complete = 0
        self.lost = 0
        self.eager = False

    def send(self, sync: bool) -> None:
        if not self.session.ready or not self.session.sending.room:
            return
        number = len(self.sent)
        command: Command = c.MessageStop(str(number), sync=sync)
        if number % 5 == 4:
            command = c.ExecutionSync()
        self.sent.append(number)
        self.session.sending.send(command, 20)
        self.engine.send_command(self.channel, command)

    def say(self, controls: list[Control]) -> None:
        for control in controls:
            self.engine.send_control(self.channel, control)

    def finish(self, index: int) -> None:
        """Complete one of the running commands."""
        if self.running:
            self.session.receiving.complete(self.running.pop(index % len(self.running)))

    def hear(self, data: bytes) -> None:
        self.engine.receive_data(data)
        for channel, event in self.engine.events():
            assert channel == self.channel
            if isinstance(event, k.SessionAttach):
                self.engine.send_control(channel, k.SessionAttached(NAME))
                self.say(self.session.attached())
            elif isinstance(event, k.SessionAttached):
                self.say(self.session.attached())
            elif isinstance(event, Control):
                self._react(event)
            elif isinstance(event, Command):
                self._execute(event)

    def _react(self, control: Control) -> None:
        sending = self.session.sending
        if self.eager and isinstance(control, k.SessionExpected) and control.commands and sending.started:
            control = k.SessionExpected(((narrow(sending.mark), narrow(sending.mark)),))
        reaction = self.session.receive_control(control)
        self.lost += reaction.lost
        self.complete += sum(high - low + 1 for low, high in reaction.complete)
        for said in reaction.to_send:
            if isinstance(said, Again):
                self.engine.send_command(self.channel, said.item)
            else:
                self.engine.send_control(self.channel, said)

    def _execute(self, command: Command) -> None:
        number = self.session.receiving.receive(command.sync)
        if number is None:
            return
        if isinstance(command, c.MessageStop):
            self.executed.append(int(command.destination or ""))
            self.running.append(number)
        else:
            self.executed.append(len(self.executed))
            self.session.receiving.complete_in_order(number)


class Pair:
    """A client and a server, and the octets on their way between them."""

    def __init__(self, first: int = 0) -> None:
        self.client = Peer(Role.CLIENT, first)
        self.server = Peer(Role.SERVER, first)
        self.to_server = self.to_client = b""
        self.heard = [0, 0]  # octets that arrived at the server, at the client, on this connection
        self.attachments = 0
        self.connect()

    def connect(self) -> None:
        """A new connection, on which the client attaches the session to another channel."""
        self.client.engine, self.server.engine = opened()
        self.attachments += 1
        self.heard = [0, 0]
        for peer in (self.client, self.server):
            peer.session.detached()
            peer.channel = self.attachments % 100
        self.client.engine.send_control(self.client.channel, k.SessionAttach(NAME))

    def cut(self) -> None:
        """Lose the connection with everything that is on its way, and make a new one."""
        self.to_server = self.to_client = b""
        self.connect()

    def move(self, octets: int, to_server: bool) -> int:
        """Let octets arrive at one of them; the result is how many there were."""
        self.to_server += self.client.engine.data_to_send()
        self.to_client += self.server.engine.data_to_send()
        if to_server:
            data, self.to_server = self.to_server[:octets], self.to_server[octets:]
            self.server.hear(data)
        else:
            data, self.to_client = self.to_client[:octets], self.to_client[octets:]
            self.client.hear(data)
        self.heard[0 if to_server else 1] += len(data)
        return len(data)

    def settle(self) -> None:
        """Let everything arrive, complete everything, and report it."""
        moved = 1
        while moved:
            moved = self.move(1 << 20, True) + self.move(1 << 20, False)
            for peer in (self.client, self.server):
                while peer.running:
                    peer.finish(0)
                if peer.session.ready:
                    peer.say(peer.session.due(idle=True))
            moved += self.move(1 << 20, True) + self.move(1 << 20, False)

    def check(self) -> None:
        """Each executed what the other one sent: every command once, in order, none that was not sent."""
        for here, there in ((self.client, self.server), (self.server, self.client)):
            assert here.executed == there.sent[: len(here.executed)]
            assert there.complete <= len(here.executed)
            assert not here.lost

    def check_settled(self) -> None:
        self.check()
        for here, there in ((self.client, self.server), (self.server, self.client)):
            assert here.executed == there.sent
            assert there.complete == len(there.sent)
            assert there.session.sending.incomplete == 0
            assert here.session.receiving.incomplete == 0
