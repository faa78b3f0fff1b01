"""Which items of a gallery a model was not trained on, as far as its folder says."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.checksums import sha256_of
from holdfast.gallery.items import Stored
from holdfast.saved_samples import BUFFER, HELD_OUT, read_sample_list
from holdfast.wording import counted

HELD, UNKNOWN, TRAINED = "held_out", "unknown", "trained"
"""Items held out from training, items of which nothing is known, and items that the model was trained on."""
ENOUGH = 50
"""With so many held-out queries no others are used."""


@dataclass(frozen=True)
class NamedSamples:
    """The samples that a model folder names: held out from all training so far, or kept for replay.

    model: the name of the folder.
    kinds: ``HELD`` or ``TRAINED`` by the sha256 of a file; empty if the folder has no lists.
    paths: the same by the path that a sample was read from.
    """

    model: str
    kinds: Mapping[str, str]
    paths: Mapping[str, str]

    @classmethod
    def read(cls, folder: Path) -> "NamedSamples":
        kinds: dict[str, str] = {}
        paths: dict[str, str] = {}
        for stem, kind in ((HELD_OUT, HELD), (BUFFER, TRAINED)):
            found = read_sample_list(folder, stem)
            for _, path, sha256 in () if found is None else found.samples:
                kinds[sha256] = paths[path] = kind
        return cls(folder.resolve().name, kinds, paths)

    def kinds_of(self, items: Iterable[Stored]) -> dict[int, str]:
        """The kind of each item, by key, from the content of its image. A file that cannot be read is unknown."""
        if not self.kinds:
            return {item.key: UNKNOWN for item in items}
        return {item.key: self.kinds.get(_hash(item.path), UNKNOWN) for item in items}

    def best(self, items: Sequence[Stored], kinds: Mapping[int, str]) -> list[Stored]:
        """The held-out items if there are enough; else with them those of unknown kind, and then all."""
        for allowed in ((HELD,), (HELD, UNKNOWN)):
            found = [item for item in items if kinds[item.key] in allowed]
            if len(found) >= ENOUGH:
                return found
        return list(items)

    def describe(self, items: Iterable[Stored], kinds: Mapping[int, str]) -> dict[str, Any]:
        """How many items of each kind were used, and ``text``, a sentence about them."""
        counts = Counter(kinds[item.key] for item in items)
        held, unknown, trained = counts[HELD], counts[UNKNOWN], counts[TRAINED]
        parts = []
        if held:
            parts.append(f"{counted(held, 'held-out item')} of model {self.model}, not used in training")
        if unknown:
            which = "not known whether used in training" if self.kinds else "the model folder names no held-out images"
            parts.append(f"{counted(unknown, 'item')}, {which}")
        if trained:
            parts.append(f"{counted(trained, 'item')} used in training")
        return {HELD: held, UNKNOWN: unknown, TRAINED: trained, "model": self.model, "text": "; ".join(parts)}


def _hash(path: str | None) -> str:
    try:
        return "" if path is None else sha256_of(Path(path))
    except OSError:
        return ""
