"""Prepares a text for a model of vectors: a prompt before it, lower case.

Some models of sentence-transformers were trained with texts such as "query: "
before each text; others want lower-cased texts with their accents.
"""

# The settings that change a text before it becomes tokens.
PREPARATION = ("prompts", "default_prompt_name", "lower_case")


def find_prompt(
  prompts: dict[str, str] | None, name: str | None, source: str
) -> str:
  """Returns the prompt of a name, "" for None; a ValueError if it is unknown.

  Args:
    prompts: the model's, by their names; None if it has none.
    name: of the prompt.
    source: where the name is from, such as a flag, for the message.
  """
  if name is None:
    return ""
  # A request may have anything, also a list.
  if not isinstance(name, str) or name not in (prompts or {}):
    names = ", ".join(prompts or {}) or "none"
    raise ValueError(
      f"{source}={name!s:.80}: the prompts of the model: {names}"
    )
  return (prompts or {})[name]


def prepare(text: str, prompt: str | None, lower_case: bool | None) -> str:
  """Returns what becomes tokens: the prompt, and a text, perhaps in lower case.

  Args:
    text: as the user gave it.
    prompt: text that comes before it, without a space between; None for none.
    lower_case: whether to lower-case both. As in the library, characters are
      lower-cased one by one, so no sigma becomes a final one.

  >>> prepare("The END", "query: ", True), prepare("The END", "", False)
  ('query: the end', 'The END')
  """
  text = f"{prompt or ''}{text}"
  return "".join(map(str.lower, text)) if lower_case else text
