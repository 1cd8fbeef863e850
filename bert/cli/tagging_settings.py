"""The settings of run_tagging.py, and how they read its files."""

import dataclasses

from bert.cli import shared_flags, trained_columns, typed_flags
from bert.data import remote
from bert.tasks import tagging, tagging_json, tagging_schemes

ENDINGS = (".txt", ".conll", ".tsv", ".bio", ".bmes", ".jsonl")

_data = typed_flags.group("Data")
_task = typed_flags.group("Task")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggingSettings(shared_flags.DataSettings):
  """The settings of run_tagging.py."""

  token_column: int = _data(0, "The column of the word, from 0.", least=0)
  tag_column: int = _data(
    -1,
    "The column of the tag, from 0; -1 is the last. A file to predict may lack "
    "it.",
    least=-1,
  )
  tag_scheme: str = _data(
    "auto",
    "How the tags mark entities. auto detects it in each file. none: the tags "
    "do not mark entities, for example parts of speech; words are scored "
    "instead.",
    choices=("auto", *tagging_schemes.SCHEMES, tagging_schemes.NO_SCHEME),
  )
  # No `decides`: they are a part of the `source` of a set, and so of its key.
  labels: tuple[str, ...] = _data(
    (),
    "The names of the tags, by their numbers from 0, for JSON Lines that have "
    "numbers.",
  )
  document_context: bool = _task(
    False,
    "Whether to fill up inputs with the neighbouring sentences of the "
    "document.",
    decides=("features", "answers"),
  )

  def check(self) -> None:
    """Refuses columns that files do not have, too."""
    super().check()

    # The first sentence of each file shows a wrong column before TensorFlow is
    # imported, which takes seconds and which only remote paths need here.
    # Without a scheme, because to detect one would read the whole file.
    paths = shared_flags.find_data_files(self, ENDINGS)
    if self.labels and not any(map(tagging_json.is_json, paths.values())):
      raise ValueError(
        f"--labels={','.join(self.labels)}: only JSON Lines have numbers for "
        "tags; leave it out"
      )
    for kind, path in paths.items():
      if not remote.is_remote(path):
        source = self.inspect_file(kind, path, tagging_schemes.NO_SCHEME)
        next(tagging.read_sentences(source))

  def inspect_file(self, kind: str, path: str, scheme: str) -> tagging.Source:
    """Finds out how a file is to be read, with the columns of the flags.

    Args:
      kind: "train", "eval" or "predict", which may lack tags.
      path: the file.
      scheme: of the tags; "auto" reads the file to detect it.
    """
    source = tagging.inspect_file(
      path,
      self.token_column,
      self.tag_column,
      scheme,
      needs_tags=kind != "predict",
      names=self.labels,
    )
    first = tagging.read_first(source)
    trained_columns.check(self, path, first, source.columns)
    return source
