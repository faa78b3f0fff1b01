"""What a process that was killed left behind, put right when a gallery is opened."""

import shutil

from holdfast.gallery.parts import Parts
from holdfast.storage import sweep_temporaries


def repair(parts: Parts) -> None:
    """Take away vectors, collections and model folders that nobody owns."""
    known = parts.models.versions()
    for collection in set(parts.engine.collections()) - {one.collection for one in known}:
        parts.engine.drop(collection)
    sweep_temporaries(parts.folder.versions)
    for folder in set(parts.folder.versions.iterdir()) - {parts.folder.version(one.number) for one in known}:
        shutil.rmtree(folder)
    parts.writer.sweep()
