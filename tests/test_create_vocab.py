"""Tests of create_vocab.py."""

import collections
import functools
import gzip
import json
import pathlib

import pytest
from tensorflow_text.tools.wordpiece_vocab import (
  wordpiece_tokenizer_learner_lib as learner,
)

from bert import create_vocab, tokenization
from bert.cli import vocab_settings
import paths
import program_flags

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXT = "The walker walks, the talker talks. W\xe9 walked and talked!\n" * 9


@pytest.fixture
def corpus(tmp_path):
  path = tmp_path / "corpus.txt"
  path.write_text(TEXT, encoding="utf-8")
  return str(path)


def test_the_program_writes_what_the_tokenizer_reads(
  tmp_path, corpus, monkeypatch
):
  chinese = "\u4e2d\u6587\uff0c\u4e2d\n" * 3
  (tmp_path / "zh.txt.gz").write_bytes(gzip.compress(chinese.encode()))
  monkeypatch.chdir(tmp_path)
  command = program_flags.command(
    "create_vocab",
    input_file="corpus.txt,*.gz",
    output_file="new/vocab.txt",
    vocab_size=44,
    reserved_tokens="[PAD],[unused0],[UNK],[CLS],[SEP],[MASK]",
  )
  result = program_flags.run_command(command)
  assert result.returncode == 0, result.stderr
  assert result.stdout.startswith(
    "12 lines, 129 words, 15 different\n"
    "[UNK] for 0.00% of the words, 0.00% of the characters\n"
    "finished in "
  )
  wrote = "\n  wrote new/vocab.txt: 44 tokens of the 44 asked for\n  next: "
  assert wrote in result.stdout
  tokenizer = tokenization.FullTokenizer(str(tmp_path / "new" / "vocab.txt"))
  assert list(tokenizer.vocab)[:3] == ["[PAD]", "[unused0]", "[UNK]"]
  assert len(tokenizer.vocab) == 44
  assert tokenizer.tokenize("The \u4e2d,") == ["the", "\u4e2d", ","]
  # Unknown words are made of known letters.
  assert "[UNK]" not in tokenizer.tokenize("lend a wand")
  assert not {"##\u4e2d", "##,"} & set(tokenizer.vocab)


def test_accents_are_learned(tmp_path, corpus, capsys):
  flags = {"input_file": corpus, "output_file": tmp_path / "vocab.txt"}
  learn = functools.partial(
    program_flags.run_main, create_vocab, vocab_settings.VocabSettings, **flags
  )
  learn(strip_accents=False)
  tokens = (tmp_path / "vocab.txt").read_text(encoding="utf-8").split("\n")
  assert "w\xe9" in tokens and "W" not in tokens
  assert "--strip_accents=false" in capsys.readouterr().out
  with pytest.raises(ValueError, match="--strip_accents=true needs --do_lower"):
    learn(strip_accents=True, do_lower_case=False)

  # Words with accents are added to such a vocabulary.
  (tmp_path / "old.txt").write_text(
    "\n".join([*SPECIAL, "w", "##\xe9", "w\xe0"])
  )
  learn(strip_accents=False, extend=tmp_path / "old.txt")
  tokens = (tmp_path / "vocab.txt").read_text(encoding="utf-8").split("\n")
  assert "w\xe9" in tokens and "we" not in tokens


def test_no_more_pieces_than_asked_for_and_the_same_each_time():
  words = {"walking": 9, "talking": 8, "walked": 7, "talked": 6, "wand": 2}
  first = create_vocab.learn_vocab(words, SPECIAL, 40)
  again = create_vocab.learn_vocab(dict(reversed(words.items())), SPECIAL, 40)
  assert list(first) == list(again)
  assert len(first) <= 40
  assert set(words) <= set(first)


@pytest.mark.parametrize("model", ["wordpiece", "unigram"])
def test_a_column_of_json_lines_is_the_text(write, model):
  ending = "" if model == "wordpiece" else ".model"
  rows = [json.dumps({"id": "z" * 9, "body": x}) for x in TEXT.splitlines()]
  written = []
  for name, content, column in (
    ("a.txt", TEXT, {}),
    ("a.jsonl", "\n".join(rows), {"text_column": "body"}),
  ):
    write(name, content)
    flags = {"input_file": name, "output_file": name[2:] + ending}
    flags |= {"vocab_size": 40, "model": model, **column}
    program_flags.succeed(program_flags.command("create_vocab", **flags))
    written.append(pathlib.Path(flags["output_file"]).read_bytes())
  assert written[0] == written[1]
  flags = {"input_file": "a.jsonl", "output_file": "v"}
  program_flags.assert_refused(
    program_flags.run_here(program_flags.command("create_vocab", **flags)),
    "a.jsonl: JSON Lines, not plain text, with the keys id, body: pass --text_",
  )


def test_the_name_of_the_folder_is_no_pattern(tmp_path, monkeypatch):
  (tmp_path / "a[1]").mkdir()
  monkeypatch.chdir(tmp_path / "a[1]")
  settings = vocab_settings.VocabSettings(
    input_file="te*.txt", output_file="tests.txt"
  )
  with pytest.raises(
    ValueError, match="tests.txt: the next program would find"
  ):
    vocab_settings.check_files(settings, [])


def test_words_are_the_tokenizers(corpus):
  settings = vocab_settings.VocabSettings(input_file="", output_file="")
  split = tokenization.BasicTokenizer().tokenize
  lines, *_, words = create_vocab.count_words([corpus], settings, split)
  assert lines == 9
  assert words["the"] == 18
  assert words["we"] == words[","] == words["!"] == 9
  split = tokenization.BasicTokenizer(do_lower_case=False).tokenize
  *_, words = create_vocab.count_words([corpus], settings, split)
  assert words["The"] == words["the"] == words["W\xe9"] == 9


def test_the_table_of_words_is_bounded(tmp_path, capsys):
  path = tmp_path / "corpus.txt"
  path.write_text("b b b a a\nd d c\ne\n")  # The fifth word is too many.
  settings = vocab_settings.VocabSettings(input_file="", output_file="")
  *numbers, words = create_vocab.count_words(
    [str(path)], settings, str.split, most_words=2
  )
  assert words == {"b": 3, "a": 2}
  assert numbers == [3, 9, 9]
  # Dropped words count as unknown.
  create_vocab.print_coverage(words, dict.fromkeys("ab"), *numbers[1:])
  expected = "[UNK] for 44.44% of the words, 44.44% of the characters\n"
  assert capsys.readouterr().out == expected


def test_characters_cover_the_text():
  words = {"ab": 6, ",": 5, "\u4e2d": 2, "z": 1}
  choose, others = create_vocab.choose_characters, [",", "\u4e2d"]
  assert choose(words) == (["a", "b", "z"], others)
  assert choose(words, 0.9) == (["a", "b"], others)
  assert choose(words, 0.8) == (["a", "b"], [","])


def library_pieces(words, frequency):
  """Returns the pieces of tensorflow_text's learner, without single letters."""
  limits = {"upper_thresh": frequency, "lower_thresh": frequency}
  found = learner.learn(words, 100, [], **limits, max_unique_chars=10**7)
  return [piece for piece in found if len(piece.removeprefix("##")) > 1]


def our_pieces(words, frequency):
  found = create_vocab.PieceLearner(words).learn(frequency)
  return [piece for piece in found if len(piece.removeprefix("##")) > 1]


@pytest.mark.parametrize("frequency", [1, 2, 3, 20, 500, 10**6])
@pytest.mark.parametrize("name", ["en_wikitext2_validtest", "en_gutenberg"])
def test_pieces_are_those_of_tensorflow_text(name, frequency):
  path = paths.SHARED / f"data/corpus/corpus_{name}.txt"
  if not path.exists():
    pytest.skip(f"no {path}")
  with path.open(encoding="utf-8") as file:
    text = file.read(100_000)
  words = collections.Counter(filter(str.isalpha, text.split()))
  words = [*words.items(), ("x" * 51, 7)]  # The last is too long for both.
  assert our_pieces(words, frequency) == library_pieces(words, frequency)


@pytest.mark.parametrize("frequency", range(1, 12))
def test_pieces_of_few_words_are_those_of_tensorflow_text(frequency):
  words = [("abcab", 5), ("cab", 4), ("ab", 3), ("bcabab", 2), ("d", 2)]
  assert our_pieces(words, frequency) == library_pieces(words, frequency)


def test_a_vocabulary_is_extended(tmp_path, monkeypatch, corpus):
  monkeypatch.chdir(tmp_path)
  letters = sorted({*TEXT.lower()} - {*"\xe9\n ,!."})
  old = [*SPECIAL[:2], "[unused0]", *SPECIAL[2:], *",!.", *letters]
  old += [f"##{letter}" for letter in letters]
  pathlib.Path("vocab.txt").write_text("\n".join(old) + "\n")
  flags = {"extend": "vocab.txt", "input_file": "corpus.txt"}
  flags |= {"added_tokens": 3, "output_file": "new.txt"}
  result = program_flags.succeed(program_flags.command("create_vocab", **flags))
  found = pathlib.Path("new.txt").read_text().splitlines()
  # Tokens that they save in a line: 12, then 4 each.
  assert found == [*old[:2], "##alk", *old[3:], "##alke", "the"]
  assert "3 new tokens, 1 of them in rows of [unusedN]: " in result.stdout
  end = f"wrote new.txt: {len(old) + 2} tokens\n  next: python "
  end += str(paths.ROOT / "convert_checkpoint.py")
  assert f"{end} --input=. --add_tokens=new.txt" in result.stdout
