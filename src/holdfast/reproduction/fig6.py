"""Figure 6: AA after each of 31 tasks, with two replacements and with none."""

from holdfast.reproduction.aa_over_tasks import AAOverTasks
from holdfast.reproduction.iam import LONG, LONG_TASKS, MAIN, REPLACED_AT, TITLES, pretrained

FIG6 = AAOverTasks(
    name="fig6",
    data="CIFAR100R/10",
    tasks=LONG_TASKS,
    methods=MAIN,
    studies=TITLES,
    replaced={"replaced": REPLACED_AT[LONG_TASKS]},
    stage=LONG,
    note=pretrained,
).exhibit("Figure 6: AA over 31 tasks, with replacements and without")
