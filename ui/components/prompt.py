"""The prompt, a few examples, and the one big button: Generate, which turns into Stop."""

import gradio as gr

EXAMPLES = (1, 2, 3)
SHORTCUT_HEAD = """<script>
document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !(event.metaKey || event.ctrlKey)) return;
  const button = document.querySelector("#generate");
  if (!button || button.disabled) return;
  event.preventDefault();
  event.stopPropagation();
  button.click();
}, true);
</script>"""


def build_prompt(i18n: gr.I18n) -> tuple[gr.Textbox, tuple[gr.Button, ...]]:
    """The text box with the example buttons beneath it."""
    prompt = gr.Textbox(
        label=i18n("app.prompt"),
        placeholder=i18n("app.prompt_hint"),
        info=i18n("app.prompt_info"),
        lines=4,
        max_lines=12,
        elem_id="prompt",
    )
    with gr.Row(elem_id="examples"):
        examples = tuple(
            gr.Button(i18n(f"app.example_{n}"), size="sm", min_width=0, elem_id=f"example-{n}") for n in EXAMPLES
        )
    return prompt, examples


def build_buttons(i18n: gr.I18n) -> tuple[gr.Button, gr.Button]:
    """Generate and Stop; one of the two is visible at a time."""
    with gr.Row(elem_id="actions"):
        generate = gr.Button(i18n("app.generate"), variant="primary", size="lg", elem_id="generate")
        stop = gr.Button(i18n("app.stop"), variant="stop", size="lg", visible=False, elem_id="stop")
    return generate, stop
