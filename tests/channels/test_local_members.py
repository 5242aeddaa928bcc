"""The table of members: who is in a group at a time, however memberships end and begin again."""

from __future__ import annotations

from random import Random

import pytest

from harebell.channels.local_members import LocalMembers

PROCESS = "specific.0123456789ab!"


def test_a_membership_that_ended_begins_again_before_anybody_has_noticed() -> None:
    members = LocalMembers()
    channel = PROCESS + "a"
    members.add("g", channel, 10.0)
    members.bound("g", PROCESS)
    assert members.of("g", 11.0) == ()
    assert members.refresh("g", channel, PROCESS, 20.0)
    assert members.of("g", 12.0) == (channel,)
    assert members.of("g", 20.0) == ()


def test_nothing_is_added_in_passing_while_it_is_to_be_removed() -> None:
    members, one, other = LocalMembers(), PROCESS + "a", PROCESS + "b"
    members.add("g", one, 10.0)
    members.bound("g", PROCESS)
    members.leaving("g", one)
    members.leaving("g", one)
    for _ in range(2):
        assert not members.refresh("g", one, PROCESS, 20.0)
        assert members.refresh("g", other, PROCESS, 20.0)
        members.left("g", one)
    assert members.refresh("g", one, PROCESS, 20.0)


@pytest.mark.parametrize("seed", range(30))
def test_members_are_those_whose_time_has_not_come(seed: int) -> None:
    chance, members, model = Random(seed), LocalMembers(), dict[str, float]()
    channels = [PROCESS + name for name in "abcd"]
    for now in range(200):
        channel = chance.choice(channels)
        ends = max(now + chance.randint(1, 9), model.get(channel, 0.0))  # nobody makes a membership shorter
        match chance.choice(["add", "refresh", "discard", "expired", "of", "of"]):
            case "add":
                model[channel] = ends
                members.add("g", channel, ends)
            case "refresh":
                if members.refresh("g", channel, PROCESS, ends):
                    model[channel] = ends
            case "discard":
                model.pop(channel, None)
                members.discard("g", channel, PROCESS)
            case "expired":
                members.expired(now)
        if chance.random() < 0.3:
            members.bound("g", PROCESS)
        assert sorted(members.of("g", now)) == sorted(each for each, ends in model.items() if ends > now), now
