"""The files of a BERT that sentence-transformers 6.2 writes; its vectors."""

import numpy as np

from bert import extract_features
import program_flags

WRITTEN = {
  "modules.json": [
    {
      "idx": 0,
      "name": "0",
      "path": "",
      "type": "sentence_transformers.base.modules.transformer.Transformer",
    },
    {
      "idx": 1,
      "name": "1",
      "path": "1_Pooling",
      "type": "sentence_transformers.sentence_transformer.modules.pooling"
      ".Pooling",
    },
    {
      "idx": 2,
      "name": "2",
      "path": "2_Normalize",
      "type": "sentence_transformers.base.modules.normalize.Normalize",
    },
  ],
  "1_Pooling/config.json": {
    "embedding_dimension": 384,
    "pooling_mode": "mean",
    "include_prompt": True,
  },
  "2_Normalize/config.json": {
    "module_input_name": "sentence_embedding",
    "module_output_name": "sentence_embedding",
  },
  "sentence_bert_config.json": {
    "transformer_task": "feature-extraction",
    "modality_config": {
      "text": {
        "method": "forward",
        "method_output_name": "last_hidden_state",
      }
    },
    "module_output_name": "token_embeddings",
  },
  "config_sentence_transformers.json": {
    "__version__": {
      "pytorch": "2.13.0+cpu",
      "sentence_transformers": "6.2.0",
      "transformers": "5.24.0",
    },
    "default_prompt_name": None,
    "model_type": "SentenceTransformer",
    "prompts": {"document": "", "query": ""},
    "similarity_fn_name": "cosine",
  },
  "tokenizer_config.json": {
    "backend": "tokenizers",
    "cls_token": "[CLS]",
    "do_basic_tokenize": True,
    "do_lower_case": True,
    "is_local": True,
    "local_files_only": False,
    "mask_token": "[MASK]",
    "max_length": 128,
    "model_max_length": 256,
    "never_split": None,
    "pad_to_multiple_of": None,
    "pad_token": "[PAD]",
    "pad_token_type_id": 0,
    "padding_side": "right",
    "sep_token": "[SEP]",
    "stride": 0,
    "strip_accents": None,
    "tokenize_chinese_chars": True,
    "tokenizer_class": "BertTokenizer",
    "truncation_side": "right",
    "truncation_strategy": "longest_first",
    "unk_token": "[UNK]",
  },
}


def extract(folder, texts, **flags):
  """Returns the vectors that extract_features.py makes of texts, [N, H]."""
  (folder / "in.txt").write_text("".join(f"{text}\n" for text in texts))
  program_flags.run_main(
    extract_features,
    extract_features.VectorSettings,
    model=folder,
    input_file=folder / "in.txt",
    output_file=folder / "out.npz",
    output_format="npz",
    **flags,
  )
  with np.load(folder / "out.npz") as found:
    return found["vectors"][:, 0]
