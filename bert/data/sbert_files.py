"""The files of sentence-transformers (SBERT), which say how vectors are made.

Every key of these files is in a table here. A key or a value that is not may
change the vectors, and is refused by its name.
"""

import os
import re
from typing import Any

from bert.data import files, text_prompts

MODULES = "modules.json"
_MODEL = "config_sentence_transformers.json"
_TOKENIZER = "tokenizer_config.json"
_TRANSFORMER = "sentence_bert_config.json"
_POOLING_FOLDER = "1_Pooling"
WRITTEN = (MODULES, _TRANSFORMER, _POOLING_FOLDER)  # By `write`.
# The settings of the encoder stand in one file, whose name depends on the age
# and the kind of the model. The first of them that holds anything counts.
_ENCODERS = "roberta distilbert camembert albert xlm-roberta xlnet"
_TRANSFORMERS = (
  _TRANSFORMER,
  *(f"sentence_{name}_config.json" for name in _ENCODERS.split()),
)
_KNOWN_MODULES = re.compile("Transformer, Pooling(, Dense)?(, Normalize)?")
_ANYTHING = (object,)  # For a key that changes no vector.
# The poolings that we have.
_POOLING_MODES = ("cls", "mean", "max")
# The library's older keys, each true or false, and our names of them. The
# library joins the vectors of several poolings, in this order.
_POOLING_FLAGS = {
  "pooling_mode_cls_token": "cls",
  "pooling_mode_max_tokens": "max",
  "pooling_mode_mean_tokens": "mean",
  "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
  "pooling_mode_weightedmean_tokens": "weightedmean",
  "pooling_mode_lasttoken": "lasttoken",
}
# By file, its keys with the values that are followed or without effect: types,
# ranges and single values, as of `files.check_values`.
_MODULE_KEYS = {
  "idx": _ANYTHING,  # The order is that of the list.
  "name": _ANYTHING,
  "path": (str,),
  "type": (str,),
  "kwargs": ([], None),
}
_POOLING_KEYS = {
  "embedding_dimension": _ANYTHING,  # It follows from the weights.
  "word_embedding_dimension": _ANYTHING,
  "pooling_mode": (str, list),
  "include_prompt": (bool,),
  **dict.fromkeys(_POOLING_FLAGS, (bool,)),
}
_NORMALIZE_KEYS = {
  "module_input_name": ("sentence_embedding",),
  "module_output_name": ("sentence_embedding",),
}
# The activations of a Dense, and our names of them. The library makes each of
# its class alone, so that a GELU is always the exact one.
_TANH = "torch.nn.modules.activation.Tanh"
_ACTIVATIONS = {
  _TANH: "tanh",
  "torch.nn.modules.linear.Identity": "linear",
  "torch.nn.modules.activation.ReLU": "relu",
  "torch.nn.modules.activation.GELU": "gelu_erf",
  "torch.nn.modules.activation.Sigmoid": "sigmoid",
}
_DENSE_KEYS = {
  "in_features": (range(1, 10**6),),
  "out_features": (range(1, 10**6),),
  "bias": (bool,),
  "activation_function": tuple(_ACTIVATIONS),
  "module_input_name": ("sentence_embedding",),
  "module_output_name": ("sentence_embedding", None),
  "use_residual": (False,),
}
# What the files of a Dense's weights may be called. The first one counts.
_DENSE_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_MODEL_KEYS = {
  "__version__": _ANYTHING,
  "requirements": _ANYTHING,
  "model_type": ("SentenceTransformer",),
  "similarity_fn_name": _ANYTHING,  # It compares vectors that are made.
  "prompts": (dict,),
  "default_prompt_name": (str, None),
  "truncate_dim": (None,),
}
_OF_TEXT = {"method": "forward", "method_output_name": "last_hidden_state"}
_TRANSFORMER_KEYS = {
  "max_seq_length": (range(3, 10**6), None),
  "do_lower_case": (bool,),
  "tokenizer_name_or_path": (None, ""),
  "transformer_task": ("feature-extraction",),
  "modality_config": ({"text": _OF_TEXT},),
  "module_output_name": ("token_embeddings",),
  "processing_kwargs": ({}, None),
  "unpad_inputs": (bool, None),  # Less work, the same numbers.
  **dict.fromkeys("query_length document_length".split(), (None,)),
  "query_expansion": (None,),
  # More arguments of the model, the tokenizer and the config, by both names
  # that they have had.
  **dict.fromkeys("model_args tokenizer_args config_args".split(), ({}, None)),
  **dict.fromkeys(
    "model_kwargs processor_kwargs config_kwargs".split(), ({}, None)
  ),
}


def read(folder: str, reads_modules: bool = True) -> dict[str, Any]:
  """Returns what the files state; {} without modules.json.

  Args:
    folder: of a model of sentence-transformers.
    reads_modules: False if the user has chosen the pooling: what modules.json
      says of it need not be known then.

  Returns:
    Flags of extract_features.py, the settings `text_prompts.PREPARATION`, and
    under "dense" what `_read_dense` returns; None without such a module.
  """
  path = os.path.join(folder, MODULES)
  if not files.exists(path):
    return {}
  flags = {}
  includes_prompt = True
  if reads_modules:
    flags, includes_prompt = _read_modules(folder, path)
  flags |= _read_transformer(folder)
  flags |= _read_prompts(os.path.join(folder, _MODEL), includes_prompt)
  return flags


def _read_modules(folder: str, path: str) -> tuple[dict[str, Any], bool]:
  """Returns the flags of the modules, and whether prompts are pooled, too."""
  # A module is a class and a folder with its settings.
  names = []
  paths = []
  for number, module in enumerate(files.read_json(path, list)):
    place = f"{path}: module {number}"
    if not isinstance(module, dict):
      raise ValueError(f"{place} is {module!r:.80}: no object")
    _check(place, {"path": None, "type": None} | module, _MODULE_KEYS)
    package, _, name = module["type"].rpartition(".")
    is_theirs = package.split(".")[0] == "sentence_transformers"
    names.append(name if is_theirs else module["type"])
    paths.append(_check_path(place, module["path"]))

  # Other modules would have weights of their own.
  modules = ", ".join(names)
  if not _KNOWN_MODULES.fullmatch(modules):
    raise ValueError(
      f"{path}: makes vectors with {modules}; expected Transformer, Pooling, "
      "perhaps Dense, perhaps Normalize: pass --pooling instead"
    )
  if paths[0]:
    raise ValueError(
      f"{path}: the Transformer is in {paths[0]!r:.80}, expected it beside "
      f"{MODULES}: pass that folder as --model, with --pooling"
    )

  # The folders of the modules by their names.
  folders = {
    name: os.path.join(folder, path)
    for name, path in zip(names, paths, strict=True)
  }
  if "Normalize" in folders:
    config = os.path.join(folders["Normalize"], "config.json")
    _check(config, files.read_json_if_any(config), _NORMALIZE_KEYS)

  # What they say, as the flags of this project.
  config = os.path.join(folders["Pooling"], "config.json")
  settings = files.read_json(config)
  _check(config, settings, _POOLING_KEYS)
  flags = {
    "layers": ("-1",),
    "pooling": _find_pooling(config, settings),
    "dense": _read_dense(folders["Dense"]) if "Dense" in folders else None,
    "normalize": "Normalize" in folders,
  }
  return flags, settings.get("include_prompt", True)


def _read_dense(folder: str) -> dict[str, Any]:
  """Returns what a Dense states of its layer: file, shape, bias, activation."""
  # The library's defaults of its constructor.
  config = os.path.join(folder, "config.json")
  settings = dict.fromkeys(("in_features", "out_features"))
  settings |= {"bias": True, "activation_function": _TANH}
  settings |= files.read_json(config)
  _check(config, settings, _DENSE_KEYS)

  paths = [os.path.join(folder, name) for name in _DENSE_WEIGHTS]
  weights = next(filter(files.exists, paths), None)
  if not weights:
    raise ValueError(f"{folder}: holds no {' nor '.join(_DENSE_WEIGHTS)}")
  return {
    "weights": weights,
    "shape": (settings["out_features"], settings["in_features"]),
    "has_bias": settings["bias"],
    "activation": _ACTIVATIONS[str(settings["activation_function"])],
  }


def _check_path(place: str, path: str) -> str:
  """Returns the path of a module; a ValueError if it is not in the folder."""
  # A file of a stranger's model must not make us read elsewhere.
  parts = path.replace("\\", "/").split("/")
  if os.path.isabs(path) or ".." in parts or ":" in path:
    raise ValueError(f"{place}: path is {path!r:.80}: not in this folder")
  return path


def _find_pooling(path: str, settings: dict[str, Any]) -> str:
  """Returns the one pooling of a config; the newer key counts, if it is there.

  A ValueError if there are several, or it is one that is not known.
  """
  modes = settings.get("pooling_mode")
  if modes is None:
    modes = [m for flag, m in _POOLING_FLAGS.items() if settings.get(flag)]
    modes = modes or ["mean"]  # The library's default.
  modes = modes if isinstance(modes, list) else [modes]
  if len(modes) != 1 or modes[0] not in _POOLING_MODES:
    raise ValueError(
      f"{path}: the pooling {', '.join(map(str, modes))}; expected one of "
      f"{', '.join(_POOLING_MODES)}: pass --pooling instead"
    )
  return modes[0]


def _read_transformer(folder: str) -> dict[str, Any]:
  """Returns the longest input, and whether text is lower-cased before all."""
  path = ""
  settings = {}
  for name in _TRANSFORMERS:
    if not settings:
      path = os.path.join(folder, name)
      settings = files.read_json_if_any(path)
  _check(path, settings, _TRANSFORMER_KEYS)

  # sentence-transformers 6 leaves the length to tokenizer_config.json.
  length = settings.get("max_seq_length")
  if length is None:
    length = _find_length(folder)
  lower_case = settings.get("do_lower_case", False)
  return {"max_seq_length": length, "lower_case": lower_case}


def _find_length(folder: str) -> int:
  """Returns the tokenizer's longest input, at most the model's positions."""
  # BERT's, if neither Hugging Face's config nor Google's says it.
  most = 512
  for name in ("config.json", "bert_config.json"):
    config = files.read_json_if_any(os.path.join(folder, name))
    most = config.get("max_position_embeddings", most)

  path = os.path.join(folder, _TOKENIZER)
  # transformers writes 1e30 for a tokenizer without a limit.
  length = files.read_json_if_any(path).get("model_max_length")
  length = most if length is None else length
  name = f"{path}: model_max_length"
  files.check_values({name: length}, {name: (int, float)})
  length = int(min(length, most))
  files.check_values({name: length}, {name: (range(3, 10**6),)})
  return length


def _read_prompts(path: str, includes_prompt: bool) -> dict[str, Any]:
  """Returns the texts that may precede those to encode, by their names."""
  settings = files.read_json_if_any(path)
  _check(path, settings, _MODEL_KEYS)
  # A null is a prompt that nobody has set.
  stated = settings.get("prompts", {})
  prompts = {name: "" if p is None else p for name, p in stated.items()}
  for name, prompt in prompts.items():
    if not isinstance(prompt, str):
      raise ValueError(
        f"{path}: the prompt {name!r:.80} is {prompt!r:.80}; expected a text"
      )

  # The default must be one of them.
  default = settings.get("default_prompt_name")
  text_prompts.find_prompt(prompts, default, f"{path}: default_prompt_name")
  if any(prompts.values()) and not includes_prompt:
    raise ValueError(
      f"{path}: prompts, with include_prompt of false in Pooling's config.json:"
      " here a prompt is pooled with its text"
    )
  return {"prompts": prompts or None, "default_prompt_name": default}


def _check(path: str, values: dict[str, Any], allowed: dict[str, Any]) -> None:
  """Raises a ValueError that names a key that is unknown, or its value.

  Args:
    path: the file, or the place in it, for the message.
    values: what it holds, by key.
    allowed: the values that each key may have, as for `files.check_values`.
  """
  for name, value in values.items():
    if name not in allowed:
      raise ValueError(
        f"{path}: {name} is {value!r:.80}: an unknown key, which may change "
        "the vectors; known: " + ", ".join(allowed)
      )
    if allowed[name] != _ANYTHING:
      named = f"{path}: {name}"
      files.check_values({named: value}, {named: allowed[name]})


def copy(source: str, folder: str) -> list[str]:
  """Writes the files for a model in another folder; returns their names.

  The longest input is stated in them, as the new folder may have another
  tokenizer_config.json. A ValueError if they are not known.
  """
  flags = read(source)
  if not flags:
    return []

  # Their files as they are: `read` has accepted each key.
  modules = files.read_json(os.path.join(source, MODULES), list)
  names = [os.path.join(m["path"], "config.json") for m in modules[1:]]
  names = [MODULES, _MODEL, *names]
  if flags["dense"]:
    weights = flags["dense"]["weights"]
    names.append(weights.removeprefix(os.path.join(source, "")))
  names = [n for n in names if files.exists(os.path.join(source, n))]
  for name in names:
    with files.open_bytes(os.path.join(source, name)) as file:
      files.write_bytes(os.path.join(folder, name), file.read())

  stated = {"max_seq_length": flags["max_seq_length"]}
  stated["do_lower_case"] = flags["lower_case"]
  files.write_json(os.path.join(folder, _TRANSFORMER), stated)
  return [*names, _TRANSFORMER]


def write(
  folder: str, size: int, pooling: str, normalize: bool, max_seq_length: int
) -> None:
  """Writes the files by which sentence-transformers makes our vectors.

  Args:
    folder: where the model is written to.
    size: numbers of a vector.
    pooling: cls, mean or max.
    normalize: whether vectors get the length 1.
    max_seq_length: the longest input, in tokens with [CLS] and [SEP].
  """
  names = ["Transformer", "Pooling"]
  if normalize:
    names.append("Normalize")
  modules = [
    {
      "idx": number,
      "name": str(number),
      "path": f"{number}_{name}" if number else "",
      "type": f"sentence_transformers.models.{name}",
    }
    for number, name in enumerate(names)
  ]
  files.write_json(os.path.join(folder, MODULES), modules)

  config = {
    flag: mode == pooling
    for flag, mode in _POOLING_FLAGS.items()
    if mode in _POOLING_MODES
  }
  path = os.path.join(folder, _POOLING_FOLDER, "config.json")
  files.write_json(path, {"word_embedding_dimension": size, **config})
  # The tokenizer lower-cases: this key would do it before, accents remaining.
  stated = {"max_seq_length": max_seq_length, "do_lower_case": False}
  files.write_json(os.path.join(folder, _TRANSFORMER), stated)
