"""The one door for models: the files of a folder, whoever wrote them.

A program asks it once: about a Google release, the --output_dir of a training,
or a model of another library. The rest of the code sees only a
`bert.convert.models.ModelFolder`:

  settings = model_folder.find_files(TaggingSettings.read())
  weights = settings.open_model().weights
"""

from collections.abc import Iterable, Mapping
import dataclasses
import functools
import os
from typing import TYPE_CHECKING, Any, TypeVar

from bert import tokenization
from bert.cli import inference_settings, shared_flags
from bert.convert import tokenizer_files
from bert.data import file_search, files, hub, progress
from bert.vocabularies import vocabulary_table

if TYPE_CHECKING:  # They load TensorFlow.
  from bert import modeling
  from bert.convert import models

_Settings = TypeVar("_Settings", bound=shared_flags.StartSettings)
_Casing = tuple[bool, str]  # do_lower_case, and the file that says it.
_Kind = tuple[vocabulary_table.VocabularyKind, str]
# The vocab_size of a new model may be rounded up to a multiple of this.
_ROUNDED_TO = 128
# Files of Hugging Face that may add tokens to those of vocab.txt.
_ADDING = ("added_tokens.json", "tokenizer.json")


def open_model(
  path: str, bert_config_file: str | None = None
) -> "models.ModelFolder":
  """Opens a checkpoint or another library's model.

  A program with settings calls `settings.open_model()`, which does this once.
  A ValueError says that there is no model, a file is damaged, or the config is
  not that of the weights.

  Args:
    path: as --init_checkpoint; `find_weights` makes it of a --model.
    bert_config_file: read instead of the config beside the weights; or None.
  """
  from bert.convert import formats  # Slow: TensorFlow.

  file_search.refuse_pipes(path)
  return formats.open_model(path, bert_config_file)


def make_encoder(
  folder: "models.ModelFolder", dtype: str | None = None, name: str = "bert"
) -> "tuple[modeling.BertModel, list[str]]":
  """Makes the encoder of a model; names the weights it lacks.

  Args:
    folder: the opened model.
    dtype: a Keras dtype policy; None for the global one.
    name: the layer's. Checkpoints call the encoder "bert" whatever its name.
  """
  from bert.encoders import encoder_table  # Slow: TensorFlow.
  from bert.weights import checkpoints

  if not folder.config:
    raise ValueError(f"{folder.folders[0]}: holds no bert_config.json: add it")

  with checkpoints.values_follow():
    encoder = encoder_table.make_encoder(folder.config, dtype, name)
  variables = {
    "bert" + variable.path.removeprefix(name): variable.value
    for variable in encoder.variables
  }
  assigned = checkpoints.assign(
    folder.weights, variables, checkpoints.is_above_layers
  )
  return encoder, assigned.missing


def find_files(settings: _Settings) -> _Settings:
  """Returns settings with the files and the casing of --model.

  Their `open_model` opens the model, at its first call. A ValueError says that
  a file is missing, or that --do_lower_case or --strip_accents contradicts the
  model or its name.
  """
  if settings.model:
    settings = _with_files(settings, settings.model)

  # What opens the model loads TensorFlow, so it waits until somebody asks.
  path = settings.init_checkpoint or settings.folder or ""
  opener = functools.partial(open_model, path, settings.bert_config_file)
  settings = dataclasses.replace(settings, open_model=functools.cache(opener))

  if "do_lower_case" in settings.flags_by_name():
    settings = _with_casing(settings)
  settings = with_kind(settings)
  if "vocab_file" in settings.given:
    _check_is_of_weights(settings.flag_values()["vocab_file"], path)
  return settings


def _check_is_of_weights(vocab_file: str, weights: str) -> None:
  """Refuses a vocabulary that is another one than that beside the weights.

  Each row of the embeddings has learned what its token means. New tokens may
  take the place of [unusedN], or follow the last one.
  """
  folders = folders_of(weights) if weights else []
  own_file = vocabulary_table.find(folders)
  given_in = os.path.realpath(os.path.dirname(vocab_file))
  if given_in in map(os.path.realpath, folders):
    return  # One of several that were put there.
  if not own_file:
    return
  if vocabulary_table.digest(own_file) == vocabulary_table.digest(vocab_file):
    return
  flag = f"--vocab_file={vocabulary_table.source_of(vocab_file)}"

  # One list of tokens may be of several kinds, and a vocab.txt of any of them.
  kind = vocabulary_table.kind_of(own_file)
  is_plain = kind is vocabulary_table.WORD_PIECES
  if not is_plain and kind is not vocabulary_table.kind_of(vocab_file):
    raise ValueError(
      f"{flag}: not a {kind.name}, as {own_file} beside the weights: pass "
      "those of one model"
    )

  given = vocabulary_table.load_vocab(vocab_file)
  for token, number in vocabulary_table.load_vocab(own_file).items():
    if given.get(token) != number and vocabulary_table.has_meaning(token):
      found = {id_: other for other, id_ in given.items()}.get(number)
      raise ValueError(
        f"{flag}: has {found!r:.80} as the id {number}, and {own_file}, beside "
        f"the weights, {token!r:.80}: pass those of one model"
      )


def folders_of(weights: str) -> list[str]:
  """Returns the folder of weights; for the best of a run, its own folder, too.

  Args:
    weights: as --init_checkpoint: a folder, a prefix, or a file.
  """
  folder = weights
  if ".ckpt" in os.path.basename(weights) or os.path.isfile(weights):
    folder = os.path.dirname(weights) or "."
  return [folder, *files.above(folder, "best")]


def _with_files(settings: _Settings, model: str) -> _Settings:
  """Returns settings with --model's files for the flags that are not given."""
  values = settings.flag_values()
  folder = find_folder(model, getattr(settings, "run_dirs", ()))
  files_of_model = {
    name: find(folder)
    for name, find in _FINDERS.items()
    if name in values and not values[name]
  }
  return dataclasses.replace(
    settings, model=hub.name_of(folder), folder=folder, **files_of_model
  )


def _with_casing(settings: _Settings) -> _Settings:
  """Returns settings with the casing of the model, if anything shows it."""
  do_lower_case = settings.flag_values()["do_lower_case"]
  casing = _find_casing(settings)
  if casing and casing[0] != do_lower_case:
    do_lower_case, source = casing
    if "do_lower_case" in settings.given:
      raise ValueError(
        f"--do_lower_case={str(not do_lower_case).lower()}: {source} says "
        f"{str(do_lower_case).lower()}: leave out the flag"
      )
    value = str(do_lower_case).lower()
    progress.note(f"--do_lower_case={value}, as {source} says")
    changed = {"do_lower_case": do_lower_case}
    settings = dataclasses.replace(settings, **changed)

  # The names of Google's releases say their casing, as the original checks.
  tokenization.validate_case_matches_checkpoint(
    do_lower_case, settings.init_checkpoint
  )
  return settings


def with_kind(settings: _Settings) -> _Settings:
  """Returns settings with a vocabulary of the kind that the model asks for.

  Its file's name says how texts become words. A vocab.txt may be of several
  kinds: files of the model's tokenizer say which, or --strip_accents.
  """
  values = settings.flag_values()
  if not (vocab_file := values["vocab_file"]):
    if settings.strip_accents is not None:
      value = str(settings.strip_accents).lower()
      raise ValueError(
        f"--strip_accents={value} says how texts become tokens of a "
        "vocabulary, and no vocabulary is given: pass --vocab_file too"
      )
    return settings

  # A vocab.txt may be of several kinds. The flag, as all that a user states,
  # must not contradict the model.
  asked = tokenizer_files.find_kind(vocab_file, _folders(settings))
  lower = values.get("do_lower_case", True)
  strips = settings.strip_accents
  kind = vocabulary_table.choose_kind(vocab_file, asked, lower, strips)
  if asked and kind is asked[0]:
    progress.note(f"words are split as {asked[1]} says, not as by the original")

  # All programs know the kind of a vocabulary by its ending.
  if kind is not vocabulary_table.kind_of(vocab_file):
    changed = {"vocab_file": vocabulary_table.copy_as(vocab_file, kind)}
    settings = dataclasses.replace(settings, **changed)
  return settings


def find_folder(model: str, run_dirs: Iterable[str] = ()) -> str:
  """Returns the folder of --model, which is fetched if it is of the Hub.

  A name without a revision means the commit with which a run began.

  Args:
    model: a local folder, or a name of the Hub, maybe with a commit:
      owner/name or owner/name@commit.
    run_dirs: where the run may have begun.
  """
  # A run must not change its weights because the model's owner does.
  if not files.exists(model):
    for folder in filter(None, run_dirs):
      path = os.path.join(folder, hub.RECORD)
      begun = str(files.read_json_if_any(path).get("model"))
      if begun.partition("@")[0] == model:
        progress.note(f"--model={begun}, as {path} says")
        model = begun

  folder = hub.find(model, "--model=")
  if not files.exists(folder):
    raise ValueError(
      f"--model={folder}: {file_search.describe_missing(folder)}; expected a "
      "folder that was downloaded or trained here (names of the Hugging Face "
      "Hub have an owner: google-bert/bert-base-uncased)"
    )
  file_search.refuse_pipes(folder)
  return folder


def record_commit(settings: shared_flags.ModelSettings) -> None:
  """Writes which model of the Hub a run began with; a ValueError if another."""
  name = settings.model
  path = os.path.join(settings.output_dir, hub.RECORD)

  # A local folder has no commit to keep.
  if not settings.folder or name == settings.folder:
    return
  begun = files.read_json_if_any(path).get("model", name)
  if begun != name:
    raise ValueError(
      f"--model={name}: {path} says that the run began with {begun}: pass "
      "that, or choose another --output_dir"
    )
  files.write_json(path, {"model": name})


def _find_config(folder: str) -> str | None:
  """Returns the config of a BERT; those of others are read with the weights."""
  for name in ("bert_config.json", "config.json"):
    path = os.path.join(folder, name)
    if files.exists(path):
      contents = files.read_json(path)
      is_keras_hub = "class_name" in contents
      if not is_keras_hub and contents.get("model_type", "bert") == "bert":
        return path
  return None


def _find_vocab_file(folder: str) -> str:
  """Returns the vocabulary; a ValueError if it is missing, or not whole.

  That of a training must be the one that it was trained with.
  """
  vocab_file = tokenizer_files.find_vocabulary(
    [
      folder,
      os.path.join(folder, "assets"),  # A SavedModel's.
      os.path.join(folder, "assets", "tokenizer"),  # KerasHub's.
    ]
  )
  if not vocab_file:
    raise ValueError(
      f"--model={folder}: holds no {vocabulary_table.NAMES[0]}: pass "
      f"--vocab_file; {file_search.describe_missing(folder)}"
    )
  tokenizer_files.check_of_training(folder, vocab_file)

  # In Hugging Face's folders, tokens that were added later stand in another
  # file: read by vocab.txt alone, the model's last rows would have no token.
  may_add = any(files.exists(os.path.join(folder, name)) for name in _ADDING)
  if may_add and vocab_file == os.path.join(folder, "vocab.txt"):
    tokens = tokenizer_files.read_vocabulary(folder)
    if added := tokens[vocabulary_table.size_of(vocab_file) :]:
      raise ValueError(
        f"{vocab_file}: lacks the token {added[0]!r} that was added later ("
        f"{len(added)} in all): `python convert_checkpoint.py --input={folder} "
        "--output=...` writes one vocabulary of all"
      )
  return vocab_file


def find_weights(folder: str) -> str:
  """Returns what --init_checkpoint is for --model: the best weights, if any."""
  best = os.path.join(folder, "best")
  return best if files.exists(os.path.join(best, "checkpoint")) else folder


# What --model stands for, if it is not given, and what finds it in the folder.
_FINDERS = {
  "bert_config_file": _find_config,
  "vocab_file": _find_vocab_file,
  "init_checkpoint": find_weights,
}


def _find_casing(settings: shared_flags.StartSettings) -> _Casing | None:
  """Returns the casing of a model, and the file next to it that says it."""
  for folder in _folders(settings):
    casing = tokenizer_files.read_casing(folder)
    if not casing and folder == settings.folder:
      casing = _guess_casing(settings)
    if casing:
      return casing
  return None


def _folders(settings: shared_flags.StartSettings) -> list[str]:
  """Returns where files beside a model may be: the first to say it counts."""
  # --model_dir is a flag of export_saved_model.py.
  values = settings.flag_values()
  paths = [settings.folder, *map(values.get, ("model_dir", *_FINDERS))]

  # The paths themselves and the folders they are in: in this order, each once.
  folders = {}
  for path in map(vocabulary_table.source_of, filter(None, paths)):
    for folder in (path, os.path.dirname(path) or "."):
      folders |= dict.fromkeys([folder, *files.above(folder, "best")])
  return list(folders)


def write_casing(settings: shared_flags.ModelSettings) -> None:
  """Writes the casing that files beside a model state, to --output_dir.

  A pre-training has no such flag, and no settings.json. Without this, the
  programs that take the folder as --model would look at its vocabulary alone.
  """
  vocab_file = settings.flag_values()["vocab_file"]
  if vocab_file and (casing := _find_casing(settings)):
    tokenizer_files.write_casing(
      settings.output_dir,
      vocabulary_table.load_vocab(vocab_file),
      vocabulary_table.kind_of(vocab_file),
      casing[0],
    )


def _guess_casing(settings: shared_flags.StartSettings) -> _Casing | None:
  """Returns the casing that the weights or the vocabulary of a model show.

  What a vocabulary looks like is no statement: the user's own counts instead.
  """
  folder = settings.folder or ""
  vocab_file = settings.flag_values()["vocab_file"]  # Given, or in the folder.

  # A SavedModel of TF-Hub holds the casing as a variable beside its weights.
  if vocab_file == os.path.join(folder, "assets", "vocab.txt"):
    has_other_weights = "init_checkpoint" in settings.given
    model = open_model(folder) if has_other_weights else settings.open_model()
    if model.do_lower_case is not None:
      return model.do_lower_case, folder

  # Who says what happens to accents says that text is lower-cased. Tokens with
  # accents would look cased.
  if settings.given & {"do_lower_case", "strip_accents"}:
    return None
  lower = vocabulary_table.looks_lower(
    vocabulary_table.load_vocab(vocab_file),
    vocabulary_table.kind_of(vocab_file),
  )
  if lower is None:
    return None
  return lower, f"a guess by the tokens of {vocab_file}"


def read_dense(stated: Mapping[str, Any]) -> Any:
  """Reads the layer that `sbert_files.read` states: a `heads.VectorDense`."""
  from bert.convert import formats  # Slow: TensorFlow.

  return formats.read_dense(stated)


def read_config(
  settings: shared_flags.StartSettings,
) -> "modeling.EncoderConfig":
  """Reads the config of --bert_config_file, or of the weights of --model."""
  if settings.bert_config_file:
    from bert.convert import formats  # Slow: TensorFlow.

    return formats.read_config(settings.bert_config_file)

  model = settings.open_model()
  if not model.config:
    raise ValueError(
      f"--model={settings.model}: holds no bert_config.json: pass "
      "--bert_config_file"
    )
  # Not every library writes down all that a config has.
  for field in model.assumed:
    value = getattr(model.config, field)
    progress.note(f"not in {settings.model}, taken: {field}={value!r}")
  return model.config


def read_checked_config(
  settings: inference_settings.InferenceSettings
  | shared_flags.FineTuningSettings,
) -> "modeling.EncoderConfig":
  """Reads the config; compares vocabulary and lengths with it."""
  config = read_config(settings)
  check_vocabulary(settings.vocab_file, config)
  check_length(settings.max_seq_length, config)
  return config


def check_length(max_seq_length: int, config: "modeling.EncoderConfig") -> None:
  """Raises a ValueError if a model has fewer positions than the tokens."""
  if max_seq_length > config.max_position_embeddings:
    raise ValueError(
      f"--max_seq_length={max_seq_length} is above the config's "
      f"max_position_embeddings of {config.max_position_embeddings}"
    )


def check_vocabulary(path: str, config: "modeling.EncoderConfig") -> None:
  """Raises a ValueError if a vocabulary has more tokens than a model rows."""
  vocab = vocabulary_table.load_vocab(path)
  rows = config.vocab_size
  size = max(vocab.values()) + 1
  if size > rows:
    raise ValueError(
      f"--vocab_file={path} has {size} tokens, the vocab_size of the model's "
      f"config is {rows}: they are of different models; pass those of one"
    )

  missing = rows - len(vocabulary_table.ids_of_tokens(vocab))
  if missing >= _ROUNDED_TO:
    _note_rows_without_token(path, missing, rows)


@functools.cache  # Tasks and seeds of one program may share a model.
def _note_rows_without_token(path: str, missing: int, rows: int) -> None:
  """Says that a table is longer than a rounded size explains.

  Tables of some released models are longer by a thousand rows. That is no
  fault, but it may also be the sign of another model's vocabulary.
  """
  progress.note(
    f"note: {missing:,} of the model's {rows:,} rows of embeddings have no "
    f"token in {path}"
  )


def fit_vocabulary(settings, config):
  """Sets the vocab_size of a config to pre-train to that of --vocab_file."""
  if not settings.vocab_file:
    return config
  size = vocabulary_table.size_of(settings.vocab_file)

  # The table of trained weights has its size already.
  if settings.init_checkpoint:
    check_vocabulary(settings.vocab_file, config)
    return config

  # A table that is a little longer may be the user's choice.
  if size <= config.vocab_size < size + _ROUNDED_TO:
    return config
  print(
    f"vocab_size: {size}, the tokens of {settings.vocab_file}, instead of the "
    f"{config.vocab_size} of {settings.bert_config_file}"
  )
  return dataclasses.replace(config, vocab_size=size)


def read_statements(vocab_file: str) -> tuple[_Casing | None, _Kind | None]:
  """Returns what files beside a vocabulary say of casing and accents."""
  folder = os.path.dirname(vocab_file)
  casing = tokenizer_files.read_casing(folder)
  return casing, tokenizer_files.read_kind(folder)
