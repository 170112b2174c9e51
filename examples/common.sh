# For the examples beside it, which source it: everything that they make lies below one temporary
# folder, $work, and is gone when they end, as are the processes that they start.
set -euo pipefail

say() { printf '%s: %s\n' "$(basename "$(dirname "$0")")" "$*" >&2; }
fail() { say "$*"; exit 1; }

# needs COMMAND PACKAGE…: each command must be there, or the package that brings it is named.
needs() {
    while [ $# -gt 0 ]; do
        command -v "$1" >/dev/null || fail "$1 is not here: apt-get install $2"
        shift 2
    done
}

export PATH="$PATH:/usr/sbin:/sbin"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
program=${SWITCHYARD_BIN:-${CARGO_TARGET_DIR:-$root/target}/release/switchyard}
[ -x "$program" ] || fail "$program is not here: cargo build --release, or name it with SWITCHYARD_BIN"
work=$(mktemp -d "${TMPDIR:-/tmp}/switchyard-example-XXXXXX")
chmod 755 "$work"
processes=()

# release: gives back what is neither a process nor a file, before the processes end.
release() { :; }

clean_up() {
    trap '' INT TERM
    set +e
    release
    local index
    for ((index = ${#processes[@]} - 1; index >= 0; index--)); do
        kill "${processes[index]}" 2>/dev/null
        wait "${processes[index]}" 2>/dev/null
    done
    rm -rf --one-file-system "$work"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

# wait_for FILE TEXT: until a line of the file begins with it.
wait_for() {
    for _ in $(seq 600); do
        grep -q "^$2" "$1" 2>/dev/null && return
        sleep 0.05
    done
    cat "$1" >&2
    fail "no line that begins with '$2' within 30 seconds"
}

# serve NAME ARGUMENT…: starts a target, and sets $address.
serve() {
    local name=$1
    shift
    "$program" serve --listen 127.0.0.1:0 "$@" >"$work/$name.serve" &
    processes+=($!)
    wait_for "$work/$name.serve" "listening on"
    address=$(sed -n 's/^listening on \([^ ,]*\).*/\1/p' "$work/$name.serve" | head -n 1)
}

# spread FILE COLUMN: the median of a column of numbers, the least and the most.
spread() {
    cut -d' ' -f"$2" "$1" | sort -n |
        awk '{ v[NR] = $1 } END { printf "%.0f (%.0f-%.0f)", v[int((NR + 1) / 2)], v[1], v[NR] }'
}
