"""Every encoder learns more from masked words than how frequent they are."""

import re
import sys

import pytest

import paths

sys.path.append(str(paths.ROOT / "examples"))
import pretrain_pydoc as example

# A Transformer stays near the entropy before its attention finds anything.
STEPS = {"bert": 1500, "text_cnn": 500, "bilstm": 500}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """Makes records of the manual that every Python carries."""
  folder = tmp_path_factory.mktemp("pydoc")
  example.write_corpus(folder / "train.txt", folder / "eval.txt")
  example.run(
    "create_vocab.py",
    input_file=folder / "train.txt",
    output_file=folder / "vocab.txt",
    vocab_size=example.VOCAB_SIZE,
  )
  example.make_records(folder, "train", dupe_factor=20)
  example.make_records(folder, "eval", dupe_factor=1)
  return folder


@pytest.mark.slow
@pytest.mark.parametrize("encoder", STEPS)
def test_the_loss_falls_below_the_entropy_of_words(encoder, folder, capfd):
  """The loss is of text not trained on, the unigram entropy of that trained."""
  example.write_config(folder, paths.ROOT / f"configs/{encoder}_tiny.json")
  _, loss = example.pretrain(
    folder,
    folder / encoder,
    do_train="true",
    train_batch_size=64,
    learning_rate=1e-3,
    num_train_steps=STEPS[encoder],
    num_warmup_steps=STEPS[encoder] // 10,
  )
  said = capfd.readouterr().out
  entropy = float(re.search(r"unigram entropy ([\d.]+) nats", said)[1])
  print(f"{encoder}: {loss:.3f} < {entropy:.3f}")
  assert loss < entropy - 0.2
