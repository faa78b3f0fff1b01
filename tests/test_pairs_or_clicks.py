"""The examples of docs/pairs-or-clicks.md, executed as they are there, and once more without the term."""

import re
from pathlib import Path

import pytest
import torch

PAGE = (Path(__file__).parents[1] / "docs" / "pairs-or-clicks.md").read_text(encoding="utf-8")
SECTIONS = re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)
SLOW = (pytest.mark.slow, pytest.mark.ci)  # imports transformers and trains four times
PLAIN, TRAINER, SENTENCES = SECTIONS[1::2]


def execute(heading, names, weight):
    """Run the Python of one section with ``weight`` as the weight of the term."""
    text = SECTIONS[0] if not heading else SECTIONS[SECTIONS.index(heading) + 1]
    for block in re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
        block = block.replace("weight=1.0", f"weight={weight}")
        exec(compile(block, "pairs-or-clicks.md", "exec"), names)


def margin(heading, names):
    """Cosine of version 2's queries with the stored title that was clicked, minus that with the nearest other title."""
    queries = [query for query, _ in names["spring"]]
    with torch.no_grad():
        if heading == SENTENCES:
            z = names["sentences"].encode(queries, convert_to_tensor=True)
        else:
            z = names["version_2" if heading == PLAIN else "trainer_2"](names["tokens"](queries))
    normalize = torch.nn.functional.normalize
    cosines = normalize(z, dim=1) @ normalize(names["stored"], dim=1).T
    clicked = cosines.diagonal().clone()
    return (clicked - cosines.fill_diagonal_(-1).amax(1)).mean().item()


@pytest.mark.parametrize(
    ("heading", "needs", "result"),
    [
        (PLAIN, [], "plain_torch"),
        pytest.param(TRAINER, ["transformers", "accelerate"], "with_trainer", marks=SLOW),
        pytest.param(SENTENCES, ["sentence_transformers"], "with_sentences", marks=SLOW),
    ],
)
def test_example(heading, needs, result, tmp_path, monkeypatch):
    """Version 2 finds what was clicked among the stored titles, with a larger margin than without the term."""
    for package in needs:
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    margins = {}
    for weight in (1.0, 0.0):
        names = {"__name__": "pairs_or_clicks"}
        torch.manual_seed(0)
        for part in dict.fromkeys(["", PLAIN, *([TRAINER] if heading == SENTENCES else []), heading]):
            execute(part, names, weight)
        if weight:
            assert names[result] > 0.8
        margins[weight] = margin(heading, names)
    assert margins[1.0] > margins[0.0]


def test_the_text_names_the_defaults():
    import inspect

    from holdfast import CompatibilityLoss

    defaults = {name: one.default for name, one in inspect.signature(CompatibilityLoss).parameters.items()}
    assert f"`CompatibilityLoss(old_model, weight={defaults['weight']}, rho={defaults['rho']})`" in PAGE
