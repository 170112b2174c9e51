# Two disks with ext4, to be compared: one of a Switchyard target through FUSE and a loop device, and
# one in a local file. For the examples beside it, which source it; everything it makes lies below
# one temporary folder and is gone when they end.
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

[ "$(id -u)" = 0 ] || fail "run it as root: loop devices and mounts need that"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
program=${SWITCHYARD_BIN:-${CARGO_TARGET_DIR:-$root/target}/release/switchyard}
[ -x "$program" ] || fail "$program is not here: cargo build --release, or name it with SWITCHYARD_BIN"
needs losetup mount mkfs.ext4 e2fsprogs fusermount3 fuse3
work=$(mktemp -d "${TMPDIR:-/tmp}/switchyard-example-XXXXXX")
chmod 755 "$work"
loops=()
attached=''
serving=''

# end PROCESS: asks it to end, and waits for that.
end() {
    [ -n "$1" ] || return 0
    kill "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}

clean_up() {
    set +e
    for disk in remote local; do
        mountpoint -q "$work/$disk" && umount "$work/$disk"
    done
    for loop in "${loops[@]}"; do
        losetup --detach "$loop"
    done
    end "$attached"
    end "$serving"
    rm -rf "$work"
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

# file_system FILE MOUNTPOINT: ext4 on a loop device over the file.
file_system() {
    local loop
    loop=$(losetup --find --show --direct-io=on --sector-size 4096 "$1" 2>/dev/null) ||
        loop=$(losetup --find --show "$1") || fail "no loop device for $1"
    loops+=("$loop")
    mkfs.ext4 -q -E nodiscard "$loop"
    mkdir -p "$2"
    mount -t ext4 "$loop" "$2"
}

# disks SIZE: makes both, at $work/remote and $work/local. With TARGET=HOST:PORT and NQN in the
# environment the remote one is namespace 1 of that target, WHICH IS OVERWRITTEN; otherwise a target
# with this much memory is started.
disks() {
    local address=${TARGET:-} nqn=${NQN:-nqn.2026-11.io.switchyard:default}
    if [ -z "$address" ]; then
        "$program" serve --listen 127.0.0.1:0 --ram "$1" >"$work/serve" &
        serving=$!
        wait_for "$work/serve" "listening on"
        address=$(sed -n 's/^listening on \([^ ,]*\).*/\1/p' "$work/serve" | head -n 1)
    fi
    mkdir "$work/files"
    "$program" attach fuse "$work/files" --target "$address" --nqn "$nqn" --nsid 1 >"$work/attach" &
    attached=$!
    wait_for "$work/attach" "ready:"
    file_system "$work/files/1" "$work/remote"
    truncate -s "$1" "$work/file"
    file_system "$work/file" "$work/local"
}
