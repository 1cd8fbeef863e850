"""Programs on other libraries' weights: the same as on what is made of them."""

import pathlib
import shutil

import pytest

import any_model
from bert.convert import writing
import program_flags

FIXTURES = pathlib.Path(__file__).parents[1] / "fixtures"
VOCABULARY = FIXTURES / "hub" / "assets" / "vocab.txt"


def run(program, **flags):
  """Runs a program here; returns what it prints."""
  done = program_flags.succeed(program_flags.command(program, **flags))
  return done.stdout + done.stderr


def extract(folder, name, **flags):
  """Returns the features that extract_features.py writes."""
  texts, output = folder / "texts.txt", folder / f"{name}.jsonl"
  texts.write_text("word1 word24\nword7\n")
  flags |= {"input_file": texts, "output_file": output}
  run("extract_features", layers="-1,-2", max_seq_length=6, **flags)
  return output.read_text()


@pytest.mark.parametrize(
  "name", ["hub", "projected", "keras_hub", "hugging_face"]
)
def test_a_model_of_another_library_is_its_folder(name, tmp_path):
  source = tmp_path / "source"
  given = {"vocab_file": str(VOCABULARY)}
  if name in ("keras_hub", "hugging_face"):
    model = any_model.read(FIXTURES / "hub", **given)
    writing.write(name, str(source), model)
  else:
    shutil.copytree(FIXTURES / name, source)
  if name == "hub":
    (source / "saved_model.pb").touch()  # It marks such a folder.
  converted = tmp_path / "google"
  writing.write("google", str(converted), any_model.read(source, **given))
  files = {
    "vocab_file": VOCABULARY,
    "bert_config_file": converted / "bert_config.json",
  }
  expected = extract(tmp_path, "ours", init_checkpoint=converted, **files)
  assert len(expected.splitlines()) == 2
  theirs = extract(tmp_path, "theirs", init_checkpoint=source, **files)
  assert theirs == expected
  # Only the checkpoint of Model Garden has no vocabulary.
  vocabulary = {"vocab_file": VOCABULARY} if name == "projected" else {}
  again = extract(tmp_path, "again", model=source, **vocabulary)
  assert again == expected
  output = tmp_path / "converted_again"
  any_model.convert(model=source, output=output, **vocabulary)
  for path in converted.iterdir():
    assert (output / path.name).read_bytes() == path.read_bytes(), path.name


def test_records_are_made_with_the_vocabulary_and_casing_of_a_model(tmp_path):
  text, records = tmp_path / "texts.txt", tmp_path / "records"
  text.write_text("word1 Word2\nword3\n\nword4 word5\nword6\n")
  flags = {"input_file": text, "output_file": records, "max_seq_length": 16}

  def make(**others):
    said = run("create_pretraining_data", **flags, **others)
    return said, records.read_bytes()

  folder = tmp_path / "model"
  folder.mkdir()
  (folder / "settings.json").write_text('{"do_lower_case": false}')
  (folder / "vocab.txt").write_bytes(VOCABULARY.read_bytes())
  _, lower = make(vocab_file=VOCABULARY)
  _, cased = make(vocab_file=VOCABULARY, do_lower_case=False)
  assert lower != cased
  said, made = make(model=folder)
  assert (made, f"{folder}/settings.json says" in said) == (cased, True)
  _, made = make(model=FIXTURES / "hub")
  assert made == lower
