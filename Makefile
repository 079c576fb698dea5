.PHONY: help check test lint format docs notebooks

help: ## this list
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/:.*## /\t/'

check: ## everything, in a fresh environment of its own; what CI runs
	@.ci/run

test: ## the quick tests, in the current environment
	python -m pytest -m "not slow"
	python -m pytest -m "not slow" benchmarks/tests

lint: ## style, types, layers and spelling, in the current environment
	ruff check
	ruff format --check
	mypy
	lint-imports
	codespell

format: ## rewrite the code in the one style
	ruff check --fix
	ruff format

docs: ## the documentation as a site, build/site/index.html; needs the extra `docs`
	python docs/reference.py
	python docs/build_site.py

notebooks: ## the examples as notebooks, build/notebooks/*.ipynb; needs the extra `docs`
	python docs/notebooks.py
