"""The table that finds an encoder's classes by a config's encoder_type."""

import json

import pytest

from encoders import compiled, encoder_table
import modeling
from weights import checkpoints

SIZES = {"vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 1}
FIELDS = SIZES | {"num_attention_heads": 2}
CAUSAL = FIELDS | {"causal_attention": True}


def test_a_file_without_encoder_type_is_of_a_transformer(tmp_path):
  path = tmp_path / "bert_config.json"
  path.write_text(json.dumps(FIELDS))
  config = checkpoints.read_config(str(path))
  assert config == modeling.BertConfig(30, 8, 1, 2)
  assert "encoder_type" not in config.to_json_string()
  named = FIELDS | {"encoder_type": "transformer"}
  assert encoder_table.make_config(named) == config
  assert type(encoder_table.make_encoder(config)) is compiled.BertModel


@pytest.mark.parametrize(
  ("fields", "message"),
  [
    ({"encoder_type": "rnn"}, "known: transformer, text_cnn, bilstm"),
    ({"encoder_type": ["rnn"]}, "encoder_type is ['rnn']; known: transfor"),
    (
      {"encoder_type": "text_cnn", "num_attention_heads": 2},
      "unknown keys: num_attention_heads",
    ),
    ({"filter_sizes": [2]}, "unknown keys: filter_sizes"),
    ({"encoder_type": "bilstm", "hidden_size": 3}, "hidden_size is 3; expec"),
    ({**CAUSAL, "embedding_size": 4}, "embedding_size is 4; with causal_att"),
    ({**CAUSAL, "layer_norm_eps": 0}, "layer_norm_eps is 0; expected a numb"),
    *(
      (
        {"encoder_type": "text_cnn", "filter_sizes": sizes},
        f"filter_sizes is {sizes!r}",
      )
      for sizes in ([], [0], [2, 2], 3, ["2"])
    ),
  ],
)
def test_refuses(fields, message, tmp_path):
  path = tmp_path / "bert_config.json"
  path.write_text(json.dumps({**SIZES, **fields}))
  with pytest.raises(ValueError) as caught:
    checkpoints.read_config(str(path))
  assert str(caught.value).startswith(f"{path}: ")
  assert message in str(caught.value)
