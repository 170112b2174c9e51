# Disks with ext4 for the examples beside it, which source it: of a Switchyard target through FUSE and
# a loop device, and in a local file.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

[ "$(id -u)" = 0 ] || fail "run it as root: loop devices and mounts need that"
needs losetup mount mkfs.ext4 e2fsprogs fusermount3 fuse3
loops=()
mounts=()

release() {
    local it
    for it in "${mounts[@]}"; do
        # A program that was interrupted may still be on its way out.
        umount "$it" || { sleep 1; umount "$it"; } || umount --lazy "$it"
    done
    for it in "${loops[@]}"; do losetup --detach "$it"; done
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
    mounts+=("$2")
}

# disks SIZE: makes both, at $work/remote and $work/local. With TARGET=HOST:PORT and NQN in the
# environment the remote one is namespace 1 of that target, WHICH IS OVERWRITTEN; otherwise a target
# with this much memory is started.
disks() {
    local address=${TARGET:-} nqn=${NQN:-nqn.2026-11.io.switchyard:default}
    [ -n "$address" ] || serve target --ram "$1"
    mkdir "$work/files"
    "$program" attach fuse "$work/files" --target "$address" --nqn "$nqn" --nsid 1 >"$work/attach" &
    processes+=($!)
    wait_for "$work/attach" "ready:"
    file_system "$work/files/1" "$work/remote"
    truncate -s "$1" "$work/file"
    file_system "$work/file" "$work/local"
}
