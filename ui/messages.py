"""Every sentence a person reads in the window, in English and Simplified Chinese.

Keys that start with "app." are labels translated inside the page (gr.I18n); the other keys are sentences composed in
Python, in the language of the request's Accept-Language header. Proof: tests/ui/test_messages.py compares the keys and
the fields of both languages.
"""

from dataclasses import dataclass

from ui.form import LENGTHS, seconds_of

DEFAULT_LANGUAGE = "en"

ENGLISH = {
    "app.tagline": "Video with sound, made on this computer",
    "app.prompt": "Prompt",
    "app.prompt_hint": "What happens, where, and what it sounds like",
    "app.prompt_info": "⌘ Enter or Ctrl Enter starts",
    "app.size": "Size",
    "app.size_info": "Width × height in pixels",
    "app.length": "Length",
    "app.length_info": "Seconds · frames (24 per second)",
    "app.steps": "Steps",
    "app.steps_info": "More steps take longer and look cleaner",
    "app.steps_auto": "Auto",
    "app.seed": "Seed",
    "app.dice": "New seed",
    "app.seed_lock": "Keep",
    "app.seed_random": "random",
    "app.advanced": "Advanced",
    "app.advanced_info": "Exact values win over the choices above. They are rounded to what the model can make.",
    "app.exact_width": "Width (px)",
    "app.exact_height": "Height (px)",
    "app.exact_frames": "Frames",
    "app.exact_steps": "Steps",
    "app.exact_empty": "as above",
    "app.generate": "Generate",
    "app.stop": "Stop",
    "app.reveal": "Show in folder",
    "app.example_1": "Red circle",
    "app.example_2": "Yellow star",
    "app.example_3": "Blue square",
    "example.1": "a red circle moves right on a navy background, low tone",
    "example.2": "a yellow star spins on a black background, high tone",
    "example.3": "a blue square grows on a pink background, with a pulsing sound",
    "stage.empty": "Your clip appears here",
    "stage.empty_hint": "Describe it on the left and press Generate.",
    "stage.waiting": "The first rough picture comes after the first step",
    "stage.preview": "Rough preview",
    "stage.preview_step": "Rough preview after step {step}",
    "stage.video": "Finished video: {prompt}",
    "phase.queued": "Waiting for the clip before this one",
    "phase.starting": "Getting ready",
    "phase.text": "Reading the prompt",
    "phase.denoise": "Shaping picture and sound",
    "phase.video_decode": "Developing the pictures",
    "phase.audio_decode": "Developing the sound",
    "phase.export": "Writing the video file",
    "rail.starting": "Prepare",
    "rail.text": "Prompt",
    "rail.denoise": "Shape",
    "rail.video_decode": "Pictures",
    "rail.audio_decode": "Sound",
    "rail.export": "Save",
    "status.done": "Finished",
    "status.failed": "Not finished",
    "status.cancelled": "Stopped",
    "status.stopping": "Stopping",
    "status.step": "step {done}/{total}",
    "status.part": "{done}/{total}",
    "status.waits_for": "finishing first: {what}",
    "time.elapsed": "{time} so far",
    "time.remaining": "about {time} left in this phase",
    "time.took": "took {time}",
    "time.seconds": "{seconds} s",
    "time.minutes": "{minutes} min {seconds} s",
    "time.hours": "{hours} h {minutes} min",
    "notice.size": "Size {width}×{height} became {legal_width}×{legal_height}: multiples of 32, up to 1344×768 in all.",
    "notice.frames": "{frames} frames became {legal_frames}: the model makes 22, 39, 56, … 362.",
    "notice.attached": "Another clip is still being made; this is its progress. Press Generate again afterwards.",
    "problem.prompt": "The prompt is empty. Describe the clip in a few words.",
    "problem.seed": "“{value}” is not a seed. Use a whole number from 0 to {limit}, or nothing for a random one.",
    "problem.size": "A size of {width} × {height} pixels is not possible. Try 128 × 128.",
    "problem.frames": "{frames} frames are not possible. Try 22.",
    "problem.number": "“{value}” is not a whole number.",
    "problem.steps": "{steps} steps are not possible; use 1 to 200.",
    "problem.request": "The model cannot make this: {detail}",
    "error.form": "Please check the settings",
    "error.request": "The model cannot make this",
    "error.checkpoint": "The model's files cannot be used",
    "error.memory": "This clip needs more memory than this computer can give",
    "error.kernel": "The calculation failed",
    "error.media": "The video could not be written",
    "error.worker": "The render process ended unexpectedly",
    "error.crash": "The render failed",
    "error.error": "Something went wrong",
    "hint.form": "",
    "hint.request": "Change the settings and try again.",
    "hint.checkpoint": "Check that the model's files are complete.",
    "hint.memory": "Choose a smaller size or a shorter clip.",
    "hint.kernel": "Try again. If it happens again, restart Vignette.",
    "hint.media": "Check the free space of the disk and the rights of the output folder.",
    "hint.worker": "Your settings are kept; press Generate to try again. A smaller size needs less memory.",
    "hint.crash": "Your settings are kept; press Generate to try again.",
    "hint.error": "Try again. If it happens again, restart Vignette.",
    "result.saved": "Saved as",
    "result.download": "Download a copy",
    "result.facts": "{width} × {height} · {frames} frames ({seconds} s) · seed {seed}",
    "length.choice": "{seconds} s · {frames}",
    "reveal.failed": "No file manager could be opened. The file is at {path}",
    "gate.forbidden": "Open the address that Vignette printed when it started.",
}

CHINESE = {
    "app.tagline": "在本机生成有声视频",
    "app.prompt": "提示词",
    "app.prompt_hint": "画面里发生什么、背景如何、声音如何",
    "app.prompt_info": "按 ⌘ Enter 或 Ctrl Enter 开始",
    "app.size": "尺寸",
    "app.size_info": "宽 × 高（像素）",
    "app.length": "时长",
    "app.length_info": "秒数 · 帧数（每秒 24 帧）",
    "app.steps": "步数",
    "app.steps_info": "步数越多越慢，画面越干净",
    "app.steps_auto": "自动",
    "app.seed": "随机种子",
    "app.dice": "换一个种子",
    "app.seed_lock": "固定",
    "app.seed_random": "随机",
    "app.advanced": "高级设置",
    "app.advanced_info": "此处的精确数值优先于上面的选项，并会取整到模型支持的数值。",
    "app.exact_width": "宽（像素）",
    "app.exact_height": "高（像素）",
    "app.exact_frames": "帧数",
    "app.exact_steps": "步数",
    "app.exact_empty": "同上",
    "app.generate": "生成",
    "app.stop": "停止",
    "app.reveal": "在文件夹中显示",
    "app.example_1": "红色圆形",
    "app.example_2": "黄色星形",
    "app.example_3": "蓝色方块",
    "example.1": "深蓝色背景上，一个红色的圆形向右移动，低音。",
    "example.2": "一个黄色星形在黑色背景上旋转，伴有高音。",
    "example.3": "粉色背景上，一个蓝色的正方形变大，脉冲声。",
    "stage.empty": "片段会显示在这里",
    "stage.empty_hint": "在左侧描述画面，然后点击“生成”。",
    "stage.waiting": "第一步完成后会出现粗略预览",
    "stage.preview": "粗略预览",
    "stage.preview_step": "第 {step} 步后的粗略预览",
    "stage.video": "生成的视频：{prompt}",
    "phase.queued": "正在等待前一个片段",
    "phase.starting": "正在准备",
    "phase.text": "正在理解提示词",
    "phase.denoise": "正在生成画面与声音",
    "phase.video_decode": "正在解码画面",
    "phase.audio_decode": "正在解码声音",
    "phase.export": "正在写入视频文件",
    "rail.starting": "准备",
    "rail.text": "提示词",
    "rail.denoise": "生成",
    "rail.video_decode": "画面",
    "rail.audio_decode": "声音",
    "rail.export": "保存",
    "status.done": "已完成",
    "status.failed": "未完成",
    "status.cancelled": "已停止",
    "status.stopping": "正在停止",
    "status.step": "第 {done}/{total} 步",
    "status.part": "{done}/{total}",
    "status.waits_for": "先完成：{what}",
    "time.elapsed": "已用 {time}",
    "time.remaining": "此阶段约剩 {time}",
    "time.took": "用时 {time}",
    "time.seconds": "{seconds} 秒",
    "time.minutes": "{minutes} 分 {seconds} 秒",
    "time.hours": "{hours} 小时 {minutes} 分",
    "notice.size": "尺寸 {width}×{height} 已调整为 {legal_width}×{legal_height}：须为 32 的倍数，总面积至多 1344×768。",
    "notice.frames": "{frames} 帧已调整为 {legal_frames} 帧：模型支持 22、39、56……362 帧。",
    "notice.attached": "另一个片段仍在生成，此处显示它的进度。完成后请再次点击“生成”。",
    "problem.prompt": "提示词为空，请用几个词描述画面。",
    "problem.seed": "“{value}”不是有效的种子。请输入 0 到 {limit} 的整数，或留空以随机选取。",
    "problem.size": "无法使用 {width} × {height} 像素的尺寸，可以试试 128 × 128。",
    "problem.frames": "无法生成 {frames} 帧，可以试试 22 帧。",
    "problem.number": "“{value}”不是整数。",
    "problem.steps": "无法使用 {steps} 步，请输入 1 到 200。",
    "problem.request": "模型无法生成：{detail}",
    "error.form": "请检查设置",
    "error.request": "模型无法按此要求生成",
    "error.checkpoint": "无法使用模型文件",
    "error.memory": "所需内存超过了本机可用内存",
    "error.kernel": "计算失败",
    "error.media": "无法写入视频",
    "error.worker": "生成进程意外结束",
    "error.crash": "生成失败",
    "error.error": "出现问题",
    "hint.form": "",
    "hint.request": "请修改设置后重试。",
    "hint.checkpoint": "请检查模型文件是否完整。",
    "hint.memory": "请选择更小的尺寸或更短的时长。",
    "hint.kernel": "请重试；若再次出现，请重新启动 Vignette。",
    "hint.media": "请检查磁盘剩余空间和输出文件夹的权限。",
    "hint.worker": "设置已保留，点击“生成”即可重试。较小的尺寸需要的内存更少。",
    "hint.crash": "设置已保留，点击“生成”即可重试。",
    "hint.error": "请重试；若再次出现，请重新启动 Vignette。",
    "result.saved": "已保存为",
    "result.download": "下载副本",
    "result.facts": "{width} × {height} · {frames} 帧（{seconds} 秒）· 种子 {seed}",
    "length.choice": "{seconds} 秒 · {frames}",
    "reveal.failed": "无法打开文件管理器。文件位于 {path}",
    "gate.forbidden": "请打开 Vignette 启动时显示的网址。",
}

LANGUAGES = {"en": ENGLISH, "zh": CHINESE}


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorText:
    """What the error box says: a plain sentence, the technical sentence (may be empty), what to do."""

    title: str
    details: tuple[str, ...]
    hint: str


def text(language: str, key: str, **fields) -> str:
    """The sentence of `key` with its fields filled in."""
    return LANGUAGES[language][key].format(**fields)


def choose_language(accept_language: str | None) -> str:
    """The language a browser prefers most among ours; English when it names neither.

    accept_language: header value such as "zh-CN,zh;q=0.9,en;q=0.8"
    """
    wishes = []
    for position, part in enumerate((accept_language or "").split(",")):
        tag, _, quality = part.strip().partition(";q=")
        language = tag.strip().lower().split("-")[0]
        if language in LANGUAGES:
            wishes.append((-_quality(quality), position, language))
    return min(wishes)[2] if wishes else DEFAULT_LANGUAGE


def _quality(value: str) -> float:
    try:
        return float(value) if value else 1.0
    except ValueError:
        return 0.0


def page_translations() -> dict[str, dict[str, str]]:
    """Labels the page translates by itself, by locale; every Chinese locale gets the same words."""
    locales = ("zh", "zh-CN", "zh-TW", "zh-HK", "zh-SG", "zh-Hans", "zh-Hant")
    return {"en": _labels("en"), **dict.fromkeys(locales, _labels("zh"))}


def _labels(language: str) -> dict[str, str]:
    labels = {key: words for key, words in LANGUAGES[language].items() if key.startswith("app.")}
    for frames in LENGTHS:
        labels[f"app.length_{frames}"] = text(language, "length.choice", seconds=seconds_of(frames), frames=frames)
    return labels


def error_text(language: str, kind: str, *, message: str = "", hint: str = "") -> ErrorText:
    """Box for an error of `kind` (`VignetteError.kind` or "crash"); unknown kinds read as a general error.

    The error's own sentences are English: English readers get its hint, Chinese readers our hint for the kind, and both
    get its message as the detail line.
    """
    known = kind if f"error.{kind}" in ENGLISH else "error"
    own_hint = hint if language == DEFAULT_LANGUAGE else ""
    return ErrorText(
        title=text(language, f"error.{known}"),
        details=(message,) if message else (),
        hint=own_hint or text(language, f"hint.{known}"),
    )


def duration(language: str, seconds: float) -> str:
    """Whole seconds below a minute, then minutes and seconds, then hours and minutes."""
    whole = max(0, round(seconds))
    if whole < 60:
        return text(language, "time.seconds", seconds=whole)
    if whole < 3600:
        return text(language, "time.minutes", minutes=whole // 60, seconds=f"{whole % 60:02}")
    return text(language, "time.hours", hours=whole // 3600, minutes=f"{whole % 3600 // 60:02}")
