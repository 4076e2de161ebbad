#!/usr/bin/env bash
# Set up .venv and run the tests. Arguments go to pytest.
#
#     bash tests/run.sh                   all tests, on one process more than there are CPUs: many tests wait
#     bash tests/run.sh -k resume         some of them
#     bash tests/run.sh -m 'not slow'     the quick ones
set -euo pipefail
cd "$(dirname "$0")/.."
bash .ci/setup
exec "${ATROPOS_TEST_VENV:-.venv}/bin/python" -m pytest -n "${ATROPOS_TEST_PROCESSES:-$(($(getconf _NPROCESSORS_ONLN) + 1))}" --dist loadfile -q \
  --hypothesis-profile=ci "$@"  # the same examples each time, and none of its limits on seconds
