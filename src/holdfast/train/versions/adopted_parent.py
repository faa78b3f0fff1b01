"""An adopted model as the model before the first trained version: what is read of it, its settings and its network.

An adopted model has no network for images, only stored vectors. The first update trains a new network against them,
each image against its own vector. If the data are vectors of the adopted model itself, its encoder computes the
features to stay compatible with, and the new network is a head on these vectors.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.train.encoders import Encoder, Input
from holdfast.train.encoders.named_backbone import NamedBackbone, named_backbone
from holdfast.train.engine.options import Precision
from holdfast.train.versions.adopted_model import Adopted, VectorsByPath, read_adopted
from holdfast.train.versions.image_defaults import survey_images
from holdfast.train.versions.parent import Parent, SampleSet, describe_model
from holdfast.train.versions.samples import holds_vectors
from holdfast.train.versions.settings import (
    VECTOR_HEAD,
    VersionSettings,
    default_settings,
    start_settings,
    with_network,
)


def adopted_parent(model: Path, data: Path, stored: str | Path | None = None) -> Parent:
    """The adopted model in the folder ``model``, as the model before the version that ``data`` trains.

    data: images or vectors. For images the stored vectors are read; they must have ids.
    stored: the file of the stored vectors, if it was moved.
    """
    adopted = read_adopted(model)
    by_path = None
    if not holds_vectors(data):
        vectors = adopted.stored(stored)
        if not vectors.has_ids:
            raise HoldfastError(
                f"{vectors.name}: has no ids, so its vectors cannot be found for images; adopt a file with ids "
                "(the paths of the images)"
            )
        by_path = VectorsByPath(adopted, vectors)
    return Parent(
        model,
        adopted.encoder.float(),
        str(describe_model(model)["weights_sha256"]),
        0,
        (),
        None,
        SampleSet(),
        adopted=adopted,
        stored=by_path,
    )


def adopted_settings(
    adopted: Adopted,
    data: Path,
    *,
    settings: VersionSettings | None = None,
    network: str | NamedBackbone | None = None,
    precision: Precision = "fp32",
    split_folders: bool | None = None,
) -> VersionSettings:
    """Settings of the first version after an adopted model.

    settings: those of the user, which must train into the adopted space. Default: the defaults for the data, with
        ``means_hoc`` for images, ``cosine_hoc`` for vectors, and ``simplex_hoc`` if the adopted space is a simplex.
    network: name of the network, or what ``named_backbone`` found; default: the one for the data.
    precision: of networks for images with trained weights.
    split_folders: as in ``start``.
    """
    vectors = holds_vectors(data)
    network = named_backbone(network) if isinstance(network, str) else network
    if settings is None:
        images = None if vectors else survey_images(data, split_folders)
        settings = default_settings(vectors=vectors, images=images, network=network, precision=precision)
        method = "simplex_hoc" if adopted.registry is not None else "cosine_hoc" if vectors else "means_hoc"
        if settings.method != method:
            settings = replace(settings, method=method, method_options={})
    elif settings.backbone is None:
        settings = with_network(settings, network or (named_backbone(VECTOR_HEAD) if vectors else None))
    settings = start_settings(settings, vectors)
    options = adopted.method_options(settings.method, settings.method_options)
    settings = replace(settings, method_options={**settings.method_options, **options})
    unfit = settings.takes_slots() and adopted.registry is None  # any number of slots is refused
    trained_by = (settings.with_slots(2) if unfit else settings).build_method()
    adopted.refuse_unfit(trained_by, adopted.dim, where="--from")  # the size is checked with the network
    return settings


def adopted_network(settings: VersionSettings, preprocess: Input, adopted: Adopted) -> Callable[[], Encoder]:
    """Builds the network that training starts with; with the adopted projection if its sizes are the same.

    Refused: a method or a network that does not train into the adopted space.
    """
    build = settings.encoder_maker(preprocess)

    def make() -> Encoder:
        encoder = build()
        adopted.refuse_unfit(settings.build_method(), encoder.dim, where="--from")
        own, given = encoder.projection, adopted.encoder.projection
        on_vectors = preprocess.takes_vectors
        if on_vectors and own is not None and given is not None and own.weight.shape == given.weight.shape:
            own.weight.data.copy_(given.weight.detach())
        return encoder

    return make
