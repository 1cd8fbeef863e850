"""What precedes a text before it becomes tokens, for models of vectors."""

# The settings that change a text before it becomes tokens.
PREPARATION = ("prompts", "default_prompt_name", "lower_case")


def find_prompt(
  prompts: dict[str, str] | None, name: str | None, source: str
) -> str:
  """Returns the prompt of a name, "" for None; a ValueError if it is unknown.

  The error begins with the source of the name, such as a flag.
  """
  if name is None:
    return ""
  if name not in (prompts or {}):
    known = ", ".join(prompts or {}) or "none"
    raise ValueError(f"{source}={name}: the prompts of the model: {known}")
  return (prompts or {})[name]


def prepare(text: str, prompt: str | None, lower_case: bool | None) -> str:
  """Returns what becomes tokens: the prompt, and a text, perhaps in lower case.

  Characters are lower-cased one by one, as by the library: no final sigma.

  >>> prepare("The END", "query: ", True), prepare("The END", "", False)
  ('query: the end', 'The END')
  """
  text = f"{prompt or ''}{text}"
  return "".join(map(str.lower, text)) if lower_case else text
