"""Theme of the window: system fonts only, light or dark as the system says; more in assets/css/window.css."""

from pathlib import Path

import gradio as gr

from core import paths

FONTS = ("system-ui", "-apple-system", "Segoe UI", "PingFang SC", "Noto Sans CJK SC", "sans-serif")
MONO_FONTS = ("ui-monospace", "SF Mono", "Menlo", "DejaVu Sans Mono", "monospace")
LIGHT_GROUND, LIGHT_INK, LIGHT_LINE = "#f4f4f7", "#1b1c22", "#dcdde5"
DARK_GROUND, DARK_PANEL, DARK_LINE = "#121318", "#1a1c23", "#2c2f3a"
ACCENT, ACCENT_STRONG = "#5b5bd6", "#4a4ac4"


def style_sheet() -> Path:
    """The style sheet for what the theme does not reach, and for our own HTML."""
    return paths.assets_dir() / "css" / "window.css"


def window_theme() -> gr.themes.Base:
    """The look of every Gradio widget; colours that our own HTML shares are variables of the style sheet."""
    theme = gr.themes.Base(
        primary_hue=gr.themes.colors.indigo,
        secondary_hue=gr.themes.colors.indigo,
        neutral_hue=gr.themes.colors.slate,
        radius_size=gr.themes.sizes.radius_lg,
        spacing_size=gr.themes.sizes.spacing_md,
        text_size=gr.themes.sizes.text_md,
        font=list(FONTS),
        font_mono=list(MONO_FONTS),
    )
    return theme.set(
        body_background_fill=LIGHT_GROUND,
        body_background_fill_dark=DARK_GROUND,
        body_text_color=LIGHT_INK,
        block_background_fill="#ffffff",
        block_background_fill_dark=DARK_PANEL,
        block_border_width="0px",
        block_shadow="none",
        block_label_background_fill="transparent",
        block_label_background_fill_dark="transparent",
        block_label_border_width="0px",
        block_title_text_weight="600",
        block_title_text_size="13px",
        block_info_text_size="12px",
        input_background_fill=LIGHT_GROUND,
        input_background_fill_dark=DARK_GROUND,
        input_border_color=LIGHT_LINE,
        input_border_color_dark=DARK_LINE,
        input_border_color_focus=ACCENT,
        input_border_color_focus_dark=ACCENT,
        button_primary_background_fill=ACCENT,
        button_primary_background_fill_dark=ACCENT,
        button_primary_background_fill_hover=ACCENT_STRONG,
        button_primary_background_fill_hover_dark=ACCENT_STRONG,
        button_primary_text_color="#ffffff",
        button_primary_text_color_dark="#ffffff",
        button_large_text_weight="600",
    )
