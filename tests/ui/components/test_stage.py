"""HTML of the stage.

Tier: closed form. Cannot judge how it looks; tests/browser saves screenshots for that.
"""

import base64
import io

import pytest
from PIL import Image

from ui.components.stage import PICTURE_SIDE_PX, file_address, picture_address, render_stage
from ui.view_state import StageEmpty, StagePreview, StageVideo

RED_BLUE = bytes([250, 0, 0] * 4 + [0, 0, 250] * 4)


def preview(width=4, height=2, rgb=RED_BLUE):
    return StagePreview(step=3, width=width, height=height, rgb=rgb, caption="Rough <preview>")


def picture_of(stage):
    data = picture_address(stage).removeprefix("data:image/jpeg;base64,")
    return Image.open(io.BytesIO(base64.b64decode(data)))


def test_the_preview_keeps_its_proportions_and_its_rows():
    picture = picture_of(preview())
    assert picture.width == 2 * picture.height and picture.width >= PICTURE_SIDE_PX
    top = picture.getpixel((picture.width // 2, picture.height // 8))
    bottom = picture.getpixel((picture.width // 2, picture.height * 7 // 8))
    assert top[0] > 150 > top[2] and bottom[2] > 150 > bottom[0]


def test_a_large_preview_is_not_enlarged():
    side = PICTURE_SIDE_PX + 44
    assert picture_of(preview(side, side, bytes(side * side * 3))).size == (side, side)


def test_a_preview_of_the_wrong_size_is_an_error_not_a_wrong_picture():
    with pytest.raises(ValueError):
        picture_address(preview(rgb=RED_BLUE[:-3]))


@pytest.mark.parametrize(
    "stage",
    [
        preview(),
        StageEmpty(title="<i>", hint="<i>"),
        StageVideo(path="/clips/<i>'\".mp4", caption="a '<i>' \"circle\""),
    ],
)
def test_everything_is_escaped(stage):
    html = render_stage(stage)
    assert "<i>" not in html and "<preview>" not in html and "'<" not in html.replace("src='", "")


def test_the_address_of_a_clip_survives_spaces_signs_and_scripts():
    assert file_address("/Volumes/My Drive/视频 #1?.mp4") == (
        "/gradio_api/file=/Volumes/My%20Drive/%E8%A7%86%E9%A2%91%20%231%3F.mp4"
    )
