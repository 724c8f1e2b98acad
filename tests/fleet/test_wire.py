"""Frames among garbage: whatever a test writes to our descriptor, every message still arrives, once and in order."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ondol.fleet import wire
from ondol.fleet.messages import Broken, Done, LateReport, Message, Resume, RunItem, opened
from ondol.fleet.wire import AheadPipe, Channel, Decoder, encode, pair

TOKEN = bytes(range(200, 216))
MESSAGES = st.builds(Broken, st.text(max_size=5), st.text(max_size=50))


@given(st.lists(st.tuples(st.binary(max_size=60), MESSAGES), max_size=12), st.integers(1, 40))
def test_messages_survive_garbage_between_them(parts, chunk) -> None:
    stream = b"".join(garbage + encode(TOKEN, message) for garbage, message in parts)
    decoder = Decoder(TOKEN)
    found: list[Message] = []
    for start in range(0, len(stream), chunk):
        found += decoder.feed(stream[start : start + chunk])
    assert found == [message for _, message in parts]
    assert decoder.garbage == sum(len(garbage) for garbage, _ in parts)


def test_a_frame_that_was_written_into_is_skipped_and_the_next_one_found() -> None:
    """What was written into it may still look like a message of ours."""
    torn = encode(TOKEN, Resume("slot 1")).replace(b"slot 1", b"slot 3")
    assert list(Decoder(TOKEN).feed(torn + encode(TOKEN, Resume("2")))) == [Resume("2")]


@pytest.mark.parametrize("kept", [1, 16, 20, 30])
def test_a_frame_that_was_cut_off_takes_no_other_along(kept: int) -> None:
    """Ctrl-C came while it was sent: its end, with its newline, never came."""
    decoder = Decoder(TOKEN)
    assert list(decoder.feed(encode(TOKEN, Resume("1"))[:kept] + encode(TOKEN, Resume("2")))) == [Resume("2")]
    assert decoder.garbage == kept


def test_what_a_test_pours_into_the_channel_is_not_remembered() -> None:
    decoder = Decoder(TOKEN)
    for _ in range(100):
        assert list(decoder.feed(b"x" * 10_000)) == []
    assert decoder.garbage + len(decoder._rest) == 1_000_000
    assert len(decoder._rest) < len(TOKEN)
    assert list(decoder.feed(encode(TOKEN, Resume("2")))) == [Resume("2")]


def test_lone_surrogates_and_odd_objects_travel() -> None:
    (message,) = Decoder(TOKEN).feed(encode(TOKEN, LateReport(1, {"text": "\udcff", "odd": object})))
    assert isinstance(message, LateReport)
    assert message.data["text"] == "\udcff"
    assert "object" in message.data["odd"]


@pytest.mark.parametrize("kind", get_args(Message), ids=lambda kind: kind.__name__)
def test_every_message_arrives_as_it_was_sent(kind: Any) -> None:
    """Each field with the simplest value that its type allows."""
    simple = {str: "x", int: 1, bool: True, float: 0.5, dict: {}, Sequence: [], Literal: "", Any: None, bytes: b"[]"}
    values = []
    for hint in get_type_hints(kind).values():
        origin = get_origin(hint) or hint
        values.append(get_args(hint)[0] if origin is Literal else simple.get(origin))
    sent = kind(*values)
    (message,) = Decoder(TOKEN).feed(encode(TOKEN, sent))
    assert (type(message), message) == (kind, sent)


@pytest.mark.parametrize(
    "forged",
    [
        [],
        {},
        7,
        None,
        ["Nobody"],
        [["Done"]],
        ["Done", 1, 1],
        ["Done", "1", 1, 1],
        ["Done", 1, 1, 1, ["no dirt"]],
        ["Ended", "s", "w", 1, 1, "well"],
        ["Hello", "and more"],
        {"m": "done", "item": 3},
    ],
    ids=repr,
)
def test_a_frame_that_is_no_message_is_garbage(forged: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody has our token and writes what he likes: it kills nobody, and what follows is heard."""
    with monkeypatch.context() as patch:
        patch.setattr(wire, "dump", lambda message: json.dumps(message).encode())
        frame = encode(TOKEN, forged)
    decoder = Decoder(TOKEN)
    assert list(decoder.feed(frame + encode(TOKEN, Resume("2")))) == [Resume("2")]
    assert decoder.garbage == len(frame)


def test_the_end_of_the_other_side_is_seen() -> None:
    ours, theirs = pair()
    channel = Channel(ours, os.urandom(16))
    assert channel.receive_all() == ([], True)
    theirs.close()
    assert channel.receive_all() == ([], False)
    channel.close()


@pytest.mark.parametrize("forged", [b"", b"{", b"7", b"\xff", b'[1,"x",null]', b'{"when":"call"}'])
def test_a_block_that_holds_no_reports_holds_none(forged: bytes) -> None:
    (message,) = Decoder(TOKEN).feed(encode(TOKEN, Done(1, 1, 1, block=forged)))
    assert isinstance(message, Done)
    assert opened(message.block) == []


def test_what_is_handed_ahead_is_taken_once_and_in_order() -> None:
    """By the worker or by its agent, never by both: each packet is read whole by one of them."""
    agents = AheadPipe.open(TOKEN)
    workers = AheadPipe(TOKEN, os.dup(agents.reading))
    items = [RunItem("cpu0", n, 1, n, f"t.py::{n}", devices=[]) for n in range(4)]
    assert all(agents.put(item) for item in items)
    assert [workers.take(), agents.take(), agents.take(), workers.take()] == items
    assert workers.take() is None
    os.close(workers.reading)
    assert workers.take() is None, "closed by a test"
    agents.close()


def test_what_a_lane_has_no_room_for_stays_with_its_sender() -> None:
    lane = AheadPipe.open(TOKEN)
    item = RunItem("cpu0", 1, 1, 1, "t.py::1", devices=[])
    assert not lane.put(item._replace(prepared="x" * 5000)), "larger than what a pipe takes whole"
    fitting = [lane.put(item) for _ in range(100)].index(False)
    assert [lane.take() for _ in range(fitting + 1)] == [item] * fitting + [None]
    lane.close()
