#!/usr/bin/env bash
# Install a wheel into an environment of its own, and run the README's example and commands there, away from the sources.
#     bash packaging/try_wheel.sh dist/sciscidata-0.1.0-py3-none-any.whl [REQUIREMENT ...]
set -euo pipefail
[ -f "${1:-}" ] || { echo "usage: bash packaging/try_wheel.sh WHEEL [REQUIREMENT ...]"; [ "${1:-}" = --help ]; exit; }
wheel=$(realpath "$1"); shift
readme=$(realpath "$(dirname "$0")/../README.md")
home=$(mktemp -d); trap 'rm -rf "$home"' EXIT
cd "$home"
unset PYTHONPATH
export XDG_CACHE_HOME="$home/cache"
uv venv --quiet --python "${UV_PYTHON:-python3}" env
uv pip install --quiet --python env/bin/python "$wheel" "$@"
export PATH="$home/env/bin:$PATH"
python - "$readme" <<'EOF'
import contextlib, io, pathlib, re, sys

import sciscidata

readme = pathlib.Path(sys.argv[1]).read_text("utf-8")
code, expected = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", readme, re.DOTALL).groups()
printed = io.StringIO()
with contextlib.redirect_stdout(printed):
    exec(code, {})
assert printed.getvalue().split() == expected.split(), printed.getvalue()
assert "env" in pathlib.Path(sciscidata.__file__).parts, sciscidata.__file__
EOF
sciscidata build --source example --out slice
sciscidata verify slice
sciscidata --help > /dev/null
sciscirl presets > /dev/null
# Without the extra, the learning half says in one line how to get it.
if sciscirl train preset=exp4 release=slice model=tiny --dry-run > told.txt 2>&1; then cat told.txt; exit 1; fi
grep -F "pip install 'sciscidata[rl]'" told.txt
test "$(wc -l < told.txt)" -eq 1
echo "the wheel works: $(sciscidata --version)"
