"""Figure 8: the large scale, CelebA in 16 tasks of 512 people with DINOv3 ViT-B/16; ready for whoever has the data."""

from holdfast.reproduction.aa_over_tasks import AAOverTasks
from holdfast.reproduction.cifar import PAPER_METHODS
from holdfast.reproduction.iam import LAST
from holdfast.reproduction.large_scale import hours_of_fig8
from holdfast.reproduction.results import Results


def _needed(results: Results) -> str:
    return (
        "They need CelebA and CASIA-WebFace below `--data`, DINOv3's weights, and the six models of `holdfast pretrain"
        f" pretrain/casia_webface --methods simplex_hoc,er --classes 3525,7050,10575`; {hours_of_fig8(results)}."
    )


FIG8 = AAOverTasks(
    name="fig8",
    data="CelebA",
    tasks=16,
    methods=PAPER_METHODS,
    studies={"celeba": "Two replacements", "celeba-none": "No replacement"},
    replaced={"celeba": (5, 10)},
    stage=LAST + 2,
    note=lambda results: (
        "Models pre-trained on 3,525, 7,050 and 10,575 people of CASIA-WebFace, as the paper's. Of each test identity a"
        " seeded half of the images is query, the rest gallery; the paper does not say."
    ),
    needed=_needed,
).exhibit("Figure 8: AA over 16 tasks of CelebA, with replacements and without")
