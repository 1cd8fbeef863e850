"""run_distillation.py: what a model learns from a teacher of its vocabulary."""

import functools
import json

import pytest
import tensorflow as tf

import program_flags
import programs
import tiny
import unmasked_records

command_distillation = functools.partial(
  unmasked_records.command, program="run_distillation"
)


# A training that learns from the teacher alone.
ALONE = {"teacher_only": True, "dynamic_masking": False}
ALONE |= {"do_whole_word_mask": False, "do_eval": False}


@pytest.fixture(name="unmasked")
def write_unmasked_data(tmp_path):
  """Returns the flags for 60 records without masks."""
  return unmasked_records.make_flags(tmp_path)


@pytest.mark.slow
def test_devices_and_parts_learn_the_same(unmasked, tmp_path):
  unmasked |= {"teacher": unmasked_records.write_teacher(tmp_path / "teacher")}
  unmasked |= {"teacher_vectors": True, "learning_rate": 0.01}
  arguments = command_distillation(tmp_path, **unmasked)
  program_flags.succeed(arguments)
  unmasked_records.assert_same_on_devices(arguments, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("is_alone", [False, True])
def test_what_is_learned_from_a_teacher_resumes(is_alone, unmasked, tmp_path):
  """Killed after three of six steps; alone it leaves the heads."""
  unmasked |= {"teacher": unmasked_records.write_teacher(tmp_path / "teacher")}
  unmasked |= {"teacher_vectors": True, "learning_rate": 0.01}
  unmasked |= ALONE if is_alone else {}
  whole, parts = tmp_path / "whole", tmp_path / "parts"
  unmasked |= {"iterations_per_loop": 1, "output_dir": whole}
  run = programs.train(command_distillation(tmp_path, **unmasked))
  programs.assert_resumes(run, parts)
  saved = tf.train.load_checkpoint(f"{whole}/model.ckpt-6")
  earlier = tf.train.load_checkpoint(f"{whole}/model.ckpt-3")
  for name in ("teacher_projection", "cls/predictions/output_bias"):
    is_same = (saved.get_tensor(name) == earlier.get_tensor(name)).all()
    assert is_same == (is_alone and "cls" in name)
  result = run.again(program_flags.run_here, teacher_vectors=False)
  program_flags.assert_refused(result, "with_vectors=True)")
  # A run that has begun with a teacher does not continue without it.
  alone = ("teacher", "teacher_only", "teacher_vectors")
  unmasked = {name: v for name, v in unmasked.items() if name not in alone}
  unmasked |= {"dynamic_masking": True, "output_dir": parts}
  command = unmasked_records.command(tmp_path, **unmasked)
  result = program_flags.run_here(command)
  program_flags.assert_refused(result, "--teacher=none (was ")
  # Nobody else needs the projection, or the teacher.
  unmasked |= {"do_eval": True, "do_train": False}
  command = unmasked_records.command(tmp_path, **unmasked)
  program_flags.succeed(command)
  curves = [json.loads(x) for x in (whole / "curves.jsonl").open()]
  for name in ("relation_loss", "vector_loss"):
    assert curves[-1][name] < curves[0][name]
  assert ("masked_lm_loss" in curves[0]) != is_alone


@pytest.mark.parametrize(
  ("changes", "flags", "message"),
  [
    ({}, ALONE | {"vocab_file": ""}, "its vocabulary is "),
    (
      {},
      {"relation_heads": 16},
      "=16 does not divide 24 and 16, the teacher's ",
    ),
    ({"type_vocab_size": 1}, {}, "its type_vocab_size is 1, the model's"),
    ({"causal_attention": True}, {}, "is no BERT, whose relations"),
    ({}, ALONE | {"do_eval": True}, "it guesses no words to evaluate"),
    (
      {},
      ALONE | {"input_file": "masked"},
      "py makes others with --masks=false",
    ),
  ],
)
def test_a_teacher_that_does_not_fit_is_refused(
  changes, flags, message, unmasked, tmp_path
):
  teacher = unmasked_records.write_teacher(tmp_path / "teacher", **changes)
  if "input_file" in flags:
    path = tiny.write_records(tmp_path / flags["input_file"], range(8))
    flags = flags | {"input_file": path}
  unmasked |= {"teacher": teacher, **flags}
  unmasked["teacher_vectors"] = True
  command = command_distillation(tmp_path, **unmasked)
  program_flags.assert_refused(program_flags.run_here(command), message)
