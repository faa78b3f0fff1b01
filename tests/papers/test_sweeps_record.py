"""What the record of a run says of the executor that trained it."""

import json

import pytest

from holdfast.core.run_folder import RunFolder
from papers.sweeps.record import write_record


@pytest.mark.parametrize(
    ("used", "told"),
    [
        (["fused", "fused"], {"gpu": "one", "executor": "fused"}),
        (["graph", "fused", "graph"], {"gpu": "one", "executor": "fused + graph"}),
        ([None, None], {"gpu": "one"}),  # a log of before this was written down
    ],
)
def test_the_executor_is_the_one_that_trained(tmp_path, used, told):
    folder = RunFolder(tmp_path)
    folder.recipe.write_text("seed = 0\n[train]\nexecutor = 'auto'\n")
    folder.environment.write_text('{"gpu": "one"}')
    folder.metrics.write_text('{"method": "er", "tasks": [], "data": {}, "protocols": {}}')
    begun = [{"event": "begin", "task": i, **({"executor": name} if name else {})} for i, name in enumerate(used)]
    folder.log.write_text("".join(json.dumps(event) + "\n" for event in begun))
    write_record(folder, tmp_path / "record.json", "holdfast run mine")
    assert json.loads((tmp_path / "record.json").read_text())["environment"] == told
