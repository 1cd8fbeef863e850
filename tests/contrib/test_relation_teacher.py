"""The teacher of run_distillation.py."""

from bert import modeling
from bert.contrib import relation_teacher
from bert.training import memory


def test_it_takes_its_weights_and_what_is_compared():
  config = modeling.BertConfig(
    vocab_size=100,
    hidden_size=8,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=32,
    type_vocab_size=2,
  )
  encoder = modeling.BertModel(config)
  teacher = relation_teacher.Teacher(
    encoder, num_heads=2, guesses_words=True, with_vectors=False
  )
  size = memory.UpdateSize(
    parameters=1000,
    trained=900,
    trained_layers=2,
    sequences=2,
    predictions=40,
    length=16,
    recompute=True,
  )
  weights = 4 * encoder.count_params()
  hidden = 2 * 16 * 8 * (9 + 4)
  pairs = 2 * 16 * 16 * 2
  expected = 3 * 8 * 2**20 + weights + hidden + 16 * pairs + 48 * pairs
  assert teacher.memory(size, replicas=1) == expected
