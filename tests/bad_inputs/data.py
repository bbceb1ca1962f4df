"""Data sets: their names, folders, checks, validation parts and augmentation."""

from typing import Any

import jax
import numpy as np
from tiny_networks import tiny_data

from bad_inputs import NAN, NOT_NAMES, NOT_NUMBERS, NOT_WHOLE, Meant, Refused, Thing, crossed
from replicax import data, nn

DATA = tiny_data()
KEY = jax.random.key(0)
IMAGES = DATA.test_images
MEAN, STD = (0.5,), (0.25,)


def refused(name: str, call: Any, words: str) -> Refused:
    return Refused(f"data: {name}", call, tuple(words.split()))


def checked(**changes: Any) -> data.Dataset:
    return DATA._replace(**changes).check()


def augmented(**options: Any) -> Any:
    chosen = {"mean": MEAN, "std": STD} | options
    return data.augmentation(**chosen)(KEY, IMAGES)


LISTED = [
    refused("a misspelt name", lambda: data.load("cifar-10"), "name cifar10"),
    refused("a name that is none", lambda: data.load("mnist"), "name"),
    refused("no name", lambda: data.load(None), "name"),  # type: ignore
    refused("no folder", lambda: data.load("cifar10", ""), "folder"),
    refused("folder a number", lambda: data.load("cifar10", 3), "folder"),  # type: ignore
    refused("cifar by another name", lambda: data.load_cifar("digits"), "name cifar10"),
    refused("images in a list", lambda: checked(train_images=[[1]]), "train_images"),
    refused("images of further shades", lambda: checked(test_images=IMAGES / 256), "test_images"),
    refused(
        "images from 0 to 1", lambda: checked(train_images=DATA.train_images / 255), "train_images"
    ),
    refused("images nothing", lambda: checked(test_images=None), "test_images"),
    refused("labels nothing", lambda: checked(test_labels=None), "test_labels"),
    refused("labels negative", lambda: checked(test_labels=DATA.test_labels - 1), "test_labels"),
    refused("mean of two", lambda: checked(mean=(0.5, 0.5)), "mean"),
    refused("mean one number", lambda: checked(mean=0.5), "mean"),
    refused("mean in bytes", lambda: checked(mean=(127.0,)), "mean"),
    refused("mean nan", lambda: checked(mean=(NAN,)), "mean"),
    refused("mean in words", lambda: checked(mean=("grey",)), "mean"),
    refused("std negative", lambda: checked(std=(-0.1,)), "std"),
    refused("classes half", lambda: checked(num_classes=3.5), "num_classes"),
    refused("classes nothing", lambda: checked(num_classes=None), "num_classes"),
    refused("a negative seed", lambda: DATA.validation_split(3, seed=-1), "seed"),
    refused("a large seed", lambda: DATA.validation_split(3, seed=2**40), "seed"),
    refused("pad negative", lambda: augmented(pad=-1), "pad"),
    refused("erase 2", lambda: augmented(erase=2.0), "erase"),
    refused("std 0", lambda: augmented(std=(0.0,)), "std"),
    refused(
        "mean of three channels",
        lambda: augmented(mean=(0.5,) * 3, std=(0.5,) * 3),
        "mean channels",
    ),
    refused("mean a number", lambda: augmented(mean=0.5), "mean"),
    refused("one image", lambda: data.augmentation(MEAN, STD)(KEY, IMAGES[0]), "images shape"),
    refused("a depth that is none", lambda: nn.resnet(21), "depth"),
    refused("a depth in words", lambda: nn.resnet("20"), "depth"),  # type: ignore
    refused("no classes", lambda: nn.resnet(20, 0), "num_classes"),
    refused("a norm that is none", lambda: nn.resnet(20, norm="layer"), "norm"),
    refused("a block that is none", lambda: nn.resnet(20, block="wide"), "block"),
    refused("no widths", lambda: nn.small_cnn(10, widths=()), "widths"),
    refused("widths a number", lambda: nn.small_cnn(10, widths=16), "widths"),  # type: ignore
    refused("no channels", lambda: nn.small_cnn(10, 0), "num_channels"),
    refused("an object as images", lambda: checked(train_images=Thing()), "train_images"),
]
MEANT = [
    Meant(
        "data: labels of 64 bits",
        lambda: checked(train_labels=DATA.train_labels.astype(int)),
        "class numbers",
        lambda dataset: dataset.train_labels.dtype == np.int32,
    ),
    Meant(
        "data: pad 0",
        lambda: augmented(pad=0, flip=False, erase=0),
        "no crops",
        lambda images: images.shape == IMAGES.shape,
    ),
]
ROWS = [
    *LISTED,
    *crossed("load", lambda **o: data.load(**o), ("name",), NOT_NAMES),
    *crossed(
        "validation_split",
        lambda **o: DATA.validation_split(**{"num_images": 3} | o),
        ("num_images",),
        NOT_WHOLE,
    ),
    *crossed("augmentation", augmented, ("erase",), NOT_NUMBERS),
    *crossed("augmentation", augmented, ("pad",), NOT_WHOLE),
    *crossed(
        "small_cnn", lambda **o: nn.small_cnn(**{"num_classes": 3} | o), ("num_classes",), NOT_WHOLE
    ),
    *MEANT,
]
