"""Guesses the words behind [MASK], or scores texts by guessing every word.

  python fill_mask.py --text="the capital of france is [MASK]." --model=$BERT

Without --text it reads --input_file, or else the standard input.
"""

import dataclasses

from bert.cli import inference_settings, model_folder, program, typed_flags
from bert.data import files, progress

_data = typed_flags.group("Data")
_output = typed_flags.group("Output")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FillMaskSettings(inference_settings.InferenceSettings):
  """The settings of this program."""

  text: tuple[str, ...] = _data(
    (),
    "A text, instead of --input_file. You may pass the flag several times.",
    repeated=True,
  )
  top_k: int = _output(
    5, "How many guesses to give for each mask.", least=1, needs="score=false"
  )
  score: bool = _output(
    False,
    "Whether to score each text instead. Every token is masked in turn; the "
    "program gives the sum of the logarithms of the right tokens' "
    "probabilities (pseudo-log-likelihood) and the pseudo-perplexity. A model "
    "that reads from left to right guesses each token from the ones before it, "
    "which gives the real likelihood and perplexity.",
  )
  output_format: str = _output(
    "table",
    "table: for people. jsonl: one JSON object per line of the input.",
    choices=("table", "jsonl"),
  )


if __name__ == "__main__":
  program.start(FillMaskSettings)

from collections.abc import Iterator
import functools
import sys
import time

import tensorflow as tf

from bert import heads
from bert.cli import text_programs
from bert.inputs import text_inputs
from bert.tasks import masked_words
from bert.vocabularies import vocabulary_table

# By --output_format and --score: how an answer is written.
_WRITERS = {
  ("table", False): masked_words.guesses_table,
  ("jsonl", False): masked_words.guesses_json,
  ("table", True): masked_words.score_table,
  ("jsonl", True): masked_words.score_json,
}


def guess(outputs, features, row_bias, top_k) -> dict[str, tf.Tensor]:
  """Guesses the masked token of every row of a batch.

  `features` are rows of `masked_words.MaskedWords`, int32 [B, S] or [B, 1].
  `row_bias`, float32 [V], rules out rows that have no token. Returns ids,
  int32, and probabilities, float32, of the most likely tokens [B, top_k];
  log_prob, float32 [B], of the token that was there.
  """
  logits = outputs.masked_lm_logits[:, 0] + row_bias
  log_probs = tf.nn.log_softmax(logits)  # [B, V]
  best, ids = tf.math.top_k(log_probs, top_k)
  asked = tf.gather(log_probs, features["masked_lm_ids"][:, 0], batch_dims=1)
  return {"ids": ids, "probabilities": tf.exp(best), "log_prob": asked}


def make_masked_words(settings: FillMaskSettings) -> masked_words.MaskedWords:
  """Makes the model of the flags and loads its weights."""
  make_model, tokens = heads.PretrainingModel, [masked_words.MASK]
  model = text_programs.open_model(settings, make_model, tokens)
  vocab = model.tokenizer.vocab
  compute = functools.partial(
    guess,
    row_bias=vocabulary_table.bias_of_rows(vocab, model.config.vocab_size),
    top_k=min(settings.top_k, len(vocabulary_table.ids_of_tokens(vocab))),
  )
  return masked_words.MaskedWords(
    model.tokenizer,
    settings.max_seq_length,
    model.make_predict(compute),
    model.config.is_bidirectional,
  )


def ask(settings, words, lines) -> Iterator[masked_words.Cloze]:
  """Yields the masked line of each; at a terminal, only warns of bad lines."""
  find = words.find_words if settings.score else words.find_masks
  for line in lines:
    try:
      yield find(line)
    except ValueError as error:
      if not lines.is_typed:
        raise
      progress.note(error)


def main(block_lines: int = 1024, block_ids: int = 1 << 21) -> None:
  """Answers blocks of at most so many lines and ids of rows.

  The score of a text takes a row as long as the text for each of its tokens.
  """
  start = time.monotonic()
  settings = model_folder.find_files(FillMaskSettings.read())
  lines = text_programs.Lines(settings, settings.text)
  words = make_masked_words(settings)
  if lines.is_typed:
    progress.note("type one sentence per line; Ctrl-D ends the input")
  blocks = text_inputs.split_into_blocks(
    ask(settings, words, lines),
    1 if lines.is_typed else block_lines,
    lambda cloze: len(cloze.ids) * len(cloze.positions),
    block_ids,
  )
  answer = words.score if settings.score else words.fill
  show = _WRITERS[settings.output_format, settings.score]
  total, tokens = 0.0, 0
  with files.open_lines(settings.output_file) as write:
    if settings.score and settings.output_format == "table":
      write(masked_words.SCORE_HEADER)
    for block in blocks:
      for cloze, result in zip(block, answer(block), strict=True):
        write(show(cloze.line, result))
        if isinstance(result, masked_words.Score):
          total += result.pseudo_log_likelihood
          tokens += len(result.tokens)
      lines.report()
  wrote = f"wrote {settings.output_file}: " if settings.output_file else ""
  summary = [f"{wrote}{lines.count:,} line(s), {lines.speed()}"]
  if tokens:
    summary.append(
      f"{tokens:,} tokens, pseudo-log-likelihood {total:.2f}, "
      f"pseudo-perplexity {masked_words.perplexity(total, tokens):.2f}"
    )
  command = ""
  if words.is_bidirectional:  # No export guesses from one side.
    command = text_programs.export_command(settings, "fill_mask")
  # Beside the results.
  program.print_end(start, *summary, command=command, file=sys.stderr)


if __name__ == "__main__":
  program.run_program(main)
