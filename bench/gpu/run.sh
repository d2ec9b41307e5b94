#!/usr/bin/env bash
# Measures on one GPU what a CPU can't show: builds the engine for this machine's own Python into a
# temporary folder (g++ and nanobind are enough), then runs bench/gpu/measure.py within a time limit.
# Figures come out under $OUT (default build/gpu) while it runs: log, figures.jsonl, gpu.json.
#
#   bench/gpu/run.sh                   under six minutes on one H200
#   bench/gpu/run.sh --only policies   one part: policies, truth (with offloading), checks, variants
#   bench/gpu/run.sh --cpu-smoke       the same path at small sizes, without a GPU
#
# PYTHON names the interpreter; it needs torch (2.11 will do, see old_torch.py), transformers,
# nanobind and rich. LIMIT is in seconds. An engine beside the Python sources is taken if it is for
# this interpreter and newer than the C++ sources.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
limit=${LIMIT:-360}
out=${OUT:-build/gpu}
mkdir -p "$out"
out=$(realpath "$out")
exec > >(tee "$out/log") 2>&1

package=$(mktemp -d)
trap 'rm -rf "$package"' EXIT
mkdir "$package/autosp" "$package/objects"
cp python/autosp/*.py "$package/autosp/"

read -r headers nanobind nanobind_headers suffix < <("$python" -c '
import nanobind, sysconfig
print(sysconfig.get_path("include"), nanobind.source_dir(), nanobind.include_dir(),
      sysconfig.get_config_var("EXT_SUFFIX"))')
engine=python/autosp/_engine$suffix
if [ -f "$engine" ] && [ -z "$(find -L src python/src -name '*.[ch]*' -newer "$engine" -print -quit)" ]; then
  cp -L "$engine" "$package/autosp/"
else
  flags=(-std=c++20 -O2 -fPIC -fvisibility=hidden -fno-strict-aliasing -DNDEBUG
    -DNB_COMPACT_ASSERTIONS -Isrc -Ipython/src "-I$headers" "-I$nanobind_headers"
    "-I$nanobind/../ext/robin_map/include")
  began=$SECONDS
  mapfile -t sources < <(find src python/src -name '*.cc'; echo "$nanobind/nb_combined.cpp")
  printf '%s\n' "${sources[@]}" | xargs -P "${JOBS:-$(nproc)}" -I{} bash -c '
    source=$1 && shift && g++ "$@" -c "$source" -o "'"$package"'/objects/${source//\//_}.o"' _ {} "${flags[@]}"
  g++ -shared "$package"/objects/*.o -o "$package/autosp/_engine$suffix"
  echo "engine built in $((SECONDS - began)) s"
fi

# On fewer cores than this, compilers' own helper processes only stand in each other's way.
PYTHONPATH="$package${PYTHONPATH:+:$PYTHONPATH}" timeout --signal=INT --kill-after=10 $((limit - SECONDS)) \
  "$python" bench/gpu/measure.py --output "$out" --limit $((limit - SECONDS - 15)) "$@"
