"""Settings of run_distillation.py; they do not need TensorFlow."""

import dataclasses

from bert.cli import pretraining, typed_flags

_training = typed_flags.group("Training")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillationSettings(pretraining.PretrainingSettings):
  """The settings of run_distillation.py."""

  teacher: str = _training(
    typed_flags.REQUIRED,
    "A trained BERT of the same vocabulary, a folder or a name of the Hugging "
    "Face Hub, whose relations of tokens to learn as well (MiniLM).",
    path="model",
  )
  teacher_only: bool = _training(
    False,
    "Whether nothing else is learned; reads records of --masks=false without "
    "masking them.",
  )
  teacher_vectors: bool = _training(
    False,
    "Whether to learn the teacher's vectors of sequences too, means of the "
    "last layer; for one that was trained to make them.",
  )
  relation_heads: int | None = _training(
    None,
    "Heads to compare; default: as many of the teacher's as divide both sizes.",
    least=1,
  )

  def check(self) -> None:
    """Refuses masks and scores of words that are not guessed, too."""
    if self.teacher_only and self.dynamic_masking:
      raise ValueError(
        "--teacher_only=true masks no words: no --dynamic_masking"
      )
    if self.teacher_only and (self.do_eval or self.eval_every_steps):
      raise ValueError("--teacher_only=true: it guesses no words to evaluate")
    super().check()
