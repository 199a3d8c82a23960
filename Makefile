# make test   the whole gate: what CI runs
# make demo   a throwaway Slurm, sample jobs, our answers; everything is shut down again
# make lint   ruff, mypy and luacheck only
# make bench-*  print the figures quoted in the docs; not tests
.PHONY: test lint demo

test: lint
	venv=$$(tools/setup.sh test) && $$venv/bin/coverage erase \
	&& $$venv/bin/coverage run -m pytest \
	&& $$venv/bin/coverage report

lint:
	venv=$$(tools/setup.sh test) && export PATH="$$venv/bin:$$PATH" \
	&& ruff format --check . && ruff check . && mypy \
	&& luacheck -q lua && luac5.1 -p lua/*.lua

demo:
	venv=$$(tools/setup.sh test) && $$venv/bin/python tools/demo.py
