"""The programs on several workers and devices: the same files as on one."""

import re

import pytest

from bert import extract_features, fill_mask, modeling
from bert.weights import checkpoints
import program_flags
import same_training
import tiny
import tiny_models
import workers


@pytest.fixture(name="no_dropout")
def drop_nothing(monkeypatch):
  """Does here what without_dropout.py does elsewhere."""
  monkeypatch.setattr(modeling, "dropout", lambda x, rate, seed: x)


@pytest.mark.slow
@pytest.mark.parametrize("program", tiny.TRAINERS)
def test_two_workers_leave_what_one_process_does(program, no_dropout, tmp_path):
  """13 examples are no multiple of 2 workers, nor of batches."""
  out, alone = tmp_path / "out", tmp_path / "alone"
  command = tiny.prepare(program, tmp_path)
  command_of_two = workers.without_dropout(
    [*command, "--distribution=multi_worker"]
  )
  ended = workers.finish(workers.start(command_of_two))
  assert ended.codes == [0, 0], ended.errors
  assert f"wrote {out}/" in ended.outputs[0]
  assert f"{out}/" not in ended.outputs[1]  # It writes nothing there.
  assert not program_flags.error_lines(ended.errors[1])
  assert len(list(out.glob("events.*"))) == 1
  program_flags.succeed([*command, f"--output_dir={alone}"])
  same_training.assert_same_files(program, out, alone)


@pytest.mark.slow
@pytest.mark.parametrize(
  ("program", "write", "flag", "other", "message"),
  [
    (
      "run_classifier",
      tiny.write_tsv,
      "predict_file",
      "eval_batch_size=5",
      r"--eval_batch_size \(here [45]\), prediction data \(here ",
    ),
    (
      "run_pretraining",
      tiny.write_records,
      "input_file",
      "seed=2",
      r"--seed \(here \d+\), .*--input_file \(here ",
    ),
  ],
)
def test_workers_with_other_data_or_flags_are_refused(
  program, write, flag, other, message, tmp_path
):
  command = [*tiny.prepare(program, tmp_path), "--distribution=multi_worker"]
  write(tmp_path / "other.tsv", range(64, 70))
  changed = [f"--{flag}={tmp_path}/other.tsv", f"--{other}"]
  ended = workers.finish(workers.start(command, [*command, *changed]))
  assert ended.codes == [1, 1], ended.errors
  for text in ended.errors:
    (line,) = program_flags.error_lines(text)
    assert re.search(f"the workers do not have the same {message}", line)


@pytest.mark.slow
def test_workers_that_go_on_stop_early_together(tmp_path):
  """A worker that did not know the earlier scores would go on alone."""
  flags = {
    "learning_rate": 0,  # No evaluation is better than the first.
    "num_train_epochs": 9,
    "best_metric": "loss",
    "early_stopping_patience": 2,
    "distribution": "multi_worker",
  }
  command = tiny.prepare("run_classifier", tmp_path)
  command += program_flags.arguments(flags)
  ended = workers.finish(workers.start(command))
  assert ended.codes == [0, 0], ended.errors
  out = tmp_path / "out"
  assert checkpoints.saved_steps(str(out)) == [2, 4, 6]
  scores = (out / "evaluations.jsonl").read_text()
  for path in out.glob("model.ckpt-6.*"):
    path.unlink()
  (out / "evaluations.jsonl").write_text("\n".join(scores.split("\n")[:2]))
  ended = workers.finish(workers.start(command))
  assert ended.codes == [0, 0], ended.errors
  assert "resuming at step 4 of" in ended.outputs[0]
  assert checkpoints.saved_steps(str(out)) == [2, 4, 6]
  program_flags.assert_same_text(
    (out / "evaluations.jsonl").read_text(), scores, tolerance=1e-4
  )


@pytest.mark.slow
@pytest.mark.parametrize("program", tiny.TRAINERS)
def test_devices_and_parts_make_the_same_updates(program, no_dropout, tmp_path):
  command = tiny.prepare(program, tmp_path)
  program_flags.succeed(command)
  for name, flags in {
    "devices": {"distribution": "mirrored"},
    "two_parts": {"gradient_accumulation_steps": 2},
    "four_parts": {"gradient_accumulation_steps": 4},
    "both": {"distribution": "mirrored", "gradient_accumulation_steps": 2},
    "recomputed": {"recompute": True},
  }.items():
    flags = {**flags, "output_dir": tmp_path / name}
    program_flags.succeed([*command, *program_flags.arguments(flags)])
    same_training.assert_same_files(program, tmp_path / name, tmp_path / "out")


@pytest.mark.parametrize("program", ["run_pretraining", "run_classifier"])
def test_a_batch_that_devices_cannot_share_is_refused_first(program, tmp_path):
  command = tiny.prepare(program, tmp_path)
  before = sorted(tmp_path.rglob("*"))
  flags = ["--distribution=mirrored", "--train_batch_size=3"]
  result = program_flags.run_here([*command, *flags])
  program_flags.assert_refused(
    result,
    "--train_batch_size=3 cannot be split evenly over 2 replicas and 1 "
    "accumulation steps: expected a multiple of 2",
  )
  assert sorted(tmp_path.rglob("*")) == before


@pytest.fixture(name="model_folder", scope="module")
def write_model(tmp_path_factory):
  folder = tmp_path_factory.mktemp("model")
  tiny_models.write_masked_lm(folder)
  texts = ["the [MASK] was [MASK]", "", "a very [MASK] plot"]
  (folder / "in.txt").write_text("".join(f"{text}\n" for text in texts))
  return folder


SETTINGS = {
  extract_features: extract_features.VectorSettings,
  fill_mask: fill_mask.FillMaskSettings,
}


def infer(program, model_folder, **flags):
  flags = tiny_models.masked_lm_flags(
    model_folder, input_file=model_folder / "in.txt", **flags
  )
  program_flags.run_main(program, SETTINGS[program], **flags)


@pytest.mark.parametrize(
  ("program", "flags"),
  [(extract_features, {"layers": "-1,0"}), (fill_mask, {"top_k": 3})],
)
def test_inference_on_two_devices(program, flags, model_folder, tmp_path):
  flags = {"output_format": "jsonl", "batch_size": 1, **flags}
  for name in ("default", "mirrored"):
    path = tmp_path / name
    infer(program, model_folder, distribution=name, output_file=path, **flags)
  texts = [(tmp_path / name).read_text() for name in ("mirrored", "default")]
  assert len(texts[0].splitlines()) == 3
  program_flags.assert_same_text(*texts, tolerance=1e-4)


@pytest.mark.parametrize("program", [extract_features, fill_mask])
def test_inference_on_several_hosts_is_refused(program, model_folder, tmp_path):
  flags = {"distribution": "multi_worker", "output_file": tmp_path / "out"}
  with pytest.raises(ValueError, match="multi_worker: this program works on o"):
    infer(program, model_folder, **flags)


@pytest.mark.parametrize(
  "tpu", [["--use_tpu", "--tpu_name=local"], ["--distribution=tpu"]]
)
def test_a_tpu_that_is_not_there_is_named(tpu, tmp_path):
  command = tiny.prepare("run_classifier", tmp_path)
  result = program_flags.run_here([*command, *tpu])
  program_flags.assert_refused(result, "--distribution=tpu: no TPU found: ")
