"""run_embedding.py: from pairs, scores and sentences to vectors of texts."""

import csv
import json
import math
import shutil

import numpy as np
import pytest
import tensorflow as tf

import bert
from bert import run_classifier, run_embedding
from bert.report import metrics
from bert.tasks import embedding_data
from bert.weights import checkpoints
import program_flags
import programs
import tiny
import tiny_models

TRAINING = {
  "do_train": True,
  "train_batch_size": 8,
  "learning_rate": 2e-3,
  "num_train_epochs": 4,
}
DROPOUT = {"hidden_dropout_prob": 0.1}


def run(folder, **flags):
  return program_flags.run_main(
    run_embedding,
    run_embedding.EmbeddingSettings,
    **tiny.flags_for(folder, **flags),
  )


def refuse(folder, message, **flags):
  command = tiny.command("run_embedding", folder, **{**TRAINING, **flags})
  program_flags.assert_refused(program_flags.run_here(command), message)


def write(folder, name, *lines):
  path = folder / name
  path.write_text("".join(f"{line}\n" for line in lines))
  return path


# Losses, on cases computed by hand.

RIGHT, UP, LEFT = [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]


def contrast(vectors, ids, temperature=1.0):
  pairs = np.array(ids)[..., None].repeat(2, -1)
  vectors = tf.constant(vectors, tf.float32)
  return run_embedding.contrast(vectors, tf.constant(pairs), temperature)


def log_share(own, *others):
  return np.log1p(sum(np.exp(other - own) for other in others))


def test_partners_are_found_among_those_of_others():
  found = contrast([[RIGHT, RIGHT], [UP, LEFT]], [[1, 2], [3, 4]])
  expected = [log_share(1, -1), log_share(0, 0)]
  np.testing.assert_allclose(found, expected, rtol=1e-6)
  found = contrast([[RIGHT, RIGHT], [UP, LEFT]], [[1, 2], [3, 4]], 0.5)
  np.testing.assert_allclose(found[0], log_share(2, -2), rtol=1e-5)


def test_hard_negatives_are_those_of_all_rows():
  vectors = [[RIGHT, RIGHT, UP], [[3.0, 3.0], LEFT, LEFT]]
  found = contrast(vectors, [[1, 2, 5], [3, 4, 6]])
  half = 0.5**0.5
  expected = [log_share(1, -1, 0, -1), log_share(-half, half, half, -half)]
  np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
  "ids",
  [
    [[1, 2, 5], [3, 2, 5]],  # The second texts are equal.
    [[1, 2, 5], [1, 4, 5]],  # The first texts are.
    [[1, 2, 5], [3, 1, 5]],  # The other partner is this first text.
  ],
)
def test_equal_texts_are_no_negatives(ids):
  vectors = [[RIGHT, RIGHT, UP], [RIGHT, RIGHT, UP]]
  found = contrast(vectors, ids)
  np.testing.assert_allclose(found[0], log_share(1, 0, 0), rtol=1e-5)
  both = contrast(vectors, [[1, 2, 2], [3, 4, 1]])
  np.testing.assert_allclose(both[0], log_share(1, 1), rtol=1e-5)


def test_cosines_are_put_in_the_order_of_scores():
  vectors = tf.constant([[RIGHT, UP], [RIGHT, LEFT], [UP, [0.0, 9.0]]])
  numbers = tf.constant([[5.0], [1.0], [1.0]])
  found = run_embedding.cosent(vectors, numbers, 1.0)
  # The cosines are 0, -1 and 1; the first should be the highest.
  expected = np.log(1 + np.exp(-1) + np.exp(1))
  np.testing.assert_allclose(found, [expected] * 3, rtol=1e-6)


# Scores.


def test_each_first_text_searches_all_others():
  def place(angle):
    return [np.cos(angle), np.sin(angle)]

  # Query 1 has two partners, 3 and 4; 2 has one, 1, which 1 does not see.
  vectors = np.array(
    [
      [place(0.0), place(0.1)],
      [place(0.0), place(0.5)],
      [place(0.3), place(0.0)],
    ]
  )
  ids = np.array([[1, 3], [1, 4], [2, 1]])[..., None].repeat(2, -1)
  found = embedding_data.score_retrieval(vectors, ids, np.ones(3))
  # Ranks of 1: 1 and 2. Of 2: 3 and 4 are 0.2 away, 1 is 0.3.
  assert found["mrr_at_10"] == pytest.approx((1 + 1 / 3) / 2)
  assert found["recall_at_1"] == pytest.approx((1 / 2 + 0) / 2)
  assert found["ndcg_at_10"] == pytest.approx((1 + 1 / 2) / 2)


def test_relevance_0_is_no_answer():
  vectors = np.array([[RIGHT, RIGHT], [RIGHT, UP]])
  ids = np.array([[1, 3], [1, 4]])[..., None].repeat(2, -1)
  found = embedding_data.score_retrieval(vectors, ids, np.array([0.0, 2.0]))
  assert (found["mrr_at_10"], found["recall_at_1"]) == (0.5, 0.0)


# Runs.


def test_pairs_are_learned(tmp_path):
  """With a hard negative: the same words with a bad one instead."""
  tiny.write_model(tmp_path)
  lines = []
  for number in range(64):
    first = tiny.make_text(number, tiny.GOOD)
    lines.append(f"{first}\tgood {first}\t{tiny.make_text(number, tiny.BAD)}")
  train = write(tmp_path, "train.tsv", *lines)
  dev = tiny.write_partners(tmp_path / "dev.tsv", range(64, 96))
  flags = {"train_file": train, "eval_file": dev, "eval_batch_size": 64}
  run(tmp_path, **TRAINING, **flags, do_eval=True, eval_every_steps=8)
  results = tiny.read_results(tmp_path / "out")
  assert results["eval_mrr_at_10"] > 0.95
  assert results["eval_recall_at_1"] > 0.9
  lines = (tmp_path / "out" / "evaluations.jsonl").read_text().splitlines()
  assert "eval_ndcg_at_10" in json.loads(lines[0])
  names = {n for n, _ in checkpoints.read(str(tmp_path / "out/model.ckpt-32"))}
  assert all(n.startswith("bert/") or n == "global_step" for n in names)


def write_scored(path, numbers):
  """Writes pairs, 5 if both texts have a good or both a bad word, else 0."""
  lines = []
  for number in numbers:
    words = [tiny.GOOD if (number >> i) % 2 else tiny.BAD for i in range(2)]
    texts = [tiny.make_text(9 * number + i, words[i]) for i in range(2)]
    lines.append("\t".join([*texts, "5" if words[0] == words[1] else "0"]))
  return write(path.parent, path.name, *lines)


def test_scores_are_learned_and_cosines_predicted(tmp_path):
  tiny.write_model(tmp_path)
  paths = {
    f"{kind}_file": write_scored(tmp_path / f"{kind}.tsv", numbers)
    for kind, numbers in (
      ("train", range(320)),
      ("eval", range(320, 352)),
      ("predict", range(352, 356)),
    )
  }
  flags = {**TRAINING, **paths, "do_eval": True, "do_predict": True}
  flags["num_train_epochs"] = 8
  run(tmp_path, objective="scores", **flags)
  results = tiny.read_results(tmp_path / "out")
  assert list(results) == ["eval_pearson", "eval_spearman", "global_step"]
  assert results["eval_spearman"] > 0.8
  with open(tmp_path / "out" / "predictions.tsv", newline="") as file:
    rows = list(csv.DictReader(file, delimiter="\t"))
  assert [row["id"] for row in rows] == ["0", "1", "2", "3"]
  found = [float(row["cosine"]) for row in rows]
  assert min(found[0], found[3]) > max(found[1], found[2])


@pytest.mark.slow  # The column is read as by tests/test_rows_in_memory.py.
def test_sentences_are_those_of_a_column_below_the_header(tmp_path, capsys):
  tiny.write_model(tmp_path, DROPOUT)
  rows = [f"{n}\t{tiny.make_text(n, tiny.GOOD)} {n}" for n in range(16)]
  train = write(tmp_path, "train.tsv", "id\tbody", *rows)
  flags = {**TRAINING, "objective": "sentences", "num_train_epochs": 1}
  run(tmp_path, **flags, train_file=train, text_column="body")
  assert "train: 16 examples, 2 text(s) each, " in capsys.readouterr().out
  features = tmp_path / "out" / "train.tf_record"
  record = next(iter(tf.data.TFRecordDataset(str(features)))).numpy()
  ids = tf.train.Example.FromString(record).features.feature["input_ids"]
  words = [tiny.VOCABULARY[i] for i in ids.int64_list.value if i > 0]
  first = [*tiny.make_text(0, tiny.GOOD).split(), "[UNK]"]
  assert words == 2 * ["[CLS]", *first, "[SEP]"]


@pytest.mark.slow  # The test of scores predicts, too.
def test_predictions_repeat_ids_and_take_no_third_column(tmp_path):
  tiny.write_model(tmp_path)
  train = tiny.write_partners(tmp_path / "train.tsv", range(16))
  lines = ["good\tbad\tx1", "film\tplot\tx2"]
  flags = {"predict_file": write(tmp_path, "test.tsv", *lines)}
  flags |= {"train_file": train, "do_predict": True, "num_train_epochs": 1}
  run(tmp_path, **{**TRAINING, **flags}, id_column=2)
  with open(tmp_path / "out" / "predictions.tsv", newline="") as file:
    rows = list(csv.DictReader(file, delimiter="\t"))
  assert [row["id"] for row in rows] == ["x1", "x2"]


def test_sentences_move_apart(tmp_path, capsys):
  """Evaluated on pairs with a score, with the training's own settings."""
  tiny.write_model(tmp_path, DROPOUT)
  texts = [tiny.make_text(n, tiny.GOOD + tiny.BAD) for n in range(64)]
  train = write(tmp_path, "train.txt", *texts)
  dev = write_scored(tmp_path / "dev.tsv", range(32))
  flags = {"objective": "sentences", "eval_file": dev, "eval_batch_size": 64}
  run(tmp_path, **TRAINING, **flags, train_file=train, do_eval=True)
  output = capsys.readouterr().out
  assert "train: 64 examples, 2 text(s) each" in output
  assert "eval_spearman" in tiny.read_results(tmp_path / "out")


@pytest.mark.slow  # tests/inputs/test_held_out.py has what all programs share.
def test_a_share_of_pairs_is_held_out(tmp_path, capsys):
  tiny.write_model(tmp_path)
  train = tiny.write_partners(tmp_path / "train.tsv", range(40))
  flags = {**TRAINING, "train_file": train, "eval_share": 0.25}
  run(tmp_path, **{**flags, "num_train_epochs": 1}, do_eval=True)
  output = capsys.readouterr().out
  assert "train: 30 examples" in output and "eval: 10 examples" in output


def test_the_folder_says_how_its_vectors_are_made(tmp_path):
  tiny.write_model(tmp_path)
  train = tiny.write_partners(tmp_path / "train.tsv", range(16))
  flags = {**TRAINING, "train_file": train, "num_train_epochs": 1}
  run(tmp_path, **flags, pooling="max", normalize=True)
  out = tmp_path / "out"
  modules = json.loads((out / "modules.json").read_text())
  types = [module["type"].rpartition(".")[2] for module in modules]
  assert types == ["Transformer", "Pooling", "Normalize"]
  pooling = json.loads((out / "1_Pooling" / "config.json").read_text())
  assert pooling.pop("word_embedding_dimension") == 16
  assert [k for k, v in pooling.items() if v] == ["pooling_mode_max_tokens"]
  # A later run follows it, and another pooling is refused.
  dev = tiny.write_partners(tmp_path / "dev.tsv", range(16, 32))
  later = {"model": out, "eval_file": dev, "do_eval": True}
  flags = {"output_dir": tmp_path / "later", "max_seq_length": 16}
  program_flags.run_main(
    run_embedding, run_embedding.EmbeddingSettings, **later, **flags
  )
  settings = json.loads((tmp_path / "later" / "settings.json").read_text())
  assert (settings["pooling"], settings["normalize"]) == ("max", True)
  # Evaluated on shorter texts, the model stays as it was trained.
  stated = (out / "sentence_bert_config.json").read_bytes()
  flags = {"output_dir": out, "max_seq_length": 6}
  program_flags.run_main(
    run_embedding, run_embedding.EmbeddingSettings, **later, **flags
  )
  assert (out / "sentence_bert_config.json").read_bytes() == stated
  with pytest.raises(ValueError, match=r"--pooling=cls \(was max\)"):
    run(tmp_path, pooling="cls", eval_file=dev, do_eval=True)


@pytest.mark.parametrize(
  "library",
  [
    pytest.param("transformers", marks=pytest.mark.slow),
    "sentence_transformers",
  ],
)
def test_other_libraries_make_the_same_vectors(library, tmp_path):
  module = pytest.importorskip(library)
  torch = pytest.importorskip("torch")
  tiny.write_model(tmp_path)
  train = tiny.write_partners(tmp_path / "train.tsv", range(16))
  run(tmp_path, **TRAINING, train_file=train, normalize=True)
  folder = tmp_path / "hugging_face"
  flags = {"input": tmp_path / "out", "output": folder}
  program_flags.succeed(program_flags.command("convert_checkpoint", **flags))
  texts = ["the film was good", "bad"]
  if library == "sentence_transformers":
    found = module.SentenceTransformer(str(folder), device="cpu").encode(texts)
  else:
    tokenizer = module.AutoTokenizer.from_pretrained(folder)
    rows = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
      states = module.BertModel.from_pretrained(folder)(**rows)[0]
    mask = rows["attention_mask"][..., None]
    found = torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1))
  ours = [answer["vector"] for answer in bert.load(tmp_path / "out")(texts)]
  np.testing.assert_allclose(ours, found, atol=1e-5)


# Bad input.


@pytest.mark.parametrize(
  ("objective", "lines", "message"),
  [
    ("pairs", ["a film", "the cast"], ".tsv:1: expected at least 2 co"),
    ("pairs", ["a\tfilm", "the\tfilm"], "all texts to find are equal"),
    (
      "pairs",
      ["a\tgood\tbad", "the\tfilm\t"],
      "2 texts, the first example has",
    ),
    ("scores", ["a\tfilm\t5", "the\tcast\t5"], "all scores are equal"),
    ("scores", ["a\tfilm\t5", "the\tcast\t5.1"], "from 0 to 5 (--min_score"),
    ("scores", ["a\tfilm\t5", "the\tcast\tnan"], "train.tsv:2: expected a num"),
    ("scores", ["a\tfilm\t5", "the\tcast\thigh"], "found 'high'"),
    ("scores", ["a\tfilm\t5", "the\tcast\t"], "tsv:2: no label; 1 of 2 rows"),
    ("scores", ["a\tfilm", "the\tcast"], "1: expected at least 3 columns"),
    ("sentences", ["film", "film"], "all texts to find are equal"),
    ("sentences", ["film", "a\tfilm"], "train.tsv:2: expected 1 columns"),
  ],
)
def test_a_wrong_file_is_refused(objective, lines, message, tmp_path):
  path = write(tmp_path, "train.tsv", *lines)
  flags = {"objective": objective, "train_file": path, "train_batch_size": 2}
  refuse(tmp_path, message, config=DROPOUT, **flags)


@pytest.mark.parametrize(
  ("flags", "message"),
  [
    ({"train_batch_size": 1}, "--train_batch_size=1: nothing to compare"),
    ({"objective": "sentences"}, "hidden_dropout_prob is 0"),
    ({"temperature": 0}, "--temperature=0: expected a number of at least"),
  ],
)
def test_a_wrong_flag_is_refused(flags, message, tmp_path):
  path = write(tmp_path, "train.txt", "a", "film", "cast")
  if "objective" not in flags:
    path = tiny.write_partners(tmp_path / "train.tsv", range(16))
  refuse(tmp_path, message, **{"train_file": path, **flags})


def test_few_labels_make_a_classifier(tmp_path):
  """It answers alike in run_classifier.py, in an export and in Python."""
  tiny.write_model(tmp_path)
  tiny.write_tsv(tmp_path / "train.tsv", range(48))
  tiny.write_tsv(tmp_path / "dev.tsv", range(48, 88))
  flags = {"data_dir": tmp_path, "objective": "labels", **TRAINING}
  run(tmp_path, **{**flags, "num_train_epochs": 1}, do_eval=True)
  out = tmp_path / "out"
  accuracy = tiny.read_results(out)["eval_accuracy"]
  assert accuracy > 0.9
  assert (out / "labels.txt").read_text().split() == ["neg", "pos"]
  later = {"task_name": "file", "model": out, "max_seq_length": 16}
  later |= {"eval_file": tmp_path / "dev.tsv", "do_eval": True}
  later |= {"predict_file": tmp_path / "dev.tsv", "do_predict": True}
  later["output_dir"] = tmp_path / "later"
  kind = run_classifier.ClassifierSettings
  program_flags.run_main(run_classifier, kind, **later)
  results = tiny.read_results(tmp_path / "later")
  assert results["eval_accuracy"] == pytest.approx(accuracy)
  with open(tmp_path / "later" / "predictions.tsv", newline="") as file:
    rows = list(csv.DictReader(file, delimiter="\t"))
  texts = [row["text"] for row in rows]
  flags = {"model_dir": out, "vocab_file": out / "vocab.txt"}
  path = tiny_models.run_export(tmp_path, "export", format="onnx", **flags)
  for folder in (out, path):
    for answer, row in zip(bert.load(folder)(texts), rows, strict=True):
      assert answer["label"] == row["predicted"]
      shown = float(row["probability_pos"])
      assert answer["probabilities"]["pos"] == pytest.approx(shown, abs=1e-5)
  command = program_flags.command(
    "convert_checkpoint", input=out, output=tmp_path / "hugging_face"
  )
  message = "its classifier has no pooler, that of BertForSequenceClass"
  program_flags.assert_refused(program_flags.run_here(command), message)
  flags = {"output_format": "google", "output": tmp_path / "google"}
  command = program_flags.command("convert_checkpoint", input=out, **flags)
  program_flags.succeed(command)
  [answer], [row] = bert.load(tmp_path / "google")(texts[:1]), rows[:1]
  assert answer["probabilities"]["pos"] == pytest.approx(
    float(row["probability_pos"]), abs=1e-5
  )


def test_the_classifier_is_that_of_scikit_learn():
  """Where its solver ends at the minimum, which its default only approaches."""
  models = pytest.importorskip("sklearn.linear_model")
  random = np.random.default_rng(0)
  for labels, size in ((2, 0.1), (2, 5.0), (5, 1.0), (20, 3.0)):
    numbers = np.arange(60) % labels
    numbers[labels:][random.random(60 - labels) < 0.3] = 0  # Not even.
    vectors = random.normal(size=(labels, 16))[numbers] + 1.0
    vectors = size * (vectors + random.normal(size=vectors.shape))
    results = {"vectors": vectors[:, None], "number": numbers[:, None]}
    weights, bias = embedding_data.fit_classifier(results, labels)
    found = metrics.softmax(vectors @ weights.T + bias)
    theirs = models.LogisticRegression(tol=1e-8, max_iter=10000)
    expected = theirs.fit(vectors, numbers).predict_proba(vectors)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.slow  # A killed training, below, leaves the same head at each.
def test_every_checkpoint_has_a_classifier_of_its_vectors(tmp_path):
  """That of a stopped run, too, and of one that is not evaluated."""
  tiny.write_model(tmp_path)
  tiny.write_tsv(tmp_path / "train.tsv", range(48))
  flags = {**TRAINING, "data_dir": tmp_path, "objective": "labels"}
  flags |= {"num_train_epochs": 0.1, "save_checkpoints_steps": 8}
  flags["keep_checkpoint_max"] = 5
  run(tmp_path, **flags)
  assert not (tmp_path / "out" / "best").exists()
  tiny.write_tsv(tmp_path / "dev.tsv", range(48, 88))
  later = {"task_name": "file", "do_eval": True, "max_seq_length": 16}
  later |= {"eval_file": tmp_path / "dev.tsv", "output_dir": tmp_path / "later"}
  for name in ("model.ckpt-8", "model.ckpt-16"):
    shutil.rmtree(tmp_path / "later", ignore_errors=True)
    program_flags.run_main(
      run_classifier,
      run_classifier.ClassifierSettings,
      model=tmp_path / "out",
      init_checkpoint=tmp_path / "out" / name,
      **later,
    )
    assert tiny.read_results(tmp_path / "later")["eval_accuracy"] > 0.7, name


def test_texts_of_every_label_are_trained_on_and_held_out(tmp_path, capsys):
  tiny.write_model(tmp_path)
  lines = [f"{tiny.make_text(n, tiny.GOOD)} {n}\tl{n % 9}" for n in range(18)]
  train = write(tmp_path, "train.tsv", "text\tlabel", *lines)
  flags = {**TRAINING, "train_file": train, "eval_share": 0.2}
  flags |= {"objective": "labels", "num_train_epochs": 0.03, "do_eval": True}
  run(tmp_path, **flags)
  output = capsys.readouterr().out
  assert "train_fit: 9 examples" in output and "eval: 9 examples" in output
  held = (tmp_path / "out" / "held_out.jsonl").read_text().splitlines()
  rows = [json.loads(line) for line in held]
  assert {row["label"] for row in rows} == {f"l{n}" for n in range(9)}
  # The label that the file has in this row.
  for row in rows:
    number = int(row["location"].rpartition(":")[2])
    assert lines[number - 2].split("\t") == [row["text_a"], row["label"]]


def test_a_limit_of_texts_makes_other_pairs(tmp_path):
  tiny.write_model(tmp_path)
  lines = [f"{tiny.make_text(n, tiny.GOOD)}\t{n % 2}" for n in range(8)]
  train = write(tmp_path, "train.tsv", "text\tlabel", *lines)

  def open_set(**flags):
    flags = {**TRAINING, "train_file": train, "objective": "labels", **flags}
    flags = tiny.flags_for(tmp_path, **flags)
    settings = run_embedding.EmbeddingSettings.parse(
      {name: str(value) for name, value in flags.items()}
    )
    return run_embedding.open_data(settings).train

  whole, half = open_set(), open_set(max_train_examples=4)
  assert len(list(whole.examples())) == 320
  assert len(list(half.examples())) == 160
  assert whole.key != half.key
  limits = [data.parts["max_train_examples"] for data in (whole, half)]
  assert limits == [None, 4]


@pytest.mark.parametrize("objective", ["scores", "pairs"])
def test_pairs_to_predict_need_no_number(tmp_path, objective):
  """Whatever the bounds of the numbers to learn from are."""
  tiny_models.write_masked_lm(tmp_path)
  path = write(tmp_path, "test.tsv", "good film\tbad film", "plot\tcast")
  flags = {"objective": objective, "min_score": 10, "max_score": 100}
  flags |= {"init_checkpoint": tmp_path, "predict_file": path}
  run(tmp_path, do_predict=True, **flags)
  text = (tmp_path / "out" / "predictions.tsv").read_text()
  assert len(text.splitlines()) == 3


@pytest.mark.slow  # The test above prints what is fitted on, too.
def test_training_on_labels_can_be_limited(tmp_path, capsys):
  tiny.write_model(tmp_path)
  lines = ["good\ta", "bad\tb", "film\ta", "plot\tb", "cast\tc"]
  train = write(tmp_path, "train.tsv", "text\tlabel", *lines)
  flags = {**TRAINING, "train_file": train, "max_train_examples": 4}
  run(tmp_path, **flags, objective="labels")
  output = capsys.readouterr().out
  assert "train_fit: 4 examples" in output and "train: 160 exam" in output
  assert (tmp_path / "out" / "labels.txt").read_text().split() == ["a", "b"]


@pytest.mark.parametrize(
  "lacking", [None, pytest.param("best", marks=pytest.mark.slow)]
)
def test_a_killed_training_on_labels_resumes(lacking, tmp_path):
  """To the same bytes, though the head is fitted at every checkpoint."""
  tiny.write_tsv(tmp_path / "train.tsv", range(16))
  tiny.write_tsv(tmp_path / "dev.tsv", range(48, 60))
  flags = {"data_dir": tmp_path, "objective": "labels", "do_eval": True}
  flags |= {**TRAINING, "num_train_epochs": 0.05, "eval_every_steps": 2}
  flags |= {"save_checkpoints_steps": 2, "iterations_per_loop": 1}
  flags["keep_checkpoint_max"] = 0
  run = programs.train(
    tiny.command("run_embedding", tmp_path, DROPOUT, **flags)
  )
  programs.assert_resumes(run, tmp_path / "killed", lacking=lacking)


@pytest.mark.parametrize(
  ("objective", "lines", "message"),
  [
    ("scores", ["a\tfilm\t5", "the\tcast\t5"], "all scores are equal"),
    ("sentences", ["a\tfilm\t5", "the\tcast\t5"], "all scores are equal"),
    ("pairs", ["a\tfilm\t0", "the\tcast\t0"], "no text is relevant"),
  ],
)
def test_a_file_that_gives_no_score_is_refused(
  objective, lines, message, tmp_path
):
  train = write(tmp_path, "train.tsv", "a\tfilm\t5", "the\tcast\t1")
  if objective == "sentences":
    train = write(tmp_path, "train.txt", "a", "film")
  flags = {"train_file": train, "eval_file": write(tmp_path, "dev.tsv", *lines)}
  flags |= {"objective": objective, "eval_every_steps": 2}
  refuse(tmp_path, f"dev.tsv: {message}", config=DROPOUT, **flags)
  assert not (tmp_path / "out" / "checkpoint").exists()


def test_evaluations_that_are_all_nan_choose_no_weights(
  tmp_path, capsys, monkeypatch
):
  # As it is for cosines that are all equal. Texts alone cannot make them so on
  # every processor: some round the same row differently, by its place.
  monkeypatch.setattr(metrics, "pearson", lambda x, y: math.nan)
  train = write(tmp_path, "train.tsv", "a\tfilm\t5", "the\tcast\t1")
  dev = write(tmp_path, "dev.tsv", "x\ty\t1", "z\tx\t2", "y\tz\t3")
  flags = {"train_file": train, "eval_file": dev, "objective": "scores"}
  flags |= {**TRAINING, "eval_every_steps": 2}
  tiny.write_model(tmp_path)
  run(tmp_path, **flags)
  shown = "of step 1, the last: no eval_spearman to go by (evaluations: 1)\n"
  assert shown in capsys.readouterr().out
  assert not (tmp_path / "out" / "best").exists()


@pytest.mark.parametrize("flag", ["text_pair_column", "id_column", "max_score"])
def test_texts_alone_have_no_columns_of_pairs(flag, tmp_path):
  train = write(tmp_path, "train.tsv", "a\tfilm", "the\tcast")
  flags = {"train_file": train, "objective": "sentences", flag: "1"}
  message = f"--{flag}: to train, --objective=sentences takes texts alone"
  refuse(tmp_path, message, config=DROPOUT, **flags)


@pytest.mark.parametrize(
  ("flags", "lines", "message"),
  [
    ({}, ["a\tx", "film\tx"], "two labels or more, found only x"),
    ({"do_predict": True}, ["a\tx", "film\ty"], "pass --do_train=true alone"),
    (
      {"do_train": False, "do_eval": True},
      ["a\tx", "film\ty"],
      "pass --do_train=true alone",
    ),
    (
      {"eval_share": 0.5},
      ["a\tx", "film\tx", "cast\ty"],
      "only one text has the label 'y'",
    ),
  ],
)
def test_labels_that_are_refused(flags, lines, message, tmp_path):
  path = write(tmp_path, "train.tsv", "text\tlabel", *lines)
  refuse(tmp_path, message, objective="labels", train_file=path, **flags)
