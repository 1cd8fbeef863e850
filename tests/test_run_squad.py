"""run_squad.py as its user meets it."""

import functools
import json
import shutil

import pytest

import bert
from bert.tasks import squad_answers, squad_data
from bert.weights import checkpoints
import paths
import program_flags
import tiny

run_tiny = functools.partial(tiny.run, "run_squad")
run = functools.partial(tiny.succeed, "run_squad")
GOLDEN = paths.SHARED / "golden" / "e2e"
TUNED = "null_score_diff_threshold.json"
OTHERS = "note: {} was tuned for other weights and is not used"
# Version 2 has questions without an answer. Padding does not compete in these
# tests: then a batch is only as long as its longest row, which saves time.
V2 = {"version_2_with_negative": True, "padding_competes": False}
AUTO = {**V2, "null_score_diff_threshold": "auto"}


def read_json(path):
  return json.loads(path.read_text())


def is_silent(out):
  return set(read_json(out / "predictions.json").values()) == {""}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  """A folder in which a model was trained on v2.0, and its output."""
  folder = tmp_path_factory.mktemp("trained")
  train = tiny.write_squad(folder / "train.json", range(400), impossible=4)
  dev = tiny.write_squad(folder / "dev.json", range(400, 460), impossible=4)
  flags = {"do_train": True, "train_file": train, "num_train_epochs": 6}
  flags |= {"do_predict": True, "predict_file": dev, "eval_every_epochs": 3}
  # Tests damage the best weights, whose step a complete run has no more of.
  flags["keep_checkpoint_max"] = 5
  return folder, run(folder, **flags, **AUTO).stdout


@pytest.fixture
def folder(trained):
  return trained[0]


@pytest.fixture
def out(trained, tmp_path):
  """A copy of the output folder of `trained`."""
  return shutil.copytree(trained[0] / "out", tmp_path / "out")


@pytest.fixture
def without_best(out):
  """A copy that may be trained on without evaluations."""
  shutil.rmtree(out / "best")
  return out


def test_training_learns_and_keeps_the_best_weights(trained):
  out = trained[0] / "out"
  lines = (out / "evaluations.jsonl").read_text().splitlines()
  assert len(lines) == 2
  best = max(json.loads(line)["eval_best_f1"] for line in lines)
  metrics = read_json(out / "predict_metrics.json")["metrics"]
  assert metrics["best_f1"] == best
  assert metrics["f1"] > 90 and metrics["no_answer_f1"] > 80
  shown = f"eval_f1 {metrics['f1']:.4g}; best: eval_best_f1 {best:.4g} at step"
  assert shown in trained[1]
  text = (out / "report.html").read_text()
  assert "<h3>By question word</h3>" in text and "<td class=" in text
  assert "<title>eval/f1: " in text and '<td dir="auto">no answer' in text


def test_the_threshold_is_tuned_and_kept(trained):
  folder, output = trained
  out = folder / "out"
  metrics = read_json(out / "predict_metrics.json")["metrics"]
  threshold = metrics["best_f1_threshold"]
  assert read_json(out / TUNED)["thresholds"] == {
    "null_score_diff_threshold": threshold
  }
  assert (
    f"tuning --null_score_diff_threshold on {folder / 'dev.json'}" in output
  )
  odds = read_json(out / "null_odds.json")
  predictions = read_json(out / "predictions.json")
  for name, answer in predictions.items():
    assert (answer == "") == (odds[name] > threshold)
  assert metrics["f1"] == pytest.approx(metrics["best_f1"])
  names = [f"q{n}" for n in range(400, 460)]
  for name in ("predictions", "nbest_predictions", "null_odds"):
    assert list(read_json(out / f"{name}.json")) == names
    assert f"wrote {out / name}.json" in output


def test_every_question_is_answered_once(folder, out, monkeypatch):
  (out / TUNED).unlink()
  written = [path.name for path in out.glob("*predict*")]
  answered, answer = [], squad_answers.SpanSearch.__call__

  def count(self, *arguments):
    answered.append(arguments)
    return answer(self, *arguments)

  monkeypatch.setattr(squad_answers.SpanSearch, "__call__", count)
  flags = {"do_predict": True, "predict_file": folder / "dev.json"}
  output = run(folder, output_dir=out, **flags, **AUTO).stdout
  # They are tuned on, written and scored.
  assert "tuning" in output and "predict_metrics.json: exact_match" in output
  assert len(answered) == 60
  for name in written:
    expected = (folder / "out" / name).read_bytes()
    assert name == "prediction.json" or (out / name).read_bytes() == expected


def test_own_questions_are_answered_with_their_places(folder, out, tmp_path):
  path = tmp_path / "own.jsonl"
  contexts = ["the  old tree\nwas Yellow and the house", "a red house"]
  contexts += ["the old house was very old"]
  rows = [
    {"id": n, "question": "what color ?", "context": context}
    for n, context in enumerate(contexts)
  ]
  path.write_text("\n".join(map(json.dumps, rows)) + "\n")
  flags = {"do_predict": True, "predict_file": path}
  output = run(folder, output_dir=out, **flags, **AUTO).stdout
  assert f"wrote {out / 'predictions.jsonl'}" in output
  assert "tuning" not in output and "predict_metrics" not in output
  assert not (out / "predict_metrics.json").exists()  # They were of others.
  lines = (out / "predictions.jsonl").read_text().splitlines()
  rows = [json.loads(line) for line in lines]
  assert [row["answer"] for row in rows] == ["Yellow", "red", ""]
  for row, context in zip(rows[:2], contexts, strict=False):
    assert context[row["start"] : row["end"]] == row["answer"]
  assert rows[2]["start"] is None and rows[2]["runners_up"]


def test_other_settings_than_those_of_exports_are_noted(folder, out):
  flags = {"output_dir": out, "do_predict": True}
  flags["predict_file"] = folder / "dev.json"
  assert not program_flags.error_lines(run_tiny(folder, **flags, **AUTO).stderr)
  answers = (out / "predictions.json").read_bytes()
  threshold = "null_score_diff_threshold.json"
  tuned = (out / threshold).read_bytes()
  [line] = program_flags.error_lines(
    run_tiny(folder, **flags, **AUTO, doc_stride=3, n_best_size=2).stderr
  )
  assert line == (
    "note: this run predicts with doc_stride 3 instead of 4, n_best_size 2 "
    "instead of 20; the training and exports of its folder have what is in "
    f"{out / 'prediction.json'}, and keep what was tuned for that"
  )
  assert (out / threshold).read_bytes() == tuned
  # Flags that are not given, and the tuned threshold, are those of exports.
  changed = {**read_json(out / "prediction.json"), "n_best_size": 3}
  (out / "prediction.json").write_text(json.dumps(changed))
  result = run_tiny(folder, **flags, padding_competes=False)
  assert program_flags.error_lines(result.stderr) == [
    f"--version_2_with_negative=true, as {out / 'prediction.json'} says",
    f"--n_best_size=3, as {out / 'prediction.json'} says",
  ]
  assert (out / "predictions.json").read_bytes() == answers
  [nbest, *_] = read_json(out / "nbest_predictions.json").values()
  assert len(nbest) <= 3


def answer_with(folder, out, run=program_flags.succeed, **flags):
  """Answers the questions of `trained`, by its model, in another folder."""
  flags = {"model": folder / "out", "output_dir": out, **flags}
  flags |= {"do_predict": True, "predict_file": folder / "dev.json"}
  return run(program_flags.command("run_squad", **flags))


def test_a_model_answers_in_another_folder_as_it_was_trained(folder, tmp_path):
  source, out = folder / "out", tmp_path / "out"
  errors = program_flags.error_lines(answer_with(folder, out).stderr)
  assert f"--padding_competes=false, as {source}/settings.json says" in errors
  assert f"--doc_stride=4, as {source}/prediction.json says" in errors
  for name in ("predictions.json", "null_odds.json"):
    assert (out / name).read_bytes() == (source / name).read_bytes()
  run_here = program_flags.run_here
  result = answer_with(folder, out, run_here, padding_competes=True)
  assert result.returncode == 1
  assert "--padding_competes=true (was false): the runs of " in result.stderr


def assert_shows_score_of_answers(result, out):
  """Not that of the best threshold for these very questions."""
  metrics = read_json(out / "predict_metrics.json")["metrics"]
  shown = f"{metrics['f1']:.4g}"
  assert metrics["f1"] < metrics["best_f1"]
  assert f"eval_f1 {shown}" in result.stdout
  assert "eval_best" not in result.stdout
  page = (out / "report.html").read_text()
  first = f"<dt>f1</dt><dd>{metrics['f1']:.3g}</dd>"
  assert f"; eval_f1 {shown}</p>" in page
  assert f'<dl class="tiles"><div>{first}' in page and "<dt>best" not in page


def silence(folder):
  """Sets the tuned threshold of a folder below all odds of no answer."""
  content = read_json(folder / TUNED)
  content["thresholds"]["null_score_diff_threshold"] = -1e9
  (folder / TUNED).write_text(json.dumps(content))


def test_auto_tunes_anew_what_was_tuned_for_other_weights(
  folder, out, tmp_path, monkeypatch
):
  # As a further training makes of it: the file stays, and the weights change.
  tuned = (out / TUNED).read_bytes()
  silence(out)
  other = read_json(out / TUNED) | {"weights": "x"}
  (out / TUNED).write_text(json.dumps(other))
  flags = {"output_dir": out, "do_predict": True, **AUTO}
  result = run(folder, **flags, predict_file=folder / "dev.json")
  assert OTHERS.format(out / TUNED) in result.stderr
  assert f"threshold on {folder / 'dev.json'}" in result.stdout
  assert (out / TUNED).read_bytes() == tuned
  # Without answers to tune on nothing is computed.
  (out / TUNED).write_text(json.dumps(other))
  path = tmp_path / "own.jsonl"
  question = {"id": 1, "question": "what color ?", "context": "a red house"}
  path.write_text(json.dumps(question))
  monkeypatch.setattr(squad_data, "compute_logits", None)
  result = run_tiny(folder, **flags, predict_file=path)
  assert result.returncode == 1
  assert "=auto: no threshold was tuned for these weights" in result.stderr


# tests/tasks/test_classification_results.py has what programs share: what was
# tuned for other weights is not used.
@pytest.mark.slow
def test_a_threshold_is_tuned_again_on_a_file_that_is_given(folder, tmp_path):
  out = tmp_path / "out"
  result = answer_with(folder, out, eval_file=folder / "train.json")
  assert f"threshold on {folder / 'train.json'}" in result.stdout
  silence(out)
  answer_with(folder, out)  # By what is tuned for these weights ...
  assert is_silent(out)
  content = read_json(out / TUNED) | {"weights": "x"}
  (out / TUNED).write_text(json.dumps(content))
  result = answer_with(folder, out)  # ... not for others.
  assert OTHERS.format(out / TUNED) in result.stderr
  assert f", as {folder / 'out' / TUNED} says" in result.stdout
  predictions = (folder / "out" / "predictions.json").read_bytes()
  assert (out / "predictions.json").read_bytes() == predictions
  answer_with(folder, out, version_2_with_negative=False)
  answers = read_json(out / "predictions.json").values()
  assert "" not in answers and not (out / "null_odds.json").exists()


def answer_by(model, folder, out, **flags):
  """Answers by a model that need not be of a training."""
  flags |= {"max_seq_length": tiny.SEQUENCE, "max_query_length": 4}
  flags |= {"model": model, "doc_stride": 4, **V2}
  return answer_with(folder, out, **flags)


def test_a_threshold_is_of_the_weights_that_the_training_predicts_with(
  folder, out, tmp_path
):
  silence(out)
  first, second, third = (tmp_path / name for name in "abc")
  result = answer_by(out, folder, first)
  assert is_silent(first)
  assert f"-1000000000.0000, as {out / TUNED} says" in result.stdout
  assert_shows_score_of_answers(result, first)
  # It predicts with its best weights; some others are there, too.
  [best] = (out / "best").glob("*.index")
  all_indices = out.glob("*.index")
  other = next(p for p in all_indices if p.name != best.name)
  result = answer_by(out, folder, second, init_checkpoint=other)
  assert OTHERS.format(out / TUNED) in result.stderr
  assert not is_silent(second)
  assert "eval_f1 " in result.stdout
  assert "eval_best" not in result.stdout
  # It is tuned again where that is asked for.
  output = answer_by(out, folder, third, null_score_diff_threshold="auto")
  assert f"threshold on {folder / 'dev.json'}" in output.stdout
  assert read_json(third / TUNED) == read_json(folder / "out" / TUNED)
  assert not is_silent(third)


@pytest.mark.slow  # As the test before, for a folder of no training.
def test_weights_are_known_by_what_they_are(folder, tmp_path):
  source, out = tmp_path / "A", tmp_path / "out"
  shutil.copytree(folder / "out" / "best", source)  # From no training.
  for name in ("vocab.txt", "bert_config.json"):
    shutil.copy(folder / "out" / name, source)
  result = answer_by(source, folder, out, null_score_diff_threshold="auto")
  assert f"wrote {out / TUNED}" in result.stdout
  # Where they are does not matter.
  silence(out)
  moved = source.rename(tmp_path / "moved")
  answer_by(moved, folder, out)
  assert is_silent(out)
  # Other weights at the same place are others.
  [prefix] = [str(path.with_suffix("")) for path in moved.glob("*.index")]
  values = {name: -value for name, value in checkpoints.read(prefix)}
  step = int(prefix.rpartition("-")[2])
  assert checkpoints.write(str(moved), values, step) == prefix
  result = answer_by(moved, folder, out)
  assert OTHERS.format(out / TUNED) in result.stderr
  assert not is_silent(out)


@pytest.mark.slow
@pytest.mark.parametrize("best", ["moved away", "damaged"])
def test_weights_that_change_without_training_have_no_threshold(
  folder, out, best, capsys
):
  silence(out)
  flags = {"output_dir": out, "do_predict": True, **V2}
  flags["predict_file"] = folder / "dev.json"
  if best == "moved away":
    shutil.rmtree(out / "best")  # As the program proposes.
  else:
    [path] = (out / "best").glob("*.data*")
    path.write_bytes(b"")
    run(folder, **flags)
    assert is_silent(out)  # The checkpoint of this step has the same weights.
    step = path.name.split(".")[1]
    for path in out.glob(f"model.{step}.*"):
      path.unlink()
  result = run(folder, **flags)
  assert OTHERS.format(out / TUNED) in result.stderr
  assert not is_silent(out)
  # Exports and Python take this one, too.
  capsys.readouterr()
  bert.load(out)
  assert OTHERS.format(out / TUNED) in capsys.readouterr().err
  result = run(folder, **flags, null_score_diff_threshold="auto")
  assert f"wrote {out / TUNED}" in result.stdout


@pytest.mark.slow
def test_training_on_makes_a_threshold_one_of_other_weights(
  folder, without_best
):
  path = without_best / TUNED
  flags = {"output_dir": without_best, **V2}
  train = {"train_file": folder / "train.json", "do_train": True}
  answer = {"do_predict": True, "predict_file": folder / "dev.json"}
  path.unlink()
  run(folder, **flags, **answer, null_score_diff_threshold="auto")
  run(folder, **flags, **train, num_train_epochs=6)  # Nothing is to do.
  result = run(folder, **flags, **answer)
  assert f"as {path} says" in result.stdout
  # 400 questions make at least 25 batches of 16, so .05 epochs are a step more.
  run(folder, **flags, **train, num_train_epochs=6.05)
  result = run(folder, **flags, **answer)
  assert OTHERS.format(path) in result.stderr


@pytest.mark.parametrize(
  ("flags", "message"),
  [
    # A threshold is that of these weights, not of earlier ones.
    (
      {"do_predict": True, "predict_file": "own.jsonl", **AUTO},
      "own.jsonl:1: no answers; 1 of 1 questions have none: an evaluation",
    ),
    (
      {"do_train": False, "do_predict": True, "eval_file": "own.jsonl"}
      | {"predict_file": "own.jsonl", "null_score_diff_threshold": 0.5},
      "--eval_file is not read",
    ),
  ],
)
def test_training_on_is_refused(folder, without_best, write, flags, message):
  question = {"id": 1, "question": "what color ?", "context": "a red house"}
  write("own.jsonl", json.dumps(question))
  features = (without_best / "train.tf_record").stat()
  flags = {**V2, "num_train_epochs": 6, "do_train": True, **flags}
  flags |= {"train_file": folder / "train.json", "output_dir": without_best}
  program_flags.assert_refused(run_tiny(folder, **flags), message)
  assert (without_best / "train.tf_record").stat() == features


@pytest.mark.parametrize(
  ("version", "others"),
  [
    ("v1.1", {}),
    (
      "v2.0",
      {"version_2_with_negative": True, "null_score_diff_threshold": -0.5}
      | {"n_best_size": 80, "max_answer_length": 60},
    ),
  ],
)
def test_answers_are_those_of_the_original(tmp_path, version, others):
  if not GOLDEN.exists():
    pytest.skip(f"no golden cases in {GOLDEN}")
  out = tmp_path / "out"
  shutil.copytree(GOLDEN / "squad", out, copy_function=shutil.copyfile)
  out.chmod(0o755)
  flags = {"do_predict": True, "do_lower_case": True, **others}
  flags |= {"max_seq_length": 192, "doc_stride": 64, "max_query_length": 48}
  flags["predict_file"] = GOLDEN / f"inputs/squad/dev-{version}.json"
  flags["vocab_file"] = paths.SHARED / "data/vocab/uncased_vocab.txt"
  run(tmp_path, **flags, bert_config_file=out / "bert_config.json")
  expected = GOLDEN / "expected" / f"squad-{version}"
  name = "predictions.json"
  assert (out / name).read_bytes() == (expected / name).read_bytes()
  if version == "v2.0":
    odds = read_json(out / "null_odds.json")
    assert odds == pytest.approx(read_json(expected / "null_odds.json"), 1e-4)
    return
  nbest = read_json(out / "nbest_predictions.json")
  for name, spans in read_json(expected / "nbest_predictions.json").items():
    assert len(nbest[name]) == len(spans)
    for ours, theirs in zip(nbest[name], spans, strict=True):
      assert ours.pop("text") == theirs.pop("text")
      assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-4)
