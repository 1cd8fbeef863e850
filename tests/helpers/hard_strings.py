"""A vocabulary and the strings that are hard to tokenize."""

import random

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "want", "##want"]
VOCAB += ["##ed", "wa", "un", "runn", "##ing", ",", ".", "e", "##e", "\u4e2d"]
# Where the hard cases of Unicode are: cased and case-ignorable characters
# around a capital sigma, marks that change places, controls, odd spaces.
ODD = list(
  " \u03a3\u03c3.'\u2019\xb7\u0301\u0345aB1\u4e2d\uff0c\u3099\u302e\uac01\u200d"
  "\x85\x0b\u2028\u3000\u0130\ufb01\u0315\u0327\u1ebf\xad\u01c5\U0001d165\0\ufffd"
)
# Pieces of hard texts, with "~" between, by what is hard about them.
_PIECES = {
  "words": "the~want~unwanted~Running~The,~E.~1.5~na\xefve~12,345~don't",
  "nul": "\0~the\0want~\0\0\0~\0the~the\0~ \0 ",
  "controls": "\x01~\x07~\x0b~\x0c~\x1b~\x1c~\x1f~\x7f~\x80~\x85~the\x08want",
  "marks": "\u0301~ \u0301 ~e\u0301~\u0301e~a\u0323\u0301~\u0345~x\u0903",
  "compatible": "\ufb01~\u2460~\uff21\uff42~\xbd~\u337f~\u2026~\xa8~\ufdfa"
  "~\u212b~x\xb2~\u2167~\uff76\uff9e~\u017f~\u1e9b\u0323~\xb4~\u037a~\u2474",
  "hangul": "\ud55c\uad6d~\u1112\u1161\u11ab~\u3131\u314f~\uffa1~\uac00\u11a8",
  "emoji": "\U0001f600~\U0001f468\u200d\U0001f469\u200d\U0001f467~1\ufe0f\u20e3"
  "~\U0001f1e9\U0001f1ea~\U0001f44d\U0001f3fd~\u2764\ufe0f~\U0001f3f4\U000e0067",
  "zero width": "\u200b~the\u200bwant~\u200c~\u200d~\u2060~\ufeff~\u034f~\xad",
  "right to left": "\u05e9\u05c1\u05b8\u05dc\u05d5~\u0627\u0644\u0651"
  "~\u202ethe\u202c~\u2067want\u2069~\u0660\u0661~\u200f.~\ufefb",
  "spaces": "\t~\n~\r\n~\r~\xa0~\u1680~\u2003~\u2028~\u2029~\u202f~\u3000~   ",
  "written": "[MASK]~[CLS]~[SEP]~[UNK]~[PAD]~[mask]~##ing~##~</w>~\u2581"
  "~\u2581the~\u2585~<unk>~<s>~<0x41>~[unused1]~ ||| ",
  "cases": "\u0130~\u0131I~stra\xdfe~\u1e9e~\u039f\u03a3~\u03a3.~\u01c5~\u0149",
  "chinese": "\u4e2d\u6587~\u4e2dthe~\uf900~\U0002f800~\u3400~\U00020000~\u3007"
  "~\u3042\u30a2~\uff0c",
  "unassigned": "\ufffd~\ufffe~\uffff~\ue000~\u0378~\U0010ffff~\ufdd0",
}
PIECES = {kind: pieces.split("~") for kind, pieces in _PIECES.items()}
_UNITS = [*"ae\u03b1\u4e2d.\0\u0301", "e\u0301", "\U0001d49c", "[MASK]", "e "]
PIECES["long"] = [x * n for x in _UNITS for n in (199, 200, 201, 2000)]
SURROGATES = ["\ud800", "the \udc00", "\udfff\ud800want", "\ud83d"]


def write_vocab(folder, tokens=VOCAB):
  path = folder / "vocab.txt"
  path.write_bytes("".join(f"{token}\n" for token in tokens).encode())
  return str(path)


def random_strings(count, seed=1):
  rng = random.Random(seed)
  for _ in range(count):
    yield "".join(
      rng.choice(ODD) if rng.random() < 0.8 else chr(rng.randrange(0x110000))
      for _ in range(rng.randrange(12))
    )


def hard_texts(count, seed=1):
  """Returns texts of every kind of PIECES, alone and mixed; no surrogates."""
  rng = random.Random(seed)
  alone = ["", " ", "\u3000\t", *(p for kind in PIECES.values() for p in kind)]
  assert len(alone) < count / 2
  texts = list(alone)
  for text in random_strings(count // 5, seed):
    texts.append(text.encode("utf-8", "ignore").decode())
  kinds = list(PIECES.values())
  while len(texts) < count:
    pieces = (rng.choice(rng.choice(kinds)) for _ in range(rng.randint(2, 7)))
    texts.append("".join(p + rng.choice(["", " "]) for p in pieces))
  rng.shuffle(texts)
  return texts


def write_hard_vocab(folder, texts, basic, seed=1):
  """Writes a vocabulary of many of the words and letters of texts."""
  rng = random.Random(seed)
  words = sorted({word for text in texts for word in basic.tokenize(text)})
  letters = sorted({letter for word in words for letter in word})
  tokens = rng.sample(letters, len(letters) * 9 // 10)
  tokens += ["##" + x for x in rng.sample(letters, len(letters) * 9 // 10)]
  tokens += [w for w in rng.sample(words, len(words) // 2) if len(w) < 30]
  return write_vocab(folder, list(dict.fromkeys(VOCAB + tokens)))
