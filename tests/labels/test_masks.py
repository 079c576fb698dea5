"""Masks: ids survive files exactly, colours become ids, and soft edges are thresholded or refused."""

import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageFilter, ImageOps
from PIL.PngImagePlugin import PngInfo

from timecycle.errors import LabelError
from timecycle.grid import grid_over
from timecycle.labels.drawing import colour_of, palette, voc_palette
from timecycle.labels.edges import edges_of, hardened
from timecycle.labels.mask_file import colours_in, read_mask_files
from timecycle.labels.masks import Masks, MaskSpace
from timecycle.labels.reading import read_labels

HEIGHT, WIDTH = 120, 160


def blocks(ids, *, size=6, columns=20):
    """Return one square per id on a background of 0."""
    rows = -(-len(ids) // columns)
    array = np.zeros((rows * size + 2, columns * size + 2), np.int64)
    for i, identity in enumerate(ids):
        y, x = divmod(i, columns)
        array[1 + y * size : y * size + size - 1, 1 + x * size : x * size + size - 1] = identity
    return array


def draw_picture(draw, *, mode="L", finer=1, method=Image.Resampling.BOX):
    """Draw a picture `finer` times larger and shrink it: anti-aliased unless `finer` is 1."""
    image = Image.new(mode, (WIDTH * finer, HEIGHT * finer))
    draw(ImageDraw.Draw(image), finer)
    return image if finer == 1 else image.resize((WIDTH, HEIGHT), method)


def disc(canvas, k, fill=255):
    canvas.ellipse((30 * k, 20 * k, 100 * k, 95 * k), fill=fill)


def two_colours(canvas, k):
    disc(canvas, k, (128, 0, 0))
    canvas.polygon([(90 * k, 10 * k), (150 * k, 60 * k), (60 * k, 110 * k)], fill=(0, 128, 0))


def ten_objects(canvas, k):
    for i in range(10):
        x, y = 1 + 31 * (i % 5), 3 + 59 * (i // 5)
        canvas.ellipse((x * k, y * k, (x + 28) * k, (y + 50) * k), fill=i + 1)


def box_on_odd_pixels(canvas, k):
    canvas.rectangle((10 * k + 1, 10 * k + 1, 70 * k, 70 * k), fill=255)


def thin_strokes(canvas, k):
    for i in range(8):
        canvas.line((10 * k, (10 + 9 * i) * k, 150 * k, (14 + 11 * i) * k), fill=255, width=k + k // 4)


def jpeg(image, quality):
    data = io.BytesIO()
    image.save(data, "JPEG", quality=quality)
    return Image.open(data)


def touching_objects(count, seed=0):
    """Divide the plane among `count` touching objects."""
    points = np.random.default_rng(seed).random((count, 2)) * (HEIGHT, WIDTH)
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    return ((y[..., None] - points[:, 0]) ** 2 + (x[..., None] - points[:, 1]) ** 2).argmin(axis=-1) + 1


def specks(count, size, seed=0):
    """Return objects of size x size pixels at random positions on a background."""
    array = np.zeros((HEIGHT, WIDTH), np.int64)
    positions = np.random.default_rng(seed).integers(0, (HEIGHT - size, WIDTH - size), (count, 2))
    for i, (y, x) in enumerate(positions):
        array[y : y + size, x : x + size] = i + 1
    return array


def save(tmp_path, image, name="mask.png", **options):
    image.save(tmp_path / name, **options)
    return tmp_path / name


# Ids in files


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(st.integers(1, 20), st.integers(1, 20)),
    st.sampled_from([1, 2, 255, 256, 300, 65535]),
    st.integers(0, 10_000),
)
def test_masks_survive_a_file(tmp_path_factory, shape, largest, seed):
    masks = Masks.of(np.random.default_rng(seed).integers(0, largest + 1, shape))
    path = tmp_path_factory.mktemp("masks") / "00001.png"
    masks.write(path)
    again = Masks.read(path).ids
    assert again.dtype == np.uint16
    assert np.array_equal(again, masks.ids)


def test_ids_up_to_255_are_written_with_our_palette(tmp_path):
    Masks.of(blocks([1, 2, 255])).write(tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        assert image.mode == "P"
        assert np.array_equal(np.array(image), blocks([1, 2, 255]))
        assert image.convert("RGB").getpixel((1, 1)) == colour_of(1)


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(st.integers(1, 20), st.integers(1, 20)),
    st.sampled_from([1, 2, 255, 256, 65535]),
    st.integers(0, 10_000),
)
def test_grey_files_have_ids_as_values_and_are_restored_exactly(tmp_path_factory, shape, largest, seed):
    ids = np.random.default_rng(seed).integers(0, largest + 1, shape)
    path = tmp_path_factory.mktemp("masks") / "00001.png"
    Masks.of(ids).write(path, grey=True)
    with Image.open(path) as image:
        assert image.mode == ("I;16" if ids.max() > 255 else "L")
        assert np.array_equal(np.array(image), ids)
    assert np.array_equal(Masks.read(path).ids, ids)


def test_edited_grey_file_is_read_like_any_other(tmp_path):
    """The checksum that marks our own files must not match a file edited in a paint program."""
    Masks.of(np.array(draw_picture(disc))).write(tmp_path / "a.png", grey=True)
    with Image.open(tmp_path / "a.png") as image:
        mark = PngInfo()
        for name, text in image.text.items():
            mark.add_text(name, text)
    path = save(tmp_path, draw_picture(disc, finer=4), pnginfo=mark)
    assert np.unique(Masks.read(path).ids).tolist() == [0, 255]


def test_ids_above_255_are_written_in_16_bits(tmp_path):
    ids = blocks(list(range(1, 301)))
    Masks.of(ids).write(tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        assert image.mode.startswith("I;16")
    assert np.array_equal(Masks.read(tmp_path / "a.png").ids, ids)


def test_grey_0_and_255_is_object_255(tmp_path):
    path = save(tmp_path, draw_picture(disc))
    assert np.unique(Masks.read(path).ids).tolist() == [0, 255]


@pytest.mark.parametrize(
    ("mode", "name"),
    [(mode, f"mask.{kind}") for mode in ("1", "L", "P", "I;16", "LA") for kind in ("png", "tiff")]
    + [("I", "mask.tiff")],
)
def test_values_of_an_image_without_colours_are_ids(tmp_path, mode, name):
    ids = blocks([1]) if mode == "1" else blocks([3, 1, 200])
    grey = Image.fromarray(ids.astype(np.uint8))
    if mode == "P":
        grey.putpalette(bytes(range(255, -1, -1)) * 3)  # the palette does not matter
        image = grey
    elif mode == "1":
        image = Image.fromarray(ids.astype(bool))
    elif mode in ("I;16", "I"):
        image = Image.fromarray(ids.astype(np.uint16 if mode == "I;16" else np.int32))
    else:
        image = grey.convert(mode)
    assert image.mode == mode
    assert np.array_equal(Masks.read(save(tmp_path, image, name)).ids, ids)


def test_transparent_grey_pixels_are_background(tmp_path):
    alpha = np.zeros((20, 20), np.uint8)
    alpha[5:15, 5:15] = 255
    image = Image.merge("LA", (Image.new("L", (20, 20), 9), Image.fromarray(alpha)))
    ids = Masks.read(save(tmp_path, image)).ids
    assert (ids[5:15, 5:15] == 9).all()
    assert ids.sum() == 900


# Colours


@pytest.mark.parametrize("table", [palette, voc_palette])
def test_colours_of_a_known_palette_become_its_ids(tmp_path, table):
    ids = blocks(list(range(256)))
    path = save(tmp_path, Image.fromarray(table()[ids]))
    assert colours_in([path]) == ()
    assert np.array_equal(Masks.read(path).ids, ids)


def test_pascal_voc_palette_has_its_known_colours():
    known = {0: (0, 0, 0), 1: (128, 0, 0), 2: (0, 128, 0), 3: (128, 128, 0), 4: (0, 0, 128), 8: (64, 0, 0)}
    known |= {15: (192, 128, 128), 20: (0, 64, 128), 255: (224, 224, 192)}
    assert {i: tuple(map(int, voc_palette()[i])) for i in known} == known


def test_both_palettes_have_distinct_colours_and_share_only_black():
    own, voc = ({tuple(row) for row in table().tolist()} for table in (palette, voc_palette))
    assert len(own) == len(voc) == 256
    assert own & voc == {(0, 0, 0)}


def test_other_colours_are_numbered_alike_in_all_files_read_together(tmp_path):
    red, green, blue = (250, 0, 0), (0, 250, 0), (0, 0, 250)
    first = save(tmp_path, draw_picture(lambda c, k: c.rectangle((5, 5, 40, 40), fill=red), mode="RGB"), "0.png")

    def two(canvas, k):
        canvas.rectangle((5, 5, 40, 40), fill=green)
        canvas.rectangle((50, 5, 90, 40), fill=blue)

    second = save(tmp_path, draw_picture(two, mode="RGB"), "1.png")
    colours = colours_in([first, second])
    assert colours == colours_in([second, first]) == (0x0000FA, 0x00FA00, 0xFA0000)
    assert Masks.read(first, colours=colours).ids[10, 10] == 3
    assert Masks.read(second, colours=colours).ids[10, 10] == 2
    assert Masks.read(second, colours=colours).ids[10, 60] == 1
    assert np.unique(Masks.read(first).ids).tolist() == [0, 1]


def two_colours_file(tmp_path, one, other):
    pixels = np.zeros((30, 30, 3), np.uint8)
    pixels[5:15, 5:15], pixels[18:28, 5:25] = one, other
    return save(tmp_path, Image.fromarray(pixels))


def test_note_says_which_object_each_colour_became(tmp_path, caplog):
    path = two_colours_file(tmp_path, (0, 255, 0), (0, 0, 255))
    assert Masks.read(path).colours == {0x0000FF: 1, 0x00FF00: 2}
    table = "object 1 is blue (0,0,255), 2 is green (0,255,0)"
    assert caplog.messages == [f"note: {path}: {table}"]
    caplog.clear()
    read_labels([path])
    assert caplog.messages == [f"note: {path}: {table}"]


def test_colours_of_a_known_palette_give_no_note(tmp_path, caplog):
    read_labels([two_colours_file(tmp_path, (128, 0, 0), (0, 128, 0))])
    assert not caplog.messages


def test_colour_of_our_palette_keeps_its_id_among_others(tmp_path):
    """Label files show object 2 in this colour, so it may not become another object."""
    path = two_colours_file(tmp_path, (0, 0, 1), tuple(palette()[2]))
    assert np.unique(Masks.read(path).ids).tolist() == [0, 1, 2]
    assert Masks.read(path).ids[20, 10] == 2


def test_white_on_black_in_colour_is_one_object(tmp_path):
    path = save(tmp_path, draw_picture(disc).convert("RGB"))
    assert np.unique(Masks.read(path).ids).tolist() == [0, 1]


def test_transparent_pixels_of_any_colour_are_background(tmp_path):
    pixels = np.zeros((30, 30, 4), np.uint8)
    pixels[..., :3] = np.random.default_rng(0).integers(0, 256, (30, 30, 3))
    pixels[5:15, 5:15] = (10, 20, 30, 255)
    pixels[18:28, 5:25] = (40, 50, 60, 128)  # half transparent all over: an overlay's colour, not an edge
    ids = Masks.read(save(tmp_path, Image.fromarray(pixels))).ids
    assert (ids[5:15, 5:15] == 1).all()
    assert (ids[18:28, 5:25] == 2).all()
    assert np.count_nonzero(ids) == 100 + 200


# Soft edges

TWO_TONES = {
    "a disc, shrunk": lambda: draw_picture(disc, finer=4),
    "a disc, shrunk by two": lambda: draw_picture(disc, finer=2),
    "a disc, shrunk by interpolation": lambda: draw_picture(disc, finer=4, method=Image.Resampling.BILINEAR),
    "a disc, shrunk by a filter with overshoot": lambda: draw_picture(disc, finer=4, method=Image.Resampling.LANCZOS),
    "a disc in a low value": lambda: draw_picture(lambda c, k: disc(c, k, 20), finer=4),
    "a disc in colour": lambda: draw_picture(lambda c, k: disc(c, k, (200, 30, 60)), mode="RGB", finer=4),
    "a disc, rotated": lambda: draw_picture(disc).rotate(13, resample=Image.Resampling.BICUBIC, center=(65, 57.5)),
    "a disc, blurred": lambda: draw_picture(disc).filter(ImageFilter.GaussianBlur(2)),
    "a grey JPEG": lambda: jpeg(draw_picture(disc), 90),
    "a brush with soft alpha": lambda: Image.merge(
        "RGBA", (*Image.new("RGB", (WIDTH, HEIGHT), (200, 30, 60)).split(), draw_picture(disc, finer=4))
    ),
    "a black brush with soft alpha": lambda: Image.merge(
        "RGBA", (*Image.new("RGB", (WIDTH, HEIGHT)).split(), draw_picture(disc, finer=4))
    ),
    "grey with soft alpha": lambda: Image.merge(
        "LA", (Image.new("L", (WIDTH, HEIGHT), 7), draw_picture(disc, finer=4))
    ),
}

SOFT = {
    "ids whose blends are each other's ids": lambda: draw_picture(ten_objects, finer=4),
    "two objects, one of them dark": lambda: draw_picture(
        lambda c, k: [disc(c, k), c.rectangle((110 * k, 5 * k, 150 * k, 50 * k), fill=9)], finer=4
    ),
    "two small objects": lambda: draw_picture(
        lambda c, k: [disc(c, k), c.rectangle((110 * k + 2, 5 * k + 2, 115 * k, 10 * k), fill=120)], finer=4
    ),
    "two colours": lambda: draw_picture(two_colours, mode="RGB", finer=4),
    "two objects without a background": lambda: Image.fromarray(
        np.array(draw_picture(disc, finer=4)) // 2 + np.uint8(100)
    ),
    "a coloured JPEG": lambda: jpeg(draw_picture(two_colours, mode="RGB"), 75),
    "one soft stroke over hard objects": lambda: Image.fromarray(
        np.maximum(
            np.array(draw_picture(ten_objects)),
            np.array(
                draw_picture(lambda c, k: c.line((9 * k, 99 * k, 150 * k, 113 * k), fill=250, width=9 * k), finer=4)
            ),
        )
    ),
}

HARD = {
    "a disc": lambda: draw_picture(disc),
    "two colours": lambda: draw_picture(two_colours, mode="RGB"),
    "touching objects": lambda: draw_picture(ten_objects),
    "nothing": lambda: draw_picture(lambda c, k: None),
    "one object everywhere": lambda: Image.new("L", (WIDTH, HEIGHT), 3),
    "one pixel": lambda: Image.new("L", (1, 1), 3),
    "one row": lambda: Image.fromarray(np.array([[0, 0, 1, 1, 2, 2]], np.uint8)),
    "three objects of one pixel": lambda: Image.fromarray(specks(3, 1).astype(np.uint8)),
    "three objects of four pixels": lambda: Image.fromarray(specks(3, 2).astype(np.uint8)),
    "200 objects of four pixels": lambda: Image.fromarray(specks(200, 2).astype(np.uint8)),
    "200 overlapping objects": lambda: Image.fromarray(specks(200, 9).astype(np.uint8)),
    "lines one pixel wide": lambda: draw_picture(
        lambda c, k: [c.line((10, 5 + 12 * i, 150, 9 + 14 * i), fill=i + 1) for i in range(8)]
    ),
    "crossing lines": lambda: draw_picture(
        lambda c, k: [c.line((5 + 19 * i, 5, 155 - 19 * i, 115), fill=i + 1) for i in range(8)]
    ),
    "lines across an object": lambda: draw_picture(
        lambda c, k: [disc(c, k, 9), *(c.line((10, 5 + 12 * i, 150, 9 + 14 * i), fill=i + 1) for i in range(8))]
    ),
    "a person with a pole, a leash and a ball": lambda: draw_picture(
        lambda c, k: [
            disc(c, k, 3),
            c.line((99, 50, 150, 20), fill=2),
            c.line((31, 60, 5, 110), fill=1),
            c.point([(120, 110), (121, 110)], fill=5),
            c.point((122, 110), fill=4),
        ]
    ),
    "an outline with an id of its own": lambda: draw_picture(
        lambda c, k: c.ellipse((30, 20, 100, 95), fill=2, outline=1)
    ),
    "250 touching objects": lambda: Image.fromarray(touching_objects(250).astype(np.uint8)),
    "250 touching objects in colour": lambda: Image.fromarray(palette()[touching_objects(250)]),
    "1000 touching objects in colour": lambda: Image.fromarray(
        np.random.default_rng(1).integers(0, 256, (1001, 3)).astype(np.uint8)[touching_objects(1000)]
    ),
}


@pytest.mark.parametrize("name", TWO_TONES)
def test_soft_edges_of_one_object_are_thresholded_at_half_with_a_note(tmp_path, caplog, name):
    path = save(tmp_path, TWO_TONES[name]())
    ids = Masks.read(path).ids
    assert len(np.unique(ids)) == 2
    disc_area = np.array(draw_picture(disc, finer=8)) >= 128
    assert ((ids > 0) & disc_area).sum() > 0.97 * ((ids > 0) | disc_area).sum()
    (record,) = caplog.records
    assert record.getMessage().startswith(f"note: {path} has ")


def test_outline_of_a_soft_edge_is_at_half(tmp_path):
    soft = np.array(draw_picture(disc, finer=4))
    assert np.array_equal(Masks.read(save(tmp_path, Image.fromarray(soft))).ids, np.where(soft >= 128, 255, 0))


def test_box_with_round_corners_is_one_object(tmp_path):
    """There are too few soft pixels for soft edges, yet each value would be an object."""
    image = draw_picture(lambda c, k: c.rounded_rectangle((10 * k, 10 * k, 120 * k, 90 * k), 8 * k, fill=255), finer=4)
    assert len(np.unique(np.array(image))) > 3
    assert np.unique(Masks.read(save(tmp_path, image)).ids).tolist() == [0, 255]


def test_many_files_with_soft_edges_give_one_note(tmp_path, caplog):
    paths = [save(tmp_path, draw_picture(disc, finer=4), f"{i}.png") for i in range(3)]
    read_mask_files(paths)
    (record,) = caplog.records
    assert record.getMessage().startswith(f"note: {paths[0]} and 2 more files have soft edges: a pixel belongs to ")


@pytest.mark.parametrize("name", SOFT)
def test_soft_edges_of_several_objects_are_refused(tmp_path, name):
    path = save(tmp_path, SOFT[name]())
    with pytest.raises(LabelError, match=r"mask\.png has soft edges and more than two tones.*; draw with a hard brush"):
        Masks.read(path)


@pytest.mark.parametrize("name", HARD)
def test_hard_edges_are_accepted_and_every_value_is_an_object(tmp_path, name):
    image = HARD[name]()
    ids = Masks.read(save(tmp_path, image)).ids
    pixels = np.array(image).reshape(ids.size, -1)
    pairs = np.unique(np.column_stack([pixels, ids.ravel()]), axis=0)
    assert len(pairs) == len(np.unique(pixels, axis=0)) == len(np.unique(ids))
    if image.mode == "L":
        assert np.array_equal(ids, np.array(image))


def test_soft_edge_detection_is_invariant_to_flips_and_transposition():
    """The rule looks along rows and columns in no direction."""
    for name, make in (*SOFT.items(), *TWO_TONES.items(), *HARD.items()):
        values = np.array(make())
        values = values.reshape(*values.shape[:2], -1)
        turned = (values, values[::-1], values[:, ::-1], np.moveaxis(values, 0, 1))
        is_soft = {edges_of(one).soft for one in turned}
        assert len(is_soft) == 1, name
        hard = [hardened(one) for one in turned]
        assert len({one is None for one in hard}) == 1, name
        if hard[0] is not None:
            assert np.array_equal(hard[0], np.moveaxis(hard[3], 0, 1)), name
            assert np.array_equal(hard[0], hard[1][::-1]), name


# A black shape


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_black_shape_on_a_transparent_ground_is_the_object(tmp_path, caplog, mode):
    shape = draw_picture(disc)
    image = Image.merge(mode, [Image.new("L", shape.size)] * (len(mode) - 1) + [shape])
    path = save(tmp_path, image)
    assert np.array_equal(Masks.read(path).ids, np.array(shape) > 0)
    assert [record.getMessage() for record in caplog.records] == [
        f"note: {path} has an opaque black shape on a transparent ground: the shape is read as the object"
    ]


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "1"])
def test_black_shape_on_a_white_ground_is_the_object(tmp_path, caplog, mode):
    shape = draw_picture(disc)
    inverted = save(tmp_path, ImageOps.invert(shape).convert(mode), "inverted.png")
    assert np.array_equal(Masks.read(inverted).ids, Masks.read(save(tmp_path, shape.convert(mode))).ids)
    assert caplog.messages == [f"note: {inverted} has a black shape on a white ground: the shape is read as the object"]


def test_soft_black_shape_on_a_white_ground_is_the_object(tmp_path, caplog):
    soft = draw_picture(disc, finer=4)
    ids = Masks.read(save(tmp_path, ImageOps.invert(soft))).ids > 0
    assert 0.9 < ids.sum() / np.count_nonzero(draw_picture(disc)) < 1.1
    assert "black shape on a white ground" in caplog.text


def test_white_object_that_fills_the_frame_is_kept(tmp_path, caplog):
    assert (Masks.read(save(tmp_path, Image.new("L", (30, 20), 255))).ids == 255).all()
    assert not caplog.messages


@pytest.mark.parametrize("dark", [(0, 0, 10, 10), (5, 0, 9, 19)])
def test_white_object_at_all_borders_with_dark_border_pixels_is_kept_with_a_note(tmp_path, caplog, dark):
    image = Image.new("L", (30, 20), 255)
    ImageDraw.Draw(image).rectangle(dark, fill=0)
    assert np.array_equal(Masks.read(save(tmp_path, image)).ids, np.array(image))
    assert "covers most of the picture and touches all four borders" in caplog.text
    assert "if the dark part is the object, invert the mask" in caplog.text


def test_white_border_around_a_large_hole_is_kept(tmp_path, caplog):
    """Less than half of the picture is white."""
    image = Image.new("L", (30, 20), 255)
    ImageDraw.Draw(image).rectangle((2, 2, 27, 17), fill=0)
    assert np.array_equal(Masks.read(save(tmp_path, image)).ids, np.array(image))
    assert not caplog.messages


def test_black_beside_colours_and_transparency_is_background_with_a_note(tmp_path, caplog):
    pixels = np.zeros((30, 30, 4), np.uint8)
    pixels[:10, :, 3] = 255
    pixels[15:25, 5:15] = (128, 0, 0, 255)
    assert Masks.read(save(tmp_path, Image.fromarray(pixels))).ids.sum() == 100
    assert "black beside transparent pixels: both are read as background" in caplog.text


# Arrays and errors


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int8, np.int32, np.int64, np.uint64])
def test_masks_are_made_from_any_integer_type(dtype):
    array = np.zeros((4, 6), dtype)
    array[1, 2] = 1
    masks = Masks.of(array)
    assert masks.ids.dtype == np.uint16
    assert np.array_equal(masks.ids, array)
    assert masks.size() == (4, 6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
def test_probabilities_are_refused(dtype):
    with pytest.raises(LabelError, match=f"values of type {np.dtype(dtype)}; .*threshold probabilities first"):
        Masks.of(np.zeros((4, 6), dtype))


@pytest.mark.parametrize(("low", "high"), [(-1, 3), (0, 65536)])
def test_ids_out_of_range_are_refused(low, high):
    with pytest.raises(LabelError, match=f"ids from {low} to {high}; number the objects between 1 and 65535"):
        Masks.of(np.array([[low, high]]))


def test_error_for_ids_out_of_range_in_a_file_names_it(tmp_path):
    path = save(tmp_path, Image.fromarray(np.array([[0, 70_000]], np.int32)), "mask.tiff")
    with pytest.raises(LabelError, match=r"mask\.tiff: a mask has ids from 0 to 70000"):
        Masks.read(path)


def test_file_of_floats_is_refused(tmp_path):
    path = save(tmp_path, Image.fromarray(np.zeros((4, 4), np.float32)), "mask.tiff")
    with pytest.raises(LabelError, match="mode F, whose values are not object ids; save the mask as"):
        Masks.read(path)


def test_error_for_a_missing_or_invalid_image_names_it(tmp_path):
    with pytest.raises(LabelError, match=r"there is no label file .*none\.png; check the path"):
        Masks.read(tmp_path / "none.png")
    (tmp_path / "text.png").write_text("not an image")
    with pytest.raises(LabelError, match=r"text\.png cannot be read as an image: .*; give a PNG"):
        Masks.read(tmp_path / "text.png")
    whole = save(tmp_path, draw_picture(disc)).read_bytes()
    (tmp_path / "half.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LabelError, match=r"half\.png is damaged: its chunk at byte \d+ is incomplete; copy it again"):
        Masks.read(tmp_path / "half.png")


def test_box_includes_its_edges():
    ids = Masks.of_box(10, 20, (3, 2, 6, 4)).ids
    assert np.argwhere(ids)[[0, -1]].tolist() == [[2, 3], [4, 6]]
    assert ids.sum() == 4 * 3


@pytest.mark.parametrize("box", [(6, 4, 3, 2), (30, 0, 40, 5), (-9, -9, -1, -1)])
def test_box_without_pixels_is_refused(box):
    with pytest.raises(LabelError, match="holds no pixel of the 20x10 frame; give it as x0,y0,x1,y1"):
        Masks.of_box(10, 20, box)


# Channels


@pytest.mark.parametrize("image_size", [(41, 57), (77, 101)])
def test_encoded_masks_are_shares_of_area_and_sum_to_one(image_size):
    grid = grid_over(41, 57, cells=(6, 8), stride_px=8, first_px=0).rescaled(*image_size)
    ids = np.random.default_rng(0).choice([0, 4, 9, 300], image_size)
    masks = Masks.of(ids)
    space = Masks.space([masks])
    values = space.encode(masks, grid)
    assert space.ids == (0, 4, 9, 300)
    assert torch.allclose(values.sum(dim=-1), torch.ones(6, 8), atol=1e-5)
    cells = grid.y.extents_px()[:, None] * grid.x.extents_px()
    counts = torch.einsum("yxc,yx->c", values.double(), cells)
    assert torch.allclose(counts, torch.tensor([(ids == i).sum() for i in space.ids]).double(), rtol=1e-4)


def test_pooling_objects_in_chunks_equals_pooling_them_alone():
    grid = grid_over(33, 33, cells=(5, 5), stride_px=8, first_px=0)
    masks = Masks.of(np.random.default_rng(0).integers(0, 50, (33, 33)))
    order = tuple(range(50))
    together = MaskSpace(order).encode(masks, grid)
    alone = torch.cat([MaskSpace((i,)).encode(masks, grid) for i in order], dim=-1)
    assert torch.allclose(together, alone, atol=1e-6)


def test_large_objects_survive_encoding_and_decoding():
    ids = np.zeros((65, 97), np.int64)
    ids[:, 40:] = 7
    ids[32:] = 1000
    grid = grid_over(65, 97, cells=(9, 13), stride_px=8, first_px=0)
    masks = Masks.of(ids)
    space = Masks.space([masks])
    again = space.decode(space.encode(masks, grid), grid).ids
    assert again.dtype == np.uint16
    assert (again == ids).mean() > 0.95
    assert set(np.unique(again)) == {0, 7, 1000}


def test_space_of_several_frames_has_every_object_once():
    space = Masks.space([Masks.of(np.array([[5, 2]])), Masks.of(np.array([[0, 5], [9, 9]]))])
    assert space.ids == (0, 2, 5, 9)
    assert space.channels == 4


def test_annotation_constrains_the_background_and_its_objects():
    space = MaskSpace((0, 2, 5, 9))
    masks = Masks.of(np.array([[5, 5]]))
    assert space.annotated_channels(masks).tolist() == [True, False, True, False]
    assert space.annotated_channels(Masks.of(masks.ids, exhaustive=True)).all()


def test_new_objects_are_appended_as_channels():
    space = MaskSpace((0, 5))
    assert space.extended(Masks.of(np.array([[9, 2, 5, 0]]))).ids == (0, 5, 2, 9)
    assert space.extended(Masks.of(np.array([[5]]))).ids == (0, 5)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000))
def test_annotated_objects_are_restored_and_others_stay_as_decoded(seed):
    rng = np.random.default_rng(seed)
    annotation = Masks.of(rng.choice([0, 1, 2], (6, 7)))
    decoded = Masks.of(rng.choice([0, 1, 2, 3, 4], (6, 7)))
    result = MaskSpace((0, 1, 2, 3, 4)).restore_annotated(annotation, decoded).ids
    annotated = np.unique(annotation.ids)
    for identity in (1, 2):
        if identity in annotated:
            assert np.array_equal(result == identity, annotation.ids == identity)
    other = (annotation.ids == 0) & ~np.isin(decoded.ids, annotated)
    assert np.array_equal(result[other], decoded.ids[other])
    assert (result[(annotation.ids == 0) & ~other] == 0).all()


def test_coloured_jpeg_is_refused_as_a_jpeg_rather_than_for_soft_edges(tmp_path):
    draw_picture(two_colours, mode="RGB").save(tmp_path / "first.jpg", quality=75)
    with pytest.raises(LabelError, match="is a JPEG, whose compression invents values around every outline"):
        colours_in([tmp_path / "first.jpg"])


def test_jpeg_is_refused(tmp_path):
    ids = np.zeros((32, 32), np.uint8)
    ids[8:24, 8:24] = 1
    Image.fromarray(ids).save(tmp_path / "first.jpg")
    with pytest.raises(LabelError, match="is a JPEG, whose compression invents values around every outline; save the"):
        Masks.read(tmp_path / "first.jpg")
