"""Captions of the closed world, English and Chinese, paraphrased.

The full caption names all five attributes. `training_caption` sometimes leaves the background or the sound unsaid,
so that a short prompt is not a surprise to the model.
"""

import random

from dev.mini.attributes import Composition

_VERBS = {
    "left": ("moves left", "slides to the left", "drifts left"),
    "right": ("moves right", "slides to the right", "drifts right"),
    "up": ("moves up", "rises", "floats up"),
    "down": ("moves down", "falls", "sinks down"),
    "grows": ("grows", "gets bigger", "expands"),
    "spins": ("spins", "rotates", "turns around"),
    "still": ("stays still", "does not move", "stands still"),
}
_SOUNDS = {
    "low": ("low tone", "deep tone", "low hum"),
    "mid": ("middle tone", "medium tone", "mid tone"),
    "high": ("high tone", "high-pitched tone", "high beep"),
    "pulse": ("pulsing sound", "pulse", "buzzing pulse"),
}
_ENGLISH = (
    "{a} {colour} {shape} {verb} on a {background} background, {sound}",
    "{a} {colour} {shape} {verb} on a {background} background, with a {sound}",
    "A {shape} in {colour} {verb} on a {background} background. Sound: {sound}.",
    "{background} background, {a} {colour} {shape} {verb}, {sound}",
    "On a {background} background {a} {colour} {shape} {verb} while a {sound} plays.",
    "{a} {colour} {shape} that {verb}, {background} background, {sound}",
)
_ENGLISH_SHORT = (
    "{a} {colour} {shape} {verb}, {sound}",
    "{a} {colour} {shape} {verb} on a {background} background",
    "{a} {colour} {shape} {verb}",
)
_CHINESE = (
    "{background}背景上，一个{colour}的{shape}{verb}，{sound}。",
    "一个{colour}{shape}在{background}背景上{verb}，伴有{sound}。",
    "{colour}{shape}{verb}，{background}背景，{sound}",
    "{background}的背景，{colour}的{shape}正在{verb}，声音是{sound}。",
)
_CHINESE_SHORT = ("一个{colour}的{shape}{verb}，{sound}", "一个{colour}{shape}在{background}背景上{verb}")
_ZH_COLOUR = {
    "red": "红色", "green": "绿色", "blue": "蓝色", "yellow": "黄色", "purple": "紫色", "orange": "橙色",
    "white": "白色", "cyan": "青色",
}  # fmt: skip
_ZH_BACKGROUND = {"black": "黑色", "gray": "灰色", "navy": "深蓝色", "brown": "棕色", "pink": "粉色"}
_ZH_SHAPE = {
    "circle": ("圆形", "圆"), "square": ("正方形", "方块"), "triangle": ("三角形",), "star": ("星形", "五角星"),
}  # fmt: skip
_ZH_VERB = {
    "left": ("向左移动", "往左走"), "right": ("向右移动", "往右走"), "up": ("向上移动", "上升"),
    "down": ("向下移动", "下降"), "grows": ("变大", "放大"), "spins": ("旋转", "转动"), "still": ("静止不动", "不动"),
}  # fmt: skip
_ZH_SOUND = {
    "low": ("低音", "低沉的声音"), "mid": ("中音", "中等音调"), "high": ("高音", "尖细的声音"),
    "pulse": ("脉冲声", "嗡嗡的脉冲声"),
}  # fmt: skip
LANGUAGES = ("en", "zh")


def caption(composition: Composition, rng: random.Random, language: str) -> str:
    """Full caption in `language` ("en" or "zh"); all five attributes are named."""
    if language == "zh":
        return _fill_chinese(rng.choice(_CHINESE), composition, rng)
    return _fill_english(rng.choice(_ENGLISH), composition, rng)


def training_caption(composition: Composition, rng: random.Random) -> str:
    """Caption for training: 30 % Chinese, one in eight leaves the background or the sound unsaid."""
    short = rng.random() < 0.125
    if rng.random() < 0.30:
        return _fill_chinese(rng.choice(_CHINESE_SHORT if short else _CHINESE), composition, rng)
    return _fill_english(rng.choice(_ENGLISH_SHORT if short else _ENGLISH), composition, rng)


def _fill_english(template: str, composition: Composition, rng: random.Random) -> str:
    return template.format(
        a="an" if composition.colour == "orange" else "a",
        colour=composition.colour,
        shape=composition.shape,
        verb=rng.choice(_VERBS[composition.motion]),
        background=composition.background,
        sound=rng.choice(_SOUNDS[composition.sound]),
    )


def _fill_chinese(template: str, composition: Composition, rng: random.Random) -> str:
    return template.format(
        colour=_ZH_COLOUR[composition.colour],
        shape=rng.choice(_ZH_SHAPE[composition.shape]),
        verb=rng.choice(_ZH_VERB[composition.motion]),
        background=_ZH_BACKGROUND[composition.background],
        sound=rng.choice(_ZH_SOUND[composition.sound]),
    )
