"""Frames over a socket pair.

Tier: self-consistency, every torn length. Cannot catch a reader of another language that disagrees about JSON.
"""

import json
import socket
import struct
import threading

import pytest

from core.errors import WorkerError
from core.worker import channel as channel_module
from core.worker import events
from core.worker.channel import Channel, encode

PROMPT = '雨 🎬 "x"\n\x00 \ud83d'
MESSAGES = [
    events.StartJob(job_id="1", kind="generate", payload={"prompt": PROMPT, "seed": str(2**63 - 1)}),
    events.CancelJob(job_id="1"),
    events.Shutdown(),
    events.WorkerReady(pid=7),
    events.JobStarted(job_id="1", notices=["a", "b"]),
    events.PhaseStarted(job_id="1", phase="denoise", total=8),
    events.Progress(job_id="1", phase="denoise", done=3, total=8, elapsed_s=1.25),
    events.PreviewFrame(job_id="1", step=3, width=2, height=1, blob=bytes(range(6))),
    events.Notice(job_id="1", text="é"),
    events.CancelSeen(job_id="1", waits_for="text"),
    events.JobDone(job_id="1", output_path="/é 夜.mp4", facts={"a": [1, 2.5, None, True]}),
    events.JobFailed(job_id="1", kind="media", message="m", hint="h", detail="d"),
    events.JobCancelled(job_id="1"),
]


@pytest.fixture
def pair():
    left, right = socket.socketpair()
    ends = Channel(left), Channel(right)
    yield ends
    for end in ends:
        end.close()


def raw_pair() -> tuple[socket.socket, Channel]:
    left, right = socket.socketpair()
    return left, Channel(right)


def test_every_kind_of_message_is_tried_here():
    assert {type(message) for message in MESSAGES} == set(events.MESSAGE_TYPES.values())


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_a_message_arrives_as_it_was_sent(pair, message):
    pair[0].send(message)
    assert pair[1].receive() == message


def test_a_large_preview_arrives_whole_through_a_small_buffer(pair):
    blob = bytes(range(256)) * (1344 * 768 * 3 // 256)
    frame = events.PreviewFrame(job_id="1", step=1, width=1344, height=768, blob=blob)
    sender = threading.Thread(target=pair[0].send, args=(frame,))
    sender.start()
    assert pair[1].receive() == frame
    sender.join()


def test_threads_do_not_interleave_their_frames(pair):
    def send(number: int) -> None:
        for step in range(50):
            blob = bytes([number]) * 10_007
            pair[0].send(events.PreviewFrame(job_id=str(number), step=step, width=1, height=1, blob=blob))

    threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    got = [pair[1].receive() for _ in range(200)]
    for thread in threads:
        thread.join()
    assert all(message.blob == bytes([int(message.job_id)]) * 10_007 for message in got)
    for number in range(4):
        assert [m.step for m in got if m.job_id == str(number)] == list(range(50))


def test_a_frame_torn_at_any_byte_reads_as_the_end():
    frame = encode(MESSAGES[7])
    for length in range(len(frame)):
        raw, reader = raw_pair()
        raw.sendall(frame[:length])
        raw.close()
        assert reader.receive() is None
        reader.close()


def test_a_closed_channel_reads_as_the_end_and_refuses_to_send(pair):
    pair[0].close()
    assert pair[1].receive() is None
    with pytest.raises(WorkerError):
        for _ in range(3):
            pair[1].send(MESSAGES[1])


def test_closing_wakes_a_thread_that_waits_to_receive(pair):
    got = []
    reader = threading.Thread(target=lambda: got.append(pair[1].receive()))
    reader.start()
    pair[1].close()
    reader.join(5)
    assert got == [None]


NONSENSE = [
    b"{",
    b"\xff",
    b"[]",
    b'{"type": "Nobody"}',
    b'{"job_id": "1"}',
    b'{"type": "CancelJob"}',
    b'{"type": "Shutdown", "x": 1}',
    b'{"type": "PhaseStarted", "job_id": "1", "phase": "dreaming", "total": 1}',
]


@pytest.mark.parametrize("header", NONSENSE)
def test_a_frame_without_sense_is_an_error(header):
    raw, reader = raw_pair()
    raw.sendall(struct.pack(">II", len(header), 0) + header)
    with pytest.raises(WorkerError):
        reader.receive()
    raw.close()
    reader.close()


@pytest.mark.parametrize("lengths", [(2**32 - 1, 0), (2, 2**32 - 1), (channel_module.MAX_HEADER_BYTES + 1, 0)])
def test_an_overlong_frame_is_refused_before_it_is_stored(lengths):
    raw, reader = raw_pair()
    raw.sendall(struct.pack(">II", *lengths))
    with pytest.raises(WorkerError, match="possible"):
        reader.receive()
    raw.close()
    reader.close()


def test_an_overlong_message_is_refused_at_the_sender(monkeypatch):
    monkeypatch.setattr(channel_module, "MAX_BLOB_BYTES", 10)
    with pytest.raises(WorkerError, match="possible"):
        encode(events.PreviewFrame(job_id="1", step=1, width=2, height=2, blob=bytes(11)))


def test_values_that_are_no_json_are_refused_at_the_sender():
    with pytest.raises(WorkerError, match="JobDone"):
        encode(events.JobDone(job_id="1", output_path="", facts={"x": object()}))


def test_the_layout_on_the_wire_is_as_documented():
    frame = encode(MESSAGES[7])
    header_bytes, blob_bytes = struct.unpack(">II", frame[:8])
    header = json.loads(frame[8 : 8 + header_bytes].decode("utf-8"))
    assert header == {"type": "PreviewFrame", "job_id": "1", "step": 3, "width": 2, "height": 1}
    assert frame[8 + header_bytes :] == bytes(range(6)) and blob_bytes == 6
