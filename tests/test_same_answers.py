"""A trained folder, its export and predict.py answer as the program did."""

import json

import pytest

import program_flags
import tiny_programs

PREDICTION = {
  "run_classifier": {
    "max_seq_length": 16,
    "doc_stride": None,
    "window_pooling": "mean",
  },
  "run_squad": {
    "max_seq_length": 16,
    "doc_stride": 4,
    "max_query_length": 4,
    "n_best_size": 20,
    "max_answer_length": 30,
    "version_2_with_negative": True,
    "whole_word_answers": False,
    "null_score_diff_threshold": 0.0,
  },
  "run_tagging": {"max_seq_length": 16},
  "run_multiple_choice": {"max_seq_length": 16},
}


@pytest.mark.parametrize("program", PREDICTION)
def test_training_leaves_what_predictions_depend_on(program, tmp_path):
  command = tiny_programs.write(program, tmp_path)
  result = program_flags.run_here(command)
  assert result.returncode == 0, result.stderr
  content = json.loads((tmp_path / "out" / "prediction.json").read_text())
  assert content == PREDICTION[program]
