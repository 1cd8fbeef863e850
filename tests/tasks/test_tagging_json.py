"""Sentences of JSON Lines: tags by name or number, and entities of texts."""

import json

import pytest

from bert.tasks import tagging, tagging_data, tagging_json
import tiny

NAMES = ("O", "B-PER", "I-PER")
TEXT = "Al  Bo met Cy-like (Di)."


def write(path, *rows):
  path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
  return str(path)


def read(path, *rows, **changes):
  source = tagging.Source(write(path, *rows))._replace(**changes)
  return list(tagging.read_sentences(source))


def entity(start, end, label):
  return {"start": start, "end": end, "label": label}


@pytest.mark.parametrize("key", ["tags", "ner_tags"])
def test_tags_are_names_or_numbers(tmp_path, key):
  path = tmp_path / "t.jsonl"
  [sentence] = read(path, {"tokens": ["Al", "5"], key: ["B-PER", "O"]})
  assert (sentence.words, sentence.tags) == (("Al", "5"), ("B-PER", "O"))
  row = {"tokens": ["Al", "Bo", "x"], key: [1, 2, 0]}
  [sentence] = read(path, row, names=NAMES)
  assert sentence.tags == ("B-PER", "I-PER", "O")


def test_entities_are_tags_of_words(tmp_path):
  entities = [entity(11, 13, "PER"), entity(0, 6, "PER"), entity(20, 22, "LOC")]
  path = tmp_path / "t.jsonl"
  [first, second] = read(
    path, {"text": TEXT, "entities": entities}, {"text": "!", "entities": []}
  )
  assert " ".join(first.words) == "Al Bo met Cy-like ( Di ) ."
  # A word whose beginning alone is an entity is that entity.
  assert " ".join(first.tags) == "B-PER I-PER O B-PER O B-LOC O O"
  assert [TEXT[start:end] for start, end in first.offsets] == [*first.words]
  assert (first.text, second.tags) == (TEXT, ("O",))


def test_entities_within_words_are_counted(tmp_path, capsys):
  path = write(
    tmp_path / "t.jsonl",
    {"text": "Al Bo", "entities": [entity(0, 3, "A"), entity(3, 5, "A")]},
    {"text": "Al/Bo x", "entities": [entity(0, 2, "A"), entity(3, 7, "B")]},
  )
  tagging.note_comments(tagging.Source(path))
  assert capsys.readouterr().err == (
    f"note: {path}:2: an entity begins or ends within a word; of 2 such "
    "entities, the words are learned and scored as a whole\n"
  )
  [touching, shared] = tagging.read_sentences(tagging.Source(path))
  assert touching.tags == ("B-A", "B-A")
  # The first of two entities in a word has the word.
  assert (shared.words, shared.tags) == (("Al/Bo", "x"), ("B-A", "B-B"))


def test_a_text_to_predict_may_lack_entities(tmp_path):
  path = write(tmp_path / "t.jsonl", {"text": "a b"}, {"text": "c"})
  source = tagging.inspect_file(path, 0, -1, "auto", needs_tags=False)
  assert not source.is_tagged
  assert [s.words for s in tagging.read_sentences(source)] == [
    ("a", "b"),
    ("c",),
  ]
  with pytest.raises(ValueError, match="t.jsonl:1: no key 'entities'"):
    list(tagging.read_sentences(tagging.Source(path)))


@pytest.mark.parametrize(
  ("row", "names", "message"),
  [
    (
      {"tokens": ["a", "b"], "ner_tags": [0]},
      NAMES,
      "2 and 1 'tokens' and 'ner_tags'; expected as many of both",
    ),
    (
      {"tokens": ["a"], "ner_tags": [3]},
      NAMES,
      "the tag 3 is a number: expected a number from 0 to 2, as --labels has 3",
    ),
    (
      {"tokens": ["a"], "ner_tags": [-100]},
      NAMES,
      "the tag -100 is a number: expected a number from 0 to 2, as --labels has"
      " 3",
    ),
    (
      {"tokens": ["a"], "ner_tags": [0]},
      (),
      "the tag 0 is a number: expected --labels with the names of the tags",
    ),
    (
      {"tokens": ["a"], "ner_tags": ["O"], "tags": ["O"]},
      (),
      "both 'tags' and 'ner_tags': keep one",
    ),
    (
      {"text": " ", "entities": []},
      (),
      "expected a word in 'text', found none",
    ),
    ({"text": 5}, (), "'text' must be a string, found the number 5"),
    (
      {"text": "a", "entities": {}},
      (),
      "expected a list under the key 'entities', found an object",
    ),
    (
      {"text": "a", "entities": [[0, 1, "X"]]},
      (),
      "expected entities as {'start': 0, 'end': 2, 'label': 'PER'}, found "
      "['0', '1', 'X']",
    ),
    (
      {"text": "abc", "entities": [entity(1, 4, "X")]},
      (),
      "an entity from 1 to 4: expected a place in the text, which has 3 "
      "characters",
    ),
    (
      {"text": "abc", "entities": [entity(2, 2, "X")]},
      (),
      "an entity from 2 to 2: expected a place in the text, which has 3 "
      "characters",
    ),
    (
      {"text": "a b c", "entities": [entity(2, 5, "X"), entity(0, 3, "Y")]},
      (),
      "the entities from 0 to 3 (Y) and from 2 to 5 (X) overlap; a word has "
      "one tag",
    ),
    (
      {"text": "a b", "entities": [entity(1, 2, "X")]},
      (),
      "the entity from 1 to 2 has no word",
    ),
    (
      {"text": "a b", "entities": [entity(0, 1, "X\t")]},
      (),
      "expected a label without tabs, line breaks and double spaces, found "
      r"'X\t'",
    ),
  ],
)
def test_wrong_rows_are_refused(tmp_path, row, names, message):
  path = write(tmp_path / "t.jsonl", {"tokens": ["a"], "tags": ["O"]}, row)
  with pytest.raises(ValueError) as error:
    list(tagging_json.read(path, names))
  assert str(error.value) == f"{path}:2: {message}"


def write_predictions(folder, rows, labels):
  """Returns the rows of predictions.jsonl, and what is read of them."""
  source = tagging.Source(write(folder / "t.jsonl", *rows), is_tagged=False)
  tiny.write_model(folder)
  settings = tagging_data.TaggingFeatureSettings(
    str(folder / "vocab.txt"), True, 16, False, ("O", "B-X", "I-X"), "iob2"
  )
  examples = tagging_data.find_set("predict", source, settings)
  tagging_data.write_predictions(str(folder), examples, labels)
  path = folder / "predictions.jsonl"
  rows = list(map(json.loads, path.read_text().splitlines()))
  return rows, list(tagging.read_sentences(tagging.Source(str(path))))


LABELS = ["O", "B-X", "I-X"]
FOUND = {"start": 3, "end": 8, "text": "Al Bo"}


def test_predictions_for_texts_are_read_again(tmp_path):
  [row], [again] = write_predictions(tmp_path, [{"text": "x  Al Bo"}], [LABELS])
  entities = [{"label": "X", **FOUND}]
  assert row == {"id": 0, "text": "x  Al Bo", "entities": entities}
  assert list(again.tags) == LABELS


def test_predictions_for_tokens_are_read_again(tmp_path):
  tokens = ["xy", "Al", "Bo"]
  [row], [again] = write_predictions(tmp_path, [{"tokens": tokens}], [LABELS])
  assert row == {
    "id": 0,
    "tokens": tokens,
    "tags": LABELS,
    "text": "xy Al Bo",
    "entities": [{"type": "X", **FOUND}],
  }
  assert (list(again.words), list(again.tags)) == (tokens, LABELS)


def test_names_are_a_part_of_the_source_only_if_there_are_any(tmp_path):
  tiny.write_model(tmp_path)
  settings = tagging_data.TaggingFeatureSettings(
    str(tmp_path / "vocab.txt"), True, 16, False, ("O",), "none"
  )
  source = tagging.Source(str(tmp_path / "t.jsonl"))
  data = tagging_data.find_set("train", source, settings)
  # So that features and trainings from before there were names are still used.
  assert "names" not in data.source["source"]
  data = tagging_data.find_set("train", source._replace(names=NAMES), settings)
  assert data.source["source"]["names"] == NAMES


def test_each_prediction_can_be_read_as_its_own_row(tmp_path):
  """Texts and tokens in turns; and a token with a space is one column."""
  tokens = {"tokens": ["xy", "Al Al", "Bo"]}
  rows = [tokens, {"text": "x  Al Bo"}, tokens]
  found, again = write_predictions(tmp_path, rows, [LABELS] * 3)
  keys = [set(row["entities"][0]) - FOUND.keys() for row in found]
  assert keys == [{"type"}, {"label"}, {"type"}]
  assert [list(sentence.tags) for sentence in again] == [LABELS] * 3
  lines = (tmp_path / "predictions.txt").read_text().splitlines()
  assert lines[:3] == ["xy\tO", "Al Al\tB-X", "Bo\tI-X"]
