"""Frames between the grader and its sandboxed processes, and the loop that serves them: bytes, JSON, and no pickles.

A frame is the length of its header (8 bytes, little-endian), the header (JSON, with the sizes of the blobs) and the
blobs. Whoever reads one does not trust whoever wrote it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any

MOST_HEADER = 16 << 20
MOST_BLOBS = 512


class Malformed(ValueError):
    """Not a frame."""


def pack(header: dict[str, Any], blobs: Sequence[bytes | memoryview] = ()) -> bytes:
    """The bytes of a frame."""
    text = json.dumps({**header, "sizes": [len(b) for b in blobs]}).encode()
    return b"".join([struct.pack("<Q", len(text)), text, *blobs])


def mark(dtype: str) -> int:
    """The byte that outputs of a dtype are poisoned with, as `labkit.check.poison` has it."""
    return 0xFF if "float" in dtype else 0x81


class Reader:
    """Puts a frame together from pieces; `most` bounds its bytes."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.data = bytearray()
        self._header: dict[str, Any] | None = None
        self._needed = 8

    def feed(self, piece: bytes) -> tuple[dict[str, Any], list[bytes]] | None:
        """The frame, once it is whole. Raises Malformed as soon as it cannot become one."""
        self.data += piece
        if len(self.data) >= 8 and self._header is None:
            (size,) = struct.unpack_from("<Q", self.data)
            if size > MOST_HEADER:
                raise Malformed("its header is too long")
            self._needed = 8 + size
            if len(self.data) >= self._needed:
                self._header = self._parsed(bytes(self.data[8 : self._needed]))
                self._needed += sum(self._header["sizes"])
        if len(self.data) > self.most or self._needed > self.most + MOST_HEADER:
            raise Malformed(f"it has more than {self.most} bytes")
        if self._header is None or len(self.data) < self._needed:
            return None
        blobs, at = [], self._needed - sum(self._header["sizes"])
        for size in self._header["sizes"]:
            blobs.append(bytes(self.data[at : at + size]))
            at += size
        return self._header, blobs

    @staticmethod
    def _parsed(text: bytes) -> dict[str, Any]:
        try:
            header = json.loads(text)
            sizes = header["sizes"]
            if not isinstance(sizes, list) or len(sizes) > MOST_BLOBS:
                raise ValueError("sizes")
            if not all(type(s) is int and 0 <= s < 1 << 40 for s in sizes):
                raise ValueError("sizes")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise Malformed(f"its header cannot be read: {type(error).__name__}") from None
        return header


def serve(handle: Callable[[dict[str, Any], list[bytes]], bytes], most: int) -> None:
    """Answer frames from stdin on stdout until stdin ends, each in a process of its own, forked from this one.

    A process that ends without an answer is answered for: {"died": how}.
    """
    # The jobs are of the same user: without this they could open our descriptors and memory by way of /proc.
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
    answers = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)
    if not os.environ.get("LABKIT_GRADING_DEBUG"):
        os.dup2(nothing, 2)
    os.set_inheritable(answers, False)
    _write(answers, pack({"ready": True}))
    while True:
        reader, job = Reader(most), None
        while job is None:
            # Of one frame exactly, so that the next is left in the pipe.
            piece = os.read(0, min(1 << 20, max(reader._needed - len(reader.data), 1)))
            if not piece:
                return
            job = reader.feed(piece)
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.setsid()
                os.close(ours)
                os.close(answers)
                os.dup2(nothing, 0)
                answer = handle(*job)
                _write(theirs, answer)
                status = 0
            finally:
                os._exit(status)
        os.close(theirs)
        answer = _answer_of(child, ours, most)
        os.close(ours)
        _clear()
        _write(answers, answer)


def _answer_of(child: int, pipe: int, most: int) -> bytes:
    os.set_blocking(pipe, False)
    reader, status, ended = Reader(most), None, False
    while True:
        # A process that the child left behind may hold the pipe open: its end is not waited for.
        ready, _, _ = select.select([] if ended else [pipe], [], [], 0.02 if status is None else 0)
        if ready:
            piece = os.read(pipe, 1 << 20)
            ended = not piece
            try:
                if reader.feed(piece):
                    break
            except Malformed as error:
                _kill(child)
                return pack({"died": f"it answered nonsense ({error})"})
        elif status is not None:
            code = os.waitstatus_to_exitcode(status)
            return pack({"died": f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"})
        if status is None:
            done, found = os.waitpid(child, os.WNOHANG)
            status = found if done else None
            if ended and status is None:
                time.sleep(0.02)
    _kill(child)
    if status is None:
        os.waitpid(child, 0)
    return bytes(reader.data[: reader._needed])


def _clear() -> None:
    """End what a job has left behind: where this is the first process of a namespace, all others are the job's."""
    alone = os.getpid() == 1
    if alone:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, 0 if alone else os.WNOHANG)[0]:
            pass


def _kill(child: int) -> None:
    try:
        os.killpg(child, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _write(to: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(to, view[: 1 << 20]) :]
