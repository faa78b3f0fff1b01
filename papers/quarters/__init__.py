"""The study of quarterly updates: a pre-trained network, five versions, and what each way to update keeps of its index.

``python -m papers.quarters run`` executes what is missing and writes the page. ``strategies`` lists what is compared,
``study_data`` what it is compared on.
"""
