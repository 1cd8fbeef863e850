"""run_pretraining.py as its user meets it: the first run is a real process."""

import functools
import glob
import json
import re
import shutil
import signal
import subprocess
import threading
import time

import pytest
import tensorflow as tf

from bert import run_pretraining
from bert.data import processor
from bert.training import loss_watch
from bert.weights import checkpoints
import disk_events
import program_flags
import programs
import tiny
import unmasked_records

command_tiny = functools.partial(tiny.command, "run_pretraining")
run_tiny = functools.partial(tiny.run, "run_pretraining")
succeed = functools.partial(tiny.succeed, "run_pretraining")
SCORES = ["loss", "masked_lm_accuracy", "masked_lm_loss"]
SCORES += ["next_sentence_accuracy", "next_sentence_loss"]
SCALARS = ["gradient_norm", "learning_rate", *SCORES]


def read_scalars(folder):
  """Returns {tag: {step: value}} of the event files in a folder."""
  history = {}
  for path in sorted(folder.glob("events.out.tfevents.*")):
    for raw in tf.data.TFRecordDataset(str(path)):
      event = tf.compat.v1.Event.FromString(raw.numpy())
      for value in event.summary.value:
        number = float(tf.make_ndarray(value.tensor))
        history.setdefault(value.tag, {})[event.step] = number
  return history


def leftovers(folder):
  """Returns the files that no finished run should leave."""
  return [
    path.name
    for path in folder.iterdir()
    if not re.fullmatch(
      r"model\.ckpt-\d+\.(index|data-00000-of-00001)|checkpoint|"
      r"bert_config\.json|training\.json|eval_results\.txt|report\.html|"
      r"curves\.jsonl|events\.out\.tfevents\..*",
      path.name,
    )
  ]


@pytest.fixture(name="data", scope="module")
def write_data(tmp_path_factory):
  """Three files, one of them compressed: 60 records."""
  folder = tmp_path_factory.mktemp("data")
  tiny.write_records(folder / "1.tfrecord", range(30))
  tiny.write_records(folder / "2.tfrecord", range(30, 37))
  tiny.write_records(folder / "3.tfrecord", range(37, 60), compress=True)
  return f"{folder}/*.tfrecord"


@pytest.fixture(name="trained", scope="module")
def train_once(data, tmp_path_factory):
  """The folder of a run of 6 steps that evaluates, and what it printed."""
  folder = tmp_path_factory.mktemp("trained")
  # Booleans in any case, and a path that is given but empty, are taken, too.
  flags = {"input_file": data, "do_train": "true", "do_eval": "True"}
  flags |= {"num_train_steps": 6, "save_checkpoints_steps": 3}
  flags |= {"eval_every_steps": 2, "max_eval_steps": 0, "init_checkpoint": ""}
  result = program_flags.run_command(command_tiny(folder, **flags))
  assert result.returncode == 0, result.stderr
  return folder, result


def copy_run(trained, out, names="*"):
  """Copies the output folder of `trained`; returns the copy."""
  out.mkdir()
  for path in (trained[0] / "out").glob(names):
    shutil.copy(path, out)
  return out


def test_trains_evaluates_and_writes_its_files(trained):
  folder, result = trained
  out = folder / "out"
  assert not leftovers(out)
  assert checkpoints.saved_steps(str(out)) == [3, 6]
  config = json.loads((out / "bert_config.json").read_text())
  assert config == {**config, **tiny.PRETRAINING_CONFIG}
  results = tiny.read_results(out)
  assert list(results) == ["global_step", *SCORES]
  assert results["global_step"] == 6
  assert 4.0 < results["loss"] < 4.8  # ln 40 + ln 2 is 4.38.
  for line in (
    "training from step 0 to 6",
    f"wrote {out}/model.ckpt-6",
    f"curves: tensorboard --logdir={out}",
    f"wrote {out}/eval_results.txt:",
    "computing on one CPU: float32",
  ):
    assert line in result.stdout.splitlines()
  report = (out / "report.html").read_text()
  assert "<title>eval/masked_lm_loss: 6, " in report
  for guess in (
    "word frequencies: [34]",
    "the most frequent word: 0",
    "the larger class: 0",
  ):
    assert re.search(rf"level-name[^>]*>{guess}\.\d+<", report)
  assert re.search(r"<td[^>]*>0\.\d+: the larger class</td>", report)
  assert "<h3>By frequency of the masked token" in report
  assert "random sentence</td>" in report
  end = result.stdout[result.stdout.rindex("finished in ") :]
  assert re.fullmatch(
    rf"finished in [\d.:]+( s)?\n  wrote {out}: the weights of step 6\n"
    r"  best of 3 evaluations: step [246], loss 4\.\d+\n"
    r"  no better than word frequencies alone, whose masked-LM loss is "
    r"[34]\.\d+: train for more steps before you fine-tune, see docs/loss.md\n",
    end,
  )


def test_the_terminal_shows_how_it_goes(trained):
  lines = program_flags.error_lines(trained[1].stderr)
  *_, last = [line for line in lines if line.startswith("step ")]
  assert len(last) < 120
  assert last.startswith("step 6/6  ETA 0:00:00  loss ")
  names = ("masked_lm", "next_sentence", "learning_rate", "examples/s")
  assert all(f"  {name} " in last for name in names)
  evaluations = [line for line in lines if line.startswith("evaluation")]
  assert [line.split(":")[0] for line in evaluations] == [
    f"evaluation at step {step}" for step in (2, 4, 6)
  ]


def test_tensorboard_gets_the_same_by_name(trained):
  history = read_scalars(trained[0] / "out")
  results = tiny.read_results(trained[0] / "out")
  assert sorted(history) == sorted(
    [*SCALARS, "examples_per_second", *(f"eval/{name}" for name in SCORES)]
  )
  assert sorted(history["loss"]) == [1, 2, 4, 6]
  # The rate of the last update, the sixth: 5e-5 decayed over five of six steps.
  assert history["learning_rate"][6] == pytest.approx(5e-5 / 6)
  for name in SCORES:
    assert sorted(history[f"eval/{name}"]) == [2, 4, 6]
    assert history[f"eval/{name}"][6] == pytest.approx(results[name])


def test_evaluation_counts_every_record_once(trained, data, tmp_path):
  """--max_eval_steps=0, --eval_batch_size and the newest checkpoint."""
  folder, _ = trained
  expected = tiny.read_results(folder / "out")
  out = copy_run(trained, tmp_path / "out")
  flags = {"input_file": data, "do_eval": True, "max_eval_steps": 0}
  flags["output_dir"] = out
  result = succeed(folder, eval_batch_size=60, **flags)
  assert f"weights from {out}/model.ckpt-6" in result.stdout
  results = tiny.read_results(out)
  for name, value in expected.items():
    if name != "loss":  # A mean of the batches' means.
      assert results[name] == pytest.approx(value, rel=1e-5)
  only = tiny.write_records(tmp_path / "only.tfrecord", [7])
  succeed(folder, eval_input_file=f"{only},{only}", **flags)
  masked = tiny.make_values(7)["masked_lm_weights"].count(1.0)
  accuracy = tiny.read_results(out)["masked_lm_accuracy"]
  assert accuracy * masked == pytest.approx(round(accuracy * masked))


def test_evaluation_needs_trained_weights_and_writes_none(
  trained, refuse, data, tmp_path
):
  model, out = trained[0] / "out", tmp_path / "out"
  flags = {"do_train": False, "do_eval": True}
  assert f"--output_dir={out} holds no trained model: pass" in refuse(**flags)
  random = succeed(
    tmp_path, input_file=data, score_random_weights=True, **flags
  )
  assert "the weights are random" in random.stdout
  shutil.rmtree(out)
  values = {
    name: tf.train.load_variable(str(model), name)
    for name, _ in tf.train.list_variables(str(model))
    if "bert/" in name
  }
  checkpoints.write(str(tmp_path / "headless"), values)
  line = refuse(**flags, init_checkpoint=tmp_path / "headless")
  assert "is not trained for this task, it lacks cls/predictions/output" in line
  result = succeed(tmp_path, input_file=data, init_checkpoint=model, **flags)
  assert "the weights of step" not in result.stdout
  assert "no better than word frequencies alone, whose" in result.stdout
  assert "next: " not in result.stdout


def test_a_folder_of_another_model_is_refused(trained, refuse, tmp_path):
  out = copy_run(trained, tmp_path / "out", "model.ckpt-3.*")
  line = refuse({"hidden_size": 32})
  assert f"{out} belongs to another model; choose another --" in line
  assert not (out / "bert_config.json").exists()  # That of the refused run.
  shutil.copy(trained[0] / "out" / "bert_config.json", out)
  line = refuse({"num_attention_heads": 4})
  assert f"{out} belongs to another model (num_attention_heads: 2, n" in line


# tests/inputs/test_records.py has the order of batches, wherever they begin.
@pytest.mark.slow
def test_batches_by_length_resume_and_stay_as_they_began(tmp_path):
  command = tiny.prepare("run_pretraining", tmp_path)
  run = programs.train([*command, "--group_by_length=true"])
  programs.assert_resumes(run, tmp_path / "killed")
  result = run.again(program_flags.run_here, group_by_length=False)
  program_flags.assert_refused(result, ", grouped by length in batches of 16)")


@pytest.fixture(name="unmasked")
def write_unmasked_data(tmp_path):
  """Returns the flags for 60 records without masks."""
  return unmasked_records.make_flags(tmp_path)


def test_masks_drawn_while_reading_resume(unmasked, tmp_path):
  unmasked["iterations_per_loop"] = 1
  run = programs.train(unmasked_records.command(tmp_path, **unmasked))
  programs.assert_resumes(run, tmp_path / "killed")
  result = run.again(program_flags.run_here, masked_lm_prob=0.5)
  message = ", 0.15 of words masked by vocabulary"
  program_flags.assert_refused(result, message)


# tests/test_run_multitask.py has a task that does not use all weights, and the
# test above has records whose masks are drawn.
@pytest.mark.slow
def test_a_phase_without_next_sentences_leaves_their_weights(
  unmasked, tmp_path
):
  out = tmp_path / "out"
  program_flags.succeed(unmasked_records.command(tmp_path, **unmasked))
  sequences = unmasked_records.write(tmp_path / "sequences", range(60), False)
  unmasked |= {"input_file": sequences, "next_sentence": False}
  unmasked |= {"new_phase": True, "num_train_steps": 9, "learning_rate": 0.01}
  command = unmasked_records.command(tmp_path, **unmasked)
  program_flags.succeed(command)
  results = tiny.read_results(out)
  assert list(results) == ["global_step", *SCORES[:3]]
  assert results["loss"] == pytest.approx(results["masked_lm_loss"], abs=0.01)
  for name in (
    "cls/seq_relationship/output_weights",
    "bert/pooler/dense/kernel",
    "bert/embeddings/word_embeddings",
  ):
    before, after = (
      tf.train.load_variable(f"{out}/model.ckpt-{step}", name)
      for step in (6, 9)
    )
    assert (before == after).all() == ("embeddings" not in name)
  # The same records, evaluated again and with another batch size.
  again = [*command, "--do_train=false", "--eval_batch_size=60"]
  program_flags.succeed([*again, "--max_eval_steps=1"])
  once = tiny.read_results(out)
  program_flags.succeed([*again, "--max_eval_steps=2"])
  twice = tiny.read_results(out)
  assert once["masked_lm_loss"] == pytest.approx(twice["masked_lm_loss"])
  # Weights that were never trained on next sentences, such as Hugging Face's
  # BertForMaskedLM, lack what no score depends on.
  values = {
    name: tf.train.load_variable(str(out), name)
    for name, _ in tf.train.list_variables(str(out))
    if re.match("bert/[^p]|cls/p", name) and "adam" not in name
  }
  assert "bert/pooler/dense/kernel" not in values
  checkpoints.write(str(tmp_path / "headless"), values)
  other = tmp_path / "other"
  again += [f"--init_checkpoint={tmp_path}/headless", f"--output_dir={other}"]
  program_flags.succeed([*again, "--max_eval_steps=1"])
  assert tiny.read_results(other)["loss"] == pytest.approx(once["loss"])


@pytest.mark.parametrize(
  ("kind", "flags", "message"),
  [
    (
      "pairs, without whole words",
      "dynamic_masking=0",
      "0 has no masked_lm_ids: run_pretraining.py "
      "reads such records with --dynamic_masking=true",
    ),
    (
      "pairs",
      "next_sentence=0",
      "0 has next_sentence_labels: run_pretraining.p"
      "y reads such records with --next_sentence=true",
    ),
    (
      "rows",
      "next_sentence=1",
      "0 has no next_sentence_labels: run_pretraining"
      ".py reads such records with --next_sentence=false",
    ),
    (
      "masked",
      "seed=1",
      "0 has masked_lm_ids: run_pretraining.py reads such "
      "records with --dynamic_masking=false",
    ),
    (
      "pairs",
      "masked_lm_prob=2",
      "--masked_lm_prob=2: expected a number from 0 to 1",
    ),
  ],
)
def test_records_of_another_kind_are_refused(
  kind, flags, message, unmasked, data, tmp_path
):
  if kind == "masked":
    unmasked["input_file"] = data
  elif kind == "rows":
    unmasked["input_file"] = unmasked_records.write(
      tmp_path / "x", range(9), False
    )
  elif kind == "pairs, without whole words":
    # Without dynamic masking, this flag would be refused first.
    del unmasked["do_whole_word_mask"]
  command = [*unmasked_records.command(tmp_path, **unmasked), f"--{flags}"]
  program_flags.assert_refused(program_flags.run_here(command), message)


@pytest.mark.slow
def test_devices_and_parts_draw_the_same_masks(unmasked, tmp_path):
  command = unmasked_records.command(tmp_path, **unmasked)
  program_flags.succeed(command)
  unmasked_records.assert_same_on_devices(command, tmp_path)


@pytest.mark.parametrize(
  ("rate", "is_causal", "warning"),
  [
    (0, False, "warning: --learning_rate=0 changes no weight"),
    (1e-6, False, "warning: the masked-LM loss, "),
    # tests/training/test_loss_watch.py has losses that are low enough.
    pytest.param(1e-2, False, None, marks=pytest.mark.slow),
    pytest.param(1e-6, True, None, marks=pytest.mark.slow),
  ],
)
def test_warns_of_a_loss_above_word_frequency(
  rate, is_causal, warning, tmp_path, monkeypatch
):
  """The masked tokens are left in the input, so they are easy to learn."""
  monkeypatch.setattr(loss_watch, "STEPS_AFTER_WARMUP", 100)
  examples = [tiny.make_values(number) for number in range(60)]
  for values in examples:
    masked = int(sum(values["masked_lm_weights"]))
    values["masked_lm_ids"][:masked] = values["input_ids"][:masked]
  result = succeed(
    tmp_path,
    {"causal_attention": True} if is_causal else {},
    input_file=tiny.write_values(tmp_path / "data", *examples),
    do_train=True,
    num_train_steps=130 if rate else 2,
    iterations_per_loop=10,
    learning_rate=rate,
  )
  printed = result.stdout + result.stderr
  assert printed.count("warning: ") == bool(warning)
  assert (warning or "") in printed
  steps = "130 steps of 8 are 17.33" if rate else "2 steps of 8 are 0.27"
  assert f"\n{steps} epochs of 60 records\n" in printed
  line = r"labels of 60 records: unigram entropy 3\.\d+ nats, the most frequent"
  assert bool(re.search(line, printed)) == (not is_causal)


# Ended by the test; it does not get to its last step.
LONG_RUN = {"do_train": True, "num_train_steps": 30_000}
LONG_RUN["iterations_per_loop"] = 10


def wait_for(path, seconds=120):
  deadline = time.monotonic() + seconds
  while not path.exists():
    assert time.monotonic() < deadline, f"no {path}"
    time.sleep(0.02)


def run_until(path, act, folder, **options):
  """Runs the program here; acts in another thread once it has saved."""

  def wait_and_act():
    wait_for(path)
    act()

  thread = threading.Thread(target=wait_and_act)
  thread.start()
  result = run_tiny(folder, **options)
  thread.join()
  return result


# tests/test_calls.py resumes after Ctrl-C, to the same bytes; the next test
# ends by it, and one of tests/training/test_loop.py by SIGTERM.
@pytest.mark.slow
def test_a_signal_saves_and_going_on_ends_the_same(data, tmp_path, capfd):
  """Ctrl-C, then SIGTERM; against a run that has none so early."""
  options = LONG_RUN | {"input_file": data, "save_checkpoints_steps": 20}
  options["keep_checkpoint_max"] = 0
  out, alone = tmp_path / "out", tmp_path / "alone"

  def run_and_send(number, folder, step):
    path = folder / f"model.ckpt-{step}.index"
    send = functools.partial(signal.raise_signal, number)
    return run_until(path, send, tmp_path, output_dir=folder, **options)

  last = 0
  for number in (signal.SIGINT, signal.SIGTERM):
    # A multiple of 20, which every run saves, beyond the steps that are there.
    # The signal is sent when it is saved.
    common = last - last % 20 + 40
    result = run_and_send(number, out, common)
    assert result.returncode == 128 + number, result.stderr
    name = signal.Signals(number).name
    said = f"{name}: saving a checkpoint, then leaving\n"
    assert said in capfd.readouterr().err
    last = checkpoints.saved_steps(str(out))[-1]
    assert last >= common
    assert (
      f"stopped at step {last} of 30000; run the same command again to resume"
    ) in result.stdout
    assert f"wrote {out}/model.ckpt-{last}" in result.stdout
  run_and_send(signal.SIGTERM, alone, common)
  assert tiny.checkpoint_bytes(alone, common) == tiny.checkpoint_bytes(
    out, common
  )


@pytest.mark.slow
def test_ctrl_c_saves_though_it_also_ends_who_reads_the_output(data, tmp_path):
  options = LONG_RUN | {"input_file": data, "save_checkpoints_steps": 20_000}
  with subprocess.Popen(
    command_tiny(tmp_path, **options),
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  ) as process:
    try:
      assert any(line.startswith("step ") for line in process.stderr)
      process.stdout.close()
      process.stderr.close()
      process.send_signal(signal.SIGINT)
      assert process.wait(60) == 130
    finally:
      process.kill()
  (last,) = checkpoints.saved_steps(str(tmp_path / "out"))
  assert 0 < last < 20_000  # It was saved because of the signal.


def test_an_input_that_is_changed_while_it_is_read_is_named(data, tmp_path):
  path = tmp_path / "changing.tfrecord"
  shutil.copy(glob.glob(data)[0], path)
  content = path.read_bytes()
  flags = {"input_file": path, "do_train": True, "num_train_steps": 20}
  command = command_tiny(tmp_path, **flags)
  message = "changing.tfrecord, or another input file, was changed while it"
  with pytest.raises(ValueError, match=message):
    run_pretraining.run(
      **program_flags.read_command(command),
      on_log=lambda values: path.write_bytes(2 * content),
    )


@pytest.fixture(name="refuse")
def make_refuse(tmp_path, data):
  """Runs it with flags; returns the line in which it ends."""

  def refuse(config=(), **options):
    options = {"input_file": data, "do_train": True, **options}
    result = run_tiny(tmp_path, config, **options)
    program_flags.assert_refused(result, "")
    [line] = program_flags.error_lines(result.stderr)
    return line.removeprefix("run_pretraining.py: error: ")

  return refuse


@pytest.mark.parametrize(
  ("config", "options", "message"),
  [
    ({"type_vocab_size": 1}, {}, "the config's type_vocab_size is 1"),
    ({}, {"output_dir": "/proc/nowhere"}, "--output_dir=/proc/nowhere: not a "),
    ({}, {"output_dir": "/dev/null"}, "--output_dir=/dev/null: not a folder"),
    ({}, {"output_dir": "run[1]"}, "--output_dir=run[1]: TensorFlow reads no "),
  ],
)
def test_what_does_not_fit_is_named(config, options, message, refuse):
  assert message in refuse(config, **options)


def test_auto_keeps_the_precision_of_the_run(
  data, trained, tmp_path, monkeypatch
):
  """Here it would be bfloat16: the run began on another machine."""
  monkeypatch.setattr(processor, "multiplies_bfloat16", lambda: True)
  folder = copy_run(trained, tmp_path / "out")
  flags = {"do_train": True, "num_train_steps": 6, "precision": "auto"}
  result = succeed(tmp_path, input_file=data, **flags)
  line = f"--precision=float32, as {folder / 'training.json'} says"
  assert line in result.stderr.splitlines()
  assert "computing on one CPU: float32\n" in result.stdout


def test_a_second_phase_has_other_lengths_and_resumes(trained, tmp_path):
  """16 tokens, then 12; killed after the first step of the second phase."""
  whole = copy_run(trained, tmp_path / "whole")
  killed = tmp_path / "killed"
  short = tiny.write_records(tmp_path / "short", range(60, 90), sequence=12)
  options = {"input_file": short, "do_train": True, "max_seq_length": 12}
  options |= {"num_train_steps": 9, "save_checkpoints_steps": 1}
  options["new_phase"] = True
  result = succeed(tmp_path, output_dir=whole, **options)
  assert "new phase from step 6 and record 0: --input_file=" in result.stdout
  shutil.copytree(whole, killed, ignore=shutil.ignore_patterns("*-[89].*"))
  result = run_tiny(tmp_path, output_dir=killed, **options)
  assert "new phase" not in result.stdout
  assert "resuming at step 7 of 9" in result.stdout
  assert tiny.checkpoint_bytes(whole, 9) == tiny.checkpoint_bytes(killed, 9)
  written = json.loads((whole / "training.json").read_text())["phases"]
  assert [phase["first_step"] for phase in written] == [0, 6]
  assert [phase["max_seq_length"] for phase in written] == [16, 12]


def test_a_phase_begins_where_training_resumes(trained, data, tmp_path):
  """The weights of the newest checkpoint are whole, a moment of Adam is not."""
  out = copy_run(trained, tmp_path / "out")
  # After the 16 numbers of bert/embeddings/LayerNorm/beta: its adam_m.
  tiny.damage(out / "model.ckpt-6.data-00000-of-00001", 70)
  options = {"do_train": True, "num_train_steps": 6, "learning_rate": 1e-3}
  result = succeed(tmp_path, input_file=data, new_phase=True, **options)
  assert "LayerNorm/beta/adam_m is damaged" in result.stderr
  said = "new phase from step 3 and record 24: --learning_rate="
  assert said in result.stdout
  assert "resuming at step 3 of 6" in result.stdout


@pytest.mark.parametrize(
  ("suffix", "share"),
  [
    (".index", 0.0),
    (".index", 0.5),
    (".data-00000-of-00001", None),
    (".data-00000-of-00001", 0.0),
    (".data-00000-of-00001", 0.5),
  ],
)
def test_a_half_written_checkpoint_is_named(
  suffix, share, refuse, trained, tmp_path
):
  init = copy_run(trained, tmp_path / "init", "model.ckpt-6.*")
  path = init / f"model.ckpt-6{suffix}"
  path.write_bytes(path.read_bytes()[: int(path.stat().st_size * (share or 0))])
  if share is None:
    path.unlink()
  assert refuse(init_checkpoint=init).startswith(f"{init}/model.ckpt-6: ")
  if share is not None:
    assert refuse(output_dir=init).startswith(f"{init}/model.ckpt-6: ")


def test_a_record_that_does_not_fit_is_named(trained, tmp_path):
  """In training and in evaluation; what was saved stays as it was."""
  out = copy_run(trained, tmp_path / "out")
  values = [tiny.make_values(number) for number in range(300)]
  values[200]["masked_lm_ids"][0] = -1
  hurt = tiny.write_values(tmp_path / "hurt.tfrecord", *values)
  options = {"input_file": hurt, "num_train_steps": 1000, "new_phase": True}
  message = f"{hurt}: record 200: masked_lm_ids holds -1"
  result = run_tiny(tmp_path, do_train=True, **options)
  *others, line = program_flags.error_lines(result.stderr)
  assert result.returncode == 1 and message in line
  assert all(other.startswith("step ") for other in others)
  assert tiny.checkpoint_bytes(out, 6) == tiny.checkpoint_bytes(
    trained[0] / "out", 6
  )
  result = run_tiny(tmp_path, do_eval=True, max_eval_steps=0, **options)
  program_flags.assert_refused(result, message)


def test_a_full_disk_loses_nothing(trained, data, tmp_path):
  out = copy_run(trained, tmp_path / "out")
  before = tiny.checkpoint_bytes(out, 6)
  options = {"input_file": data, "do_train": True, "new_phase": True}
  options["num_train_steps"] = 8
  with disk_events.limited_files(20_000):
    result = run_tiny(tmp_path, **options)
  *others, line = program_flags.error_lines(result.stderr)
  assert result.returncode == 1
  assert f"error: {out}/model.ckpt-8: cannot be written: " in line
  assert all(other.startswith("step ") for other in others)
  assert checkpoints.saved_steps(str(out)) == [3, 6]
  assert tiny.checkpoint_bytes(out, 6) == before
  assert not leftovers(out)
  result = succeed(tmp_path, **options)
  assert "resuming at step 6 of 8" in result.stdout
