"""HTML beneath the stage.

Tier: closed form. Cannot judge how it looks; tests/browser saves screenshots for that.
"""

from ui.components.progress import render_error, render_result, render_status
from ui.messages import ErrorText
from ui.view_state import RailItem, ResultText, StatusText


def test_a_segment_is_as_full_as_its_units_and_unknown_work_shows_none():
    status = StatusText(
        state="running",
        headline="h",
        rail=(
            RailItem(words="a", state="done"),
            RailItem(words="b", state="active", done=3, total=8),
            RailItem(words="c", state="active"),
            RailItem(words="d", state="todo"),
        ),
    )
    html = render_status(status)
    assert [part.split("%")[0] for part in html.split("width:")[1:]] == ["100", "38", "0", "0"]
    assert html.count("v-unknown") == 1


def test_a_state_is_told_by_a_sign_too_not_by_colour_alone():
    html = render_status(StatusText(rail=tuple(RailItem(words="", state=s) for s in ("done", "active", "todo"))))
    assert all(html.count(sign) == 1 for sign in "✓●○")


def test_everything_is_escaped():
    bad = "<script>'\""
    texts = [
        render_status(StatusText(headline=bad, timing=bad, notices=(bad,), rail=(RailItem(words=bad, state="todo"),))),
        render_error(ErrorText(title=bad, details=(bad,), hint=bad)),
        render_result(ResultText(path=f"/{bad}.mp4", saved=bad, facts=bad, download=bad)),
    ]
    assert not [html for html in texts if "<script" in html or "'\"" in html]


def test_nothing_to_say_is_empty():
    assert render_error(None) == "" and render_result(None) == ""


def test_an_error_is_announced_to_screen_readers():
    assert "role='alert'" in render_error(ErrorText(title="t", details=(), hint=""))
