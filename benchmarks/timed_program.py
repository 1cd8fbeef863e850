"""Runs a fine-tuning program with our model or a peer's, its training timed.

python benchmarks/timed_program.py "Hugging Face" run_classifier.py \
  --task_name=rte --data_dir=glue/RTE --model=minilm --do_train=true \
  --do_eval=true --eval_every_epochs=1 --output_dir=rte

With "ours" the program is as it is. With "Hugging Face" it still reads the
data, chooses the batches and scores the predictions, but the model, its loss,
its optimizer and its schedule are those of transformers and PyTorch, as in
their examples. Both write timing.json into the output folder: the seconds from
the start of the training to its end, with compilation and the evaluations, how
long its threads ran in them, and the share of the machine that other processes
took meanwhile.
"""

import copy
import itertools
import json
import math
import os
import pathlib
import re
import runpy
import sys
import time

import contest
import numpy as np

from bert import heads, optimization
from bert.cli import fine_tuning
from bert.inputs import batch_order
from bert.training import model_selection, prediction

# The class, and the labels of a batch as it takes them, by problem.
PEERS = {
  "single_label": (
    "SequenceClassification",
    lambda batch: {"labels": batch["label_ids"][:, 0]},
  ),
  "multi_label": (
    "SequenceClassification",
    lambda batch: {"labels": batch["label_ids"].float()},
  ),
  "regression": (
    "SequenceClassification",
    lambda batch: {"labels": batch["label_ids"]},
  ),
  "tagging": (
    "TokenClassification",
    # The loss skips what is -100.
    lambda batch: {
      "labels": batch["label_ids"].masked_fill(batch["label_mask"] == 0, -100)
    },
  ),
  "question_answering": (
    "QuestionAnswering",
    lambda batch: {n: batch[n] for n in ("start_positions", "end_positions")},
  ),
  "multiple_choice": (
    "MultipleChoice",
    lambda batch: {"labels": batch["label_ids"][:, 0]},
  ),
}


LENGTH_MULTIPLE = 16


class TimedRun(fine_tuning.Run):
  """A run of ours that writes how long its training took."""

  def train(self, loss, evaluate):
    busy, own = contest.busy_seconds(), contest.own_seconds()
    start = time.perf_counter()
    self.run_training(loss, evaluate)
    seconds = time.perf_counter() - start
    own = contest.own_seconds() - own
    others = contest.busy_seconds() - busy - own
    disturbance = others / seconds / os.cpu_count()
    timing = {"seconds": seconds, "disturbance": disturbance}
    timing["core_seconds"] = own
    pathlib.Path(self.folder, "timing.json").write_text(json.dumps(timing))

  def run_training(self, loss, evaluate):
    super().train(loss, evaluate)


class PeerPredictor(prediction.Predictor):
  """Applies a program's functions to Hugging Face's model."""

  def __init__(self, model, predict, forward):
    self._peer, self._predict, self._forward = model, predict, forward

  def iterate(self, batches, total=0):
    for features in batches:
      outputs = self._forward(self._peer, features, None)
      results = self._predict(outputs, features)
      yield {name: value.numpy() for name, value in results.items()}


class PeerModel:
  """Hugging Face's model, called like ours to predict."""

  input_names = heads.HeadModel.input_names

  def __init__(self, model, precision):
    self._peer, self._precision = model, precision

  def __call__(self, input_ids, input_mask, segment_ids, seed=None):
    """Computes what our model returns."""
    import tensorflow as tf
    import torch

    self._peer.eval()
    inputs = input_ids, input_mask, segment_ids
    inputs = [torch.from_numpy(value.numpy()).long() for value in inputs]
    if type(self._peer).__name__.endswith("MultipleChoice"):
      inputs = [value[:, None] for value in inputs]  # One choice a question.
    with torch.inference_mode(), autocast(self._precision):
      output = self._peer(**name_inputs(self._peer, *inputs))
    if "logits" in output:
      return tf.constant(output.logits.float().numpy())
    spans = output.start_logits, output.end_logits
    return heads.SpanOutput(*(tf.constant(x.float().numpy()) for x in spans))


class PeerRun(TimedRun):
  """A run whose model and training are Hugging Face's."""

  def make_model(self, create_model, predict, forward=heads.forward):
    import torch

    torch.set_num_threads(os.cpu_count())
    torch.manual_seed(self.settings.seed)
    problem = self.data.model_settings["problem"]
    is_span = problem == "question_answering"
    num_labels = 2 if is_span else max(1, len(self.data.labels))
    self.model = load_peer(self.settings.model, problem, num_labels)
    peer = PeerModel(self.model, self.settings.precision)
    self.predictor = PeerPredictor(peer, predict, forward)

  def identify_weights(self):
    return contest.PEER  # This run alone reads its thresholds.

  def run_training(self, loss, evaluate):
    settings, model = self.settings, self.model
    rows = self.data.train.rows_per_epoch
    plan = fine_tuning.plan_of_epochs(
      settings, rows / settings.train_batch_size
    )
    update = make_update(
      model,
      self.data.model_settings["problem"],
      plan.num_train_steps,
      settings.learning_rate,
      settings.warmup_proportion,
      settings.precision,
    )
    history = model_selection.History(self.folder, f"eval_{self.data.metric}")
    for step, features in enumerate(self.batches(plan), 1):
      update(features)
      if plan.is_due(step, plan.eval_every_steps):
        history.add(step, fine_tuning.name_for_evaluation(evaluate()))
        if history.best == step:
          best = copy.deepcopy(model.state_dict())
    model.load_state_dict(best)
    self.step, self.score_text = history.best, history.summary()

  def batches(self, plan):
    """Yields the batches that ours trains on, in their order."""
    data, size = self.data.train, plan.train_batch_size
    count = plan.num_train_steps * size
    features = data.features
    epochs = math.ceil(count / len(features))
    orders = [
      batch_order.epoch_order(features.lengths, size, plan.seed, epoch)
      for epoch in range(epochs)
    ]
    order = np.concatenate(orders)[:count].reshape(-1, size)
    return features.batches(order, self.parser(data))


def load_peer(folder, problem, num_labels, **settings):
  """Returns Hugging Face's model for a problem, with a folder's weights."""
  import transformers

  model_class = getattr(transformers, f"BertFor{PEERS[problem][0]}")
  return model_class.from_pretrained(
    folder,
    num_labels=num_labels,
    problem_type=f"{problem}_classification"
    if problem.endswith("label")
    else "regression",
    **settings,
  )


def make_update(
  model, problem, num_train_steps, learning_rate, warmup, precision
):
  """Returns the update of Hugging Face's examples: features to a loss."""
  import torch
  import transformers

  _, read_labels = PEERS[problem]
  optimizer = make_optimizer(model, learning_rate)
  schedule = transformers.get_linear_schedule_with_warmup(
    optimizer, int(num_train_steps * warmup), num_train_steps
  )

  def update(features):
    batch = {
      name: torch.from_numpy(value.numpy()) for name, value in features.items()
    }
    inputs = (batch[n].long() for n in heads.HeadModel.input_names)
    labels = {
      name: value if value.is_floating_point() else value.long()
      for name, value in read_labels(batch).items()
    }
    model.train()
    with autocast(precision):
      loss = model(**name_inputs(model, *inputs), **labels).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), optimization.CLIP_NORM)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    return loss.item()

  return update


def autocast(precision):
  """Computes in bfloat16 with --precision=bfloat16."""
  import torch

  enabled = precision == "bfloat16"
  return torch.autocast("cpu", torch.bfloat16, enabled=enabled)


def name_inputs(model, *inputs):
  """Returns ids, mask and segments by Hugging Face's names.

  For whole texts they are of few lengths: PyTorch makes kernels anew for every
  length, which takes most of the time if there are many; `pad_to_multiple_of`
  of its collators is the remedy.
  """
  import torch

  is_of_texts = type(model).__name__.endswith("SequenceClassification")
  more = -inputs[0].shape[-1] % LENGTH_MULTIPLE if is_of_texts else 0
  input_ids, input_mask, segment_ids = (
    torch.nn.functional.pad(value, (0, more)) for value in inputs
  )
  return {
    "input_ids": input_ids,
    "attention_mask": input_mask,
    "token_type_ids": segment_ids,
  }


def make_optimizer(model, learning_rate):
  """Makes the AdamW of Hugging Face's examples, with BERT's decay."""
  import torch

  def decays(item):
    return not re.search(r"bias$|LayerNorm", item[0])

  parameters = sorted(model.named_parameters(), key=decays)
  groups = [
    {
      "params": [parameter for _, parameter in group],
      "weight_decay": optimization.WEIGHT_DECAY if decayed else 0.0,
    }
    for decayed, group in itertools.groupby(parameters, decays)
  ]
  return torch.optim.AdamW(
    groups, learning_rate, eps=optimization.EPSILON, fused=True
  )


def main() -> None:
  library, program = sys.argv[1:3]
  runs = {contest.OURS: TimedRun, contest.PEER: PeerRun}
  fine_tuning.Run = runs[library]
  sys.argv = sys.argv[2:]
  runpy.run_path(str(contest.ROOT / program), run_name="__main__")


if __name__ == "__main__":
  main()
