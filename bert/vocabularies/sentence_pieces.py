"""SentencePiece models: pieces of whole texts, spaces included.

Kudo & Richardson, https://arxiv.org/abs/1808.06226. A piece that begins with
the mark U+2581 begins a word.
"""

from collections.abc import Iterable
import functools
import importlib
import io
import itertools
from typing import Any

from bert import tokenization
from bert.data import files, imports, text_files
from bert.vocabularies import vocabulary_table

SPECIAL = vocabulary_table.SPECIAL
# Part of the text that the characters of a vocabulary cover. The rarest, many
# of them Chinese, are [UNK].
CHARACTER_COVERAGE = 0.9999
# Behind the bytes of a model, this makes one that puts no mark before a text:
# ModelProto.normalizer_spec.add_dummy_prefix = false, which protobuf merges.
NO_MARK = b"\x1a\x02\x18\x00"

# The library joins unknown characters that follow each other by copying all of
# them for each; so a run of them is given to it in parts of about this length.
_LONGEST_RUN = 4096
_TRIES = 16  # Places to look at for the end of a part.


def _import_library():
  return imports.load("sentencepiece", "models of SentencePiece")


def _open(path: str, suffix: bytes = b""):
  with files.open_bytes(path) as file:
    content = file.read()
  try:
    return _load(content + suffix)
  except RuntimeError:
    raise ValueError(f"{path}: not a SentencePiece model") from None


@functools.lru_cache(4)  # By content: a file may be replaced.
def _load(content: bytes):
  model = _import_library().SentencePieceProcessor()
  model.LoadFromSerializedProto(content)
  return model


def load_vocab(path: str) -> dict[str, int]:
  """Returns the ids of a model's pieces; a ValueError if it is not for BERT."""
  # Models of other makers name the unknown and the padding piece otherwise:
  # they get our names in addition.
  model = _open(path)
  vocab = {model.IdToPiece(i): i for i in range(model.GetPieceSize())}
  vocab.setdefault("[UNK]", model.unk_id())
  if model.pad_id() >= 0:
    vocab.setdefault("[PAD]", model.pad_id())
  missing = [token for token in SPECIAL if token not in vocab]
  if missing:
    raise ValueError(
      f"{path}: no piece {', '.join(missing)} among its {len(vocab)}; "
      "create_vocab.py --model=unigram makes a model with them"
    )
  return vocab


def learn(paths: Iterable[str], settings: Any) -> int:
  """Writes the model of `train`; returns how many pieces it has."""
  files.write_bytes(settings.output_file, train(paths, settings))
  return len(load_vocab(settings.output_file))


def train(paths: Iterable[str], settings: Any) -> bytes:
  """Trains a "unigram" or "bpe" model on text; returns its file's contents.

  Args:
    paths: the files of text.
    settings: the flags of create_vocab.py. No text is ever split into their
      reserved tokens.

  Raises:
    ValueError: the text is too small for the size, or cannot be read.
  """
  output = io.BytesIO()
  has_words = False
  # The first four are given by their ids below; these follow.
  reserved = [t for t in settings.reserved_tokens if t not in SPECIAL[:4]]

  # The trainer reads lines itself, and would hide what went wrong meanwhile.
  faults = []
  read = functools.partial(text_files.read, column=settings.text_column)

  def read_lines():
    nonlocal has_words
    try:
      for line in itertools.chain.from_iterable(map(read, paths)):
        # The library leaves out lines with a mark that it needs itself.
        line = line.replace("\u2585", " ")
        if line.replace(vocabulary_table.WORD_MARK, " ").strip():
          has_words = True
          yield line.lower() if settings.do_lower_case else line
    except (ValueError, OSError) as error:
      faults.append(error)
      raise

  try:
    _import_library().SentencePieceTrainer.Train(
      sentence_iterator=read_lines(),
      model_writer=output,
      model_type=settings.model,
      vocab_size=settings.vocab_size,
      hard_vocab_limit=False,
      character_coverage=CHARACTER_COVERAGE,
      max_sentence_length=1 << 30,  # Bytes; it would skip longer lines.
      # The names of these pieces are ours, so that models find them.
      **{"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3},
      **{"pad_piece": "[PAD]", "unk_piece": "[UNK]"},
      **{"bos_piece": "[CLS]", "eos_piece": "[SEP]"},
      control_symbols=reserved,
      minloglevel=2,
    )
  except (RuntimeError, OSError, SystemError) as error:  # Also of `read_lines`.
    if faults:
      raise faults[0] from None
    if not has_words:
      raise ValueError("--input_file: it holds no words") from None

    # Without a place in the library, and advice that is of no use here.
    reason = str(error).splitlines()[-1].rpartition("] ")[2]
    reason = reason.partition(" or decrease")[0]
    raise ValueError(f"--vocab_size={settings.vocab_size}: {reason}") from None
  return output.getvalue()


class Tokenizer(tokenization.FullTokenizer):
  """Turns text into the pieces and ids of a model; see `FullTokenizer`.

  Lower-casing keeps accents. Text right after a kept token, without a space,
  continues its word and gets no mark, as in training, where the token replaces
  a piece.
  """

  def __init__(self, vocab_file, do_lower_case=True, never_split=()):
    # The model puts the mark of a new word before a text; `_unmarked` does not.
    super().__init__(vocab_file, do_lower_case, never_split)
    self._model = _open(vocab_file)
    self._lower = str.lower if do_lower_case else str
    self._path = vocab_file

  @functools.cached_property
  def _unmarked(self):
    return _open(self._path, NO_MARK)

  def _read(self, vocab_file):
    return load_vocab(vocab_file), None  # It has no words to split.

  def continues_word(self, token: str) -> bool:
    """Returns whether a piece is inside a word, for whole-word masks."""
    begins = token.startswith(vocabulary_table.WORD_MARK)
    return not begins and token not in SPECIAL

  def join(self, tokens: Iterable[str]) -> str:
    """Returns words; punctuation, which is in other pieces, is one as well."""
    text = "".join(tokens).replace(vocabulary_table.WORD_MARK, " ")
    return " ".join(self.basic_tokenizer.tokenize(text))

  def tokenize(self, text: str | bytes) -> list[str]:
    """Splits text into pieces."""
    return self.convert_ids_to_tokens(self.encode(text))

  def encode(self, text: str | bytes) -> list[int]:
    """Returns the ids of the pieces of a text."""
    ids = []
    for model, _, part, continues_run in self._parts(
      tokenization.convert_to_unicode(text)
    ):
      if model:
        ids += model.EncodeAsIds(self._lower(part))[continues_run:]
      else:
        ids.append(self.vocab[part])
    return ids

  def tokenize_with_offsets(self, text: str) -> list[tokenization.SourceToken]:
    """Splits text into pieces and returns their places in it."""
    protos: Any = importlib.import_module("sentencepiece.sentencepiece_pb2")
    tokens = []
    for model, start, part, continues_run in self._parts(text):
      if not model:
        end = start + len(part)
        tokens.append(tokenization.SourceToken(part, start, end))
        continue

      # The model's places count bytes of UTF-8: byte i of the part was made of
      # the character `sources[i]` of the text.
      sources: list[int] = []
      for place, char in enumerate(part, start):
        sources += [place] * len(self._lower(char).encode())
      content = model.Encode(self._lower(part), out_type="serialized_proto")
      proto = protos.SentencePieceText.FromString(content)
      for piece in proto.pieces:
        # A piece covers the space before its word, which is no part of its
        # source. A piece of spaces alone has an empty source.
        places = sources[piece.begin : piece.end]
        inside = [i for i in places if not text[i].isspace()]
        if inside:
          first = inside[0]
          end = inside[-1] + 1
        else:
          first = end = sources[piece.begin] if sources else start

        # One [UNK] for a run of unknown characters that was cut.
        name = self.inv_vocab[piece.id]
        if continues_run:
          first = tokens.pop().start
          continues_run = False
        tokens.append(tokenization.SourceToken(name, first, end))
    return tokens

  def _parts(self, text: str):
    """Cuts a text into parts that are split into pieces one by one.

    Yields:
      The model that splits the part, None if it is a token of `never_split`;
      the place of its start in the text; the part; and whether it begins with
      the [UNK] in which the part before it ended.
    """
    start = 0
    for number, part in enumerate(
      self.basic_tokenizer.split_at_never_split(text)
    ):
      # Every second part is such a token. Text right after it, without a space,
      # continues its word and gets no mark.
      if number % 2:
        yield None, start, part, False
        start += len(part)
        continue
      continues = number and not part[:1].isspace()
      model = self._unmarked if continues else self._model

      # Only the first piece of several may get the mark.
      ends = [0, *self._cut_runs(part), len(part)]
      for first, end in itertools.pairwise(ends):
        yield model, start + first, part[first:end], first > 0
        model = self._unmarked
      start += len(part)

  def _cut_runs(self, text: str):
    """Yields places within long runs of unknown characters, far apart."""
    encode = self._unmarked.EncodeAsIds
    unknown = [self._model.unk_id()]
    end = 0
    while end + _LONGEST_RUN < len(text):
      end += _LONGEST_RUN
      for place in range(end, min(end + _TRIES, len(text))):
        around = self._lower(text[place - 2 : place + 2])
        # Together, and none of them alone is known, or nothing, as a space is.
        if all(encode(part) == unknown for part in (around, *around)):
          yield place
          end = place
          break
