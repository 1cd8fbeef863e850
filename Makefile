# Every target sets up .venv first; `make demo` and `make test` need only
# Python 3.11 (or PYTHON=...), pip and make.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
# Both of the larger sets of packages include some of these.
EXTRAS := $(wildcard requirements/*.txt)
# The others are no script, need to know what to compare, or measure the tests.
BENCHMARKS := $(filter-out $(patsubst %,benchmarks/%.py,contest mini_corpus multitask mutations transfer), \
  $(wildcard benchmarks/*.py))

.PHONY: demo test test-slow lint bench clean

$(VENV)/requirements: requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

# jieba is a source package that pip, left to itself, builds the old way, which
# fails with the setuptools of today.
$(VENV)/requirements-dev: requirements/dev.txt $(EXTRAS) $(VENV)/requirements
	$(RUN) -m pip install --quiet --disable-pip-version-check --use-pep517 -r $<
	touch $@

$(VENV)/requirements-bench: requirements/bench.txt $(EXTRAS) $(VENV)/requirements
	$(RUN) -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

demo: $(VENV)/requirements
	$(RUN) examples/pretrain_pydoc.py --output_dir=demo_output

# Two processes: most of the time of a test of a program is one thread starting it.
test: $(VENV)/requirements-dev
	$(RUN) -m pytest --numprocesses=2 --dist=loadfile

# The last tests compare with the libraries that benchmarks need, and are
# skipped without them.
test-slow: $(VENV)/requirements-dev $(VENV)/requirements-bench
	$(RUN) -m pytest -m "slow or fuzz" --hypothesis-profile=deep \
	  --numprocesses=2 --dist=loadfile
	$(RUN) -m pytest tests/test_transformers.py tests/weights

lint: $(VENV)/requirements-dev
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(VENV)/bin/basedpyright --pythonpath $(RUN)

bench: $(VENV)/requirements-bench
	status=0; for script in $(BENCHMARKS); do $(RUN) $$script || status=1; done; \
	  exit $$status

clean:
	rm -rf $(VENV) demo_output
