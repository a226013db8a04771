import subprocess
import sys

import pytest
import torch
from PIL import Image

from ratenorm.data import folder as module
from ratenorm.data import load_folder
from ratenorm.errors import DataError, UsageError


def save(path, size=(4, 3), colour=(10, 20, 30), mode="RGB", **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path, **options)
    return path


@pytest.fixture
def pets(tmp_path):
    root = tmp_path / "pets"
    save(root / "dog" / "1.png", colour=(1, 2, 3))
    save(root / "cat" / "2.webp", colour=(4, 5, 6), lossless=True)
    save(root / "cat" / "1.PNG", colour=(7, 8, 9))
    return root


def test_classes_and_files_in_order(pets):
    loaded = load_folder(pets)
    assert loaded.name == "pets"
    assert loaded.classes == ("cat", "dog")
    assert loaded.labels.tolist() == [0, 0, 1]
    assert loaded.images.shape == (3, 3, 3, 4), "height before width"
    assert loaded.images[:, :, 0, 0].tolist() == [[7, 8, 9], [4, 5, 6], [1, 2, 3]]


def test_jpeg_and_what_is_left_alone(pets):
    save(pets / "dog" / "2.jpeg")
    (pets / "README.txt").write_text("about")
    (pets / "dog" / ".hidden").write_text("")
    (pets / ".git").mkdir()
    assert len(load_folder(pets)) == 4


def test_pixels_are_where_they_were(tmp_path):
    picture = Image.new("RGB", (3, 2))
    for x in range(3):
        for y in range(2):
            picture.putpixel((x, y), (x, y, 10 * x + y))
    (tmp_path / "a").mkdir()
    picture.save(tmp_path / "a" / "1.png")
    image = load_folder(tmp_path).images[0]
    assert image[0].tolist() == [[0, 1, 2], [0, 1, 2]]
    assert image[1].tolist() == [[0, 0, 0], [1, 1, 1]]
    assert image[2].tolist() == [[0, 10, 20], [1, 11, 21]]


def test_grey_stays_grey_until_one_has_colour(tmp_path):
    save(tmp_path / "a" / "1.png", colour=200, mode="L")
    save(tmp_path / "a" / "2.png", colour=1, mode="1")
    grey = load_folder(tmp_path)
    assert grey.images.shape == (2, 1, 3, 4)
    assert grey.images[:, 0, 0, 0].tolist() == [200, 255]
    save(tmp_path / "a" / "3.png", colour=(1, 2, 3, 0), mode="RGBA")
    colour = load_folder(tmp_path)
    assert colour.images[:, :, 0, 0].tolist() == [[200] * 3, [255] * 3, [1, 2, 3]]


def test_rotation_noted_by_a_camera(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    save(tmp_path / "a" / "1.jpg", size=(8, 4), exif=exif)
    save(tmp_path / "a" / "2.png", size=(4, 8))
    assert load_folder(tmp_path).images.shape == (2, 3, 8, 4)


def test_sizes_must_agree_or_be_given(pets):
    odd = save(pets / "dog" / "9.png", size=(5, 3))
    with pytest.raises(DataError, match=rf"{odd}: it is 3x5 .* is 3x4\. Fix: pass size="):
        load_folder(pets)
    assert load_folder(pets, size=6).images.shape == (4, 3, 6, 6)
    assert load_folder(pets, size=(2, 5)).images.shape == (4, 3, 2, 5)
    for size in (0, (3, -1), 2**14):
        with pytest.raises(UsageError, match="size must be at least 1x1"):
            load_folder(pets, size=size)


def test_classes_of_the_training_set(pets):
    loaded = load_folder(pets, classes=("dog", "bird", "cat"))
    assert loaded.labels.tolist() == [2, 2, 0]
    assert loaded.classes == ("dog", "bird", "cat")
    with pytest.raises(DataError, match="the subfolder 'dog' is not among the classes"):
        load_folder(pets, classes=("cat",))


def test_layout_errors(pets, tmp_path):
    with pytest.raises(DataError, match="no such folder"):
        load_folder(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"has no subfolders. Needed is one subfolder a class"):
        load_folder(tmp_path / "empty")
    (pets / "emu").mkdir()
    with pytest.raises(DataError, match=r"class folder .*emu has no images"):
        load_folder(pets)
    (pets / "emu" / "notes.txt").write_text("x")
    with pytest.raises(DataError, match=r"notes\.txt is not an image"):
        load_folder(pets)
    save(pets / "stray.png")
    with pytest.raises(DataError, match=r"stray\.png lies beside the class folders"):
        load_folder(pets)


def test_nested_folder_is_an_error(pets):
    (pets / "dog" / "puppies.png").mkdir()
    with pytest.raises(DataError, match=r"puppies\.png is not an image"):
        load_folder(pets)


@pytest.mark.parametrize("content", [b"", b"not an image", b"\x89PNG\r\n\x1a\n" + bytes(30), b"GIF89a" + bytes(9)])
def test_unreadable_file_is_named(pets, content):
    (pets / "dog" / "bad.png").write_bytes(content)
    with pytest.raises(DataError, match=r"bad\.png: not a readable PNG, JPEG or WebP image.*Fix"):
        load_folder(pets)


def test_every_truncation_is_named(tmp_path):
    (tmp_path / "a").mkdir()
    for suffix in ("png", "jpg", "webp"):
        path = tmp_path / "a" / f"1.{suffix}"
        picture = Image.frombytes("RGB", (16, 16), bytes(range(256)) * 3)
        picture.save(path)
        whole = path.read_bytes()
        for keep in range(0, len(whole) // 2, 17):
            path.write_bytes(whole[:keep])
            with pytest.raises(DataError, match=rf"1\.{suffix}"):
                load_folder(tmp_path)
        path.unlink()


def test_unsupported_pixels_and_animations(tmp_path):
    deep = save(tmp_path / "a" / "deep.png", colour=1000, mode="I;16")
    with pytest.raises(DataError, match=r"deep\.png: the pixel format 'I;16' is not supported"):
        load_folder(tmp_path)
    deep.unlink()
    frames = [Image.new("RGB", (4, 4), (shade, 0, 0)) for shade in (0, 200)]
    frames[0].save(tmp_path / "a" / "film.webp", save_all=True, append_images=frames[1:])
    with pytest.raises(DataError, match=r"film\.webp: it is an animation"):
        load_folder(tmp_path)


def test_too_many_pixels_or_bytes(pets, monkeypatch):
    with pytest.raises(DataError, match="3 images of 3x3x4 need 108 bytes, the limit is 100"):
        load_folder(pets, max_bytes=100)
    with monkeypatch.context() as patched:
        patched.setattr(module, "MAX_PIXELS", 11)
        with pytest.raises(DataError, match="4x3 pixels, the limit is 11"):
            load_folder(pets)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 11)
    with pytest.raises(DataError, match=r"1\.PNG: not a readable .*DecompressionBomb"):
        load_folder(pets)


def test_importing_the_data_room_does_not_import_pil():
    code = "import sys, ratenorm.data; sys.exit('PIL' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_images_are_bytes(pets):
    assert load_folder(pets).images.dtype == torch.uint8
