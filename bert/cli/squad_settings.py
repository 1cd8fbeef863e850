"""The settings of run_squad.py, and what they mean together."""

import dataclasses
import itertools
import os

from bert.cli import shared_flags, typed_flags
from bert.data import remote, tables
from bert.tasks import squad, squad_answers, squad_features, squad_results
from bert.vocabularies import vocabulary_table

# The groups under which --help lists the flags.
_data = typed_flags.group("Data")
_answers = typed_flags.group("Evaluation and prediction")


def check_whole_words(vocab_file: str) -> None:
  """Raises a ValueError if a vocabulary does not say where words begin."""
  if vocabulary_table.kind_of(vocab_file).marks_words:
    raise ValueError(
      f"--whole_word_answers needs a vocab.txt, not {vocab_file}: only its "
      "pieces say that they continue a word"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadSettings(
  shared_flags.SplitSettings, shared_flags.FineTuningSettings
):
  """The settings of run_squad.py."""

  # The files, and how a question and its text become windows.
  max_seq_length: int = _data(
    384,
    "The maximum number of tokens of an input: question and window of the "
    "text.",
    least=3,
  )
  train_file: str | None = _data(
    None, "The questions to train on: SQuAD's JSON, or JSON Lines.", path="file"
  )
  predict_file: str | None = _data(
    None,
    "The questions to answer: SQuAD's JSON, JSON Lines, or TSV with id, "
    "question and context. If the file has the answers, the predictions are "
    "scored.",
    path="file",
  )
  eval_file: str | None = _data(
    None,
    "The questions to evaluate and to tune the threshold on. Default: "
    "--predict_file.",
    path="file",
  )
  doc_stride: int = _data(
    128,
    "A long text is read in windows. The number of tokens from the start of "
    "one window to the start of the next.",
    least=1,
    decides=("features", "answers"),
  )
  max_query_length: int = _data(
    64,
    "The maximum number of tokens of a question. Longer questions are "
    "truncated.",
    least=1,
    decides=("features", "answers"),
  )
  num_processes: int = _data(
    os.cpu_count() or 1, "How many processes make the features.", least=1
  )

  # SQuAD v2.0: the answer to a question without one is [CLS] (the paper's
  # section 4.3).
  version_2_with_negative: bool = _data(
    False,
    "Whether some questions have no answer, as in SQuAD v2.0.",
    decides=("features", "answers"),
  )
  padding_competes: bool = _data(
    True,
    "Whether padding can start or end an answer, also in the loss, as in the "
    "original. false pads a batch only to its longest window, which is faster.",
    decides=("model",),
  )

  # How answers are chosen from the scores of their first and last tokens.
  do_predict: bool = _answers(
    False, "Whether to answer the questions of --predict_file, after training."
  )
  n_best_size: int = _answers(
    20,
    "How many of the best start and end positions to combine, and how many "
    "answers to list.",
    least=1,
    decides=("answers",),
  )
  max_answer_length: int = _answers(
    30,
    "The maximum number of tokens of an answer.",
    least=1,
    decides=("answers",),
  )
  whole_word_answers: bool = _answers(
    False,
    "Whether to widen an answer to whole words. By default it ends where its "
    "tokens end, as in the original, which may be inside a word.",
    decides=("answers",),
  )

  # A string, since it is a number or "auto"; `threshold` and `asks_for_tuned`
  # read it.
  null_score_diff_threshold: str = _answers(
    "0.0",
    "A question gets no answer if the score of 'no answer' exceeds the score "
    "of the best answer by more than this number. 'auto': the number with the "
    "best F1 on --eval_file, or in an earlier evaluation.",
  )
  answer_units: str = _answers(
    "auto",
    "What F1 counts: words, as SQuAD does, or all characters, as KorQuAD does. "
    "auto decides by each text: words, but characters in Korean, Chinese, "
    "Japanese and Thai.",
    choices=("auto", "words", "characters"),
    # The best weights are found by comparing scores.
    decides=("training",),
  )
  verbose_logging: bool = _answers(
    False,
    "Whether to print a note if the words of an answer lack the text of its "
    "tokens.",
  )

  def check(self) -> None:
    """Refuses flags that contradict each other, too, and a missing file."""
    super().check()

    # A run that does not train takes the lengths from the training's folder,
    # which is read later.
    if self.do_train:
      squad_features.check_lengths(self.max_seq_length, self.max_query_length)

    # --eval_share splits --train_file, so it is needed without a training, too.
    splits = bool(self.eval_share)
    for name, path, is_asked in (
      ("train_file", self.train_file, self.do_train or splits),
      ("predict_file", self.predict_file, self.do_predict and not splits),
    ):
      if is_asked and not path:
        raise ValueError(f"--do_{name.removesuffix('_file')} needs --{name}")

    if self.evaluates_in_training and not self.scored_file:
      raise ValueError(
        "an evaluation while training needs --eval_file, or --predict_file"
      )

    # Without a training, flags that are not given become the training's, and
    # `check_answers` is called when they are known.
    squad_results.parse_threshold(self.null_score_diff_threshold)
    self._check_whole_words()
    if self.do_train:
      self.check_answers()

    # Last, since it reads files: a flag may be wrong more plainly.
    self._check_tables()

  def _check_whole_words(self) -> None:
    if self.whole_word_answers and self.vocab_file:
      check_whole_words(self.vocab_file)

  def check_answers(self) -> None:
    """Refuses ways to answer that the vocabulary or other flags rule out."""
    self._check_whole_words()
    if self.asks_for_tuned and not self.version_2_with_negative:
      raise ValueError(
        "--null_score_diff_threshold=auto needs --version_2_with_negative=true"
      )

    # Only for its ValueError, if there is no such score.
    self.choose_metric()

  def _check_tables(self) -> None:
    """Reads the first row of tables; JSON is one value, and may be long."""
    paths = (self.train_file, self.eval_file, self.predict_file)
    for path in itertools.filterfalse(remote.is_remote, filter(None, paths)):
      if tables.find_format(path) != "jsonl":
        next(squad.read_questions(path), None)

  @property
  def threshold(self) -> float:
    """The number of null_score_diff_threshold; 0 for auto."""
    return squad_results.parse_threshold(self.null_score_diff_threshold) or 0.0

  @property
  def asks_for_tuned(self) -> bool:
    """Whether null_score_diff_threshold is auto."""
    return squad_results.parse_threshold(self.null_score_diff_threshold) is None

  @property
  def pads_fully(self) -> bool:
    """Whether padding is part of every batch: it competes, or is asked for."""
    return self.pad_to_max_length or self.padding_competes

  @property
  def scored_file(self) -> str | None:
    """The file to evaluate and tune on, or whose held-out share to."""
    if self.eval_share:
      return self.train_file

    # In SQuAD one file, dev, is evaluated and predicted.
    return self.eval_file or self.predict_file

  def choose_metric(self, default: str = "f1") -> str:
    """Returns the name of the score that decides which weights are best."""
    # For the "best" scores the threshold of "no answer" is tuned on the file,
    # as SQuAD's own evaluation script does.
    names = ["exact_match", "f1"]
    if self.version_2_with_negative:
      names += ["best_exact_match", "best_f1"]
    return shared_flags.choose_metric(self.best_metric or default, names)

  def for_features(self) -> squad_features.SquadFeatureSettings:
    """Returns what shapes the features."""
    return squad_features.SquadFeatureSettings(**self.deciding("features"))

  def for_answers(self) -> squad_answers.AnswerSettings:
    """Returns how to choose answers."""
    return squad_answers.AnswerSettings(
      n_best_size=self.n_best_size,
      max_answer_length=self.max_answer_length,
      whole_word_answers=self.whole_word_answers,
      verbose_logging=self.verbose_logging,
      answer_units=self.answer_units,
    )
