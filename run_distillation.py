"""Pre-trains a small BERT on what a larger one computes of the same text.

  python run_distillation.py --input_file=examples.tfrecord --do_train=true \\
    --teacher=bert-base --teacher_only=true --vocab_file=bert-base/vocab.txt \\
    --bert_config_file=configs/bert_mini.json --output_dir=/tmp/distilled

The other flags, the records and the files written are of run_pretraining.py.
"""

from bert.cli import program
from bert.contrib import distillation_settings

DistillationSettings = distillation_settings.DistillationSettings

# As in run_pretraining.py, this comes before the slow import of TensorFlow.
if __name__ == "__main__":
  program.start(DistillationSettings)

from bert import calls, heads, run_pretraining
from bert.cli import devices, pretraining_records, pretraining_run
from bert.contrib import relation_teacher


def main() -> None:
  """Pre-trains a student as the flags say, or resumes a run."""
  settings = pretraining_records.read_settings(DistillationSettings)
  strategy = devices.make_strategy(settings)
  config = pretraining_records.read_config(settings)

  # A student that learns from its teacher alone predicts no masked words.
  masks = not settings.teacher_only
  data = pretraining_records.open_data(settings, config, masks)

  # From here on the output folder is this run's alone.
  with pretraining_run.open_run(settings, config, data, strategy) as run:
    predict = run_pretraining.predict
    if settings.do_train:
      # The teacher adds its own losses to the two of pre-training.
      with strategy.scope():
        teacher = relation_teacher.load(settings, config)
      run.make_model(teacher.make_student, predict, teacher=teacher.lesson)
      run.sample_labels()

      # The forward pass runs both models, so it takes more memory.
      losses = teacher.add_to(run_pretraining.loss)
      run.train(losses, forward=teacher.forward, more_memory=teacher.memory)
    else:  # Only what the student has learned is evaluated.
      run.make_model(heads.PretrainingModel, predict)
      run.sample_labels()

    if settings.do_eval:
      scores = run.evaluate(run.step)
      if run.is_chief:
        run.write_scores_file(scores)


# The same from Python, see docs/python.md.
run = calls.make_run(main, DistillationSettings)


if __name__ == "__main__":
  program.run_program(main)
