"""The environment the window is opened in.

Tier: closed form. Cannot show that gradio obeys the variables; tests/browser watches every request of the page.
"""

from core.commands.window import prepare_environment


def prepared(**environment):
    prepare_environment(environment, "/cache")
    return environment


def test_nothing_is_asked_of_other_machines():
    environment = prepared()
    assert environment["GRADIO_ANALYTICS_ENABLED"] == "False" and environment["HF_HUB_OFFLINE"] == "1"
    assert environment["GRADIO_RUN_HISTORY"] == "False"


def test_files_stay_in_our_cache():
    assert prepared()["GRADIO_TEMP_DIR"].startswith("/cache/")


def test_a_proxy_never_stands_between_us_and_ourselves():
    environment = prepared(NO_PROXY="intranet", HTTP_PROXY="http://127.0.0.1:1")
    assert environment["NO_PROXY"] == "intranet,127.0.0.1,localhost"
    assert environment["no_proxy"] == "127.0.0.1,localhost"
    assert environment["HTTP_PROXY"] == "http://127.0.0.1:1"


def test_a_socks_proxy_is_taken_out():
    assert "ALL_PROXY" not in prepared(ALL_PROXY="socks5://127.0.0.1:1")
