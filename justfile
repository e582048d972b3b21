# Everyday commands; `just` lists them. They use the virtual environment of the README's commands.
bin := ".venv/bin"

default:
    @just --list

# install the package with everything that developing it needs
setup:
    python3 scripts/install.py dev

# write the hashes anew after a version was changed in constraints.txt or the local server's requirements.txt
lock:
    {{bin}}/python scripts/lock.py

# format, lint and type-check
check:
    {{bin}}/ruff format --check .
    {{bin}}/ruff check .
    {{bin}}/pyright --pythonpath {{bin}}/python

# every test, slow ones too
test *ARGS:
    {{bin}}/pytest -q {{ARGS}}

# the tests that take seconds
quick:
    {{bin}}/pytest -q -m 'not slow'

# an exported task in Inspect, verifiers and lm-evaluation-harness
harnesses:
    SCISCI_HARNESSES=1 {{bin}}/pytest -q tests/sciscirl/lab/harnesses

# whole runs on the local server with other versions of the cookbook and the SDK
cookbook *PACKAGES="tinker-cookbook==0.6.1":
    SCISCI_COOKBOOK="{{PACKAGES}}" {{bin}}/pytest -q tests/sciscirl/lab/local_server/test_cookbook.py tests/sciscirl/lab/local_server/test_other_cookbook.py

# the documentation site, into site/; a warning is an error
docs:
    NO_MKDOCS_2_WARNING=1 {{bin}}/mkdocs build --strict

# run the notebooks, and keep in them what they print and draw
notebooks *NAMES:
    {{bin}}/python docs/_notebooks.py {{NAMES}}

# sdist and wheel, and the README's example and commands with the wheel alone
dist:
    rm -rf dist
    {{bin}}/uv build --quiet
    bash packaging/try_wheel.sh dist/*.whl

# a small release from the synthetic world, verified
smoke:
    {{bin}}/python scripts/build_slice.py --source synthetic --n-works 5000 --n-train 90 --n-test 9 --out slices/smoke --overwrite
    {{bin}}/sciscidata verify slices/smoke

# the default slice; see README
build *ARGS:
    {{bin}}/python scripts/build_slice.py {{ARGS}}

# recompute every hash of a release
verify RELEASE:
    {{bin}}/sciscidata verify {{RELEASE}}
