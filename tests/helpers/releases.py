"""Google's released models by their layout: files, configs, vocabularies.

Sizes are tiny; names of variables, fields of configs and the places of special
tokens are those of the archives (README of google-research/bert; four of their
indexes are compared in tests/weights/test_checkpoints.py).
"""

import json
import re

import numpy as np
import tensorflow as tf

from bert import modeling
from bert.convert import models
from bert.weights import checkpoints
import tiny

MINIATURES = [
  f"uncased_L-{layers}_H-{size}_A-{size // 64}"
  for layers in (2, 4, 6, 8, 10, 12)
  for size in (128, 256, 512, 768)
]
LARGER = [
  "uncased_L-12_H-768_A-12",
  "uncased_L-24_H-1024_A-16",
  "cased_L-12_H-768_A-12",
  "cased_L-24_H-1024_A-16",
  "multilingual_L-12_H-768_A-12",
  "multi_cased_L-12_H-768_A-12",
  "chinese_L-12_H-768_A-12",
  "wwm_uncased_L-24_H-1024_A-16",
  "wwm_cased_L-24_H-1024_A-16",
]
# The first of the larger ones was released again with the miniatures.
NAMES = list(dict.fromkeys(MINIATURES + LARGER))
# What each has of the fields that nothing reads.
_POOLER = {
  "directionality": "bidi",
  "pooler_fc_size": 768,
  "pooler_num_attention_heads": 12,
  "pooler_num_fc_layers": 3,
  "pooler_size_per_head": 128,
  "pooler_type": "first_token_transform",
}
POSITIONS = 32


def is_cased(name):
  return bool(re.match(r"(wwm_|multi_)?cased", name))


def make_tokens(name):
  """Returns a vocabulary with the special tokens where the release has them."""
  first = 0 if "uncased" in name else 1
  unused = [f"[unused{number}]" for number in range(first, first + 7)]
  special = ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
  words = [word for word in tiny.ALL_WORDS if word not in tiny.SPECIAL]
  words += [*"bcdefgh", "##i", *(f"word{number}" for number in range(300))]
  if "multi" in name or "chinese" in name:
    words = ["<S>", "<T>", *words, *"\u5317\u4eac\u662f\u4e2d\u56fd"]
  if is_cased(name):
    words += [word.capitalize() for word in words if word.isascii()]
  tokens = ["[PAD]", *unused[:4], *special, *unused[4:], "!", *words]
  return list(dict.fromkeys(tokens))


def write(folder, name, layers=None, version=None):
  """Writes a release, without a folder or files around it.

  Args:
    folder: the one of the release; it must not exist.
    name: of the release.
    layers: instead of those in the name.
    version: 1 or 2: TensorFlow 1's Saver writes the checkpoint in that format,
      and the graph beside it. None: this project's writer, in the second.

  Returns:
    The values of all variables, by name.
  """
  sizes = list(map(int, re.findall(r"\d+", name)))
  tokens = make_tokens(name)
  fields = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 2 * sizes[2],
    "initializer_range": 0.02,
    "intermediate_size": 8 * sizes[2],
    "max_position_embeddings": POSITIONS,
    "num_attention_heads": sizes[2],
    "num_hidden_layers": layers or sizes[0],
    "type_vocab_size": 2,
    "vocab_size": len(tokens),
  }
  config = modeling.BertConfig.from_dict(fields)
  source = np.random.default_rng(1)
  values = {
    name: source.normal(0, 0.2, shape).astype(np.float32)
    for name, shape in models.variables(config, "pretraining").items()
  }

  folder.mkdir(parents=True)
  if "multi" in name or "chinese" in name:
    fields |= _POOLER
  (folder / "bert_config.json").write_text(json.dumps(fields, indent=2))
  text = "\n".join(tokens) + "\n"
  (folder / "vocab.txt").write_text(text, encoding="utf-8")
  if version:
    _save_with_tf1(folder / "bert_model.ckpt", values, version)
  else:
    checkpoints.write(str(folder), values)
  (folder / "checkpoint").unlink(missing_ok=True)  # No archive has it.
  return values


def _save_with_tf1(prefix, values, version):
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    for name, value in values.items():
      tf.compat.v1.get_variable(name, initializer=value)
    session.run(tf.compat.v1.global_variables_initializer())
    saver = tf.compat.v1.train.Saver(write_version=version)
    saver.save(session, str(prefix), write_state=False)
