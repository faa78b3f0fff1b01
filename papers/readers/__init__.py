"""Readers of data sets that only studies use. Importing them makes the data sets known by name."""

from holdfast.train.data import Dataset, add_dataset
from papers.readers import cub, mini_imagenet, tiny_imagenet_tests
from papers.readers.faces import casia_webface, celeba
from papers.readers.imagenet32 import imagenet32
from papers.readers.mnist import mnist

add_dataset(
    "tinyimagenet32_validation",
    Dataset(tiny_imagenet_tests.tinyimagenet32_validation, ("tinyimagenet32.npz", "tiny-imagenet-200")),
)
add_dataset(
    "tinyimagenet20",
    Dataset(
        tiny_imagenet_tests.tinyimagenet20,
        (tiny_imagenet_tests.FOLDER_20,),
        list_files=tiny_imagenet_tests.list_files_20,
    ),
)
add_dataset("miniimagenet20", Dataset(mini_imagenet.miniimagenet20, (mini_imagenet.FOLDER,)))
add_dataset("cub180", Dataset(cub.cub180, (cub.FOLDER,), list_files=cub.list_files_180))
add_dataset("cub20", Dataset(cub.cub20, (cub.FOLDER,), list_files=cub.list_files_20))
add_dataset("casia_webface", Dataset(casia_webface, ("CASIA-WebFace",)))
add_dataset("celeba", Dataset(celeba, ("celeba",)))
add_dataset("imagenet32", Dataset(imagenet32, ("imagenet32",)))
add_dataset(
    "mnist", Dataset(mnist, ("mnist.npz", "train-images-idx3-ubyte", "train-images-idx3-ubyte.gz", "mnist", "MNIST"))
)
