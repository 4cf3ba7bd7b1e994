"""Showing a file in the system's file manager.

Tier: closed form for the command; the start itself with programs that exist or not. Cannot see a file manager open.
"""

from ui import reveal


def test_macos_selects_the_file_and_others_open_its_folder():
    assert reveal.reveal_command("/clips/a b.mp4", "darwin") == ["/usr/bin/open", "-R", "/clips/a b.mp4"]
    assert reveal.reveal_command("/clips/a b.mp4", "linux") == ["xdg-open", "/clips"]


def test_a_missing_file_manager_is_an_answer_not_an_exception(monkeypatch):
    monkeypatch.setattr(reveal, "reveal_command", lambda path: ["/nowhere/file-manager", path])
    assert reveal.show_in_folder("/clips/a.mp4") is False
    monkeypatch.setattr(reveal, "reveal_command", lambda path: ["true"])
    assert reveal.show_in_folder("/clips/a.mp4") is True
