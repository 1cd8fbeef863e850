"""--teacher of run_pretraining.py: loaded, and compared with who learns."""

from collections.abc import Callable
import functools
import math
from typing import Any

from bert import heads, modeling
from bert.cli import model_folder, pretraining
from bert.data import hub
from bert.tasks import relations
from bert.training import prediction, same_run, training_plan
from bert.vocabularies import vocabulary_table


def open(
  settings: pretraining.PretrainingSettings,
  config: modeling.EncoderConfig,
  create_model: Callable[..., heads.PretrainingModel],
  loss: training_plan.Loss,
) -> tuple[
  Callable[..., heads.PretrainingModel],
  training_plan.Loss,
  prediction.Forward,
  Any,
  Any,
]:
  """Loads --teacher, if a training has one.

  Returns what makes the model, its losses, its forward pass, the teacher, and
  what a resumed run must have the same; without one the two that are given, the
  usual pass, and None twice. A ValueError says that it cannot be loaded or
  compared, or that flags contradict each other.
  """
  if not settings.teacher:
    return create_model, loss, heads.forward, None, None
  alone, with_vectors = settings.teacher_only, settings.teacher_vectors
  if alone and (settings.do_eval or settings.eval_every_steps):
    raise ValueError("--teacher_only=true: it guesses no words to evaluate")
  if not settings.do_train:
    return create_model, loss, heads.forward, None, None

  path = model_folder.find_weights(hub.find(settings.teacher, "--teacher="))
  folder = model_folder.open(path)
  teacher, _ = model_folder.make_encoder(folder, settings.compute_dtype)

  # Relations are compared token by token: both must cut a text alike. A folder
  # of transformers 5 has its vocabulary in tokenizer.json alone.
  vocab_file = folder.vocab_file
  vocab_file = vocab_file or model_folder.find_vocabulary(folder.folders)
  ours, theirs = (
    file and vocabulary_table.make_tokenizer(file).vocab
    for file in (settings.vocab_file, vocab_file)
  )
  if not ours or ours != theirs:
    raise ValueError(
      f"--teacher={path}: its vocabulary is {vocab_file}; expected the "
      f"same tokens as in --vocab_file={settings.vocab_file}"
    )

  num_heads = _choose_heads(settings, config, teacher.config)
  teacher.trainable = False
  if with_vectors:
    size = teacher.config.hidden_size
    create_model = functools.partial(relations.VectorModel, teacher_size=size)

  # A resumed run must learn the same lesson from the same weights.
  digest = same_run.digest_of_values(
    {v.path: v.value for v in teacher.variables}
  )
  return (
    create_model,
    relations.add_teacher(None if alone else loss, num_heads),
    relations.make_forward(teacher, guesses_words=not alone),
    teacher,
    [digest, f"{num_heads} heads", f"{alone=}", f"{with_vectors=}"],
  )


def _choose_heads(settings: Any, ours: Any, theirs: Any) -> int:
  """Returns --relation_heads; a ValueError if configs cannot be compared."""
  flag = f"--teacher={settings.teacher}"
  for name, config in (("the model", ours), (flag, theirs)):
    is_bert = isinstance(config, modeling.BertConfig)
    if not (is_bert and config.is_bidirectional):
      raise ValueError(f"{name} is no BERT, whose relations --teacher compares")
  if theirs.type_vocab_size < ours.type_vocab_size:
    raise ValueError(
      f"{flag}: its type_vocab_size is {theirs.type_vocab_size}, the model's "
      f"{ours.type_vocab_size}"
    )
  size = math.gcd(theirs.hidden_size, ours.hidden_size)
  counts = range(1, theirs.num_attention_heads + 1)
  num_heads = settings.relation_heads or max(n for n in counts if not size % n)
  if size % num_heads:
    raise ValueError(
      f"--relation_heads={num_heads} does not divide {theirs.hidden_size} and "
      f"{ours.hidden_size}, the teacher's hidden_size and the model's"
    )
  return num_heads
