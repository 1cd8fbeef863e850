"""Guesses the words behind [MASK], or scores texts by guessing every word.

  python fill_mask.py --text="the capital of france is [MASK]." \\
    --model=google-bert/bert-base-uncased

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

  Args:
    outputs: of `heads.PretrainingModel`.
    features: rows of `masked_words.MaskedWords`, int32 [B, S] or [B, 1].
    row_bias: float32 [V]; rules out rows of the table that have no token.
    top_k: how many tokens to guess.

  Returns:
    ids, int32, and probabilities, float32, of the most likely tokens, each
    [B, top_k]; log_prob, float32 [B], of the token that was there.
  """
  # Each row has one mask: the pre-training head predicts at one position.
  logits = outputs.masked_lm_logits[:, 0] + row_bias
  log_probs = tf.nn.log_softmax(logits)  # [B, V]

  # --score reads the probability of the token that was there. Without --score
  # that token is [MASK] itself, and nothing reads its probability.
  best, ids = tf.math.top_k(log_probs, top_k)
  asked = tf.gather(log_probs, features["masked_lm_ids"][:, 0], batch_dims=1)
  return {"ids": ids, "probabilities": tf.exp(best), "log_prob": asked}


def make_masked_words(settings: FillMaskSettings) -> masked_words.MaskedWords:
  """Makes the model of the flags and loads its weights."""
  # The tokenizer keeps [MASK] whole. It would split it at its brackets, as it
  # splits other texts at punctuation.
  model = text_programs.open_model(
    settings, heads.PretrainingModel, [masked_words.MASK]
  )

  # A vocabulary may have fewer tokens than --top_k.
  vocab = model.tokenizer.vocab
  compute = functools.partial(
    guess,
    # Rows of the embedding table that have no token are never guessed.
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
  """Yields each line with the places of the tokens that are asked for.

  Args:
    settings: the flags; --score asks for every token, not for the masks.
    words: encodes the lines.
    lines: a `text_programs.Lines`.

  Raises:
    ValueError: names a line without a mask, or for --score one with a mask. A
      user who types only gets the message, and may type again.
  """
  # Each line is encoded only when the block before it has been answered.
  find = words.find_words if settings.score else words.find_masks
  for line in lines:
    try:
      yield find(line)
    except ValueError as error:
      if not lines.is_typed:
        raise
      progress.note(error)


def main(block_lines: int = 1024, block_ids: int = 1 << 21) -> None:
  """Answers the lines, block by block, and writes the answers.

  Args:
    block_lines: the largest number of lines of a block.
    block_ids: the largest number of ids in its rows. There is a row for each
      token that is asked for, as long as the text: to score a text of 100
      tokens takes 10,000 ids.
  """
  start = time.monotonic()
  settings = model_folder.find_files(FillMaskSettings.read())

  # A missing input is noticed before the model is loaded, which takes seconds.
  lines = text_programs.Lines(settings, settings.text)
  words = make_masked_words(settings)

  # A user who types a line waits for its answer, so each line is a block then.
  if lines.is_typed:
    progress.note("type one sentence per line; Ctrl-D ends the input")
  blocks = text_inputs.split_into_blocks(
    ask(settings, words, lines),
    1 if lines.is_typed else block_lines,
    lambda cloze: len(cloze.ids) * len(cloze.positions),
    block_ids,
  )

  # --score asks for the probability of every token of a text; otherwise, the
  # likeliest tokens at each mask are asked for.
  answer = words.score if settings.score else words.fill
  show = _WRITERS[settings.output_format, settings.score]
  log_likelihood = 0.0
  tokens = 0
  with files.open_lines(settings.output_file) as write:
    if settings.score and settings.output_format == "table":
      write(masked_words.SCORE_HEADER)

    for block in blocks:
      for cloze, result in zip(block, answer(block), strict=True):
        write(show(cloze.line, result))
        # The perplexity in the summary is of all tokens of the input.
        if isinstance(result, masked_words.Score):
          log_likelihood += result.pseudo_log_likelihood
          tokens += len(result.tokens)
      lines.report()

  wrote = f"wrote {settings.output_file}: " if settings.output_file else ""
  summary = [f"{wrote}{lines.count:,} line(s), {lines.speed()}"]
  if tokens:
    summary.append(
      f"{tokens:,} tokens, pseudo-log-likelihood {log_likelihood:.2f}, "
      f"pseudo-perplexity {masked_words.perplexity(log_likelihood, tokens):.2f}"
    )

  # export_saved_model.py refuses a model that reads from left to right.
  command = ""
  if words.is_bidirectional:
    command = text_programs.export_command(settings, "fill_mask")

  # The answers may go to the standard output, so the summary does not.
  program.print_end(start, *summary, command=command, write=progress.note)


if __name__ == "__main__":
  program.run_program(main)
