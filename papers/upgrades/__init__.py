"""The study of upgrades on real text: both models at query time, against keeping the old one and re-embedding."""
