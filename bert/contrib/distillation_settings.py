"""Settings of run_distillation.py.

They are apart from the program's functions and import no TensorFlow, which
takes seconds: --help and wrong flags do not wait for it.
"""

import dataclasses

from bert.cli import pretraining, typed_flags

_training = typed_flags.group("Training")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillationSettings(pretraining.PretrainingSettings):
  """The settings of run_distillation.py: of a pre-training, and a teacher."""

  # Any BERT of the same vocabulary can be the teacher, because relations
  # between tokens are compared and not the tokens' vectors, which would have to
  # be of the same size.
  teacher: str = _training(
    typed_flags.REQUIRED,
    "A trained BERT with the same vocabulary: a folder, or a name on the "
    "Hugging Face Hub. The model also learns how the teacher's tokens relate "
    "to each other (MiniLM).",
    path="model",
  )
  # What is learned from it, and what besides.
  teacher_only: bool = _training(
    False,
    "Whether to learn from the teacher alone. Records of --masks=false are "
    "then read without masking them.",
  )
  teacher_vectors: bool = _training(
    False,
    "Whether to learn the teacher's vectors of whole sequences as well: the "
    "mean of its last layer. For a teacher that was trained to make sentence "
    "vectors.",
  )
  # Teacher and student may have other numbers of heads and other sizes, so both
  # are split anew, into the same number (section 3 of MiniLM v2).
  relation_heads: int | None = _training(
    None,
    "The number of heads in which the relations are compared. Default: the "
    "largest number, at most the teacher's number of heads, that divides the "
    "hidden size of both models.",
    least=1,
  )

  def check(self) -> None:
    """Refuses masks and scores of words that are not guessed, too."""
    # With the teacher alone, the model sees whole texts: nothing is masked, and
    # there is no loss of masked words to report.
    if self.teacher_only and self.dynamic_masking:
      raise ValueError(
        "--teacher_only=true masks no words: no --dynamic_masking"
      )
    if self.teacher_only and (self.do_eval or self.eval_every_steps):
      raise ValueError("--teacher_only=true: it guesses no words to evaluate")
    super().check()
