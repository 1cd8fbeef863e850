"""WordPieces of lower-cased text with accents."""

import functools
import itertools
import json
import random
import unicodedata

import pytest
import tensorflow as tf

import bert
from bert import tokenization
from bert.export import tf_tokenization
from bert.vocabularies import accented_pieces, vocabulary_table
import hard_strings
import program_flags
import record_programs
import slow_tokenizer
import tiny
import tiny_models

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "sch\xf6n", "schon"]
TOKENS += [
  "\xe0",
  "a",
  "e",
  "##e",
  "##\u0301",
  "\u4e2d",
  "##\xe9",
  "t\xe9",
  "!",
]
SENTENCES = {
  "German": "Die Bäume blühen früh, doch schöne Äpfel gibt es erst im Süden; "
  "Größe zählt für Jörg überhaupt nicht.",
  "French": "Où étiez-vous hier, là-bas ou déjà à l'hôtel ? Le garçon a mangé "
  "une crêpe près du théâtre, naïf et gêné.",
  "Spanish": "¿Cuándo llegó el niño? Mañana jugará al fútbol aquí; papá comió "
  "piñas en el jardín y olvidó la música.",
  "Turkish": "İstanbul'da güneşli bir gün; çocuklar ağacın altında şarkı "
  "söyler, Ilgaz dağı uzak ve büyük görünür.",
  "Vietnamese": "Tôi đang học tiếng Việt ở Hà Nội, trời hôm nay rất đẹp và mọi "
  "người đều uống cà phê sữa đá.",
  "Hindi": "मैं हिन्दी में लिखता हूँ, और यह किताब बहुत अच्छी है। कल हम दिल्ली जाएँगे।",
}


@pytest.fixture(name="path")
def write_vocabulary(tmp_path):
  path = tmp_path / "vocab.accents"
  path.write_text("\n".join(TOKENS) + "\n")
  return str(path)


@pytest.mark.parametrize(
  ("text", "tokens"),
  [
    ("SCH\xd6N Schon", "sch\xf6n schon"),
    ("\xc0!a\u4e2dA", "\xe0 ! a \u4e2d a"),
    # What is decomposed in the text stays so.
    ("E\u0301 T\xc9\xc9", "e ##\u0301 t\xe9 ##\xe9"),
    ("t\xe9\x07\xe9 \xc9", "t\xe9 ##\xe9 [UNK]"),
    ("", ""),
  ],
)
def test_accents_stay(path, text, tokens):
  tokenizer = vocabulary_table.make_tokenizer(path)
  assert tokenizer.tokenize(text) == tokens.split()
  ids = tokenizer.convert_tokens_to_ids(tokens.split())
  assert tokenizer.encode(text) == ids
  graph = tf_tokenization.make_tokenizer(path)
  assert graph.encode(tf.constant([text])).to_list() == [ids]


def test_tokens_know_their_places(path):
  tokenizer = vocabulary_table.make_tokenizer(path, True, ["[MASK]"])
  text = " SCH\xd6N[MASK] E\u0301, T\xc9\xc9"
  found = tokenizer.tokenize_with_offsets(text)
  assert [t.token for t in found] == tokenizer.tokenize(text)
  sources = "SCH\xd6N [MASK] E \u0301 , T\xc9 \xc9"
  assert " ".join(text[a:b] for _, a, b in found) == sources


def split_slowly(text):
  """Returns words, by the reference of the tests, without its accents."""
  words = slow_tokenizer.clean(text).lower().split()
  return list(
    itertools.chain.from_iterable(map(slow_tokenizer.split_marks, words))
  )


@pytest.mark.parametrize("lower", [True, False])
def test_odd_strings_are_split_alike_everywhere(path, lower):
  texts = list(hard_strings.random_strings(300, seed=6))
  texts = [t.encode("utf-8", "ignore").decode() for t in texts]
  python = vocabulary_table.make_tokenizer(path, lower)
  graph = tf_tokenization.make_tokenizer(path, lower)
  words = graph.split_words(tf.constant(texts)).to_list()
  cased = tokenization.BasicTokenizer(do_lower_case=False).tokenize
  for text, found in zip(texts, words, strict=True):
    expected = split_slowly(text) if lower else cased(text)
    assert python.basic_tokenizer.tokenize(text) == expected, ascii(text)
    assert [word.decode() for word in found] == expected, ascii(text)
    sources = python.basic_tokenizer.sources(text)
    assert len(sources) == len("".join(expected))
    tokens = python.tokenize(text)
    assert python.encode(text) == python.convert_tokens_to_ids(tokens)


def make_lines(count):
  """Yields lines of six languages; some of their words are of other shapes."""
  source = random.Random(4)
  shapes = [str, str, str, str.title, str.upper, str.lower]
  shapes += [functools.partial(unicodedata.normalize, "NFD")]
  words = {name: text.split() for name, text in SENTENCES.items()}
  for number, name in zip(range(count), itertools.cycle(words)):
    chosen = source.choices(words[name], k=source.randrange(1, 20))
    line = " ".join(source.choice(shapes)(word) for word in chosen)
    yield f"{line}{source.choice(['.', '!', '?', ''])} {number}"


@pytest.mark.parametrize(
  "count", [600, pytest.param(40_000, marks=pytest.mark.slow)]
)
def test_ids_are_those_of_tokenizers(tmp_path, count):
  tokenizers = pytest.importorskip("tokenizers")
  lines = list(make_lines(count))
  text = " ".join(SENTENCES.values()).lower()
  letters = sorted({*text, *unicodedata.normalize("NFD", text)} - {" "})
  words = [word for word in text.split() if len(word) < 5]
  tokens = [*TOKENS[:5], *letters, *map("##{}".format, letters), *words]
  tokens += "0 1 2 3 4 5 6 7 ##0 ##1 ##2 ##3 ##4 ##5 ##6 ##7".split()
  path = tmp_path / "vocab.accents"
  path.write_text("\n".join(dict.fromkeys(tokens)) + "\n", encoding="utf-8")

  theirs = tokenizers.BertWordPieceTokenizer(
    str(path), lowercase=True, strip_accents=False
  )
  batch = theirs.encode_batch(lines, add_special_tokens=False)
  python = vocabulary_table.make_tokenizer(str(path))
  ours = [python.encode(line) for line in lines]
  assert ours == [x.ids for x in batch]
  graph = tf_tokenization.make_tokenizer(str(path))
  assert graph.encode(tf.constant(lines)).to_list() == ours

  # Without accents, most lines have other tokens.
  plain = tmp_path / "vocab.txt"
  plain.write_bytes(path.read_bytes())
  strips = vocabulary_table.make_tokenizer(str(plain))
  pairs = zip(lines, ours, strict=True)
  assert sum(strips.encode(line) != ids for line, ids in pairs) > count / 2


def test_kinds_of_one_list_are_different_vocabularies(path, tmp_path):
  plain = tmp_path / "vocab.txt"
  plain.write_text("\n".join(TOKENS) + "\n")
  assert vocabulary_table.is_word_pieces(path)
  assert vocabulary_table.digest(path) != vocabulary_table.digest(str(plain))
  assert vocabulary_table.digest(str(plain)).isalnum()  # As it always was.
  with pytest.raises(ValueError, match="not of the same model"):
    vocabulary_table.copy(path, str(tmp_path))
  assert not vocabulary_table.strips_marks(path, do_lower_case=True)
  module = vocabulary_table.module_of(path)
  assert module is accented_pieces


@pytest.mark.slow
def test_a_training_and_its_exports_keep_accents(tmp_path):
  command = tiny.prepare("run_classifier", tmp_path)
  program_flags.succeed([*command, "--strip_accents=false"])
  out = tmp_path / "out"
  assert (out / "vocab.accents").exists()
  assert not (out / "vocab.txt").exists()
  trained = bert.load(out)
  texts = [f"{tiny.GOOD[0]} the", f"{tiny.GOOD[0]} th\xe9", "TH\xc9"]
  expected = trained(texts)
  assert expected[0] != expected[1]  # The second has an [UNK].

  flags = {"model_dir": "", "model": out, "vocab_file": out / "vocab.accents"}
  for form in ("saved_model", "onnx"):
    path = tiny_models.run_export(tmp_path, form, format=form, **flags)
    assert bert.load(path)(texts) == tiny_models.close(expected, abs=1e-4)
  graph = tf.saved_model.load(str(tmp_path / "saved_model"))
  found = graph.signatures["serving_default"](text=tf.constant(texts))
  assert found["probabilities"].shape[0] == len(texts)

  # The same list of tokens, without accents, is another vocabulary.
  with pytest.raises(ValueError, match="not a vocab.accents, as /"):
    tiny_models.export_onnx(tmp_path, "x", model_dir="", model=out)
  again = program_flags.run_here(command)
  assert "--vocab_file is another vocabulary" in again.stderr


def test_the_next_command_says_that_accents_stay(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  tiny.write_model(tmp_path)
  (tmp_path / "text.txt").write_text(tiny.make_corpus(9))
  flags = {"strip_accents": False, "vocab_file": "vocab.txt"}
  command = record_programs.command(record_programs.PLAIN, **flags)
  result = program_flags.run_here(command)
  assert result.returncode == 0, result.stderr
  said = " ".join(result.stdout.replace("\\", "").split())
  assert "--vocab_file=vocab.txt --strip_accents=false" in said


def test_a_vocabulary_with_accents_looks_cased_and_is_not(tmp_path):
  model = tmp_path / "model"
  tiny_models.write_masked_lm(model)
  (model / "config.json").rename(model / "bert_config.json")
  flags = {"input": model, "output_format": "google"}

  def convert(name, **others):
    others["output"] = tmp_path / name
    command = program_flags.command("convert_checkpoint", **flags, **others)
    return program_flags.run_here(command)

  path = model / "vocab.txt"
  path.write_text(path.read_text().replace("film", "f\u00eflm"))
  result = convert("accents", strip_accents=False)
  assert result.returncode == 0, result.stderr
  assert (tmp_path / "accents/vocab.accents").exists()
  # Afterwards nothing has to be passed, nor for more tokens.
  flags["input"] = tmp_path / "accents"
  more = tmp_path / "more.txt"
  more.write_text(path.read_text() + "neu\n")
  rows = len(more.read_text().splitlines())
  for name, others in (
    ("again", {}),
    ("longer", {"vocab_file": more, "resize_vocab": rows}),
  ):
    result = convert(name, **others)
    assert "tokens, do_lower_case=true" in result.stdout, result.stderr
    assert (tmp_path / name / "vocab.accents").exists()
    assert not (tmp_path / name / "tokenizer_config.json").exists()
  message = "vocab.accents keeps accents: leave out the flag"
  program_flags.assert_refused(convert("x", strip_accents=True), message)
  # As files of the model say, not its vocabulary's name.
  flags["input"] = model
  stated = {"do_lower_case": True, "strip_accents": False}
  (model / "tokenizer_config.json").write_text(json.dumps(stated))
  message = "tokenizer_config.json keeps accents: leave out the flag"
  program_flags.assert_refused(convert("x", strip_accents=True), message)
