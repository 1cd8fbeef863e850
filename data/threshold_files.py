"""The names of the files of thresholds that an evaluation tunes.

They belong to the weights of a moment: a training that changes these deletes
them from its folder.
"""

CLASSIFIER = "thresholds.json"  # A multi-label classifier's, by label.
ANSWERS = "null_score_diff_threshold.json"  # SQuAD 2.0's.
ALL = (CLASSIFIER, ANSWERS)
