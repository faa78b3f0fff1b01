"""Figure 6: AA after each of 31 tasks, with two replacements and with none."""

from holdfast.reproduction.aa_over_tasks import AAOverTasks
from holdfast.reproduction.iam import LONG, LONG_TASKS, MAIN, pretrained

REPLACED_AT = (11, 21)

FIG6 = AAOverTasks(
    name="fig6",
    data="CIFAR100R/10",
    tasks=LONG_TASKS,
    methods=MAIN,
    studies={"replaced": "Two replacements", "none": "No replacement"},
    replaced={"replaced": REPLACED_AT},
    stage=LONG,
    note=pretrained(),
).exhibit("Figure 6: AA over 31 tasks, with replacements and without")
