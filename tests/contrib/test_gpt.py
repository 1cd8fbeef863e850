"""GPT-1's folder of numbers, with transformers as the oracle."""

import json
import os

os.environ.setdefault("USE_TF", "0")

import numpy as np
import pytest

import any_model
from bert.cli import model_folder

torch = pytest.importorskip("torch", reason="needs requirements/bench.txt")
transformers = pytest.importorskip("transformers")

import tensorflow as tf

import bert
from bert import convert_checkpoint, heads
from bert.contrib import gpt_vocabulary
from bert.vocabularies import vocabulary_table
from bert.weights import checkpoints
import program_flags

LAYERS, HIDDEN, TOKENS, POSITIONS = 2, 128, 30, 12
PARTS = "attn.c_attn attn.c_proj ln_1 mlp.c_fc mlp.c_proj ln_2".split()
IDS = np.random.default_rng(1).integers(0, TOKENS, [3, POSITIONS])


@pytest.fixture(name="theirs", scope="module")
def make_theirs():
  config = transformers.OpenAIGPTConfig(
    vocab_size=TOKENS,
    n_positions=POSITIONS,
    n_embd=HIDDEN,
    n_layer=LAYERS,
    n_head=2,
  )
  torch.manual_seed(1)
  model = transformers.OpenAIGPTModel(config).eval()
  for parameter in model.parameters():  # Biases and norms are not 0 and 1.
    torch.nn.init.normal_(parameter, std=0.3)
  return model


def outputs_of(model):
  with torch.no_grad():
    return model(torch.tensor(IDS)).last_hidden_state.numpy()


def write(model, folder, pieces=10):
  """Writes a model's parameters as OpenAI's repository has them."""
  state = {k: v.detach().numpy() for k, v in model.state_dict().items()}
  names = ["positions_embed.weight", "tokens_embed.weight"]
  for layer in range(LAYERS):
    for part in PARTS:
      names += [f"h.{layer}.{part}.{leaf}" for leaf in ("weight", "bias")]
  values = [state[name] for name in names]
  shapes = [
    [1, *v.shape] if ".c_" in name and v.ndim == 2 else list(v.shape)
    for name, v in zip(names, values, strict=True)
  ]
  (folder / "params_shapes.json").write_text(json.dumps(shapes))
  flat = np.concatenate([v.ravel() for v in values])
  for number, part in enumerate(np.array_split(flat, pieces)):
    np.save(folder / f"params_{number}.npy", part)


def test_the_outputs_are_those_of_transformers(theirs, tmp_path):
  write(theirs, tmp_path)
  reader = model_folder.open_model(str(tmp_path))
  assert reader.config.causal_attention
  assert reader.config.num_hidden_layers == LAYERS
  model = heads.PretrainingModel(reader.config)
  loaded = any_model.load(
    tmp_path, model, lambda n: "/pooler/" in n or "cls/seq" in n
  )
  missing = {name.split("/")[-2] for name in loaded.missing}
  assert missing == {"dense", "seq_relationship"}
  ours = model.bert(tf.constant(IDS, tf.int32)).sequence_output
  expected = outputs_of(theirs)
  np.testing.assert_allclose(ours, expected, atol=1e-5)
  everywhere = tf.tile(tf.range(POSITIONS)[None], [3, 1])
  logits = model(tf.constant(IDS, tf.int32), None, None, everywhere)
  table = theirs.tokens_embed.weight.detach().numpy()
  np.testing.assert_allclose(
    logits.masked_lm_logits[..., :TOKENS], expected @ table.T, atol=1e-4
  )
  # What comes later changes nothing.
  whole = model.bert(tf.constant([[3, 4, 5, 6]]))
  other = model.bert(tf.constant([[3, 4, 7, 0]]), tf.constant([[1, 1, 1, 0]]))
  np.testing.assert_allclose(
    whole.sequence_output[:, :2], other.sequence_output[:, :2], atol=1e-6
  )
  # The pooled token is the last one.
  shorter = model.bert(tf.constant([[3, 4, 7]]))
  pooled = other.pooled_output, shorter.pooled_output
  np.testing.assert_allclose(*pooled, atol=1e-6)


def test_a_model_is_read_anew_after_it_was_assigned(
  theirs, tmp_path, monkeypatch
):
  """Its arrays must not stay in memory during a training."""
  write(theirs, tmp_path)
  weights = model_folder.open_model(str(tmp_path)).weights
  load, loaded = np.load, []

  def count(file, **options):
    loaded.append(file.name)
    return load(file, **options)

  monkeypatch.setattr(np, "load", count)
  variables = {
    name: tf.Variable(tf.zeros(shape)) for name, shape in weights.shapes.items()
  }
  checkpoints.assign(weights, variables)
  # Each file once for all variables, and once more for a later one.
  files = sorted(map(str, tmp_path.glob("params_*.npy")))
  assert sorted(loaded) == files
  weights.read("bert/embeddings/word_embeddings")
  assert sorted(loaded) == sorted(2 * files)


@pytest.mark.parametrize(
  ("damage", "message"),
  [
    ([[1, 2]], "params_shapes.json: not the shapes of a GPT-1"),
    (None, "lacks .*/params_9.npy: copy it there, too"),
    (np.array([{}]), "params_9.npy: not an array of numbers"),
    (np.zeros(3), "params_9.npy: float64, expected float32 numbers"),
    (np.zeros(10**6, np.float32), "numbers in 10 files; params_shapes.json"),
  ],
)
def test_damage_is_named(theirs, damage, message, tmp_path):
  write(theirs, tmp_path)
  path = tmp_path / "params_9.npy"
  path.unlink()
  if isinstance(damage, list):
    (tmp_path / "params_shapes.json").write_text(json.dumps(damage))
  elif damage is not None:
    np.save(path, damage, allow_pickle=True)
  with pytest.raises((ValueError, OSError), match=message):
    any_model.values(tmp_path)


def test_a_converted_folder_is_whole(theirs, tmp_path):
  source, output = tmp_path / "gpt", tmp_path / "out"
  source.mkdir()
  write(theirs, source)
  tokens = ["<unk>", "a", "b</w>", "ab</w>", *map(str, range(TOKENS - 4))]
  vocab = {token: index for index, token in enumerate(tokens)}
  (source / gpt_vocabulary.ENCODER).write_text(json.dumps(vocab))
  (source / gpt_vocabulary.MERGES).write_text("#version: 0.2\na b</w>\n")

  def convert(**flags):
    program_flags.run_main(
      convert_checkpoint, convert_checkpoint.ConversionSettings, **flags
    )

  convert(input=source, output=output)
  # The weights do not tell the number of heads: a config may.
  path, config = tmp_path / "heads.json", output / "bert_config.json"
  fields = json.loads(config.read_text()) | {"num_attention_heads": 4}
  path.write_text(json.dumps(fields))
  convert(input=source, output=tmp_path / "four", bert_config_file=path)
  written = json.loads((tmp_path / "four/bert_config.json").read_text())
  assert written["num_attention_heads"] == 4
  path = vocabulary_table.find([str(output)])
  assert vocabulary_table.make_tokenizer(path).encode("AB abc") == [3, 1, 0, 0]
  with pytest.warns(UserWarning, match="lacks bert/pooler"):
    encoder = bert.load_encoder(str(output))
  found = encoder(tf.constant(IDS, tf.int32)).sequence_output
  np.testing.assert_allclose(found, outputs_of(theirs), atol=1e-5)
  with pytest.raises(ValueError, match="its vocabulary is not BERT's: pass"):
    convert(input=output, output=tmp_path / "no", output_format="hugging_face")
