"""Every encoder learns more from masked words than how frequent they are."""

import importlib.util
import re

import pytest

import paths

# A Transformer stays near the entropy before its attention finds anything.
STEPS = {"bert": 1500, "text_cnn": 500, "bilstm": 500}


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
  """Makes records of the manual that every Python carries."""
  path = paths.ROOT / "examples" / "pretrain_pydoc.py"
  spec = importlib.util.spec_from_file_location("pretrain_pydoc", path)
  example = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(example)
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
  return example, folder


@pytest.mark.slow
@pytest.mark.parametrize("encoder", STEPS)
def test_the_loss_falls_below_the_entropy_of_words(encoder, demo, capfd):
  """The loss is of text not trained on, the unigram entropy of that trained."""
  example, folder = demo
  example.write_config(folder, paths.ROOT / f"configs/{encoder}_tiny.json")
  scores = example.pretrain(
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
  print(f"{encoder}: {scores['masked_lm_loss']:.3f} < {entropy:.3f}")
  assert scores["masked_lm_loss"] < entropy - 0.2
