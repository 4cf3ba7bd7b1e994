"""Pictures and sound into an mp4: H.264 and AAC by the bundled ffmpeg.

The sound lies in a file before the first picture is piped, so the muxer never waits for one while the other is stuck.
Everything unfinished lies in a scratch folder beside the result, and only a finished, synced file gets its name. The
trap: ffmpeg can die, hang, or fill the disk at any point; each must end in one sentence with nothing left behind.
tests/core/pipeline/test_export.py does all of it to a real ffmpeg.
"""

import contextlib
import errno
import json
import os
import queue
import re
import shutil
import struct
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from core import constants as c
from core.errors import MediaError
from core.geometry import Canvas
from core.kernels.threads import default_threads
from core.library.names import discard_scratch, free_path, scratch_folder
from core.programs import ffmpeg_program, foreign_environment, missing_ffmpeg

CRF = 17  # x264 quality: visually lossless on the model's output
AUDIO_BITRATE = "192k"
AUDIO_CODER = "fast"  # ffmpeg 9's default makes a burst of 0.4 of full scale where a tone begins; this one is 0.006 off
BT709 = "setparams=range=tv:colorspace=bt709:color_primaries=bt709:color_trc=bt709"  # as filter: options are ignored
STALL_S = 60.0  # ffmpeg that takes no byte for so long is stuck
FINISH_S = 120.0  # for the last pictures and moving the index to the front
PIECE_BYTES = 2**20  # one write to ffmpeg, so that a stall is noticed within a large picture
WAITING_CHUNKS = 2  # chunks of pictures that may wait for the encoder
BYTES_PER_PIXEL = 0.25  # noise at CRF 17 needs less, real clips a tenth of it
SPARE_BYTES = 32 * 2**20
STDERR_LINES = 12
STDERR_CHARS = 400
LAST_WORDS_S = 2.0  # for a process that refuses its input to end and to be heard out
POLL_S = 0.2
OTHER_FOLDER = "The disk may be full or gone; try another output folder."


def export_clip(
    frames: Iterable[np.ndarray],
    canvas: Canvas,
    audio: np.ndarray | None,
    path: str | Path,
    metadata: dict,
    *,
    overwrite: bool = False,
) -> dict:
    """Write a clip; an existing file keeps its name and the new one gets `-2`, unless `overwrite`.

    frames:   chunks uint8 [n, H, W, 3], taken one by one while the encoder works
    audio:    float32 [2, N] at 32 kHz within -1..1 (louder is clipped), kept to the last sample; None for a silent file
    metadata: JSON types, stored as the file's comment
    returns:  output_path, frame_count, file_bytes, export_s
    raises:   MediaError; whatever `frames` raises, as it is. No file and no scratch folder is left in either case
    """
    started = time.monotonic()
    path = Path(path)
    require_free_space(path, clip_bytes(canvas, expected_frames(audio)))
    scratch = scratch_folder(path)
    try:
        with disk_errors(path):
            prepare(scratch, audio, metadata)
        frame_count = encode(frames, canvas, scratch, with_audio=audio is not None)
        with disk_errors(path):
            target = path if overwrite else free_path(path)
            file_bytes = publish(scratch / "clip.mp4", target)
    finally:
        discard_scratch(path)
    return {
        "output_path": str(target),
        "frame_count": frame_count,
        "file_bytes": file_bytes,
        "export_s": round(time.monotonic() - started, 3),
    }


# ---- before a long render
def check_output(path: str | Path, canvas: Canvas, frame_count: int) -> None:
    """Raise MediaError now for an export that could not work in the end; makes the folder if it is missing."""
    path = Path(path)
    ffmpeg_program()
    require_free_space(path, clip_bytes(canvas, frame_count))
    if path.is_dir():
        raise MediaError(f"{path} is a folder; the name of a file was expected.", hint=f"Use {path / 'clip.mp4'}.")
    scratch = scratch_folder(path)
    with disk_errors(path):  # a read-only disk, a folder of somebody else, a name too long for the disk
        if not scratch.exists():
            scratch.mkdir()
            scratch.rmdir()


# ---- space
def clip_bytes(canvas: Canvas, frame_count: int) -> int:
    """Generous estimate of what an export writes, its scratch files included."""
    sound = 2 * frame_count * c.AUDIO_SAMPLE_RATE_HZ // c.FPS * c.AUDIO_CHANNELS * 4
    return int(canvas.width * canvas.height * frame_count * BYTES_PER_PIXEL) + sound + SPARE_BYTES


def expected_frames(audio: np.ndarray | None) -> int:
    """Frames that go with the sound; the longest clip when there is none."""
    return c.MAX_FRAME_COUNT if audio is None else -(-audio.shape[-1] * c.FPS // c.AUDIO_SAMPLE_RATE_HZ)


def require_free_space(path: str | Path, needed_bytes: int) -> None:
    """Raise MediaError when the disk of `path` has not `needed_bytes` left; makes the folder if it is missing."""
    folder = Path(path).absolute().parent
    with disk_errors(Path(path)):
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        raise MediaError(
            f"{folder} has {free / 2**20:.0f} MiB left; the clip needs up to {needed_bytes / 2**20:.0f} MiB.",
            hint="Free some space or choose another output folder.",
        )


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into the sentence a person reads."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise disk_full(path) from error
        raise MediaError(f"{path} could not be written: {error.strerror}.", hint=OTHER_FOLDER) from error


def disk_full(path: Path) -> MediaError:
    return MediaError(f"The disk is full: {path} could not be written.", hint="Free some space and try again.")


# ---- scratch files
def prepare(scratch: Path, audio: np.ndarray | None, metadata: dict) -> None:
    """Make the scratch folder with the sound and the settings in it."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    (scratch / "settings.txt").write_bytes(metadata_file(metadata))
    if audio is not None:
        (scratch / "sound.wav").write_bytes(wav_bytes(audio))


def metadata_file(metadata: dict) -> bytes:
    """`metadata` as the comment, in ffmpeg's format; a file because a command line is limited and everyone sees it.

    A lone surrogate, which UTF-8 cannot hold, becomes its JSON escape and so survives.
    """
    text = json.dumps(metadata, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
    return b";FFMETADATA1\ncomment=" + re.sub(rb"[=;#\\\n]", rb"\\\g<0>", text) + b"\n"


def wav_bytes(audio: np.ndarray) -> bytes:
    """A RIFF WAVE file of 32-bit floats from [2, N] at 32 kHz; raises MediaError for other shapes and for NaN."""
    if audio.ndim != 2 or audio.shape[0] != c.AUDIO_CHANNELS or audio.shape[1] == 0:
        raise MediaError(f"The sound has shape {list(audio.shape)}; [{c.AUDIO_CHANNELS}, samples] was expected.")
    if not np.isfinite(audio).all():
        raise MediaError("The sound holds values that are no numbers.")
    data = np.clip(audio.T, -1.0, 1.0).astype("<f4").tobytes()
    frame_bytes = 4 * c.AUDIO_CHANNELS
    rate, float_format = c.AUDIO_SAMPLE_RATE_HZ, 3
    layout = (float_format, c.AUDIO_CHANNELS, rate, rate * frame_bytes, frame_bytes, 32)
    header = b"WAVEfmt " + struct.pack("<IHHIIHH", 16, *layout) + b"data" + struct.pack("<I", len(data))
    return b"RIFF" + struct.pack("<I", len(header) + len(data)) + header + data


# ---- encoding
def encoder_command(canvas: Canvas, *, with_audio: bool) -> list[str]:
    """ffmpeg's command line: raw pictures on its stdin, everything else in the folder it works in."""
    sound = ["-i", "sound.wav"] if with_audio else []
    sound_out = ["-map", "1:a", "-c:a", "aac", "-aac_coder", AUDIO_CODER, "-b:a", AUDIO_BITRATE]
    return [
        ffmpeg_program(), "-hide_banner", "-loglevel", "error", "-nostats", "-y",
        "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{canvas.width}x{canvas.height}", "-r", str(c.FPS),
        "-i", "pipe:0",
        *sound, "-f", "ffmetadata", "-i", "settings.txt", "-map_metadata", "2" if with_audio else "1",
        "-map", "0:v", "-c:v", "libx264", "-preset", "medium", "-crf", str(CRF), "-threads", str(default_threads()),
        "-vf", f"scale=out_color_matrix=bt709:out_range=tv:flags=accurate_rnd+full_chroma_int,format=yuv420p,{BT709}",
        *(sound_out if with_audio else []), "-movflags", "+faststart", "-f", "mp4", "clip.mp4",
    ]  # fmt: skip


def encode(frames: Iterable[np.ndarray], canvas: Canvas, scratch: Path, *, with_audio: bool) -> int:
    """Pipe all frames through ffmpeg into `clip.mp4`; returns their number."""
    count, shape = 0, (canvas.height, canvas.width, 3)
    with Encoder(encoder_command(canvas, with_audio=with_audio), scratch) as encoder:
        for chunk in frames:
            if chunk.dtype != np.uint8 or chunk.shape[1:] != shape:
                raise MediaError(f"Pictures are {chunk.dtype} {chunk.shape[1:]}; uint8 {shape} was expected.")
            encoder.write(chunk)
            count += len(chunk)
        if count == 0:
            raise MediaError("There are no pictures to write.")
        encoder.finish()
    return count


class Encoder:
    """A running ffmpeg, fed by a thread so that the decoder goes on while it encodes. Leaving the block ends it."""

    def __init__(self, command: list[str], folder: Path):
        try:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=foreign_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        except OSError as error:
            raise missing_ffmpeg(str(error)) from error
        self._folder = folder
        self._chunks: queue.Queue[np.ndarray | None] = queue.Queue(WAITING_CHUNKS)
        self._last_words: deque[str] = deque(maxlen=STDERR_LINES)
        self._writing_since_s: float | None = None  # start of the write in progress
        self._refused = False
        self._feeder = threading.Thread(target=self._feed, name="ffmpeg feeder", daemon=True)
        self._listener = threading.Thread(target=self._listen, name="ffmpeg listener", daemon=True)
        self._feeder.start()
        self._listener.start()

    def __enter__(self) -> "Encoder":
        return self

    def __exit__(self, *_):
        self._process.kill()  # nothing happens to one that has finished
        self._process.wait()
        with contextlib.suppress(queue.Full):
            self._chunks.put_nowait(None)
        self._feeder.join()
        self._listener.join()
        self._process.stderr.close()

    def write(self, chunk: np.ndarray) -> None:
        """Hand over pictures, waiting while enough of them wait; raises MediaError when ffmpeg is dead or stuck."""
        if chunk.size:
            self._put(np.ascontiguousarray(chunk))

    def finish(self) -> None:
        """Wait for the finished file; raises MediaError when there is none."""
        self._put(None)
        while self._feeder.is_alive():
            self._check()
            self._feeder.join(POLL_S)
        self._check()
        try:
            code = self._process.wait(FINISH_S)
        except subprocess.TimeoutExpired:
            raise self._error(f"did not finish the file within {FINISH_S:.0f} s") from None
        if code:
            raise self._error(f"failed with exit code {code}")

    def _put(self, chunk: np.ndarray | None) -> None:
        while True:
            self._check()
            try:
                return self._chunks.put(chunk, timeout=POLL_S)
            except queue.Full:
                continue

    def _check(self) -> None:
        if self._refused:
            raise self._error("stopped in the middle")
        since_s = self._writing_since_s
        if since_s is not None and time.monotonic() - since_s > STALL_S:
            raise self._error(f"took no picture for {STALL_S:.0f} s")

    def _error(self, what: str) -> MediaError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(LAST_WORDS_S)
        self._process.kill()
        self._listener.join(LAST_WORDS_S)
        words = " ".join(self._last_words)[-STDERR_CHARS:]
        if os.strerror(errno.ENOSPC) in words or os.strerror(errno.EFBIG) in words:
            return disk_full(self._folder.parent)
        return MediaError(f"The video encoder ffmpeg {what}. {words}".strip(), hint=OTHER_FOLDER)

    def _feed(self) -> None:
        """Write waiting pictures to ffmpeg until there are no more or it refuses them."""
        pipe = self._process.stdin
        try:
            while (chunk := self._chunks.get()) is not None:
                view = memoryview(chunk).cast("B")
                for start in range(0, len(view), PIECE_BYTES):
                    self._writing_since_s = time.monotonic()
                    pipe.write(view[start : start + PIECE_BYTES])
                self._writing_since_s = None
            pipe.close()
        except OSError:
            self._refused = True
            with contextlib.suppress(OSError):
                pipe.close()

    def _listen(self) -> None:
        """Keep the last lines ffmpeg says."""
        for line in self._process.stderr:
            self._last_words.append(line.decode("utf-8", "replace").strip())


# ---- the finished file
def publish(scratch_file: Path, target: Path) -> int:
    """Sync a finished file and give it its name; returns its size in bytes."""
    with open(scratch_file, "rb+") as file:
        os.fsync(file.fileno())
        size = file.seek(0, os.SEEK_END)
    os.replace(scratch_file, target)
    return size
