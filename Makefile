# The commands of the project, the same for a user and for CI. docs/building.md explains them.
# Each stage prints one line; its output is in build/logs/STAGE.log.

PYTHON ?= python3
BIN := .venv/bin
# ARGS: options of the demo, as in `make demo ARGS=--embedding-variable`, of pytest, or of a benchmark.
ARGS ?=
# The demo's rows: real ones where they lie beside the repository, synthetic ones else.
DATA ?= $(wildcard ../shared/data/criteo_kaggle/train.tsv.gz)
JOBS ?= 2
# Of GPUs, as CMAKE_CUDA_ARCHITECTURES; empty: all that the package is for.
ARCHITECTURES ?=
export PYTHONPATH := $(CURDIR)/python:$(CURDIR)/tests
export TF_CPP_MIN_LOG_LEVEL ?= 3

# `make ci` adds up over all its parts, so these do not sum up on their own there.
ifndef FE_IN_CI
SUMMARY := $(PYTHON) tools/stage.py --summary
$(shell $(PYTHON) tools/stage.py --start)
else
SUMMARY := true
endif
STAGE := @$(PYTHON) tools/stage.py

# `make ci` runs core-tests before its two chains, since both use build/core_tests.
CORE_TESTS := $(if $(FE_IN_CI),,core-tests)

.PHONY: help demo bench test pytest kills test-oldest test-between lint docs wheel bazel sanitize cuda gpu qemu portable release ci build core-tests emulated clean

help:
	@echo "make demo [DATA=train.tsv]           trains stock, do_fusion=True and fe.accelerate() on the same rows"
	@echo "make demo ARGS=--embedding-variable  trains tables without a vocabulary on them"
	@echo "make test | test-oldest | sanitize | cuda | qemu | lint     checks; make ci is all of them"
	@echo "make kills                                           kills training at work; not a part of make ci"
	@echo "make docs                                            the site, in build/site"
	@echo "make bench [ARGS=--workload=W1]      measures, if nothing else does and the machine is fit to"
	@echo "make gpu                             tests and measures the CUDA core on this GPU, without TensorFlow"
	@echo "make wheel | bazel | portable                        builds dist/*.whl"
	@echo "make release [MINORS=2.21]           builds and checks all files of a release, in dist/release"

.venv/.done: tools/requirements.txt
	$(STAGE) setup env PYTHON=$(PYTHON) tools/make_venv.sh .venv tools/requirements.txt 13

build: .venv/.done
	$(STAGE) build tools/build.sh $(BIN) $(JOBS)

demo: build
	@$(BIN)/python -m fused_embedding demo $(if $(DATA),--data $(DATA)) $(ARGS)

# Kernels of tables in a GPU's memory for tests, without a GPU.
emulated: build $(CORE_TESTS)
	$(STAGE) emulated $(BIN)/cmake --build build/dev -j $(JOBS) --target ops_emulated

core-tests: .venv/.done
	$(STAGE) core-tests tools/core_tests.sh $(BIN) $(JOBS)

test: pytest
	@$(SUMMARY)

pytest: build emulated
	$(STAGE) pytest $(BIN)/python -m pytest -q -n $(JOBS) --dist=loadfile --durations=30 $(ARGS)

# Not a part of `make ci`: minutes of processes that are killed and trained again. Commit the file.
kills: build
	$(STAGE) kills $(BIN)/python -m pytest -q -rA -n $(JOBS) --kills -m kills $(ARGS)
	@grep -E "^(PASSED|FAILED|ERROR) |^[0-9]+ (passed|failed)" build/logs/kills.log | sort > tests/kills.txt
	@$(SUMMARY)

test-oldest:
	$(STAGE) test-oldest env PYTHON=$(PYTHON) tools/test_oldest.sh $(JOBS) \
	    $(if $(FE_IN_CI),$(OLDEST_IN_CI)) $(ARGS)
	@$(SUMMARY)

# Not a part of `make ci`: half an hour. TensorFlow between the ends, each with a Keras 3 of its time. Commit
# the file.
BETWEEN ?= 2.16.2-3.5.0 2.17.1-3.6.0 2.18.1-3.8.0 2.19.1-3.10.0 2.20.0-3.12.0
test-between: $(BETWEEN:%=test-between-%)
	@$(SUMMARY)

test-between-%:
	$(STAGE) $@ env PYTHON=$(PYTHON) tools/test_between.sh $(subst -, ,$*) $(JOBS) \
	    --skip-slow --grids=one $(ARGS) || true  # then the summary fails
	@sed -i '/^$*,/d' tests/between.txt
	@grep -hE "^[0-9]+ (passed|failed)" build/logs/$@.log | \
	    sed "s/^/$*, $$(.venv-$*/bin/python -V): /" >> tests/between.txt

sanitize: .venv/.done
	$(STAGE) sanitize tools/core_tests.sh $(BIN) $(JOBS) _sanitized
	@$(SUMMARY)

cuda: .venv/.done
	$(STAGE) cuda tools/cuda.sh $(BIN) $(JOBS) "$(ARCHITECTURES)"
	@$(SUMMARY)

# Only on a machine that is fit to measure: benchmarks/README.md.
bench: build
	@$(BIN)/python -m benchmarks.harness.bench $(ARGS)

# No environment of its own: what the machine has, CUDA among it.
gpu:
	@PYTHON=$(PYTHON) $(PYTHON) -m benchmarks.harness.measuring_lock tools/gpu.sh $(ARGS)

qemu: build $(CORE_TESTS)
	$(STAGE) qemu-core tools/qemu.sh core
	$(STAGE) qemu-lookup tools/qemu.sh lookup
	@$(SUMMARY)

lint: .venv/.done
	@tools/lint.sh $(BIN)
	@$(SUMMARY)

.venv-docs/.done: tools/docs_requirements.txt
	$(STAGE) setup-docs env PYTHON=$(PYTHON) tools/make_venv.sh .venv-docs tools/docs_requirements.txt 14

# Not a part of `make ci`: lint checks what a page could break. Asks nothing of a network once .venv-docs is there.
docs: .venv-docs/.done
	$(STAGE) docs env PATH="$(CURDIR)/.venv-docs/bin:$$PATH" tools/docs.sh .venv-docs/bin
	@echo build/site/index.html

wheel: .venv/.done
	@rm -f dist/*.whl
	$(STAGE) wheel env -u PYTHONPATH $(BIN)/pip wheel -q --no-deps -w dist .
	@ls dist/*.whl

bazel: wheel
	$(STAGE) bazel tools/bazel_wheel.sh $(BIN)/python $(if $(FE_IN_CI),--config=ci)
	@ls dist/bazel/*.whl

portable: export FE_ROCKSDB := ON
portable: wheel .venv-release/.done
	@rm -rf dist/portable
	$(STAGE) portable sh -c 'tools/portable_wheel.sh .venv-release/bin dist/*.whl dist/portable'
	@ls dist/portable/*.whl

.venv-release/.done: tools/release/requirements.txt
	$(STAGE) setup-release env PYTHON=$(PYTHON) tools/make_venv.sh .venv-release $< 13

# Not a part of `make ci`: docs/releasing.md. MINORS: fewer versions of TensorFlow; AGAIN: those that are
# built twice.
MINORS ?= 2.15 2.16 2.17 2.18 2.19 2.20 2.21
release: .venv-release/.done
	@tools/release/run.sh .venv-release/bin $(JOBS) dist/release "$(MINORS)"; \
	    status=$$?; $(SUMMARY) && exit $$status

# With the oldest TensorFlow: what depends on its version, and one case of each test.
OLDEST_IN_CI := --skip-slow --skip-one-version --grids=one \
    --folders=ops,lookup,columns,acceleration,kerases,train,checkpoint,packaging

# ccache, where it can be had, compiles the core once for all builds. GPU code is built for the oldest
# GPU alone: no code depends on the architecture, and each takes 40 % of nvcc's time. The seconds of
# each stage are in .ci/ci_seconds.json: commit it, so that a change's cost shows.
#
# Two chains side by side, because most stages have parts that keep one processor busy. In one chain
# is what uses build/dev and the package's folder, in the other what builds or installs elsewhere.
ci:
	@tools/system_packages.sh ccache >/dev/null 2>&1 || true
	@$(MAKE) FE_IN_CI=1 .venv/.done
	@$(MAKE) FE_IN_CI=1 core-tests || true  # then the summary fails
	@in_ci="$(MAKE) -k FE_IN_CI=1 ARCHITECTURES=$(or $(ARCHITECTURES),75)"; \
	    $$in_ci sanitize wheel bazel test-oldest & elsewhere=$$!; \
	    $$in_ci lint build cuda test qemu; status=$$?; \
	    wait $$elsewhere || status=$$?; \
	    $(PYTHON) tools/stage.py --summary .ci/ci_seconds.json && exit $$status

clean:
	rm -rf build dist .venv .venv-oldest .venv-docs .venv-release .venv-2.* python/*.egg-info
	rm -f python/fused_embedding/_ops.so python/fused_embedding/_build_info.py
	rm -f python/fused_embedding/_ops_cuda.so python/fused_embedding/_ops_cuda.json
	rm -f python/fused_embedding/_cold_store_rocksdb.so
