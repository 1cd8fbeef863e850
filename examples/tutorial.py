# %% [markdown]
# # BERT from the first word to an answer
#
# In Google Colab: *File*, *Open notebook*, *GitHub*, and the address of this
# repository, for which the next cell asks again.
#
# BERT learns a language in two steps. **Pre-training** needs nothing but text:
# words are hidden, and the model guesses them. **Fine-tuning** then takes a few
# labelled examples and turns the same model into a classifier.
#
# This tutorial does both on the manual that comes with every Python, in a few
# minutes on two cores. The model is tiny; programs, files and mathematics are
# those of the big ones. `python examples/tutorial.py` runs it
# without a notebook.

# %%
import csv
import json
import pathlib
import subprocess
import sys

if "google.colab" in sys.modules:
  repository = input("address of this repository: ")
  subprocess.run(["git", "clone", "--depth=1", repository, "bert"], check=True)
  install = [sys.executable, "-m", "pip", "install", "-q", "-r"]
  subprocess.run([*install, "bert/requirements.txt"], check=True)
starts = [pathlib.Path(p).resolve() for p in ("bert/here", "here", sys.argv[0])]
folders = [folder for start in starts for folder in start.parents]
ROOT = next(f for f in folders if (f / "run_pretraining.py").exists())
FOLDER = pathlib.Path("tutorial_output")
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]
FOLDER.mkdir(exist_ok=True)


def run(program, **flags):
  """Runs a program as on a command line and shows its output."""
  arguments = [f"--{name}={value}" for name, value in flags.items()]
  print("$ python", program, *arguments)
  command = [sys.executable, ROOT / program, *arguments]
  pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
  with subprocess.Popen(command, text=True, **pipes) as process:
    for line in process.stdout:
      print(line, end="", flush=True)
  if process.returncode:
    raise RuntimeError(f"{program} failed")


# %% [markdown]
# ## 1. A vocabulary
#
# A neural network computes with numbers, so text has to become a list of ids.
# Whole words would need a huge table and fail on every new word; letters say
# too little. BERT uses *word pieces*: frequent words stay whole, rare ones are
# split into pieces, and a piece that continues a word begins with `##`. The
# vocabulary is learned from the text itself.

# %%
import pretrain_pydoc

import tokenization

TRAIN, EVAL = FOLDER / "train.txt", FOLDER / "eval.txt"
pretrain_pydoc.write_corpus(TRAIN, EVAL)
VOCAB = FOLDER / "vocab.txt"
run("create_vocab.py", input_file=TRAIN, output_file=VOCAB, vocab_size=4000)
tokenizer = tokenization.FullTokenizer(str(VOCAB))
for text in ("A list is mutable.", "Unhashable pythons misbehave."):
  print(text, "->", tokenizer.tokenize(text))

# %% [markdown]
# ## 2. Records: hidden words and pairs of sentences
#
# Each training example is a pair, `[CLS] A [SEP] B [SEP]`. It asks two
# questions at once.
#
# **Which words are missing?** 15 % of the pieces are chosen. Of these, 80 %
# become `[MASK]`, 10 % become a random piece, and 10 % stay as they are. If all
# became `[MASK]`, the model could ignore every other word. Since any word may
# be a wrong one, it has to understand all of them.
#
# **Does B follow A?** In half of the pairs B is the next piece of text, in the
# others it comes from elsewhere. (Later models drop this question.)

# %%
LENGTHS = {"max_seq_length": 32, "max_predictions_per_seq": 5}
for text, copies in ((TRAIN, 10), (EVAL, 1)):  # Masked differently.
  run(
    "create_pretraining_data.py",
    input_file=text,
    output_file=text.with_suffix(".tfrecord"),
    vocab_file=VOCAB,
    dupe_factor=copies,
    **LENGTHS,
  )

# %%
import numpy as np

from inputs import records

spec = records.pretraining_spec(*LENGTHS.values())
dataset = records.sequential_dataset([str(FOLDER / "train.tfrecord")])
batch = next(iter(dataset.batch(100_000)))[1]
batch = {k: v.numpy() for k, v in records.parse_batch(batch, spec, {}).items()}


def words(ids):
  return tokenizer.convert_ids_to_tokens([int(i) for i in ids])


example = {name: values[0] for name, values in batch.items()}
length = example["input_mask"].sum()
shown = words(example["input_ids"][:length])
print("input:   ", *shown)
print("segments:", *example["segment_ids"][:length])
answers = words(example["masked_lm_ids"])
for i, place in enumerate(example["masked_lm_positions"]):
  if example["masked_lm_weights"][i]:
    print(f"place {place:2}: {shown[place]!r}, the answer is {answers[i]!r}")
print("B is", "random" if example["next_sentence_labels"][0] else "the next")

# %%
used = batch["masked_lm_weights"] > 0
places = batch["masked_lm_positions"]
shown = np.take_along_axis(batch["input_ids"], places, 1)[used]
labels = batch["masked_lm_ids"][used]
is_mask, is_kept = shown == tokenizer.vocab["[MASK]"], shown == labels
print(f"{len(used):,} records, {len(labels):,} questions")
print(f"[MASK] {is_mask.mean():.1%}, kept {is_kept.mean():.1%},")
print(f"random {1 - is_mask.mean() - is_kept.mean():.1%}")

# %% [markdown]
# ## 3. Pre-training
#
# The model is a Transformer: each layer lets every word look at all others
# (*attention*), then computes on each word alone. This one has 2 layers of
# width 128; BERT-Base has 12 of 768.
#
# The **learning rate** says how far each update moves the weights. It rises
# from zero while Adam still has a poor idea of the gradients (*warm-up*), then
# falls in a straight line to zero. A tiny model bears 1e-3; BERT-Base took
# 1e-4, and fine-tuning a big model takes 2e-5 to 5e-5.
#
# The **loss** is minus the logarithm of the probability that the model gave to
# the right word. Knowing nothing costs the logarithm of the vocabulary's size,
# knowing only how frequent each word is the *unigram entropy*. Only below that
# has the model learned something from the words around the hole.

# %%
pretrain_pydoc.write_config(FOLDER, ROOT / "configs" / "bert_tiny.json")
PRETRAINED, CONFIG = FOLDER / "pretrained", FOLDER / "bert_config.json"
run(
  "run_pretraining.py",
  input_file=FOLDER / "train.tfrecord",
  eval_input_file=FOLDER / "eval.tfrecord",
  bert_config_file=CONFIG,
  vocab_file=VOCAB,
  output_dir=PRETRAINED,
  do_train="true",
  do_eval="true",
  train_batch_size=32,
  learning_rate=1e-3,
  num_train_steps=1500,
  num_warmup_steps=150,
  eval_every_steps=150,
  eval_batch_size=64,
  max_eval_steps=0,
  **LENGTHS,
)

# %%
try:
  import matplotlib.pyplot as plt
except ImportError:
  plt = None
  print("No drawings: pip install matplotlib")

lines = (PRETRAINED / "curves.jsonl").read_text().splitlines()
points = [p for p in map(json.loads, lines) if "eval/masked_lm_loss" in p]
steps = [point["step"] for point in points]
losses = [point["eval/masked_lm_loss"] for point in points]
shares = np.unique(labels, return_counts=True)[1] / len(labels)
entropy = -np.sum(shares * np.log(shares))


def show(name):
  """Keeps the drawing, and shows it in a notebook."""
  plt.savefig(FOLDER / f"{name}.png", bbox_inches="tight", dpi=100)
  if "ipykernel" in sys.modules:
    plt.show()
  plt.close()


if plt:
  plt.plot(steps, losses, marker="o", label="masked words, held-out text")
  plt.axhline(entropy, color="gray", ls="--", label="word frequencies alone")
  plt.axhline(np.log(4000), color="gray", ls=":", label="no idea: ln 4000")
  plt.gca().set(xlabel="step", ylabel="loss, nats", ylim=[0, None])
  plt.legend(loc="lower left")
  show("curve")

# %% [markdown]
# ## 4. What attention looks at
#
# In each layer, every head computes for every word how much it takes from each
# other word; a row of these numbers adds up to 1. Look for lines parallel to
# the diagonal (the word before or after), for columns (a word at which all
# look, often `[CLS]`, `[SEP]` or a full stop), and for words that find each
# other. It shows where information may flow, not why the model decides.

# %%
import tensorflow as tf

import bert

encoder = bert.load_encoder(str(PRETRAINED))
sentence = "If the list is empty, the method raises an exception."
tokens = ["[CLS]", *tokenizer.tokenize(sentence), "[SEP]"]
ids = tf.constant([tokenizer.convert_tokens_to_ids(tokens)])
attention = encoder(ids, return_attention_probs=True).attention_probs
if plt:
  figure, axes = plt.subplots(2, 2, figsize=(10, 10), layout="constrained")
  for layer, heads in enumerate(attention):
    for head, weights in enumerate(heads[0].numpy()):
      cell = axes[layer, head]
      cell.imshow(weights, cmap="Blues", vmin=0)
      cell.set_title(f"layer {layer + 1}, head {head + 1}")
      cell.set_xticks(range(len(tokens)), tokens, rotation=90)
      cell.set_yticks(range(len(tokens)), tokens)
  show("attention")

# %% [markdown]
# ## 5. Guessing hidden words
#
# The layer that answers during pre-training is part of the checkpoint, so the
# model can be asked directly. So can `models/mini` of this repository: twice as
# deep and wide, and trained for three hours on film reviews, novels and
# encyclopedia articles. It knows nothing about functions.

# %%
MINI = ROOT / "models" / "mini"
for model in (PRETRAINED, MINI):
  for text in ("The function returns a new [MASK].", "He read the [MASK]."):
    run("fill_mask.py", model=model, text=text, top_k=5)

# %% [markdown]
# ## 6. Fine-tuning, with and without pre-training
#
# The task: which part of the manual does a sentence come from? We pretend that
# labels are expensive and use those of every sixth sentence; the others are for
# the test. (Pre-training has seen many of these sentences, too, but no label.)
#
# Fine-tuning puts one new layer, the *head*, on the vector of `[CLS]`. The head
# begins with random weights: a model that was only pre-trained cannot classify
# anything. All weights then learn together. The second run starts from random
# weights throughout, the third from `models/mini`, which has never seen a
# manual, but more English.
#
# With so few examples the first two change places from run to run: one run gave
# 41.1 % of the test sentences pre-trained and 36.0 % from scratch, one whose
# pre-training was stopped halfway 34.8 % and 42.4 %, one on another processor
# 36.3 % and 32.0 %, which always naming the largest part gets, too. The third
# gave 68 %: three hours of reading help. Serious comparisons take several
# seeds, and tune the learning rate of each start.

# %%
PARTS = pretrain_pydoc.PARTS
for part, names in PARTS.items():
  print(f"{part}: the topics {', '.join(names)}")
rows = pretrain_pydoc.read_parts()
others = [row for i, row in enumerate(rows) if i % 6]
for name, chosen in (("train", rows[::6]), ("dev", others)):
  pretrain_pydoc.write_labelled(FOLDER / f"{name}.tsv", chosen)
  print(f"{name}: {len(chosen)} sentences, the first: {chosen[0]}")

# %%
for name, rate, start in (
  ("finetuned", 1e-3, {"model": PRETRAINED}),
  ("scratch", 1e-3, {"bert_config_file": CONFIG, "vocab_file": VOCAB}),
  ("mini", 3e-4, {"model": MINI}),
):
  run(
    "run_classifier.py",
    task_name="file",
    data_dir=FOLDER,
    do_train="true",
    do_eval="true",
    do_predict="true",
    predict_file=FOLDER / "dev.tsv",
    max_seq_length=64,
    learning_rate=rate,
    num_train_epochs=10,
    train_batch_size=16,
    output_dir=FOLDER / name,
    **start,
  )


# %%
def accuracy(name):
  scores = json.loads((FOLDER / name / "eval_metrics.json").read_text())
  return scores["metrics"]["accuracy"]


with open(FOLDER / "finetuned" / "predictions.tsv", encoding="utf-8") as file:
  table = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
  predictions = list(table)
true = [row["label"] for row in predictions]
largest = max(map(true.count, PARTS))
print(f"always the largest part: {largest / len(true):.1%}")
print(f"from scratch:            {accuracy('scratch'):.1%}")
print(f"pre-trained:             {accuracy('finetuned'):.1%}")
print(f"from models/mini:        {accuracy('mini'):.1%}")

# %% [markdown]
# ## 7. What it gets wrong
#
# A single number hides which classes are mistaken for which. In the confusion
# matrix a row is the true part, a column the predicted one.

# %%
pairs = [(row["label"], row["predicted"]) for row in predictions]
print(f"{'':12}", *(f"{part:>11}" for part in PARTS))
for part in PARTS:
  print(f"{part:12}", *(f"{pairs.count((part, p)):11}" for p in PARTS))

# %% [markdown]
# Then read mistakes, the most confident first: is the label wrong, the sentence
# ambiguous, a word misleading, the class too rare?

# %%
wrong = []
for row in predictions:
  label, predicted = row["label"], row["predicted"]
  if label != predicted:
    probability = float(row[f"probability_{predicted}"])
    wrong.append((probability, predicted, label, row["text"]))
for probability, predicted, label, text in sorted(wrong, reverse=True)[:8]:
  print(f"{probability:.0%} {predicted}, but it is {label}:\n   {text}")

# %% [markdown]
# ## 8. Export and use
#
# The export is one folder with the weights, the labels and the vocabulary: it
# takes plain text. `bert.load` answers with it from Python, and
# `python predict.py --export_dir=... --serve` is a web server with a page.

# %%
EXPORT = FOLDER / "export"
run("export_saved_model.py", model=FOLDER / "finetuned", export_dir=EXPORT)

# %%
model = bert.load(EXPORT)
for text in (
  "Set a breakpoint.",
  "Return a copy with all letters in lower case.",
):
  print(text, "->", model(text))

# %%
numbers = {
  "masked_word_accuracy": points[-1]["eval/masked_lm_accuracy"],
  "masked_lm_loss": losses[-1],
  "unigram_entropy": entropy,
  "accuracy_pretrained": accuracy("finetuned"),
  "accuracy_scratch": accuracy("scratch"),
  "accuracy_mini": accuracy("mini"),
}
(FOLDER / "numbers.json").write_text(json.dumps(numbers, indent=2))
print(json.dumps(numbers, indent=2))

# %% [markdown]
# ## Where to go from here
#
# - Your own texts and labels: `docs/classification.md`; questions that others
#   asked: `docs/questions.md`.
# - Is my pre-training on its way? `docs/loss.md`.
# - A bigger model: `configs/`, a vocabulary of 30,000, more text, more steps.
