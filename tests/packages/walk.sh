#!/usr/bin/env bash
# A new user's first steps in an empty folder, with packages installed from an index: walk.sh serve|simulate NOTEBOOK
#
# `serve` needs only `longshare`; `simulate` also needs the extra `simulation`.
set -euo pipefail

cat >norm.py <<'POLICY'
from allocator.api import Account, KeyPolicy


class Norm(KeyPolicy):
    """Least length of the vector of shares first."""

    name = "norm"

    power: float = 2.0

    def key(self, account: Account) -> float:
        return sum(share**self.power for share in account.shares.values()) / account.weight
POLICY
chmod go-w norm.py

walk_serve() {
  cat >longshare.toml <<SETTINGS
[policy]
name = "norm"
file = "$PWD/norm.py"
power = 3

[listen]
address = "unix://$PWD/allocator.sock"

[metrics]
address = "127.0.0.1:0"

[store]
path = "$PWD/commitments.sqlite"

[[users.declared]]
name = "anna"
SETTINGS
  longshare serve --config longshare.toml --check
  longshare serve --config longshare.toml --record events >log 2>&1 &
  local service=$!
  trap 'kill "$service" 2>/dev/null || true' EXIT
  # Wait without a time limit, because the start depends on the load of the machine. The service prints its readiness, or ends.
  until grep -q 'ready.*policy=norm' log; do
    kill -0 "$service" || { cat log >&2; exit 1; }
    sleep 0.1
  done
  longshare shares --config longshare.toml --json | grep -q '"anna"'
  kill "$service"
  wait "$service"
  trap - EXIT
  longshare replay events --policy-file norm.py
}

walk_simulate() {
  printf 'submitted_s,runtime_s,user,cpus,mem\n0,60,heavy,2,1\n0,60,heavy,2,1\n1,10,light,1,4\n' >mine.csv
  longshare trace convert mine.csv mine.parquet --from csv
  longshare simulate mine.parquet --policy norm --policy-file norm.py --capacity cpus=4,mem=8
  python "$1"
}

"walk_$@"
