"""The teacher of run_distillation.py: loaded, and compared with who learns.

teacher = relation_teacher.load(settings, config)
run.make_model(teacher.make_student, predict, teacher=teacher.lesson)
run.train(teacher.add_to(loss), teacher.forward, teacher.memory)
"""

import math
from typing import NamedTuple

import tensorflow as tf

from bert import heads, modeling
from bert.cli import model_folder
from bert.contrib import distillation_settings, relations
from bert.convert import tokenizer_files
from bert.data import hub
from bert.inputs import records
from bert.training import memory, same_run, training_plan
from bert.vocabularies import vocabulary_table


class Outputs(NamedTuple):
  """What the teacher and the student compute of the same tokens."""

  guesses: heads.PretrainingOutput | None  # None: no words are masked.
  # Queries, keys and values of the last layer, each [B, S, its H].
  theirs: list[tf.Tensor]
  ours: list[tf.Tensor]
  # Vectors of sequences, each float32 [B, the teacher's H], if learned.
  vectors: tuple[tf.Tensor, tf.Tensor] | None


class Teacher(NamedTuple):
  """A BERT that runs in every update, and what is learned from it."""

  encoder: modeling.BertModel
  num_heads: int  # Relation heads.
  guesses_words: bool  # Whether masked words are learned as well.
  with_vectors: bool  # Whether its vectors of sequences are, too.

  @property
  def lesson(self) -> list[str]:
    """What a resumed run must have the same; training.json keeps it."""
    variables = {v.path: v.value for v in self.encoder.variables}
    return [
      same_run.digest_of_values(variables),
      f"{self.num_heads} heads",
      f"alone={not self.guesses_words}",
      f"with_vectors={self.with_vectors}",
    ]

  def make_student(
    self, config: modeling.EncoderConfig, dtype: str
  ) -> heads.PretrainingModel:
    """Makes the model that learns."""
    if not self.with_vectors:
      return heads.PretrainingModel(config, dtype)
    size = self.encoder.config.hidden_size
    return relations.VectorModel(config, dtype, teacher_size=size)

  def forward(self, model, features, seed) -> Outputs:
    """Calls the student and the teacher; a `prediction.Forward`."""
    # The teacher gets no seed: without dropout it says the same of a text
    # every time.
    inputs = [features[name] for name in records.INPUT_NAMES]
    ours = model.bert(*inputs, seed, return_hidden_states=True)
    theirs = self.encoder(*inputs, return_hidden_states=True)

    guesses = None
    if self.guesses_words:
      guesses = model.guess(ours, features["masked_lm_positions"])

    # Vectors can only be compared at one width: the student's are projected to
    # the teacher's.
    vectors = None
    if self.with_vectors:
      mask = features["input_mask"]
      our_vectors = relations.pool(ours.sequence_output, mask)
      their_vectors = relations.pool(theirs.sequence_output, mask)
      projected = tf.matmul(our_vectors, model.projection.value)
      vectors = their_vectors, projected

    return Outputs(
      guesses,
      relations.project_last(self.encoder, theirs.hidden_states),
      relations.project_last(model.bert, ours.hidden_states),
      vectors,
    )

  def add_to(self, loss: training_plan.Loss) -> training_plan.Loss:
    """Adds what is learned from the teacher to the loss of guessed words."""

    def add(outputs, features):
      mask = features["input_mask"]
      count = tf.cast(tf.shape(mask)[0], tf.float32)
      losses = loss(outputs.guesses, features) if self.guesses_words else {}

      # Sums, and the rows by which the step divides them: each row counts once.
      divergences = relations.relation_loss(
        outputs.theirs, outputs.ours, mask, self.num_heads
      )
      losses["relation_loss"] = tf.reduce_sum(divergences), count
      if self.with_vectors:
        distances = relations.vector_loss(*outputs.vectors)
        losses["vector_loss"] = tf.reduce_sum(distances), count
      return losses

    return add

  def memory(self, size: memory.UpdateSize, replicas: int) -> float:
    """Estimates the bytes that the teacher takes in updates of a size.

    These are its weights and working values, and for the relations that are
    compared 48 bytes of each pair of tokens and head.
    """
    # A forward pass alone: no gradients, no moments, no guesses of words.
    alone = size._replace(
      parameters=self.encoder.count_params(),
      trained=0,
      trained_layers=0,
      predictions=0,
      recompute=False,
    )

    # The runtime is in the student's estimate already.
    config = self.encoder.config
    pairs = size.sequences * size.length**2 * config.num_attention_heads
    needed = memory.estimate(config, alone, replicas) - memory.RUNTIME
    return needed + replicas * 48 * pairs


def load(
  settings: distillation_settings.DistillationSettings,
  config: modeling.EncoderConfig,
) -> Teacher:
  """Loads --teacher for a model of a config.

  Args:
    settings: say what is learned.
    config: of the model that learns.

  Returns the teacher. A ValueError says that it cannot be loaded, or that the
  two cannot be compared.
  """
  path = model_folder.find_weights(hub.find(settings.teacher, "--teacher="))
  folder = model_folder.open_model(path)
  encoder, _ = model_folder.make_encoder(folder, settings.compute_dtype)
  encoder.trainable = False

  # Relations are compared token by token: both must cut a text alike. A folder
  # of transformers 5 has its vocabulary in tokenizer.json alone.
  theirs = folder.vocab_file or tokenizer_files.find_vocabulary(folder.folders)
  vocab, their_vocab = (
    name and vocabulary_table.make_tokenizer(name).vocab
    for name in (settings.vocab_file, theirs)
  )
  if not vocab or vocab != their_vocab:
    raise ValueError(
      f"--teacher={path}: its vocabulary is {theirs}; expected the same tokens "
      f"as in --vocab_file={settings.vocab_file}"
    )
  return Teacher(
    encoder,
    num_heads=_choose_heads(settings, config, encoder.config),
    guesses_words=not settings.teacher_only,
    with_vectors=settings.teacher_vectors,
  )


def _choose_heads(
  settings: distillation_settings.DistillationSettings,
  ours: modeling.EncoderConfig,
  theirs: modeling.EncoderConfig,
) -> int:
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

  # Queries, keys and values of both are cut anew, into equally many parts.
  size = math.gcd(theirs.hidden_size, ours.hidden_size)
  counts = range(1, theirs.num_attention_heads + 1)
  num_heads = settings.relation_heads or max(n for n in counts if not size % n)
  if size % num_heads:
    raise ValueError(
      f"--relation_heads={num_heads} does not divide {theirs.hidden_size} and "
      f"{ours.hidden_size}, the teacher's hidden_size and the model's"
    )
  return num_heads
