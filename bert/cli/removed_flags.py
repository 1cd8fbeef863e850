"""Flags that programs no longer have, and what does their work now.

A command line with one of them ends in a line that names the new command.
"""

_WITHOUT_LABELS = (
  "; export_saved_model.py and predict.py read texts without labels, by "
  "--text_column and --text_pair_column"
)
_FEATURE_TAGGING = (
  "python -m bert.contrib.run_feature_tagging, with the flags of run_tagging.py"
)
# By the flag's name, as it is said after "use". A program that still has a flag
# of this name is not concerned.
REPLACEMENTS: dict[str, str] = {
  "feature_based": _FEATURE_TAGGING,
  "feature_layers": _FEATURE_TAGGING,
  "init_layers_from": "python convert_checkpoint.py --model=... --layers=0,2,4 "
  "--output_format=google --output=NEW, and --model=NEW here",
  "lstm_size": _FEATURE_TAGGING,
  "word_vectors": "python -m bert.contrib.word_vectors --vectors=... "
  "--output=NEW, and --model=NEW here",
  "relation_heads": "run_distillation.py --relation_heads=...",
  "teacher": "run_distillation.py --teacher=...",
  "teacher_only": "run_distillation.py --teacher_only=...",
  "teacher_vectors": "run_distillation.py --teacher_vectors=...",
  # The comparison of export_saved_model.py --quantize=int8.
  "max_score_drop": "--max_changed=0.03, the share of answers that may change",
  # Two programs that train, and are easily mixed up.
  "label_column": "it with run_classifier.py or run_embedding.py, and "
  f"--tag_column with run_tagging.py{_WITHOUT_LABELS}",
  "label_separator": f"it with run_classifier.py{_WITHOUT_LABELS}",
  **dict.fromkeys(
    ("token_column", "tag_column"),
    "it with run_tagging.py, and --label_column with run_classifier.py"
    + _WITHOUT_LABELS,
  ),
}
