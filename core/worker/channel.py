"""Frames over a socket pair: a JSON header and raw bytes, each with its length in front.

    u32 header bytes | u32 blob bytes | header, UTF-8 JSON | blob        (big-endian)

The trap: libraries print to stdout whenever they like, so nothing of ours travels there. A peer that dies in the middle
of a frame leaves a torn one; it reads as the end of the channel, never as a message. tests/core/worker/test_channel.py
tears a frame at every byte.
"""

import contextlib
import json
import select
import socket
import struct
import threading

from core.errors import WorkerError
from core.worker.events import Message, from_wire, to_wire

LENGTHS = struct.Struct(">II")
MAX_HEADER_BYTES = 4 * 2**20
MAX_BLOB_BYTES = 64 * 2**20  # a preview of 1344x768 has 3 MiB


class Channel:
    """One end of the conversation. `send` may be called from any thread, `receive` from one."""

    def __init__(self, end: socket.socket):
        self._socket = end
        self._send_lock = threading.Lock()

    def send(self, message: Message) -> None:
        """Write one whole frame, waiting for a slow reader; raises WorkerError when the peer is gone."""
        self.send_frame(encode(message))

    def send_frame(self, frame: bytes) -> None:
        """`send` for a message that `encode` has already made a frame of."""
        with self._send_lock:
            try:
                self._socket.sendall(frame)
            except OSError as error:
                raise WorkerError(f"The other process does not listen any more: {error}.") from error

    def wait(self, timeout_s: float) -> bool:
        """Whether something (or the end) can be read within `timeout_s`."""
        try:
            return bool(select.select([self._socket], [], [], timeout_s)[0])
        except (OSError, ValueError):  # closed meanwhile by another thread: that is an end, too
            return True

    def receive(self) -> Message | None:
        """The next message, or None at the end of the channel; raises WorkerError on a frame that makes no sense."""
        lengths = self._read(LENGTHS.size)
        if lengths is None:
            return None
        header_bytes, blob_bytes = LENGTHS.unpack(lengths)
        check_lengths(header_bytes, blob_bytes)
        header, blob = self._read(header_bytes), self._read(blob_bytes)
        if header is None or blob is None:
            return None
        try:
            return from_wire(json.loads(header.decode("utf-8")), blob)
        except (ValueError, KeyError, TypeError) as error:
            raise WorkerError(f"An unreadable message arrived: {error!r}.") from error

    def close(self) -> None:
        """End the channel in both directions; a thread inside `receive` wakes up."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _read(self, count: int) -> bytes | None:
        """Exactly `count` bytes, or None when the channel ends before."""
        buffer = bytearray(count)
        view, filled = memoryview(buffer), 0
        while filled < count:
            try:
                got = self._socket.recv_into(view[filled:])
            except OSError:
                return None
            if got == 0:
                return None
            filled += got
        return bytes(buffer)


def encode(message: Message) -> bytes:
    """One frame; raises WorkerError for a message over the limits or with values JSON does not know."""
    header, blob = to_wire(message)
    try:
        text = json.dumps(header, ensure_ascii=True).encode("ascii")
    except (TypeError, ValueError) as error:
        raise WorkerError(f"A {type(message).__name__} holds a value that is no JSON: {error}.") from error
    check_lengths(len(text), len(blob))
    return LENGTHS.pack(len(text), len(blob)) + text + blob


def check_lengths(header_bytes: int, blob_bytes: int) -> None:
    """Refuse a frame over the limits before a byte of it is stored."""
    if header_bytes > MAX_HEADER_BYTES or blob_bytes > MAX_BLOB_BYTES:
        raise WorkerError(
            f"A message has {header_bytes} + {blob_bytes} bytes; {MAX_HEADER_BYTES} + {MAX_BLOB_BYTES} are possible."
        )
