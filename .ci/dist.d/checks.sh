# shellcheck shell=bash
# How the tests of artefacts state what they expect; sourced. PASSED and FAILED count.
FAILED=0 PASSED=0

# check NAME EXPECTED COMMAND…: the command succeeds, and its output contains the text
check() {
  local name=$1 expected=$2 output status=0
  shift 2
  output=$(env -i PATH=/usr/bin:/bin "$@" 2>&1) || status=$?
  if [ "$status" = 0 ] && [[ $output == *"$expected"* ]]; then
    echo "passed: $name"
    PASSED=$((PASSED + 1))
  else
    printf 'FAILED: %s: status %s\n%s\n' "$name" "$status" "$output"
    FAILED=$((FAILED + 1))
  fi
}
# refused NAME EXPECTED COMMAND…: the command fails, and says why
refused() {
  local name=$1 expected=$2
  shift 2
  # shellcheck disable=SC2016 # the inner shell's
  check "$name" "$expected" /bin/sh -c 'if "$@"; then exit 1; fi' sh "$@"
}
skipped() { echo "SKIPPED: $*"; }

# prints the counts; fails where a check failed, or none was made
summary() {
  echo "$PASSED checks passed, $FAILED failed"
  [ "$FAILED" = 0 ] && [ "$PASSED" -gt 0 ]
}
