"""What ``holdfast reproduce`` can be asked for, written down here so that its help need not import them all."""

EXHIBIT_NAMES = {
    "table1": "settings of CL2R",
    "table2": "CIFAR100/10, 2 to 31 tasks",
    "table3": "TinyImageNet200/20, 2 to 31 tasks",
    "table4": "CUB180/20, 2 to 31 tasks",
    "table5": "settings of IAM-CL2R",
    "table6": "CIFAR100R/10, two replacements",
    "table7": "replacements by other architectures",
    "table8": "other K, lambda and rho",
    "fig1": "an update seen from the prototypes (drawing)",
    "fig2": "pairs before and after an update (drawing)",
    "fig3": "the toy on MNIST (drawing)",
    "fig4": "compatibility matrices at 7 tasks",
    "fig5": "who owns which vertex (drawing)",
    "fig6": "AA over 31 tasks, replacements or none",
    "fig7": "compatibility matrices, two replacements",
    "fig8": "AA over 16 tasks of CelebA",
    "fig9": "AA over tasks, three architectures",
    "fig10": "rates, buffers and images per class",
    "fig11": "Proposition 2 (drawing)",
    "fig12": "Theorem 1 (drawing)",
    "goals": "what the tuned set is to reach",
    "tries": "how the tuned settings were chosen",
    "front": "AC against AA as the dial turns",
    "parts": "what each part of our own method brings",
    "questions": "what the paper leaves open",
    "stride": "what one update brings at a given lambda",
    "length": "what shorter features do (for two cores)",
    "mixed": "galleries of mixed versions",
    "all": "every one of these",
}
"""The paper's in its order, then what is shown beside them."""

# \b keeps a paragraph of help as it is written.
LISTED = "\b\nNAME is one of:\n" + "\n".join(f"  {name:<10} {about}" for name, about in EXHIBIT_NAMES.items())
