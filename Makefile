# Two commands for a newcomer: `make plan` and `make test`. The rest is for developers.

VENV := .venv
TEST_VENV := .venv-test
PIP_INSTALL = -m pip install -qq --disable-pip-version-check
TEST_PYTHON := $(TEST_VENV)/bin/python
# The packages of tools/ find one another by name.
TOOL := env PYTHONPATH=tools $(TEST_PYTHON) -m
# Tests that need neither a GPU nor another framework, and do not take long.
USUAL := not slow and not soak and not stacks and not gpu and not truth and not validators
export OMP_NUM_THREADS ?= 1
export MKL_NUM_THREADS ?= 1
# What is imported is compiled once, not by each process that imports it: containers often forbid it.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help plan test check pytest test-kernels docs test-slow test-stacks test-jax test-keras soak-frontends soak-watch stories site gallery soak diagnose accuracy accuracy-fits accuracy-power accuracy-clusters \
	accuracy-parallel accuracy-memory accuracy-serving panel features screens \
	trace-coverage bench gpu-test gpu-truth gpu-truth-score gpu-asked gpu-asked-page gpu-run gpu-memory release clean

help:  ## List the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

plan: $(VENV)/.paceline  ## Set up what planning needs, and plan the reference training of ResNet-50
	@$(VENV)/bin/paceline plan resnet50 --deadline 24h

test: check pytest  ## Everything that needs neither a GPU nor a framework other than PyTorch

check: $(TEST_VENV)/.paceline  ## Lint, types, direction of imports, sizes of functions and modules
	$(TEST_PYTHON) -m ruff check .
	$(TEST_PYTHON) -m ruff format --check --quiet .
	$(TEST_PYTHON) -m mypy
	$(TEST_VENV)/bin/lint-imports
	$(TEST_PYTHON) tools/sizes.py

# Three for two cores, as one of them often waits for what it has started. Without the plug-in of
# hypothesis, which looks at each test before and after and whose marker `make soak` alone asks for,
# 10,000 tests take 10 s less of the processor.
USUALLY := -n 3 --dist loadfile -p no:hypothesispytest -m "$(USUAL)"

# Files with laws that the choice of kernels can reach: `tools/uneven_kernels.py` finds them. They note
# no failures, which `pytest` may be about to run again.
NUMERIC = $(shell grep -rl --include='test_*.py' 'mark.kernels' tests)

test-kernels: $(TEST_VENV)/.paceline  ## Laws that kernels reach again, by those of an older processor
	$(TEST_PYTHON) tools/other_kernels.py $(TEST_PYTHON) -m pytest -p no:hypothesispytest -p no:cacheprovider \
		-m "kernels and $(USUAL)" $(NUMERIC)

# With assertions as written: each process would rewrite those of all tests, to tell what they compared.
# What fails runs again with them rewritten, and fails all the same.
pytest: $(TEST_VENV)/.paceline
	@$(TEST_PYTHON) -m compileall -q src tools tests
	$(TEST_PYTHON) -m pytest $(USUALLY) --assert=plain || { \
		$(TEST_PYTHON) -m pytest -m "$(USUAL)" --last-failed --last-failed-no-failures=none; exit 1; }

docs: $(TEST_VENV)/.paceline  ## Write the generated pages of docs/reference again
	$(TEST_PYTHON) tools/generate_docs.py

test-slow: $(TEST_VENV)/.paceline  ## The tests left out of `make test` because they take long
	$(TEST_PYTHON) -m pytest -m "slow"

test-stacks: $(TEST_VENV)/.paceline  ## Other frameworks, each in an environment of its own
	@echo "needs a package index, some 10 GB of disk and half an hour; environments without a framework are skipped"
	$(TEST_PYTHON) -m pytest -m "stacks or validators" -rs

test-jax: $(TEST_VENV)/.paceline  ## The front end of JAX, in an environment of its own
	python3 -m venv build/jax && build/jax/bin/python -m pip install -q -r requirements/jax.txt
	PACELINE_JAX_PYTHON=$(CURDIR)/build/jax/bin/python $(TEST_PYTHON) -m pytest tests/unit/model/test_jax.py -m stacks -rs

test-keras: $(TEST_VENV)/.paceline  ## Keras models on three backends, in an environment of their own
	python3 -m venv build/keras && build/keras/bin/python -m pip install -q -r requirements/keras.txt
	PACELINE_KERAS_JAX=$(CURDIR)/build/keras/bin/python PACELINE_KERAS_TENSORFLOW=$(CURDIR)/build/keras/bin/python \
	PACELINE_KERAS_TORCH=$(CURDIR)/build/keras/bin/python $(TEST_PYTHON) -m pytest tests/unit/execution/test_keras_jobs.py tests/unit/execution/test_keras_gradients.py tests/unit/watch/test_keras_fit.py tests/unit/loop/test_keras_ranks.py -m stacks -rs

stories: $(TEST_VENV)/.paceline  ## Ten stories in the local page with chromium and axe-core, pictures for the docs, and its figures
	@mkdir -p build
	npm pack --silent --pack-destination build axe-core@4.14.1 && tar -xzf build/axe-core-4.14.1.tgz -C build
	AXE_CORE=build/package/axe.min.js PACELINE_PICTURES=docs/images $(TEST_PYTHON) -m pytest -m slow tests/browser
	$(TEST_PYTHON) tools/web_bench.py --fuzz 10000 --out benchmarks/web.md

site: build/site-python/.made  ## Build the documentation site from docs/ into build/site; any warning fails
	NO_MKDOCS_2_WARNING=1 build/site-python/bin/mkdocs build --strict --quiet

gallery: $(TEST_VENV)/.paceline  ## Draw the pictures of docs/gallery.md again, one minute of measuring among them
	$(TEST_PYTHON) -m paceline measure mnist-cnn --batch 16,64,256 --devices 1,2 --store build/gallery
	$(TOOL) documentation.gallery build/gallery

soak: $(TEST_VENV)/.paceline  ## Hypothesis with 50 times the examples, and laws over the whole zoo
	HYPOTHESIS_PROFILE=soak $(TEST_PYTHON) -m pytest -m "soak or (hypothesis and ($(USUAL) or slow))"

soak-frontends: $(TEST_VENV)/.paceline  ## Read 10,000 damaged model files of each format, and write the table
	$(TEST_PYTHON) benchmarks/frontends_soak.py

soak-loop: $(TEST_VENV)/.paceline  ## Kill training runs in every way, and write benchmarks/loop.md (half an hour)
	$(TEST_PYTHON) benchmarks/loop_soak.py --out benchmarks/loop.md

soak-watch: $(TEST_VENV)/.paceline  ## Kill watchers, damage lines, hang ranks, plant what guards look for; into benchmarks/watch.md
	for part in kills fuzz hangs guards; do $(TEST_PYTHON) benchmarks/watch_soak.py $$part || exit 1; done

diagnose: $(TEST_VENV)/.paceline  ## Diagnose scripts with planted faults, and write benchmarks/diagnose.md (half an hour)
	$(TEST_PYTHON) benchmarks/diagnose.py

accuracy: $(TEST_VENV)/.paceline  ## Score predictions against published measurements
	@tools/run_if ../shared/truth "the folder of published measurements" \
		$(TOOL) accuracy

accuracy-parallel: $(TEST_VENV)/.paceline  ## Score predictions of many devices (T6 to T9)
	@tools/run_if ../shared/truth "the folder of published measurements" \
		$(TOOL) accuracy_parallel ../shared/truth \
		--out benchmarks/accuracy_parallel.md

accuracy-memory: $(TEST_VENV)/.paceline  ## Score predicted training memory
	@tools/run_if ../shared/truth "the folder of published measurements" \
		$(TOOL) accuracy_memory ../shared/truth --out benchmarks/accuracy_memory.md

accuracy-fits: $(TEST_VENV)/.paceline  ## Score what is said to fit: published jobs that ran, and that ran out of memory
	@tools/run_if ../shared/truth "the folder of published measurements" \
		$(TEST_PYTHON) tools/accuracy_fits.py --out benchmarks/accuracy_fits.md

accuracy-power: $(TEST_VENV)/.paceline  ## Score predicted power and energy, each GPU held out
	@tools/run_if ../shared/truth "the folder of published measurements" \
		$(TOOL) accuracy_power --out benchmarks/accuracy_power.md

accuracy-clusters: $(TEST_VENV)/.paceline  ## Score predictions of whole clusters: 8 GPUs, llm-foundry, Megatron-Bridge, MLPerf
	@tools/run_if ../shared/truth "the folder of published measurements" \
		$(TOOL) accuracy_clusters ../shared/truth \
		--out benchmarks/accuracy_clusters.md

accuracy-serving: $(TEST_VENV)/.paceline  ## Score predicted serving: time to the first token and per token
	@tools/run_if ../shared/truth "the folder of published measurements" \
		$(TOOL) accuracy_serving ../shared/truth \
		--out benchmarks/accuracy_serving.md

panel: $(TEST_VENV)/.paceline  ## Ask the questions that people ask, and write benchmarks/panel.md
	$(TOOL) panel --out benchmarks/panel.md

features: $(TEST_VENV)/.paceline  ## Try every feature by one command, and write docs/reference/features.md
	$(TOOL) features

screens: $(TEST_VENV)/.paceline  ## Draw ten screens at 80 and 100 columns, light and dark
	$(TOOL) screens

trace-coverage: $(TEST_VENV)/.paceline  ## Trace timm's published models and all language models of transformers (an hour)
	@mkdir -p build/coverage
	$(TOOL) trace_coverage.timm_counts --cache build/coverage/timm > build/coverage/timm.csv
	$(TOOL) trace_coverage.survey_transformers build/coverage/transformers.csv
	$(TOOL) trace_coverage.page build/coverage/timm.csv build/coverage/transformers.csv \
		> benchmarks/trace_coverage.md

bench: $(TEST_VENV)/.paceline  ## Measure speed and memory, and write benchmarks/speed.md and trace_speed.md
	$(TEST_PYTHON) benchmarks/speed.py
	$(TEST_PYTHON) benchmarks/trace_speed.py

gpu-test: $(TEST_VENV)/.paceline  ## Tests that need an NVIDIA GPU
	@tools/run_if nvidia-smi "an NVIDIA GPU with its driver" \
		$(TEST_PYTHON) -m pytest -m "gpu"

gpu-truth: $(TEST_VENV)/.paceline  ## A fixed suite on this machine's GPU in under ten minutes: operators, models, memory, power
	@tools/run_if nvidia-smi "an NVIDIA GPU with its driver" \
		$(TOOL) gpu.truth --out benchmarks/gpu_truth

gpu-truth-score: $(TEST_VENV)/.paceline  ## Score predictions against the records that gpu-truth wrote
	$(TOOL) gpu.score benchmarks/gpu_truth

gpu-asked: $(TEST_VENV)/.paceline  ## Jobs as people write them on this machine's GPU (wants transformers, timm, peft)
	@tools/run_if nvidia-smi "an NVIDIA GPU with its driver" \
		$(TOOL) gpu.asked measure

gpu-asked-page: $(TEST_VENV)/.paceline  ## What paceline answers of the jobs that gpu-asked measured
	$(TOOL) gpu.asked page --out benchmarks/gpu_asked.md

gpu-run: $(TEST_VENV)/.paceline  ## ResNet-50 and GPT-2 in the loop, by hand and as predicted, on this machine's GPU
	@tools/run_if nvidia-smi "an NVIDIA GPU with its driver" \
		$(TEST_PYTHON) benchmarks/loop_gpu.py --out benchmarks/loop_gpu.md

gpu-memory: $(TEST_VENV)/.paceline  ## Predicted memory of small training jobs against this machine's GPU
	@tools/run_if nvidia-smi "an NVIDIA GPU with its driver" \
		$(TOOL) gpu.memory --out benchmarks/gpu_memory.jsonl

release: $(TEST_VENV)/.paceline  ## Build the wheel, check it, and plan with it from an empty environment
	$(TEST_PYTHON) tools/release.py

clean:  ## Remove the environments and caches
	rm -rf $(VENV) $(TEST_VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/.paceline: requirements/core.txt pyproject.toml
	@echo "setting up $(VENV) with the core dependencies (once)" >&2
	@test -x $(VENV)/bin/python || "$$(tools/find_python)" -m venv $(VENV)
	@$(VENV)/bin/python $(PIP_INSTALL) -r requirements/core.txt
	@$(VENV)/bin/python $(PIP_INSTALL) --no-build-isolation --no-deps --editable .
	@touch $@

# The pip that comes with an older Python hashes each of its thousand tags for each file of each release.
# What is listed is installed by both cores at once; then what a machine with a GPU needs besides, while
# what workers of the tests import is compiled.
$(TEST_VENV)/.paceline: requirements/core.txt requirements/test.txt requirements/model_zoos.txt pyproject.toml
	@echo "setting up $(TEST_VENV) with PyTorch and the test tools (once, a few minutes)" >&2
	@test -x $(TEST_VENV)/bin/python || "$$(tools/find_python)" -m venv $(TEST_VENV)
	@$(TEST_VENV)/bin/python $(PIP_INSTALL) --no-compile pip==26.3 || true
	@sed '/^[#-]/d' requirements/core.txt requirements/test.txt requirements/model_zoos.txt | \
		xargs -n 45 -P 2 $(TEST_VENV)/bin/python $(PIP_INSTALL) --no-compile --no-deps
	@($(TEST_VENV)/bin/python -c "import torch._dynamo" 2>/dev/null || true) & \
		$(TEST_VENV)/bin/python $(PIP_INSTALL) --no-compile -r requirements/test.txt && \
		$(TEST_VENV)/bin/python $(PIP_INSTALL) --no-build-isolation --no-deps --editable . && wait
	@touch $@

build/site-python/.made: requirements/site.txt
	@mkdir -p build
	@test -x build/site-python/bin/python || "$$(tools/find_python)" -m venv build/site-python
	@build/site-python/bin/python $(PIP_INSTALL) -r requirements/site.txt
	@touch $@
