"""A new gallery's folder and its first collection."""

from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.gallery.catalogue import Catalogue
from holdfast.gallery.engines import open_engine
from holdfast.gallery.folder import GalleryFolder
from holdfast.gallery.place import Place
from holdfast.gallery.versions import keep_model, read_candidate
from holdfast.storage import replacing_folder


def make_gallery(path: Path, model: Path, place: Place, mode: str) -> None:
    """A gallery with one version and no items; the folder appears when all of it is there."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise HoldfastError(f"{path}: already there; give the gallery a folder of its own")
    candidate = read_candidate(model)
    version = candidate.version(1, [])
    slots = None if candidate.registry is None else candidate.registry.to_json()
    with replacing_folder(path) as temporary:
        home = GalleryFolder(temporary)
        keep_model(candidate, home.version(1))
        catalogue = Catalogue(home.catalogue, new=True)
        settings = {"engine": place.url, "place": place.options, "mode": mode, "slots": slots}
        catalogue.put_version(1, version.as_json(), settings)
        catalogue.close()
        # Last: what is made on a server does not go with the folder if something fails.
        store = open_engine(place, home.vectors, mode)
        try:
            if store.collections():
                raise HoldfastError(f"{place.url}: the namespace {place.namespace} is in use; choose another one")
            store.create(version.collection, version.stored_dim)
        finally:
            store.close()
