"""The few settings: size, length, steps, seed; exact values wait in a closed accordion.

The trap: `gr.Number` turns an empty field into 0 by itself when a generator updates other widgets, and JavaScript
rounds large numbers; every number a person types is therefore text until `ui/form.py` reads it.
"""

import gradio as gr

from ui import form

LENGTH_KEY = "app.length_{frames}"


def build_settings(i18n: gr.I18n) -> dict[str, gr.components.Component]:
    """Widgets by the names of `form.FormValues` (all but the prompt), and "dice"."""
    defaults = form.FormValues()
    widgets = {
        "size": gr.Radio(
            [(f"{width} × {height}", f"{width}x{height}") for width, height in form.SIZES],
            value=defaults.size,
            label=i18n("app.size"),
            info=i18n("app.size_info"),
            elem_id="size",
            elem_classes="choices",
        ),
        "length": gr.Radio(
            [(i18n(LENGTH_KEY.format(frames=frames)), frames) for frames in form.LENGTHS],
            value=defaults.length,
            label=i18n("app.length"),
            info=i18n("app.length_info"),
            elem_id="length",
            elem_classes="choices",
        ),
        "steps": gr.Radio(
            [(i18n("app.steps_auto") if steps == 0 else str(steps), steps) for steps in form.STEPS],
            value=defaults.steps,
            label=i18n("app.steps"),
            info=i18n("app.steps_info"),
            elem_id="steps",
            elem_classes="choices",
        ),
    }
    return widgets | _build_seed(i18n) | _build_exact(i18n)


def _build_seed(i18n: gr.I18n) -> dict[str, gr.components.Component]:
    with gr.Row(elem_id="seed-row"):
        seed = gr.Textbox(
            label=i18n("app.seed"),
            placeholder=i18n("app.seed_random"),
            max_lines=1,
            elem_id="seed",
            scale=3,
            min_width=120,
        )
        dice = gr.Button(i18n("app.dice"), size="sm", min_width=44, scale=0, elem_id="dice")
        lock = gr.Checkbox(label=i18n("app.seed_lock"), elem_id="seed-lock", container=False, min_width=80, scale=1)
    return {"seed": seed, "dice": dice, "seed_lock": lock}


def _build_exact(i18n: gr.I18n) -> dict[str, gr.components.Component]:
    names = ("width", "height", "frames", "steps")
    with gr.Accordion(i18n("app.advanced"), open=False, elem_id="advanced"):
        gr.Markdown(i18n("app.advanced_info"), elem_id="advanced-info")
        with gr.Row():
            return {
                f"exact_{name}": gr.Textbox(
                    label=i18n(f"app.exact_{name}"),
                    placeholder=i18n("app.exact_empty"),
                    max_lines=1,
                    elem_id=f"exact-{name}",
                    min_width=110,
                )
                for name in names
            }
