PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONFIG ?= config.example.yaml
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev

.PHONY: demo run test nightly agents oldest bench-overhead bench-prefix bench-retrieval clean

# A real LiteLLM proxy with memory, a short conversation, and a link to the console.
# ONCE=1 ends after the conversation.
demo: $(STAMP)
	@$(BIN)/omniroute-memory demo --config $(CONFIG) $(if $(ONCE),--once)

# The same proxy without the conversation; memory is as the console sets it.
run: $(STAMP)
	@$(BIN)/omniroute-memory run --config $(CONFIG)

# Everything that CI runs: format, lint, types, tests, proxy, browser, wheel.
test: $(DEV_STAMP)
	@BIN=$(BIN) bash .ci/check

# Long soak and kill runs.
nightly: $(DEV_STAMP)
	$(BIN)/pytest -m nightly

# Real coding agents, offline. `claude` (npm: @anthropic-ai/claude-code) and `codex` (npm: @openai/codex)
# have to be on PATH; a missing one is skipped.
agents: $(DEV_STAMP)
	LITELLM_LOCAL_MODEL_COST_MAP=True $(BIN)/pytest -m agents tests/proxy/test_agents.py

# The contract with LiteLLM on the oldest release that is supported, in an environment of its own.
oldest:
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet -e '.[all,dev]' 'litellm[proxy]==1.94.3'
	LITELLM_LOCAL_MODEL_COST_MAP=True .venv-oldest/bin/pytest -m 'proxy and contract' tests/proxy

# What memory costs the proxy: CPU, latency, throughput. Prints figures, asserts nothing.
bench-overhead: $(DEV_STAMP)
	$(BIN)/python bench/overhead.py

# How much of a prompt stays cached, by where memory stands. Prints figures, asserts nothing.
bench-prefix: $(DEV_STAMP)
	$(BIN)/python bench/prefix_cache.py

# How well memories are found, on labelled questions: make bench-retrieval DATA="locomo.json facts.json".
# The formats are told in bench/retrieval_data.py. Prints figures, asserts nothing.
bench-retrieval: $(DEV_STAMP)
	$(BIN)/python bench/retrieval.py $(DATA)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(STAMP): pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet -e '.[all]'
	@touch $(STAMP)

$(DEV_STAMP): pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet -e '.[all,dev]'
	@touch $(STAMP) $(DEV_STAMP)

clean:
	rm -rf $(VENV) .demo build dist *.egg-info
