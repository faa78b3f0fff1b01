"""Features of drawn characters for bench/gallery.py: 512 numbers each, by the demo's network made wider and trained.

    python bench/glyph_features.py FILE.npy [--rows 101000] [--classes 200] [--epochs 4]

The network learns 60 of the characters, 40 images each, as d-Simplex-HOC learns a first task. Then it embeds all of
them, shuffled.
"""

import argparse

import numpy as np
import torch

from holdfast import METHODS, Encoder, FitOptions, Preprocess, build_backbone, cl2r, fit, load_split

LEARNED, IMAGES_EACH = 60, 40


def main() -> None:
    parser = argparse.ArgumentParser(description="Features of drawn characters.")
    parser.add_argument("file")
    parser.add_argument("--rows", type=int, default=101_000)
    parser.add_argument("--classes", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=4)
    options = parser.parse_args()
    torch.manual_seed(0)
    train = load_split("glyphs", "train", train_classes=LEARNED, per_class_train=IMAGES_EACH)
    task = cl2r(train.labels, train.class_names, initial=LEARNED, increment=1).tasks[0]
    method = METHODS["simplex_hoc"](slots=LEARNED)
    backbone = build_backbone("small", width=128)
    preprocess = Preprocess(size=28, mean=(0.2,), std=(0.3,), colour="grey")
    encoder = Encoder.for_method(method, backbone=backbone, preprocess=preprocess)
    fit(encoder, method, task, train, options=FitOptions(epochs=options.epochs, batch_size=64, lr=0.05, flip=False))
    each = -(-options.rows // options.classes)
    drawn = load_split("glyphs", "train", train_classes=options.classes, per_class_train=each, seed=1)
    order = np.random.default_rng(0).permutation(len(drawn))[: options.rows]
    encoder.eval()
    rows = np.empty((len(order), backbone.feature_dim), np.float32)
    with torch.no_grad():
        for start in range(0, len(order), 512):
            pixels = torch.from_numpy(drawn.images[order[start : start + 512]]).permute(0, 3, 1, 2)
            rows[start : start + 512] = backbone(preprocess.normalise(pixels)).numpy()
    np.save(options.file, rows)
    print(f"{len(rows)} x {rows.shape[1]}, {options.classes} characters")


if __name__ == "__main__":
    main()
