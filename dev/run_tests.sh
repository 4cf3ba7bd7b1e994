#!/usr/bin/env bash
# All test tiers in order, each with its time; a tier whose tools are missing says what it lacks.
# On a root Debian machine (such as CI) the missing tools are installed first.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=()
command -v chromium >/dev/null || packages+=(chromium fonts-noto-cjk)
command -v aarch64-linux-gnu-gcc >/dev/null || packages+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
command -v qemu-aarch64-static >/dev/null || packages+=(qemu-user-static)
[[ $(uname -m) != x86_64 ]] || command -v bochs >/dev/null || packages+=(bochs bochs-term)
if ((${#packages[@]})) && [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
  echo "== installing ${packages[*]}"
  { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${packages[@]}"; } \
    >/tmp/vignette-apt.log 2>&1 || { echo "could not install them; the tiers that need them will be skipped"; tail -3 /tmp/vignette-apt.log; }
fi

tier() { # tier NAME COMMAND...
  local name=$1 start=$SECONDS
  shift
  echo "== tier $name: $*"
  "$@"
  echo "== tier $name took $((SECONDS - start)) s"
}

tier native-c make --no-print-directory test-native-c
tier sanitisers make --no-print-directory native-debug
tier threads make --no-print-directory native-tsan
if command -v aarch64-linux-gnu-gcc >/dev/null && command -v qemu-aarch64-static >/dev/null; then
  tier arm64 make --no-print-directory test-arm64
else
  echo "== tier arm64 skipped: needs gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static"
fi
if [[ $(uname -m) == x86_64 ]] && command -v bochs >/dev/null; then
  tier avx512 make --no-print-directory test-avx512
else
  echo "== tier avx512 skipped: needs bochs bochs-term on x86-64"
fi
tier fast .venv/bin/python -m pytest -q -m "not native and not browser and not arm64"
tier native .venv/bin/python -m pytest -q -m native
tier browser .venv/bin/python -m pytest -q -m browser
echo "== all tiers done in $SECONDS s"
