"""Tests of --model and of the casing that files beside a model ask for."""

import dataclasses
import json
import os
import sys
import types

import pytest

from bert import export_saved_model, modeling
from bert.cli import inference_settings, model_folder
from bert.convert import tokenizer_files
from bert.vocabularies import vocabulary_table
import program_flags
import tiny

FILES = ("bert_config_file", "vocab_file", "init_checkpoint", "do_lower_case")


def read(**values):
  """Returns the settings of flags with these values."""

  return program_flags.read(
    inference_settings.InferenceSettings,
    lambda kind: model_folder.find_files(kind.read()),
    **values,
  )


def read_files(**values):
  return [getattr(read(**values), name) for name in FILES]


@pytest.fixture
def folder(tmp_path):
  (tmp_path / "bert_config.json").write_text("{}")
  (tmp_path / "vocab.txt").write_text("[UNK]\nthe\n")
  return tmp_path


def test_a_folder_stands_for_its_files(folder, capsys):
  config, vocab = str(folder / "bert_config.json"), str(folder / "vocab.txt")
  expected = [config, vocab, str(folder), True]
  assert read_files(model=folder) == expected
  other = folder / "other.txt"
  other.write_text((folder / "vocab.txt").read_text() + "drug\n")
  expected[1] = str(other)
  assert read_files(model=folder, vocab_file=other) == expected
  assert not capsys.readouterr().err
  # The best weights of a training, if it kept them.
  (folder / "best").mkdir()
  (folder / "best" / "checkpoint").write_text("")
  assert read(model=folder).init_checkpoint == str(folder / "best")


def test_rows_of_the_embeddings_keep_their_tokens(folder):
  words = ["[UNK]", "[unused1]", "the", "film"]
  (folder / "vocab.txt").write_text("\n".join(words))
  (folder / "new").mkdir()
  other = folder / "new" / "other.txt"
  # A trained token in another row, or none there.
  for new in (["[UNK]", "[unused1]", "film", "the"], words[:3]):
    other.write_text("\n".join(new))
    fault = f"other.txt: has .* as the id [23], and {folder}/vocab.txt, besi"
    for name in ("", "model.ckpt-4", "best", "best/model.ckpt-4"):
      with pytest.raises(ValueError, match=fault):
        read(init_checkpoint=folder / name, vocab_file=other)

  # The same list, whose texts kept their accents.
  (folder / "vocab.txt").rename(folder / "vocab.accents")
  other.write_text("\n".join(words))
  fault = f"other.txt: not a vocab.accents, as {folder}/vocab.accents besi"
  with pytest.raises(ValueError, match=fault):
    read(init_checkpoint=folder, vocab_file=other)
  read(init_checkpoint=folder, vocab_file=other, strip_accents=False)
  (folder / "vocab.accents").rename(folder / "vocab.txt")

  # The same, also with spaces; new tokens; nothing to compare.
  for new in (words, ["[UNK]", "drug", "the ", "film", "dose"]):
    other.write_text("\n".join(new))
    read(init_checkpoint=folder, vocab_file=other)
  lines = "[UNK]\n[unused1]\nthe\nfilm\n[no token 4]\n\n"
  (folder / "vocab.txt").write_text(lines)
  read(init_checkpoint=folder, vocab_file=other)
  # Another one in the same folder was put there.
  (folder / "words.txt").write_text("[UNK]")
  read(init_checkpoint=folder, vocab_file=folder / "words.txt")
  (folder / "vocab.txt").unlink()
  other.write_text("[UNK]")
  read(init_checkpoint=folder, vocab_file=other)


def test_a_pipe_in_a_model_is_refused_before_it_is_read(folder):
  os.mkfifo(folder / "config.json")
  (folder / "bert_config.json").unlink()
  with pytest.raises(ValueError, match="config.json: a pipe; expected a file"):
    read(model=folder)
  with pytest.raises(ValueError, match="config.json: a pipe; expected a file"):
    model_folder.open_model(str(folder))


def test_a_model_is_opened_once_by_all_that_ask(folder, monkeypatch):
  opened = []
  monkeypatch.setattr(
    model_folder, "open_model", lambda *args: opened.append(args)
  )
  settings = read(model=folder)
  assert opened == []  # Nobody has asked.
  settings.open_model()
  dataclasses.replace(settings, batch_size=1).open_model()
  assert opened == [(str(folder), str(folder / "bert_config.json"))]


def test_the_casing_of_a_model_is_not_that_of_other_weights(
  folder, monkeypatch
):
  """--init_checkpoint may replace the weights of a SavedModel."""
  (folder / "assets").mkdir()
  (folder / "vocab.txt").rename(folder / "assets" / "vocab.txt")
  opened = []

  def open_model(path, *_):
    opened.append(path)
    return types.SimpleNamespace(do_lower_case=path != str(folder))

  monkeypatch.setattr(model_folder, "open_model", open_model)
  assert read(model=folder, init_checkpoint="other").do_lower_case is False
  assert read(model=folder).do_lower_case is False
  assert opened == [str(folder)] * 2


def test_a_vocabulary_without_later_tokens_is_not_parsed(folder, monkeypatch):
  monkeypatch.delattr(tokenizer_files, "read_vocabulary")
  assert read(model=folder).vocab_file == str(folder / "vocab.txt")


def test_no_folder_is_asked_twice_for_its_casing(folder, monkeypatch):
  (folder / "vocab.txt").write_text("[UNK]\n1\n")  # It shows no casing.
  asked = []
  monkeypatch.setattr(tokenizer_files, "read_casing", asked.append)
  read(model=folder)
  assert str(folder) in asked and len(asked) == len(set(asked))


def test_a_folder_of_hugging_face_may_have_its_own_names(folder):
  config = folder / "config.json"
  (folder / "bert_config.json").rename(config)
  assert read(model=folder).bert_config_file == str(config)
  # These are read with the weights.
  for other in ('{"model_type": "electra"}', '{"class_name": "BertBackbone"}'):
    config.write_text(other)
    assert read(model=folder).bert_config_file is None
  (folder / "vocab.txt").unlink()
  with pytest.raises(ValueError, match="--vocab_file; it holds config.json$"):
    read(model=folder)


def test_tokens_that_were_added_later_are_not_lost(folder, capsys):
  path = folder / "tokenizer.json"
  specials = [{"content": "[UNK]", "id": 0}]
  path.write_text(json.dumps({"added_tokens": specials}))
  assert read_files(model=folder)[1] == str(folder / "vocab.txt")
  path.write_text(json.dumps({"added_tokens": [{"content": "x", "id": 1}]}))
  assert read_files(model=folder)[1] == str(folder / "vocab.txt")
  assert "note: added tokens such as 'x' (1 in all)" in capsys.readouterr().err
  later = [*specials, {"content": "covid19x", "id": 2}]
  path.write_text(json.dumps({"added_tokens": later}))
  with pytest.raises(ValueError, match=r"lacks the token 'covid19x' .*\(1 in"):
    read_files(model=folder)
  assert tokenizer_files.read_vocabulary(str(folder)) == [
    "[UNK]",
    "the",
    "covid19x",
  ]
  (folder / "added_tokens.json").write_text('{"x": 4}')  # No token has id 3.
  message = r"added_tokens.json: the id of 'x' is 4; expected 3, the next one "
  with pytest.raises(ValueError, match=message):
    read_files(model=folder)
  (folder / "vocab.txt").write_text("[UNK]\n")  # Cut short.
  message = r"r.json: the id of 'covid19x' is 2; expected 1, .*vocab.txt: is th"
  with pytest.raises(ValueError, match=message):
    read_files(model=folder)


def test_a_vocabulary_that_was_replaced_is_read_again(folder):
  """Without a vocab.txt; a process may load the folder twice."""
  (folder / "vocab.txt").unlink()
  for tokens in (["[UNK]", "the", "a"], ["[UNK]", "a", "the"]) * 2:
    ids = {token: number for number, token in enumerate(tokens)}
    content = {"model": {"type": "WordPiece", "vocab": ids}}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    path = tokenizer_files.find_vocabulary([str(folder)])
    assert tokenizer_files.read_tokens(path) == tokens


def test_the_vocabulary_of_a_training_is_its_own(folder):
  path = folder / "vocab.txt"
  digest = vocabulary_table.digest(str(path))
  (folder / "settings.json").write_text(
    json.dumps({"vocab_file_sha256": digest, "do_lower_case": True})
  )
  assert read(model=folder).vocab_file == str(path)
  path.write_text("[UNK]\na\n")
  message = f"{path}: {folder} was trained with another one; pass the one that"
  with pytest.raises(ValueError, match=message):
    read(model=folder)
  # What a user states counts: somebody may have replaced [unused1].
  assert read(model=folder, vocab_file=path).vocab_file == str(path)


def test_no_token_has_several_lines(folder):
  (folder / "added_tokens.json").write_text(r'{"a\nb": 2}')
  with pytest.raises(ValueError, match=r"token 2 is 'a\\nb': a vocabulary "):
    tokenizer_files.read_vocabulary(str(folder))


@pytest.mark.parametrize("name", ["tokenizer.json", "added_tokens.json"])
def test_ids_of_added_tokens_are_integers(folder, name):
  contents = {"x": "2"}
  if name == "tokenizer.json":
    contents = {"added_tokens": [{"content": "x", "id": "2"}]}
  (folder / name).write_text(json.dumps(contents))
  message = f"{name}: the id of 'x' is '2'; expected an integer"
  with pytest.raises(ValueError, match=message):
    tokenizer_files.read_vocabulary(str(folder))


@pytest.mark.parametrize("name", ["tokenizer_config.json", "settings.json"])
@pytest.mark.parametrize("flag", ["model", "init_checkpoint"])
def test_the_casing_is_what_the_files_say(folder, capsys, name, flag):
  (folder / name).write_text('{"do_lower_case": false}')
  assert read(**{flag: folder}).do_lower_case is False
  said = capsys.readouterr().err
  assert said == f"--do_lower_case=false, as {folder / name} says\n"
  assert read(**{flag: folder}, do_lower_case=False).do_lower_case is False
  assert not capsys.readouterr().err
  with pytest.raises(ValueError, match=f"{name} says false: leave out the"):
    read(**{flag: folder}, do_lower_case=True)


CASED = {"do_lower_case": False}


@pytest.mark.parametrize(
  ("path", "name", "contents"),
  [
    ("model.ckpt-7", "settings.json", CASED),
    ("best", "settings.json", CASED),
    ("", "tokenizer_config.json", {**CASED, "strip_accents": False}),
    ("", "tokenizer_config.json", {**CASED, "tokenize_chinese_chars": True}),
    (
      "",
      "tokenizer.json",
      {"normalizer": {"type": "BertNormalizer", "lowercase": False}},
    ),
  ],
)
def test_where_the_casing_is_found(path, name, contents, folder, monkeypatch):
  monkeypatch.setitem(sys.modules, "weights", None)  # Nor TensorFlow.
  (folder / name).write_text(json.dumps(contents))
  assert read(init_checkpoint=folder / path).do_lower_case is False


def test_best_weights_are_known_by_any_path(folder, monkeypatch):
  best = folder / "best"
  best.mkdir()
  (folder / "settings.json").write_text(json.dumps(CASED))
  other = folder / "here" / "other.txt"
  other.parent.mkdir()
  other.write_text("[UNK]\nfilm\n")
  elsewhere = folder / "elsewhere"
  elsewhere.mkdir()
  (elsewhere / "link").symlink_to(best)
  for here, path in (
    (folder, "best/"),
    (folder, "best/model.ckpt-4"),
    (elsewhere, "link"),
    (elsewhere, "link/model.ckpt-4"),
    (best, "model.ckpt-4"),
  ):
    monkeypatch.chdir(here)
    assert read(init_checkpoint=path).do_lower_case is False
    with pytest.raises(ValueError, match="other.txt: has 'film' as the id 1"):
      read(init_checkpoint=path, vocab_file=other)


def test_an_export_takes_the_vocabulary_beside_the_weights(folder, monkeypatch):
  here = folder / "here"
  here.mkdir()
  (here / "vocab.txt").write_text("[UNK]\nfilm\n")  # Another model's.
  (folder / "best").mkdir()
  (here / "link").symlink_to(folder / "best")
  (here / "run").symlink_to(folder)
  monkeypatch.chdir(here)
  for path in ("link", "link/model.ckpt-4", "run", "run/model.ckpt-4"):
    settings = program_flags.read(
      export_saved_model.ExportSettings,
      lambda _: export_saved_model.read_settings(),
      init_checkpoint=path,
    )
    assert os.path.samefile(settings.vocab_file, folder / "vocab.txt")


@pytest.mark.parametrize(
  ("token", "is_lower"),
  [
    ("All", False),
    ("\u0939\u093f\u0928\u094d\u0926\u0940", False),  # Loses a vowel sign.
    ("\ud55c", False),  # Hangul is taken apart.
    ("\u2581\xe9t\xe9", True),  # SentencePiece keeps its accents.
    ("\u4e2d", None),
  ],
)
def test_a_vocabulary_may_show_its_casing(folder, token, is_lower, capsys):
  (folder / "tokenizer_config.json").write_text('{"model_max_length": 16}')
  (folder / "vocab.txt").write_text(f"[UNK]\n{token}\n")
  assert read(model=folder).do_lower_case is (is_lower is not False)
  said = f"--do_lower_case=false, as a guess by the tokens of {folder}/vocab.tx"
  assert (said in capsys.readouterr().err) == (is_lower is False)
  for given in (True, False):  # What the user states is no guess.
    assert read(model=folder, do_lower_case=given).do_lower_case is given


def test_lower_case_with_accents_is_known_by_its_name(folder, capsys):
  """Its tokens look cased."""
  (folder / "vocab.txt").unlink()
  (folder / "vocab.accents").write_text("[UNK]\n\xe9t\xe9\n", encoding="utf-8")
  assert read(model=folder).do_lower_case is True
  assert not capsys.readouterr().err


def test_settings_of_an_editor_are_not_read(folder):
  (folder / "settings.json").write_text("{} // Of an editor.")
  with pytest.raises(ValueError, match="settings.json: not a JSON file"):
    read(model=folder)
  (folder / "bert_config.json").unlink()
  assert read(vocab_file=folder / "vocab.txt", init_checkpoint="x").vocab_file


@pytest.mark.parametrize(
  ("settings", "named"),
  [
    ({"do_lower_case": False, "strip_accents": True}, "strip_accents is True"),
    ({"tokenize_chinese_chars": False}, "tokenize_chinese_chars is False"),
    ({"do_basic_tokenize": False}, "do_basic_tokenize is False"),
    ({"word_tokenizer_type": "mecab"}, "word_tokenizer_type is mecab"),
    ({"word_tokenizer_type": "sudachi"}, "word_tokenizer_type is sudachi"),
  ],
)
def test_tokens_that_our_tokenizer_cannot_make_are_refused(
  folder, settings, named
):
  (folder / "tokenizer_config.json").write_text(json.dumps(settings))
  with pytest.raises(ValueError, match=f"tokenizer_config.json: {named}: "):
    read(init_checkpoint=folder)


BERT = {"type": "BertNormalizer", "lowercase": False, "strip_accents": None}


def lower(*others):
  """Returns what sentence-transformers makes of normalizers."""
  return {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, *others]}


def template(*names):
  """Returns what makes an input of a text: special tokens around it."""
  single = [{"SpecialToken": {"id": name, "type_id": 0}} for name in names]
  return {"type": "TemplateProcessing", "single": single}


@pytest.mark.parametrize(
  ("config", "whole", "message"),
  [
    (
      {"do_lower_case": True},
      {"normalizer": BERT},
      "tokenizer.json: lowercase is False, but do_lower_case is True in ",
    ),
    (
      {"do_lower_case": False},
      {"normalizer": lower(BERT)},
      "tokenizer.json: lowercase is True, but do_lower_case is False in ",
    ),
    (
      {"strip_accents": False},
      {"normalizer": {**BERT, "strip_accents": True}},
      "strip_accents is True, but strip_accents is False in",
    ),
    ({}, {"normalizer": {**BERT, "clean_text": False}}, "clean_text is False"),
    ({}, {"normalizer": {"type": "NFC"}}, "expected BertNormalizer, the step"),
    ({}, {"normalizer": None}, "normalizer is None; expected BertNormalizer"),
    (
      {},
      {"pre_tokenizer": {"type": "Whitespace"}},
      "expected BertPreTokenizer, the step of BERT's tokenizer",
    ),
    (
      {},
      {"model": {"max_input_chars_per_word": 5}},
      "max_input_chars_per_word is 5: unlike the",
    ),
    (
      {},
      {"post_processor": template("A", "[SEP]")},
      r"post_processor is \['A', '\[SEP\]'\]: unlike the",
    ),
    ({}, {"post_processor": None}, "post_processor is None: unlike the"),
    ({"padding_side": "left"}, {}, "padding_side is left: unlike the"),
    ({"never_split": ["x"]}, {}, r"never_split is \['x'\]: unlike the"),
    ({"cls_token": "<s>"}, {}, "cls_token is <s>: unlike the"),
    ({"sep_token": {"content": "</s>"}}, {}, "sep_token is </s>: unlike the"),
  ],
)
def test_tokenizers_that_differ_are_refused(folder, config, whole, message):
  (folder / "tokenizer_config.json").write_text(json.dumps(config))
  (folder / "tokenizer.json").write_text(json.dumps(whole))
  with pytest.raises(ValueError, match=message):
    read(init_checkpoint=folder)


ACCENTS = {"do_lower_case": True, "strip_accents": False}
JAPANESE = {
  "word_tokenizer_type": "mecab",
  "mecab_kwargs": {"mecab_dic": "ipadic"},
  "do_lower_case": False,
}


@pytest.mark.parametrize(
  ("file", "contents", "name"),
  [
    ("tokenizer_config.json", ACCENTS, "vocab.accents"),
    ("tokenizer_config.json", JAPANESE, "vocab.ipadic"),
    ("tokenizer.json", {"normalizer": lower(BERT)}, "vocab.accents"),
    (
      "tokenizer.json",
      {"normalizer": BERT | {"lowercase": True, "strip_accents": False}},
      "vocab.accents",
    ),
  ],
)
def test_files_of_a_tokenizer_say_the_kind(
  folder, file, contents, name, capsys
):
  (folder / file).write_text(json.dumps(contents))
  own = folder / "vocab.txt"
  for flags in (
    {"model": folder},
    {"vocab_file": own, "init_checkpoint": folder},
  ):
    found = read(**flags)
    assert os.path.basename(found.vocab_file) == name
    assert vocabulary_table.source_of(found.vocab_file) == str(own)
    with open(found.vocab_file) as copy:
      assert copy.read() == own.read_text()
    assert found.do_lower_case is (name == "vocab.accents")
    said = f"words are split as {folder}/{file} says, not as by the original"
    assert said in capsys.readouterr().err
  with pytest.raises(ValueError, match="--strip_accents=true: "):
    read(model=folder, strip_accents=True)


def test_a_flag_says_that_accents_stay(folder):
  (folder / "vocab.txt").write_text("[UNK]\n\xe9t\xe9\n", encoding="utf-8")
  found = read(model=folder, strip_accents=False)  # Accents look cased.
  assert os.path.basename(found.vocab_file) == "vocab.accents"
  assert found.do_lower_case is True
  own = str(folder / "vocab.txt")
  cased = {"do_lower_case": False}
  assert read(model=folder, strip_accents=False, **cased).vocab_file == own
  assert read(model=folder, strip_accents=True).vocab_file == own


@pytest.mark.parametrize(
  ("name", "flags", "message"),
  [
    ("vocab.accents", {"strip_accents": True}, "true: .*vocab.accents keeps"),
    ("vocab.words", {"strip_accents": False}, "false: .* is not a vocab.txt"),
    (
      "vocab.txt",
      {"strip_accents": True, "do_lower_case": False},
      "true: text is not lower-cased: leave out the flag",
    ),
  ],
)
def test_a_flag_that_contradicts_the_kind_is_refused(
  folder, name, flags, message
):
  (folder / name).write_text("[UNK]\nthe\n")
  with pytest.raises(ValueError, match=f"--strip_accents={message}"):
    read(init_checkpoint=folder, vocab_file=folder / name, **flags)
  if name == "vocab.accents":  # The flag says what is so.
    flags = {"strip_accents": False, "vocab_file": folder / name}
    found = read(init_checkpoint=folder, **flags)
    assert found.vocab_file == str(folder / name)


@pytest.mark.parametrize("strips", [True, False])
def test_how_words_are_split_needs_a_vocabulary(folder, strips):
  """run_pretraining.py does without one; the flag was ignored then."""
  settings = read(init_checkpoint=folder, vocab_file=folder / "vocab.txt")
  settings = dataclasses.replace(
    settings, vocab_file=None, strip_accents=strips
  )
  with pytest.raises(ValueError) as raised:
    model_folder.with_kind(settings)
  assert str(raised.value) == (
    f"--strip_accents={str(strips).lower()} says how texts become tokens of a "
    "vocabulary, and no vocabulary is given: pass --vocab_file too"
  )


def test_other_special_tokens_are_refused(folder):
  path = folder / "special_tokens_map.json"
  path.write_text(json.dumps({"cls_token": "[CLS]", "sep_token": "</s>"}))
  with pytest.raises(ValueError, match="map.json: sep_token is </s>: unlike"):
    read(init_checkpoint=folder)


@pytest.mark.parametrize(
  ("config", "normalizer", "expected"),
  [
    ({"do_lower_case": False}, BERT, False),
    ({"do_lower_case": True}, lower({**BERT, "lowercase": True}), True),
    ({"cls_token": {"content": "[CLS]"}, "never_split": []}, BERT, False),
  ],
)
def test_tokenizers_that_agree(folder, config, normalizer, expected):
  whole = {"normalizer": normalizer, "pre_tokenizer": {"type": _SPLITTER}}
  whole["model"] = {"max_input_chars_per_word": 100}
  (folder / "tokenizer_config.json").write_text(json.dumps(config))
  pair = {"sep": ["[SEP]", 102], "cls": ["[CLS]", 101]}
  for step in (
    template("[CLS]", "A", "[SEP]"),
    {"type": "BertProcessing", **pair},
  ):
    whole["post_processor"] = step
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    assert read(init_checkpoint=folder).do_lower_case is expected


_SPLITTER = "BertPreTokenizer"
WHOLE = {"model": {"type": "WordPiece", "vocab": {"[UNK]": 0, "the": 1}}}


def test_a_vocabulary_and_a_tokenizer_have_the_same_ids(folder):
  path = folder / "tokenizer.json"
  path.write_text(json.dumps(WHOLE))
  assert read(model=folder).vocab_file == str(folder / "vocab.txt")
  for lines, message in (
    ("the\n[UNK]\n", f"the id of 'the' is 0, in {path} 1: remove the file"),
    ("[UNK]\nthe\na\n", f"the id of 'a' is 2, in {path} missing: remove"),
    ("[UNK]\n", f"the id of 'the' is missing, in {path} 1: remove the"),
  ):
    (folder / "vocab.txt").write_text(lines)
    with pytest.raises(ValueError) as caught:
      read(model=folder)
    assert f"vocab.txt: {message}" in str(caught.value)
  # Equal lines, and a separator that stripping removes.
  (folder / "vocab.txt").write_text("[UNK]\nthe\n\u2028\nthe\n")
  vocab = {"[UNK]": 0, "the": 3, "\u2028": 2}
  path.write_text(json.dumps({"model": {"vocab": vocab}}))
  assert read(model=folder).vocab_file == str(folder / "vocab.txt")


def test_a_folder_without_vocab_txt(folder):
  """As transformers 5 saves it."""
  (folder / "vocab.txt").unlink()
  (folder / "tokenizer.json").write_text(json.dumps(WHOLE))
  for _ in range(2):
    path = read(model=folder).vocab_file
    assert os.path.basename(path) == "vocab.txt"
    with open(path) as file:
      assert file.read() == "[UNK]\nthe\n"
  assert read(model=folder).vocab_file == path  # Written once.
  pairs = {"model": {"type": "BPE", "vocab": {"a": 0}}}
  other = folder / "other"
  other.mkdir()
  (other / "bert_config.json").write_text("{}")
  (other / "tokenizer.json").write_text(json.dumps(pairs))
  with pytest.raises(ValueError, match="does not hold the vocabulary of a BE"):
    read(model=other)


def test_rows_without_a_token_are_counted(folder, capsys):
  """Tables of released models are padded, some by a thousand rows."""
  vocab = str(folder / "vocab.txt")
  config = modeling.BertConfig(vocab_size=1002, hidden_size=12)
  model_folder.check_vocabulary(vocab, config)
  line = "note: 1,000 of the model's 1,002 rows of embeddings have no token in"
  assert capsys.readouterr().err == f"{line} {vocab}\n"
  model_folder.check_vocabulary(
    vocab, modeling.BertConfig(vocab_size=2, hidden_size=12)
  )
  assert not capsys.readouterr().err
  config = modeling.BertConfig(vocab_size=1, hidden_size=12)
  with pytest.raises(ValueError, match="has 2 tokens, the vocab_size of the"):
    model_folder.check_vocabulary(vocab, config)


def test_the_config_gets_the_size_of_the_vocabulary(folder, capsys):
  config = modeling.BertConfig(vocab_size=130, hidden_size=12)
  vocab = str(folder / "vocab.txt")  # With two tokens.
  settings = types.SimpleNamespace(
    vocab_file=vocab, init_checkpoint=None, bert_config_file="c.json"
  )
  assert model_folder.fit_vocabulary(settings, config).vocab_size == 2
  said = f"vocab_size: 2, the tokens of {vocab}, instead of the 130 of c.json\n"
  assert capsys.readouterr().out == said
  settings.init_checkpoint = "model.ckpt"
  assert model_folder.fit_vocabulary(settings, config) is config
  settings.init_checkpoint = None
  # Sizes rounded up are left alone.
  config = modeling.BertConfig(vocab_size=129, hidden_size=12)
  assert model_folder.fit_vocabulary(settings, config) is config


def test_the_first_commands_make_a_model_that_others_take(tmp_path):
  """From a text to guesses with --model, with a config of another size."""
  text, vocab, records, output, config = (
    tmp_path / name for name in ("text", "vocab.txt", "data", "out", "config")
  )
  config.write_text(json.dumps({**tiny.PRETRAINING_CONFIG, "vocab_size": 500}))
  text.write_text("the cat sat on the mat\nthe dog sat too\n\n" * 20)

  def run(program, **flags):
    return program_flags.succeed(program_flags.command(program, **flags)).stdout

  files = {"input_file": text, "output_file": vocab}
  run("create_vocab", vocab_size=60, **files)
  files = {"input_file": text, "output_file": records, "vocab_file": vocab}
  lengths = {"max_seq_length": 16, "max_predictions_per_seq": 2}
  run("create_pretraining_data", dupe_factor=1, **files, **lengths)
  files = {"input_file": records, "output_dir": output, "vocab_file": vocab}
  steps = {"do_train": True, "num_train_steps": 1, "train_batch_size": 2}
  files["bert_config_file"] = config
  run("run_pretraining", **files, **steps, **lengths)
  size = len(vocab.read_text().splitlines())
  written = json.loads((output / "bert_config.json").read_text())
  assert written["vocab_size"] == size < 500
  assert (output / "vocab.txt").read_bytes() == vocab.read_bytes()
  flags = {"text": "the [MASK] sat", "max_seq_length": 16}
  assert "the [MASK] sat\n" in run("fill_mask", model=output, **flags)


def test_a_folder_that_is_not_there_is_told(folder, monkeypatch):
  monkeypatch.chdir(folder.parent)
  with pytest.raises(ValueError, match="^--model=bert-base-uncased: no such "):
    read(model="bert-base-uncased")
  message = f"no such folder; did you mean {folder.name}[?]; expected a folder"
  with pytest.raises(ValueError, match=message):
    read(model=folder.name[:-1])
