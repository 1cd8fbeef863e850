"""The labels of a run: those of its folder, its data or its first weights."""

from collections.abc import Sequence

from bert.data import files, label_files, messages


def choose(
  path: str,
  labels: Sequence[str],
  *,
  origin: str,
  head: Sequence[str] = (),
  is_ordered: bool = False,
  flag: str = "",
) -> tuple[str, ...]:
  """Returns the labels of a run, in the order of the outputs of its model.

  They are those of an earlier run at `path`, else those given, in the order of
  the head that training starts from, else that head's. A ValueError says that
  none is known, or that they differ.

  Args:
    path: the file of labels in the output folder.
    labels: those given, or found in the data; may be empty.
    origin: where they come from, for messages.
    head: the labels of the weights that training starts from.
    is_ordered: whether the user gave this order; another is then an error.
    flag: one that gives labels, for messages.
  """
  arrange = tuple if is_ordered else sorted
  if files.exists(path):
    known = label_files.read(path)
    if labels and arrange(labels) != arrange(known):
      raise ValueError(
        f"{path} has the labels {messages.list_names(known)}; {origin} are "
        f"{messages.list_names(labels)}: use another --output_dir"
      )
    return tuple(known)
  labels, head = tuple(labels or head), tuple(head)
  if not labels:
    raise ValueError(
      f"no {path} and no training file: the labels are unknown; pass "
      f"{flag and f'{flag}, or '}the --output_dir of a training, or "
      "--init_checkpoint with one"
    )
  if not head or labels == head:
    return labels
  if arrange(labels) != arrange(head):
    raise ValueError(
      "--init_checkpoint has a head for the labels "
      f"{messages.list_names(head)}; those of this task are "
      f"{messages.list_names(labels)}: start from a checkpoint without a head"
    )
  print(f"labels in the order of --init_checkpoint: {', '.join(head)}")
  return head
