"""WordPieces of text that is lower-cased and keeps its accents.

The file is a vocab.txt by another name. Tokenizers of Hugging Face call it
`strip_accents: false`. Models of languages whose accents tell words apart are
trained so: German "schon" and "sch\u00f6n", French "a" and "\u00e0".
"""

from bert import tokenization

load_vocab = tokenization.load_vocab
_cased = tokenization.BasicTokenizer(do_lower_case=False)


class Splitter(tokenization.BasicTokenizer):
  r"""Splits text into words; lower-casing keeps accents.

  >>> Splitter().tokenize("SCH\xd6N, \xc0!")
  ['schön', ',', 'à', '!']
  """

  def _lower(self, text):
    # It is clean, and stays so if it is cleaned again.
    return " ".join(_cased.tokenize(text.lower()))


class Tokenizer(tokenization.FullTokenizer):
  """Turns text into tokens and ids; see `FullTokenizer`."""

  splitter = Splitter
