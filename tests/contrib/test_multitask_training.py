"""Tests of the report of several tasks."""

import pytest

from bert.cli import shared_flags
from bert.contrib import multitask_training


@pytest.mark.parametrize("is_shared", [True, False])
def test_the_best_score_of_all_tasks_is_told_once(tmp_path, is_shared):
  settings = shared_flags.ModelSettings(output_dir=str(tmp_path))
  scores = {"a": "f1 0.9", "b": "f1 0.9" if is_shared else "f1 0.8"}
  best = "f1 0.9" if is_shared else ""
  multitask_training.write_report(settings, 0.0, scores, best)
  text = (tmp_path / "report.html").read_text()
  assert '<a href="tasks/a/report.html">a</a>' in text
  assert ("; f1 0.9" in text) == is_shared
  assert (">f1 0.8<" in text) == (not is_shared)


def test_a_task_may_have_a_score_besides_the_best_of_all(tmp_path):
  settings = shared_flags.ModelSettings(output_dir=str(tmp_path))
  best = "best: mean 0.9"
  scores = {"a": best, "b": f"eval_f1 50; {best}", "c": f"eval_f1 7; {best}"}
  multitask_training.write_report(settings, 0.0, scores, best)
  text = (tmp_path / "report.html").read_text()
  assert text.count(best) == 1 and f"; {best}</p>" in text
  assert ">eval_f1 50<" in text and ">eval_f1 7<" in text
