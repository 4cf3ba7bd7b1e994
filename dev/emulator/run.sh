#!/usr/bin/env bash
# Runs ROM images of static tests (native.mk makes them) in the Bochs emulator as a processor with AVX-512 and VNNI, as
# many at a time as there are cores. Debian's Bochs carries its debugger, which is told to continue, and draws on a
# terminal, which `script` provides.
#   run.sh ROM...
set -euo pipefail
export model=tigerlake limit_s=${EMULATOR_LIMIT_S:-900}

run_one() { # run_one ROM
  local name=${1#build/emulator/} start=$SECONDS work last
  work=$(mktemp -d)
  echo c >"$work/continue"
  cat >"$work/bochsrc" <<CONFIGURATION
display_library: term
cpu: model=$model, ips=50000000, reset_on_triple_fault=0
megs: 512
romimage: file=$1
vgaromimage: file=/usr/share/bochs/VGABIOS-lgpl-latest
boot: floppy
clock: sync=none
parport1: enabled=1, file=$work/printed
plugin_ctrl: speaker=0
panic: action=fatal
error: action=ignore
info: action=ignore
log: $work/log
CONFIGURATION
  TERM=xterm timeout "$limit_s" script -qec "bochs -q -f $work/bochsrc -rc $work/continue" /dev/null \
    </dev/null >"$work/screen" 2>&1 || true
  touch "$work/printed" "$work/log"
  last=$(tail -n 1 "$work/printed")
  {
    grep -av '^exit [0-9a-f][0-9a-f]$' "$work/printed" | grep -v '^$' || true
    if [[ $last != "exit 00" ]]; then
      echo "failed: ${last:-no end within $limit_s s} $(grep -a PANIC "$work/log" | grep -v Shutdown || true)"
    fi
    echo "${name%.rom} took $((SECONDS - start)) s on $model"
  } >"$work/report"
  cat "$work/report"
  rm -rf "$work"
  [[ $last == "exit 00" ]]
}
export -f run_one

printf '%s\0' "$@" | xargs -0 -P "$(nproc)" -I ROM bash -c 'run_one "$1"' run_one ROM
