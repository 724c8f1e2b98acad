"""Frames among garbage: whatever a test writes to our descriptor, every message still arrives, once and in order."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ondol.fleet.wire import Channel, Decoder, encode, pair

TOKEN = bytes(range(200, 216))
MESSAGES = st.dictionaries(st.text(max_size=5), st.one_of(st.integers(), st.text(max_size=50), st.none()), max_size=4)


@given(st.lists(st.tuples(st.binary(max_size=60), MESSAGES), max_size=12), st.integers(1, 40))
def test_messages_survive_garbage_between_them(parts, chunk) -> None:
    stream = b"".join(garbage + encode(TOKEN, message) for garbage, message in parts)
    decoder, found = Decoder(TOKEN), []
    for start in range(0, len(stream), chunk):
        found += decoder.feed(stream[start : start + chunk])
    assert found == [message for _, message in parts]
    assert decoder.garbage == sum(len(garbage) for garbage, _ in parts)


def test_a_frame_that_was_written_into_is_skipped_and_the_next_one_found() -> None:
    torn = bytearray(encode(TOKEN, {"n": 1}))
    torn[-1] ^= 255
    assert list(Decoder(TOKEN).feed(bytes(torn) + encode(TOKEN, {"n": 2}))) == [{"n": 2}]


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x01", b"\x00\x00\x00\x00"])
def test_a_length_that_was_written_into_holds_up_all_that_follows(length: bytes) -> None:
    frame = bytearray(encode(TOKEN, {"n": 1}))
    frame[16:20] = length
    assert list(Decoder(TOKEN).feed(bytes(frame) + encode(TOKEN, {"n": 2}))) == [{"n": 2}]


def test_lone_surrogates_and_odd_objects_travel() -> None:
    (message,) = Decoder(TOKEN).feed(encode(TOKEN, {"text": "\udcff", "odd": object}))
    assert message["text"] == "\udcff"
    assert "object" in message["odd"]


def test_the_end_of_the_other_side_is_seen() -> None:
    ours, theirs = pair()
    channel = Channel(ours, os.urandom(16))
    assert channel.receive_all() == ([], True)
    theirs.close()
    assert channel.receive_all() == ([], False)
    channel.close()
