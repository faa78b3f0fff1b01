"""Register a model: fit bridges to the older versions, check its queries on them, then make it the newest version."""

import contextlib
import gc
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.bridges import NONE, Bridge
from holdfast.bridges.choice import FEWEST_PAIRS
from holdfast.checks.verdict import WORSE, YES
from holdfast.core.errors import HoldfastError
from holdfast.core.process_settings import SHORT_TURNS
from holdfast.core.wording import counted, have
from holdfast.gallery.bridge_pairs import (
    ItemPairs,
    PairItems,
    choose_with_images,
    embed_images,
    pairs_of,
    read_pair_items,
)
from holdfast.gallery.catalogue import ItemsWithPath
from holdfast.gallery.gallery_base import AUTO, RegisterOptions
from holdfast.gallery.gallery_versions import (
    Version,
    VersionCandidate,
    copy_model,
    read_candidate,
    read_registry,
    space_conflict,
)
from holdfast.gallery.given_vectors import NewModelVectors, OtherPairs
from holdfast.gallery.label_check import (
    CheckSample,
    CheckSplit,
    NamedSamples,
    NewQueries,
    check_on_sample,
    joint_confidence,
    read_check_sample,
    split,
)
from holdfast.gallery.state import GalleryState
from holdfast.gallery.version_bridges import bridge_from, bridge_record, bridge_to, reversed_bridge
from holdfast.gallery.version_models import BasisConverter, load_encoder, prepare_image

if TYPE_CHECKING:
    from holdfast.embedders.image_encoder import ImageEncoder


def register(state: GalleryState, model: str | Path | None, options: RegisterOptions) -> Version:
    """Make a model the newest version; see ``Gallery.register``.

    The caller holds ``state.registering``, so that no other model is registered meanwhile, but not ``state.writing``:
    others add, delete and search while the new model embeds. What they may have changed is checked again before the
    commit.
    """
    candidate, models = read_candidate(model, options.new_vectors if model is None else None), state.models
    _refuse_known_model(state, candidate)
    # The number stays free: of concurrent operations only a rollback changes versions, and it never frees a number.
    last = max(one.number for one in models.versions())
    version = candidate.version(max(last, state.catalogue.setting("last_version", 0)) + 1)
    encoder = candidate.load(models.device)
    registration = _Registration(state, candidate, version, options, encoder)
    registration.refuse_other_spaces()  # before anything is embedded
    home = state.folder.version(version.number)
    with _delete_model_on_error(state, version):
        # Copied first, because the source folder may change while the model embeds.
        copy_model(candidate, home)
        with _short_garbage_collections(), SHORT_TURNS:  # searches and writes of other threads wait less
            found = _of_current_versions(state, registration.run())
        refused = [one.check for one in found if one.check is not None and refuses(one.check)]
        if refused and not options.force:
            where = f"on version {refused[0]['version']}: {_loss_text(refused[0])}"
            how = "--force registers it all the same (in Python: force=True)"
            raise HoldfastError(f"{candidate.source}: finds less {where}; {how}")
        for one in found:
            one.save(home)
        # Before ``writing`` is held: it takes long enough for writers to notice.
        state.engine.create(version.collection, version.stored_dim)
    with state.writing:
        with _delete_model_on_error(state, version):
            _refuse_known_model(state, candidate)
            for one in found:
                one.remove_unless(one.old in models.versions(), home)
            found = _of_current_versions(state, found)
            version = replace(
                version,
                checks=[one.check for one in found if one.check is not None],
                bridges=[bridge_record(one.old.number, one.to, home) for one in found if one.to is not None],
                notes=registration.notes,
                unreachable=[one.old.number for one in found if one.unreachable],
            )
            counts = state.catalogue.counts()
            for number in version.unreachable:
                if counts.get(number):
                    raise HoldfastError(
                        f"{candidate.source}: items of version {number} were added meanwhile; register it again"
                    )
        state.catalogue.put_version(version.number, version.as_json(), {})
        models.add_version(version, registration.encoder)
    return version


@contextlib.contextmanager
def _short_garbage_collections() -> Iterator[None]:
    """Leave the objects that exist now out of garbage collections within the block.

    A collection of all objects of a process with torch takes about 0.1 s, in which no thread can search.
    """
    if gc.get_freeze_count():  # the application has chosen its own set
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextlib.contextmanager
def _delete_model_on_error(state: GalleryState, version: Version) -> Iterator[None]:
    """Delete the copy of the model, its bridges and its collection if the block raises."""
    try:
        yield
    except BaseException:
        state.models.delete_model(version.number)
        with contextlib.suppress(HoldfastError):  # dropped when the gallery is opened again
            if version.collection in state.engine.collections():
                state.engine.drop(version.collection)
        raise


def refuses(check: dict[str, Any]) -> bool:
    """Whether a check shows that the new queries do worse, and does not show that at most the accepted loss is lost."""
    loss = check.get("loss")
    return bool(check["verdict"] == WORSE and (loss is None or loss["answer"] != YES))


def _loss_text(check: dict[str, Any]) -> str:
    loss, gain = check["loss"], check["gain"]
    if loss is None:
        return str(check["reason"])
    change = f"{100 * gain['value']:+.1f} points, {100 * gain['low']:+.1f} to {100 * gain['high']:+.1f}"
    return f"{loss['question'].lower()}: {loss['answer']} ({change}; {check['items_used']['text']})"


def _refuse_known_model(state: GalleryState, candidate: VersionCandidate) -> None:
    models = state.models
    if models.rollback_version is not None:
        raise HoldfastError(f"version {models.rollback_version} is being rolled back; finish or cancel that first")
    for known in models.versions():
        if known.weights_sha256 == candidate.weights_sha256:
            raise HoldfastError(f"{candidate.source}: this model is version {known.number} already")


@dataclass(frozen=True)
class Finding:
    """What was found out about the new model and one older version.

    to: the bridge for queries of the new model; back: the bridge for vectors of the older version. None without one.
    check: the check of the new model's queries on the older version's items; None if there was nothing to check on.
    unreachable: the older version has no items, and the new model's queries could not search any.
    """

    old: Version
    to: Bridge | None
    back: Bridge | None
    check: dict[str, Any] | None
    unreachable: bool

    def save(self, version_folder: Path) -> None:
        if self.to is not None and self.back is not None:
            bridge_to(version_folder, self.old.number).parent.mkdir(exist_ok=True)
            self.to.save(bridge_to(version_folder, self.old.number))
            self.back.save(bridge_from(version_folder, self.old.number))

    def remove_unless(self, wanted: bool, version_folder: Path) -> None:
        """Remove the saved bridges of a version that a rollback has removed."""
        if not wanted:
            shutil.rmtree(bridge_to(version_folder, self.old.number), ignore_errors=True)
            shutil.rmtree(bridge_from(version_folder, self.old.number), ignore_errors=True)


def _of_current_versions(state: GalleryState, found: list[Finding]) -> list[Finding]:
    """The findings without those about versions that a rollback has removed."""
    known = state.models.versions()
    return [one for one in found if one.old in known]


@dataclass(frozen=True)
class _Sampled:
    """What was read of one older version before the new model embeds anything; ``items``: how many it holds."""

    old: Version
    items: int
    conflict: str | None
    converter: BasisConverter
    check: CheckSample | None
    pairs: PairItems


def full_features(encoder: "ImageEncoder", images: np.ndarray) -> np.ndarray:
    """Unit features of prepared images."""
    return encoder.embed(images)


class _Registration:
    """Bridges and checks of one model that is being registered.

    encoder: the model, if it is loaded already.
    """

    def __init__(
        self,
        state: GalleryState,
        candidate: VersionCandidate,
        new: Version,
        options: RegisterOptions,
        encoder: "ImageEncoder | None",
    ) -> None:
        self._state, self._candidate, self._new, self._options = state, candidate, new, options
        self.encoder = encoder
        self.notes: list[str] = []
        self._samples = NamedSamples.read(None if candidate.model is None else candidate.model.folder)

    def refuse_other_spaces(self) -> None:
        """Refuse a model that cannot be compared with every older version if no bridge is wanted."""
        if self._options.bridge != NONE:
            return
        counts = self._state.catalogue.counts()
        for old in self._state.models.versions():
            conflict = self._conflict(old)
            if conflict is not None and not self._can_be_unreachable(old, counts.get(old.number, 0)):
                raise self._unreachable(old, conflict, "leave out --bridge none (in Python bridge='none')")

    def run(self) -> list[Finding]:
        """Read samples of all older versions, then embed, fit and check."""
        self._last = self._state.models.versions()[-1]
        self._ready = self._options.ready_bridge(self._new.stored_dim, self._last.stored_dim)
        sampled = self._sample_all()
        findings = []
        for one in sampled:
            pairs = self._pairs(one)
            to, back = self._fit(one, pairs)
            unreachable = one.conflict is not None and to is None
            findings.append(Finding(one.old, to, back, self._check(one, to), unreachable))
        return findings

    def _can_be_unreachable(self, old: Version, items: int) -> bool:
        """Whether ``old`` needs no bridge: it has no items, and a rollback of the new model would not give it any."""
        return not items and old != self._state.models.versions()[-1]

    def _conflict(self, old: Version) -> str | None:
        registry = read_registry(self._state.folder.version(old.number), old)
        return space_conflict(registry, old.dim, self._candidate)

    def _unreachable(self, old: Version, conflict: str, what: str) -> HoldfastError:
        reason = f"its features cannot be compared with those of version {old.number} ({conflict})"
        return HoldfastError(f"{self._candidate.source}: {reason}; {what}")

    def _sample_all(self) -> list[_Sampled]:
        state, options = self._state, self._options
        new_vectors = None if options.new_vectors is None else NewModelVectors(options.new_vectors)
        self._new_vectors = new_vectors
        self._other_pairs: dict[int, OtherPairs] = {}
        with state.searches.running():  # a rollback waits for this before it deletes vectors and bases
            versions, counts = state.models.versions(), state.catalogue.counts()
            listed = {old.number: state.catalogue.items_with_path(old.number) for old in versions}
            splits = {old.number: CheckSplit({}, {}) for old in versions}
            if self.encoder is not None:
                for number, rows in listed.items():
                    splits[number] = split(rows, new_vectors, self._kinds_by_path(rows))
            reserved = {key for one in splits.values() for key in one.queries}
            chosen = {}
            if new_vectors is not None:
                if options.old_vectors is not None:
                    self._other_pairs[versions[-1].number] = self._pair_others(new_vectors, versions[-1])
                chosen = new_vectors.choose(state, options.bridge_pairs, reserved, need_items=not self._other_pairs)
                self.notes = new_vectors.notes(sum(len(other.rows) for other in self._other_pairs.values()))
            found = []
            for old in versions:
                items, conflict = counts.get(old.number, 0), self._conflict(old)
                if new_vectors is None and options.bridge != NONE:
                    keys = [key for key in listed[old.number].keys if key not in reserved]
                    chosen[old.number] = choose_with_images(state, keys, options.bridge_pairs)
                bases = {self._new.number: self._candidate.basis, old.number: state.models.basis_of(old.number)}
                found.append(
                    _Sampled(
                        old,
                        items,
                        conflict,
                        BasisConverter(bases.__getitem__),
                        read_check_sample(state, old, splits[old.number]),
                        read_pair_items(state, old, chosen.get(old.number, [])),
                    )
                )
        return found

    def _pair_others(self, new_vectors: NewModelVectors, old: Version) -> OtherPairs:
        assert self._options.old_vectors is not None
        state = self._state
        return new_vectors.paired_with(
            self._options.old_vectors,
            old,
            lambda vector, what: state.models.stored_form(vector, old, what),
            lambda names: state.catalogue.by_id(names).keys(),
            self._options.bridge_pairs,
        )

    def _kinds_by_path(self, listed: ItemsWithPath) -> dict[int, str]:
        """The kind of each item whose image is a file that the model folder names, by key."""
        kinds: dict[int, str] = {}
        for kind in set(self._samples.kinds.values()):
            paths = [path for path, named in self._samples.kinds.items() if named == kind]
            kinds.update(dict.fromkeys(self._state.catalogue.keys_with_path(listed, paths), kind))
        return kinds

    def _loaded(self) -> "ImageEncoder":
        """The new model. It is read from its copy, because the source folder may change."""
        if self.encoder is None:
            self.encoder = load_encoder(self._state.folder, self._new, self._state.models.device)
        return self.encoder

    def _embed(self, images: np.ndarray) -> np.ndarray:
        """Prepared images as the new version stores them.

        Without the lock of other forward passes: only this registration uses the encoder, and searches must not wait.
        """
        full, basis = full_features(self._loaded(), images), self._candidate.basis
        return full if basis is None else full @ basis

    def _pairs(self, one: _Sampled) -> ItemPairs:
        chosen = one.pairs
        if self._new_vectors is not None:
            rows = self._new_vectors.rows(chosen.items)
            given = self._new_vectors.stored(rows, self._new, self._candidate.basis)
            pairs = pairs_of(chosen.items, chosen.vectors, dict(enumerate(given)))
            other = self._other_pairs.get(one.old.number)
            if other is None or not other.rows:
                return pairs
            others = self._new_vectors.stored(other.rows, self._new, self._candidate.basis)
            return pairs.joined(ItemPairs(other.old, others, [None] * len(others)), self._options.bridge_pairs)
        if not chosen.items:
            return pairs_of([], {}, {})
        stage = f"embedding items of version {one.old.number}"

        def progress(done: int, total: int) -> None:
            self._options.progress(stage, done, total)

        return pairs_of(chosen.items, chosen.vectors, embed_images(chosen.items, self._loaded(), self._embed, progress))

    def _fit(self, one: _Sampled, pairs: ItemPairs) -> tuple[Bridge | None, Bridge | None]:
        """The bridges to and from an older version.

        None without enough pairs, if vectors can be compared as they are or if the version can be unreachable. The
        second bridge is of the kind that was chosen for the first.
        """
        old, new, options = one.old, self._new, self._options
        can_be_unreachable = self._can_be_unreachable(old, one.items)
        if options.bridge == NONE:
            return None, None
        ready = self._ready if old == self._last else None
        if ready is not None and len(pairs) < FEWEST_PAIRS:
            return ready, reversed_bridge(ready)
        if len(pairs) < FEWEST_PAIRS:
            asked = options.bridge != AUTO or self._new_vectors is not None
            if can_be_unreachable or (one.conflict is None and not (asked and one.items)):
                return None, None
            raise self._too_few(one, len(pairs))
        same = one.conflict is None
        labels = np.array(pairs.labels, dtype=object) if any(pairs.labels) else None
        self._options.progress(f"fitting the bridges of version {old.number}", 0, 2)
        to = ready or Bridge.fit(
            new=pairs.new,
            old=pairs.old,
            kind=AUTO if Path(options.bridge).is_dir() else options.bridge,
            labels=labels,
            items=one.items,
            same_space=same,
            unbridged=one.converter.convert(pairs.new, new, old) if same else None,
            models={"new": new.weights_sha256, "old": old.weights_sha256},
        )
        if not to.agrees_beyond_chance and not same and ready is None:
            if can_be_unreachable:
                return None, None
            judged = f"judged on {to.evidence.held_out} of {counted(len(pairs), 'pair')}"
            what = f"no bridge connects the models, {judged}; embed the items again in a gallery of their own"
            raise self._unreachable(old, str(one.conflict), what)
        self._options.progress(f"fitting the bridges of version {old.number}", 1, 2)
        back = Bridge.fit(
            new=pairs.old,
            old=pairs.new,
            kind=to.kind,
            options=to.options,
            labels=labels,
            same_space=same,
            unbridged=one.converter.convert(pairs.old, old, new) if same else None,
            models={"new": old.weights_sha256, "old": new.weights_sha256},
        )
        self._options.progress(f"fitting the bridges of version {old.number}", 2, 2)
        return to, back

    def _too_few(self, one: _Sampled, count: int) -> HoldfastError:
        if self._new_vectors is not None:
            where = f"{self._new_vectors.name} has vectors of {counted(count, 'item')} of version {one.old.number}"
            what = f"{where}, and a bridge needs {FEWEST_PAIRS}; add more to the file"
        else:
            where = f"{counted(count, 'item')} of version {one.old.number} {have(count)} an image at hand"
            give = "give vectors of more items by the new model (--new-vectors FILE, in Python new_vectors)"
            what = f"{where}, and a bridge needs {FEWEST_PAIRS}; {give}"
        if one.conflict is None:
            return HoldfastError(f"{self._candidate.source}: {what}")
        return self._unreachable(one.old, one.conflict, what)

    def _check(self, one: _Sampled, to: Bridge | None) -> dict[str, Any] | None:
        if one.check is None:
            return None
        encoder = self._loaded()
        stage, total, done = f"checking on version {one.old.number}", len(one.check.queries), 0
        self._options.progress(stage, 0, total)

        def embed(images: np.ndarray) -> NewQueries:
            nonlocal done
            rows = self._embed(images)
            done += len(rows)
            self._options.progress(stage, done, total)
            plain = one.converter.convert(rows, self._new, one.old) if one.conflict is None else None
            bridged = None if to is None or to.kind == NONE else to.transform(rows)
            return NewQueries(bridged, plain)

        found = check_on_sample(
            one.old.number,
            one.check,
            lambda item: prepare_image(encoder, str(item.path)),
            embed,
            self._samples,
            joint_confidence(len(self._state.models.versions())),
        )
        self._options.progress(stage, total, total)
        return found
