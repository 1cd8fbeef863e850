"""Wrong commands of every program, refused before TensorFlow is imported."""

import json
import subprocess
import sys

import pytest

import paths
import tiny

# Runs commands one after the other; who imports TensorFlow says so instead of
# what is wrong.
WITHOUT_TENSORFLOW = """
import json, sys
sys.path[:0] = [".", "tests/helpers"]
sys.modules["tensorflow"] = sys.modules["keras"] = None
import program_flags
ends = []
for name, *flags in json.load(sys.stdin):
  end = program_flags.run_here([sys.executable, f"{name}.py", *flags])
  ends.append([end.returncode, end.stdout, end.stderr])
print(json.dumps(ends))
"""
_MODEL = "--bert_config_file=config.json --vocab_file=vocab.txt"
_TEXTS = f"{_MODEL} --init_checkpoint=model.ckpt --input_file=texts.txt"
_TRAIN = f"{_MODEL} --output_dir=out --do_train"
_FILE = f"run_classifier {_TRAIN} --task_name=file"
_VECTORS = f"run_embedding {_TRAIN} --train_file=train.tsv"
_SQUAD = f"run_squad {_TRAIN} --train_file=train.tsv"
_PRETRAIN = f"run_pretraining {_TRAIN} --input_file=texts.txt"
_RECORDS = "--input_file=texts.txt --output_file=x.tfrecord"
_SEARCH = "search --input_file=texts.txt --index_file=x.npy"
_EXPORT = "export_saved_model --export_dir=new --model_dir=."
_CONVERT = "convert_checkpoint --input=model.ckpt --output=new"
# Commands and what is said of them; {} is the folder of the files.
COMMANDS = [
  # Nothing to do.
  (
    f"run_classifier {_MODEL} --output_dir=out --task_name=mrpc",
    "nothing to do: pass --do_train=true, --do_eval=true or --do_predict=true",
  ),
  (f"run_embedding {_MODEL} --output_dir=out", "nothing to do"),
  (f"run_multiple_choice {_MODEL} --output_dir=out", "nothing to do"),
  (f"run_tagging {_MODEL} --output_dir=out", "nothing to do"),
  (
    f"run_multitask {_MODEL} --output_dir=out --tasks_file=tasks.json",
    "nothing to do",
  ),
  (
    f"run_squad {_MODEL} --output_dir=out",
    "nothing to do: pass --do_train=true or --do_predict=true",
  ),
  (
    f"run_pretraining {_MODEL} --output_dir=out --input_file=texts.txt",
    "nothing to do: pass --do_train=true or --do_eval=true",
  ),
  (
    f"run_distillation {_MODEL} --output_dir=out --input_file=texts.txt "
    "--teacher=.",
    "nothing to do: pass --do_train=true or --do_eval=true",
  ),
  # A file that is not there.
  (
    f"{_FILE} --train_file=trian.tsv",
    "--train_file=trian.tsv: no such file; did you mean train.tsv?",
  ),
  (f"{_FILE} --data_dir=data", "--data_dir=data: no file of train, dev"),
  (
    f"run_classifier {_TRAIN} --task_name=mrpc --data_dir=data",
    "--data_dir=data: expected train.tsv or dev.tsv",
  ),
  (
    f"run_classifier {_TRAIN} --do_eval --task_name=mrpc --data_dir=.",
    "--do_eval: no ./dev.tsv; it holds",
  ),
  (
    f"{_FILE} --train_file=train.tsv --do_eval",
    "--do_eval: the task has no such data; pass --eval_file, or a --data_dir "
    "that holds dev or valid or val, or --eval_share",
  ),
  (
    f"run_embedding {_TRAIN} --train_file=x.tsv",
    "--train_file=x.tsv: no such file",
  ),
  (
    f"run_multiple_choice {_TRAIN} --data_dir=data",
    "--data_dir=data: no file for --do_train",
  ),
  (f"run_tagging {_TRAIN}", "--do_train needs --train_file or --data_dir"),
  (
    f"run_squad {_TRAIN} --train_file=x.json",
    "--train_file=x.json: no such file",
  ),
  (f"run_squad {_TRAIN}", "--do_train needs --train_file"),
  (
    f"run_pretraining {_TRAIN} --input_file=*.tfrecord",
    "--input_file: no file matches '*.tfrecord'",
  ),
  (
    f"run_multitask {_TRAIN} --tasks_file=task.json",
    "--tasks_file=task.json: no such file; did you mean tasks.json?",
  ),
  (
    f"extract_features {_TEXTS} --output_file=y --vocab_file=v.txt",
    "--vocab_file=v.txt: no such file",
  ),
  (
    f"fill_mask {_TEXTS} --init_checkpoint=x.ckpt",
    "--init_checkpoint=x.ckpt: no checkpoint there",
  ),
  (
    f"fill_mask {_TEXTS} --input_file=text.txt",
    "--input_file: no file matches 'text.txt'",
  ),
  (
    "create_vocab --input_file=x.txt --output_file=v",
    "--input_file: no file matches 'x.txt'",
  ),
  (
    f"create_pretraining_data {_RECORDS} --vocab_file=voc.txt",
    "--vocab_file=voc.txt: no such file; did you mean vocab.txt?",
  ),
  (
    f"create_pretraining_data_beam {_RECORDS} --vocab_file=data",
    "--vocab_file=data: a folder; expected a file",
  ),
  (f"{_EXPORT} --vocab_file=x.txt", "--vocab_file=x.txt: no such file"),
  (f"{_CONVERT} --labels_file=l.txt", "--labels_file=l.txt: no such file"),
  ("predict --export_dir=exports", "--export_dir=exports: no such folder"),
  (f"{_SEARCH} --model=model.ckp", "--model=model.ckp: no such folder"),
  (f"{_SEARCH} --model=. --query_file=q.txt", "--query_file: no file matches"),
  # A wrong column.
  (
    f"{_FILE} --train_file=train.tsv --text_column=txt",
    "train.tsv: no column 'txt'; pass --text_column",
  ),
  (
    f"{_VECTORS} --objective=labels --label_column=5x",
    "train.tsv: no column '5x'",
  ),
  (
    f"run_tagging {_TRAIN} --train_file=train.tsv --tag_column=7",
    "train.tsv:1: expected at least 8 columns",
  ),
  (
    f"run_multiple_choice {_TRAIN} --train_file=train.tsv",
    "train.tsv: no column 'sent1'",
  ),
  (
    f"run_squad {_TRAIN} --train_file=train.tsv",
    "train.tsv:1: 2 columns; expected id, question and context",
  ),
  (
    f"extract_features {_TEXTS} --output_file=y --input_file=texts.jsonl "
    "--text_column=txt",
    "texts.jsonl:1: no key 'txt'; the keys are text",
  ),
  (
    f"fill_mask {_TEXTS} --input_file=texts.jsonl",
    "texts.jsonl: JSON Lines, not plain text, with the keys text: pass",
  ),
  # Values and flags that do not fit together.
  (
    f"run_classifier {_TRAIN} --task_name=mrcp --data_dir=.",
    "--task_name=mrcp: expected one of",
  ),
  (
    f"{_FILE} --train_file=train.tsv --label_separator=;",
    "--label_separator needs --problem=multi_label",
  ),
  (
    f"run_tagging {_TRAIN} --train_file=train.tsv --labels=O,X",
    "--labels: only JSON Lines have numbers for tags",
  ),
  (
    f"{_FILE} --train_file=train.tsv --best_metric=f2",
    "--best_metric=f2: expected one of",
  ),
  (
    f"{_VECTORS} --best_metric=f1",
    "--best_metric=f1: expected one of mrr_at_10",
  ),
  (
    f"run_tagging {_TRAIN} --train_file=train.tsv --lstm_size=8",
    "use python -m bert.contrib.run_feature_tagging",
  ),
  (
    f"{_SQUAD} --null_score_diff_threshold=auto",
    "needs --version_2_with_negative=true",
  ),
  (f"{_SQUAD} --max_seq_length=64", "expected more than --max_query_length=64"),
  (
    f"run_pretraining {_TRAIN} --input_file=texts.txt --masked_lm_prob=.2",
    "--masked_lm_prob needs --dynamic_masking",
  ),
  (
    f"run_pretraining {_TRAIN} --input_file=texts.txt --teacher_only=true",
    "--teacher_only: use run_distillation.py --teacher_only=...",
  ),
  (
    f"{_PRETRAIN} --train_batch_size=24 --gradient_accumulation_steps=5",
    "--train_batch_size=24 cannot be split evenly over 1 replicas and 5 "
    "accumulation steps: expected a multiple of 5",
  ),
  (
    f"{_FILE} --train_file=train.tsv --gradient_accumulation_steps=3",
    "--train_batch_size=32 cannot be split evenly over 1 replicas and 3",
  ),
  # A dry run, of which something is missing, idle or impossible.
  (
    f"{_PRETRAIN} --dry_run=4 --bandwidth_gbit=10 --train_batch_size=24 "
    "--gradient_accumulation_steps=4",
    "--train_batch_size=24 cannot be split evenly over --dry_run=4 devices and "
    "4 accumulation steps",
  ),
  (f"{_PRETRAIN} --dry_run=4", "--dry_run=4 needs --bandwidth_gbit"),
  (
    f"{_PRETRAIN} --dry_run=4 --bandwidth_gbit=0",
    "flag --bandwidth_gbit=0: ",
  ),
  (
    f"{_PRETRAIN} --dry_run=4 --bandwidth_gbit=-1",
    "flag --bandwidth_gbit=-1: ",
  ),
  (f"{_PRETRAIN} --dry_run=0 --bandwidth_gbit=10", "flag --dry_run=0: "),
  (f"{_PRETRAIN} --bandwidth_gbit=10", "--bandwidth_gbit needs --dry_run"),
  (
    f"{_PRETRAIN} --dry_run=4 --bandwidth_gbit=10 --distribution=mirrored",
    "--dry_run=4 times one device: no --distribution, no TPU",
  ),
  (
    f"run_distillation {_TRAIN} --input_file=texts.txt",
    "missing --teacher; see --help",
  ),
  (
    f"run_multitask {_TRAIN} --tasks_file=config.json",
    "config.json: expected a JSON list",
  ),
  (
    f"extract_features {_TEXTS} --output_file=y --layers=last",
    "--layers=last: expected numbers",
  ),
  (
    f"fill_mask {_TEXTS} --text=x",
    "--text and --input_file=texts.txt are both given",
  ),
  (
    f"create_pretraining_data {_RECORDS} --vocab_file=vocab.txt --num_shards=2",
    "--num_shards=2 needs --documents_per_block",
  ),
  (f"{_EXPORT} --quantize=int8", "--quantize=int8 needs --format=onnx"),
  (
    f"{_EXPORT} --quantize=int8 --max_score_drop=0.02",
    "no flag is called --max_score_drop: use --max_changed=0.03, the share of",
  ),
  (
    f"{_EXPORT} --quantize=int8 --tag_column=2",
    "no flag is called --tag_column: use it where a model is trained; export_",
  ),
  (
    "predict --export_dir=new --engine=auto",
    "value should be one of <onnxruntime|openvino>",
  ),
  (f"{_CONVERT} --model=.", "--input and --model are the same: give one"),
  # Flags that another one makes idle.
  (f"fill_mask {_TEXTS} --score --top_k=3", "--top_k needs --score=false"),
  (
    f"fill_mask {_TEXTS} --iterations_per_loop=9",
    "no flag is called --iterations_per_loop",
  ),
  (f"{_CONVERT} --seed=1", "--seed needs --resize_vocab or --new_rows=random"),
  (f"{_CONVERT} --new_rows=random", "--new_rows needs --add_tokens"),
  (
    "create_vocab --input_file=texts.txt --output_file=v --extend=vocab.txt "
    "--vocab_size=9",
    "--vocab_size has no effect with --extend",
  ),
  (
    f"{_SEARCH} --model=. --query=x --rerank_lines=9",
    "--rerank_lines needs --rerank",
  ),
  (f"{_SEARCH} --model=. --top_k=9", "--top_k needs --query or --query_file"),
  (
    f"{_VECTORS} --objective=labels --early_stopping_patience=2",
    "_patience needs --eval_every_epochs or --eval_every_steps",
  ),
  ("predict --export_dir=. --serve --text=x", "--serve and --text are given"),
  # An output that cannot be written.
  (
    f"run_tagging {_TRAIN} --output_dir=vocab.txt/out",
    "--output_dir=vocab.txt/out: {}/vocab.txt is a file, not a folder",
  ),
  (
    f"{_SQUAD} --output_dir=vocab.txt",
    "--output_dir=vocab.txt: not a folder",
  ),
  (
    f"extract_features {_TEXTS} --output_file=data",
    "--output_file=data: data is a folder; expected the name of a file",
  ),
  (f"{_EXPORT} --export_dir=.", "--export_dir=.: is there already"),
  (f"{_CONVERT} --output=.", "--output=.: is there already"),
  # Several workers that nobody has named.
  (
    f"run_tagging {_TRAIN} --distribution=multi_worker",
    '--distribution=multi_worker: TF_CONFIG is not set: expected {{"cluster": ',
  ),
  (
    f"run_squad {_TRAIN} --distribution=multi_worker --cluster=slurm",
    "SLURM_JOB_ID is not set: start the program with srun",
  ),
  (
    f"run_squad {_TRAIN} --cluster=slurm",
    "--cluster needs --distribution=multi_worker",
  ),
  # A TPU of another machine, in every program that has these flags.
  *(
    (
      f"{command} --{tpu} --{flag}",
      f"--{flag}: TPUs of another machine ended in April 2025: run on the "
      "TPU's own machine (a TPU VM), with --tpu_name=local alone",
    )
    for command, tpu, flag in (
      (f"{_FILE} --train_file=train.tsv", "use_tpu", "tpu_name=tpu-1"),
      (f"run_squad {_TRAIN}", "use_tpu", "master=grpc://10.0.0.2:8470"),
      (_VECTORS, "use_tpu", "tpu_zone=us-central1-b"),
      (f"run_tagging {_TRAIN}", "distribution=tpu", "gcp_project=bert"),
      (f"run_multiple_choice {_TRAIN}", "distribution=tpu", "tpu_name=tpu-1"),
      (
        f"run_multitask {_TRAIN} --tasks_file=tasks.json",
        "use_tpu",
        "tpu_name=tpu-1",
      ),
      (
        f"run_pretraining {_TRAIN} --input_file=gs://bucket/x",
        "use_tpu",
        "tpu_name=grpc://10.0.0.2:8470",
      ),
      (
        f"run_distillation {_TRAIN} --input_file=texts.txt --teacher=.",
        "use_tpu",
        "tpu_name=tpu-1",
      ),
      (
        f"extract_features {_TEXTS} --output_file=y",
        "use_tpu",
        "master=grpc://10.0.0.2:8470",
      ),
      (f"fill_mask {_TEXTS}", "use_tpu", "tpu_name=tpu-1"),
    )
  ),
]


@pytest.fixture(name="ends", scope="module")
def run_all(tmp_path_factory):
  """Returns {command: (status, output, errors, folder)}."""
  folder = tmp_path_factory.mktemp("commands")
  tiny.write_model(folder)
  (folder / "data").mkdir()
  (folder / "tasks.json").write_text("[]")
  (folder / "texts.txt").write_text("the film was good\n")
  (folder / "texts.jsonl").write_text('{"text": "the film"}\n')
  (folder / "train.tsv").write_text("text\tlabel\ngood film\tx\n")
  (folder / "model.ckpt.index").write_bytes(b"")
  commands = [command.split() for command, _ in COMMANDS]
  result = subprocess.run(
    [sys.executable, "-c", WITHOUT_TENSORFLOW],
    input=json.dumps(
      [[str(paths.ROOT / name), *flags] for name, *flags in commands]
    ),
    capture_output=True,
    text=True,
    cwd=folder,
    env={"PYTHONPATH": f"{paths.ROOT}:{paths.ROOT / 'tests' / 'helpers'}"},
  )
  assert result.returncode == 0, result.stderr
  ends = json.loads(result.stdout.splitlines()[-1])
  names = [command for command, _ in COMMANDS]
  return {n: (*e, folder) for n, e in zip(names, ends, strict=True)}


@pytest.mark.parametrize(("command", "message"), COMMANDS)
def test_it_ends_in_one_line_without_tensorflow(command, message, ends):
  status, output, errors, folder = ends[command]
  assert (status, output) == (1, "")
  assert errors.startswith(f"{command.split()[0]}.py: error: "), errors
  assert message.format(folder) in errors
  assert errors.count("\n") == 1


def test_every_program_is_tried():
  tried = {command.split()[0] for command, _ in COMMANDS}
  programs = paths.ROOT.glob("*.py")
  named = {p.stem for p in programs if "program.run_program(" in p.read_text()}
  assert tried == named
