"""What programs do with --use_tpu=true: shapes, and Google's compiler of TPUs.

No TPU is here: a CPU stands in for one, see benchmarks/tpu_compile.py.
"""

import importlib.util
import json
import re
import sys

import numpy as np
import pytest
import tensorflow as tf

from bert import modeling
from bert.training import memory
import paths
import program_flags
import same_training
import tiny
import tiny_models
import unmasked_records

FEATURE_TAGGING = "bert/contrib/run_feature_tagging"
TEXT_PROGRAMS = ("extract_features", "fill_mask")
PROGRAMS = (
  *tiny.TRAINERS,
  "run_pretraining --precision=bfloat16 --gradient_accumulation_steps=2",
  "run_classifier --precision=bfloat16 --recompute",
  "run_distillation",
  "run_multitask",
  FEATURE_TAGGING,
  *TEXT_PROGRAMS,
)
NEEDS = "needs requirements/tpu-compile.txt"
CHIPS = ("v5e:2x2", "v6e:2x2")
MORE_CHIPS = ("v4:2x2x1", "v5p:2x2x1", "tpu7x:2x2x1")


@pytest.fixture(scope="module")
def tpu_compile():
  """Imports benchmarks/tpu_compile.py, which imports its neighbours."""
  folder = paths.ROOT / "benchmarks"
  with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(folder))
    spec = importlib.util.spec_from_file_location(
      "benchmark_tpu_compile", folder / "tpu_compile.py"
    )
    module = importlib.util.module_from_spec(spec)
    patch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    yield module


def command(program, folder):
  """Returns a short command of a program that evaluates and predicts, too."""
  if program == "run_distillation":
    flags = unmasked_records.make_flags(folder)
    teacher = unmasked_records.write_teacher(folder / "teacher")
    flags |= {"teacher": teacher, "teacher_vectors": True}
    return unmasked_records.command(folder, program=program, **flags)
  if program == "run_multitask":
    tiny.write_model(folder, program=program)
    tasks = list(tiny.write_tasks(folder).values())
    flags = {"do_eval": True, "num_train_steps": 5}
    # A seed that draws each of them.
    return tiny.tasks_command(folder, tasks, **flags, seed=14)
  if program == FEATURE_TAGGING:  # It takes the flags of the other.
    python, _, *flags = tiny.prepare("run_tagging", folder)
    flags += ["--lstm_size=8", "--feature_layers=mix"]
    return [python, str(paths.ROOT / f"{program}.py"), *flags]
  if program in TEXT_PROGRAMS:
    tiny_models.write_masked_lm(folder)
    texts = ["the film was [MASK]", "a [MASK]", "a [MASK] plot ||| a cast"]
    (folder / "in.txt").write_text("\n".join(texts) + "\n")
    flags = {"input_file": folder / "in.txt", "output_file": folder / "out"}
    flags |= {**tiny_models.masked_lm_flags(folder), "batch_size": 2}
    if program == "extract_features":
      flags["layers"] = "-1,-2"
    return program_flags.command(program, **flags)
  return tiny.prepare(program, folder)


@pytest.fixture(scope="module", params=PROGRAMS)
def calls(request, tpu_compile, tmp_path_factory):
  """What a program computes on a TPU, while a CPU stands in for it."""
  folder = tmp_path_factory.mktemp("run")
  with tpu_compile.tpu_stand_in() as stand_in:
    program, *flags = request.param.split()
    arguments = [*command(program, folder), *flags, "--use_tpu=true"]
    program_flags.succeed(arguments)
    yield stand_in.calls


@pytest.mark.slow
def test_a_program_has_few_shapes_and_all_are_static(calls):
  """Batches are dropped or padded: a TPU compiles each shape for minutes."""
  for call in calls:
    for spec in tf.nest.flatten(call.signature):
      assert spec.shape.is_fully_defined(), call
  # Evaluations and predictions may have batches of two sizes.
  functions = [call.function for call in calls]
  for function in functions:
    most = 1 if function.__name__ == "replica_step" else 2
    assert functions.count(function) <= most, calls


@pytest.mark.slow
def test_a_program_compiles_for_tpus(calls, tpu_compile, request):
  """Updates, evaluations and predictions."""
  pytest.importorskip("libtpu", reason=NEEDS)
  is_first = request.node.callspec.params["calls"] == "run_pretraining"
  chips = CHIPS + MORE_CHIPS if is_first else CHIPS
  for call in calls:
    text = tpu_compile.export(call).text
    for chip in chips:
      found = tpu_compile.compile_for(tpu_compile.find_chips(chip), text)
      print(chip, call.function.__name__, found)
      # An update writes weights and moments in place; the rest is a batch.
      if call.function.__name__ == "replica_step":
        assert found.in_place > found.arguments / 2


# What libtpu 0.0.52 counts of a v5e, in megabytes; in docs/clusters.md, too.
COUNTED = {
  ("small", 8, 128, 20): 482.0,
  ("small", 32, 128, 20): 1017.7,
  ("small", 8, 512, 76): 1658.3,
  ("base", 8, 128, 20): 1786.0,
  ("base", 32, 128, 20): 3241.1,
  ("base", 64, 128, 20): 5073.1,
  ("base", 128, 128, 20): 8728.3,
  ("large", 8, 128, 20): 5229.7,
  ("large", 32, 128, 20): 8486.4,
  ("large", 64, 128, 20): 12839.1,
}


@pytest.mark.parametrize(("shape", "megabytes"), COUNTED.items())
def test_the_estimate_is_near_what_the_compiler_counts(
  shape, megabytes, tpu_compile
):
  model, *sizes = shape
  path = paths.ROOT / "configs" / f"bert_{model}.json"
  workload = tpu_compile.training.Workload(str(path), *sizes)
  guess = tpu_compile.estimate(workload, "bfloat16") / 1e6
  assert guess == pytest.approx(megabytes, rel=0.05)


def test_a_row_of_the_table_says_what_the_compiler_counts(tpu_compile):
  found = tpu_compile.Bytes(
    53_240_832, 53_214_720, 53_217_792, 6_586_368, 10**7
  )
  assert found.peak == 59_830_272
  assert tpu_compile.describe("v5e:2x2", "BERT-Tiny", found, 60e6) == (
    "| v5e:2x2 | BERT-Tiny | 53.2 | 53.2 | 53.2 | 6.6 | 10.0 | 59.8 | 60.0 | "
    "+0% |"
  )


def test_the_memory_that_is_printed_is_of_one_core(tpu_compile):
  config = modeling.BertConfig.from_dict(tiny.PRETRAINING_CONFIG)
  size = memory.UpdateSize(2**28, 0, 0, 2, 4, 16)
  with tpu_compile.tpu_stand_in(4) as stand_in:
    line = memory.report(config, size, stand_in())
  assert line == (
    "memory: about 1.0 GB of each TPU core, for 2 x 16 tokens at a time"
  )


@pytest.mark.slow
def test_four_replicas_add_up_their_gradients(tpu_compile, tmp_path):
  pytest.importorskip("libtpu", reason=NEEDS)
  arguments = [*tiny.prepare("run_pretraining", tmp_path), "--use_tpu=true"]
  with tpu_compile.tpu_stand_in(4, runs=False) as stand_in:
    with pytest.raises(tpu_compile.Recorded):
      program_flags.run_here(arguments)
    text = tpu_compile.export(stand_in.calls[0]).text
  assert "tensor<4x16xi32>" in text  # A quarter of the batch.
  assert "stablehlo.all_reduce" in text
  chips = tpu_compile.find_chips("v5e:2x2")
  assert tpu_compile.compile_for(chips, text, replicas=4).in_place


def run_by_jax(text, values):
  """Runs StableHLO on the CPU, by JAX; returns its results."""
  import jax
  from jax._src.interpreters import mlir
  from jax._src.lib import xla_client
  from jaxlib.mlir import ir

  jax.config.update("jax_platforms", "cpu")
  jax.config.update("jax_enable_x64", True)  # The step is an int64.
  [device, *_] = jax.devices("cpu")
  with mlir.make_ir_context():
    executable = device.client.compile_and_load(
      ir.Module.parse(text),
      executable_devices=xla_client.DeviceList((device,)),
      compile_options=xla_client.CompileOptions(),
    )
  buffers = [jax.device_put(value, device) for value in values]
  return [np.asarray(result) for result in executable.execute(buffers)]


@pytest.mark.slow
def test_jax_makes_the_same_update(tpu_compile, tmp_path):
  """What is compiled for TPUs, run on a CPU by another library than ours."""
  pytest.importorskip("jax", reason=NEEDS)
  path = tmp_path / "config.json"
  path.write_text(json.dumps(tiny.PRETRAINING_CONFIG))
  workload = tpu_compile.training.Workload(str(path), 8, 16, 4)
  exported = tpu_compile.export_update(workload, "float32", replicas=1)
  by_handle = {id(v.handle): v for v in exported.traced.variables}
  variables = [by_handle[id(x)] for x in exported.traced.captured_inputs]
  for variable in variables:
    if variable.dtype == tf.int64:  # The step; at 0 the learning rate is 0.
      variable.assign(10_000)
  features = tpu_compile.training.make_features(workload)
  values = [*tf.nest.flatten(features), *(v.numpy() for v in variables)]
  results = run_by_jax(exported.text, values)

  # By TensorFlow, not compiled, and with the branches for a CPU.
  before = [variable.numpy() for variable in variables]
  update = tf.function(exported.call.function, autograph=False)
  losses, norm, rate = update(features)
  for ours, theirs in zip((losses, norm, rate), results, strict=False):
    np.testing.assert_allclose(theirs, ours, rtol=1e-5)
  pairs = re.findall(
    r"parameter_number = (\d+) : i64\}, output_index = array<i64: (\d+)>",
    exported.text,
  )
  assert len(pairs) == len(variables) - 1  # All but the step.
  for argument, result in pairs:
    number = int(argument) - len(features)
    ours = variables[number].numpy()
    if same_training.KEY_BIAS in variables[number].name:
      continue
    assert np.abs(ours - before[number]).max() > 0
    np.testing.assert_allclose(results[int(result)], ours, atol=1e-5)


@pytest.mark.parametrize(
  ("flags", "message"),
  [
    (["--topologies=v9:2x2"], "--topologies=v9:2x2: INVALID_ARGUMENT: Invalid"),
    (["--replicas=5"], "--replicas=5: v5e:2x2 has 4 devices"),
  ],
)
@pytest.mark.slow
def test_what_is_not_there_ends_in_a_line(
  flags, message, tpu_compile, monkeypatch
):
  pytest.importorskip("libtpu", reason=NEEDS)
  monkeypatch.setattr(sys, "argv", ["tpu_compile.py", *flags])
  with pytest.raises(SystemExit, match=f"^tpu_compile.py: error: {message}"):
    tpu_compile.main()
