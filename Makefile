# The front door: `make demo` and `make test` set up everything they need, in .venv.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt
GLASS  := $(BIN)/glass
ENGINE := hatch_build.py $(wildcard src/glassformer/engine/build.py src/glassformer/engine/core/*)  # installing compiles it

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow attack lint format bench peers docs gallery clean

help:            ## what there is to make
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*##/:/' | column -t -s:

demo: $(VENV)/.ready  ## a new story from the model that ships, and a look at how it was made
	@echo '$$ glass generate'; $(GLASS) generate < /dev/null | tee $(VENV)/story.txt
	@first=$$(sed '1s/\([.!?]"*\).*/\1/;q' $(VENV)/story.txt); \
	echo; echo "The ten likeliest tokens after its first sentence:"; echo "$$ glass top \"$$first\""; $(GLASS) top -- "$$first"; \
	echo; echo "The tokens that sentence is made of:"; echo "$$ glass tokenize \"$$first\""; $(GLASS) tokenize -- "$$first"
	@echo; echo "Go on: source $(BIN)/activate, then: glass generate \"One day\""

test: $(VENV)/.ready-dev  ## the quick tests, offline (about five minutes on 2 cores)
	@$(BIN)/python -m pytest -n 2 --dist worksteal

test-slow: $(VENV)/.ready-dev  ## the slow checks: true sizes, long runs (see tests/README.md)
	@$(BIN)/python -m pytest -m slow

attack: $(VENV)/.ready-dev  ## hundreds of hostile uses from a new seed; SEED=7 repeats a run, CASES=50 makes it short
	@ATTACK_SEED=$(SEED) ATTACK_CASES=$(CASES) $(BIN)/python -m pytest -m attack -s tests/test_attack.py

lint: $(VENV)/.ready-dev  ## ruff, format and mypy; the types of views.js where npm is
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@if ! command -v npm >/dev/null; then echo "npm is not here: the types of views.js are not checked"; \
	elif ! $(MAKE) --silent studio/node_modules; then echo "typescript cannot be fetched: the types of views.js are not checked"; \
	else npm --prefix studio run --silent check; fi

studio/node_modules: studio/package.json studio/package-lock.json
	@npm --prefix studio ci --silent
	@touch $@

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

$(VENV)/.ready-dev: pyproject.toml constraints.txt $(ENGINE) | $(BIN)/python
	@$(PIP) --editable '.[dev,clients]'
	@$(PIP) --no-deps g2p_en || echo "g2p_en cannot be fetched: the test that runs its weights is skipped"
	@npm --prefix tests/clients ci --silent || echo "npm, or what it fetches, is not here: the test of OpenAI's client for JavaScript is skipped"
	@touch $@ $(VENV)/.ready
