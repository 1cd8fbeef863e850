"""Programs on other libraries' weights: the same as on what is made of them."""

import pathlib
import shutil

import pytest

import program_flags
from weights import conversion

FIXTURES = pathlib.Path(__file__).parents[1] / "fixtures"
VOCABULARY = FIXTURES / "hub" / "assets" / "vocab.txt"


def extract(folder, name, checkpoint, config):
  """Returns the features that extract_features.py writes."""
  texts, output = folder / "texts.txt", folder / f"{name}.jsonl"
  texts.write_text("word1 word24\nword7\n")
  run = program_flags.run_here(
    program_flags.command(
      "extract_features",
      input_file=texts,
      output_file=output,
      vocab_file=VOCABULARY,
      bert_config_file=config,
      init_checkpoint=checkpoint,
      layers="-1,-2",
      max_seq_length=6,
    )
  )
  assert run.returncode == 0, run.stderr
  return output.read_text()


@pytest.mark.parametrize("name", ["hub", "projected", "keras_hub"])
def test_programs_read_what_other_libraries_wrote(name, tmp_path):
  source = tmp_path / "source"
  given = conversion.Given(vocab_file=str(VOCABULARY))
  if name == "keras_hub":
    model = conversion.read(str(FIXTURES / "hub"), given)
    conversion.write_keras_hub(str(source), model)
  else:
    shutil.copytree(FIXTURES / name, source)
  converted = tmp_path / "google"
  conversion.write_google(str(converted), conversion.read(str(source), given))
  config = converted / "bert_config.json"
  theirs = extract(tmp_path, "theirs", source, config)
  assert theirs == extract(tmp_path, "ours", converted, config)
  assert len(theirs.splitlines()) == 2
