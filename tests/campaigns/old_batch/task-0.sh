run=@FOLDER@/.foretell/runs/old/76b57f6873d76c08-0
[ -d "$run" ] || mkdir -p -- "$run"
for path in "$run"; do
  if [ -L "$path" ] || [ ! -O "$path" ]; then
    echo "foretell: $path is a symbolic link or not yours: nothing is run" >&2; exit 1
  fi
done
for name in stdout.log stderr.log job.txt; do
  [ ! -L "$run/$name" ] || rm -f -- "$run/$name"; : >"$run/$name"
done
exec >>"$run/stdout.log" 2>>"$run/stderr.log"
note() { printf '%s=%s\n' "$@" >>"$run/job.txt"; }
now() { now=${EPOCHREALTIME:-$(date +%s.%N)}; }
while IFS=: read -r name cpu; do case $name in "model name"*) break;; esac; cpu=; done </proc/cpuinfo
now
note job "$element" host "${SLURMD_NODENAME:-$HOSTNAME}" cpu "${cpu# }" started "$now"
(while sleep 30; do for log in "$run/stdout.log" "$run/stderr.log"; do
  size=$(stat -c %s "$log") && [ "$size" -gt 67108864 ] && fallocate -p -o 33554432 -l $((size - 67108864)) "$log"
done; done) >/dev/null 2>&1 & watch=$!
(
  set -e

  export PARAM_n=1
  export PARAM_cores=1
  export PARAM_gpus=0
  export PARAM_nodes=1
  export PARAM_run_dir=@FOLDER@/.foretell/runs/old/76b57f6873d76c08-0
  export PARAM_app_dir=@FOLDER@
  export FORETELL_RUN_DIR=@FOLDER@/.foretell/runs/old/76b57f6873d76c08-0
  mkdir -p -- @FOLDER@/.foretell/runs/old/76b57f6873d76c08-0
  cd -- @FOLDER@/.foretell/runs/old/76b57f6873d76c08-0

  timeout --kill-after=5 300.0 @PYTHON@ -P -m foretell.probes.sampler -- bash -c 'sleep 0.3; echo "took $(( $PARAM_n * 2 )) s"'
)
code=$?
kill "$watch" 2>/dev/null
now
note code "$code" ended "$now"
: >"$batch/ended/$index"
exit "$code"
