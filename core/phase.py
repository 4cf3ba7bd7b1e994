"""The load-run-release units of a render, in order. `ui/messages.py` has the words people read."""

from enum import Enum


class Phase(Enum):
    STARTING = "starting"
    TEXT = "text"
    DENOISE = "denoise"
    AUDIO_DECODE = "audio_decode"
    VIDEO_DECODE = "video_decode"
    EXPORT = "export"
