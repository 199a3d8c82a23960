# make test   the whole gate: what CI runs
# make demo   a throwaway Slurm, sample jobs, our answers; everything is shut down again
# make lint   ruff, mypy and luacheck only
# make bench-*  print the figures quoted in the docs; not tests
.PHONY: test lint demo bench-launch

test: lint
	venv=$$(tools/setup.sh test) \
	&& $$venv/bin/pytest --numprocesses auto --maxprocesses 4 --dist loadfile --cov

lint:
	venv=$$(tools/setup.sh test) && export PATH="$$venv/bin:$$PATH" \
	&& ruff format --check . && ruff check . && mypy \
	&& luacheck -q --no-config --std lua51 --read-globals slurm \
	   --globals slurm_job_submit slurm_job_modify -- lua \
	&& for file in lua/*.lua; do luac5.1 -p $$file || exit 1; done

demo:
	venv=$$(tools/setup.sh test) && $$venv/bin/python tools/demo.py

bench-launch:
	venv=$$(tools/setup.sh test) && $$venv/bin/python benchmarks/launch.py

bench-decide:
	venv=$$(tools/setup.sh test) && $$venv/bin/python benchmarks/decide_latency.py

bench-predict:
	venv=$$(tools/setup.sh test) && $$venv/bin/python benchmarks/predict_latency.py

bench-daemon:
	venv=$$(tools/setup.sh test) && $$venv/bin/python benchmarks/daemon_latency.py

bench-ingest:
	venv=$$(tools/setup.sh test) && $$venv/bin/python benchmarks/ingest.py

# the measured rows and the scenario are not in this repository (docs/model.md): DATA, SCENARIO
DATA = ../shared/data/serving/serving_benchmarks.csv
SCENARIO = ../shared/data/scenario.yaml
KEEP = .held
bench-model:
	venv=$$(tools/setup.sh test) && $$venv/bin/python benchmarks/model.py $(DATA) \
	   --scenario $(SCENARIO) --keep $(KEEP) \
	&& OMP_NUM_THREADS=1 $$venv/bin/python benchmarks/predict_latency.py --data $(DATA)

# where the model's error comes from; uses what bench-model kept
bench-model-limits:
	venv=$$(tools/setup.sh test) && $$venv/bin/python benchmarks/model_limits.py $(DATA) \
	   --scenario $(SCENARIO) --keep $(KEEP)

# needs chromium
check-page:
	venv=$$(tools/setup.sh test) && $$venv/bin/python -m pytest tests/browser/check_report_page.py

bench-adapt:
	venv=$$(tools/setup.sh test) && $$venv/bin/python benchmarks/adapt.py $(DATA) --keep $(KEEP)

# needs root, a C compiler and libslurm-dev
bench-shim:
	venv=$$(tools/setup.sh test) && $$venv/bin/python benchmarks/shim_rate.py --rounds 31 --jobs 40

# the same; every job a candidate for every GPU, everything switched on
bench-storm:
	venv=$$(tools/setup.sh test) && $$venv/bin/python benchmarks/storm_rate.py --rounds 31 --jobs 40
