#!/usr/bin/env bash
# A Ray cluster on this machine that outlives the commands that use it.
#   deploy/one-node.sh start
#   palestra rollout oracle --envs game:Sudoku-v0-easy -n 10000 --cluster auto
#   deploy/one-node.sh stop
set -euo pipefail

export RAY_AUTH_MODE=token
case "${1:-}" in
  start)
    ray get-auth-token --generate >/dev/null # into ~/.ray/auth_token, unless there is one
    chmod 600 "$HOME/.ray/auth_token"
    # Only this machine can reach it, token or not.
    ray start --head --node-ip-address=127.0.0.1 --include-dashboard=false --disable-usage-stats
    ;;
  stop)
    ray stop
    ;;
  *)
    echo "usage: $0 start|stop" >&2
    exit 2
    ;;
esac
