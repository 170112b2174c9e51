# Disks with a file system for the examples beside it, which source it: of a Switchyard target through
# FUSE and a loop device, and in a local file. FS=xfs makes XFS of at least 300M, otherwise it is ext4.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

[ "$(id -u)" = 0 ] || fail "run it as root: loop devices and mounts need that"
fs=${FS:-ext4}
case $fs in
ext4) make_file_system=(mkfs.ext4 -q -E nodiscard) fs_package=e2fsprogs ;;
xfs) make_file_system=(mkfs.xfs -q -K) fs_package=xfsprogs ;;
*) fail "FS=$fs: write ext4 or xfs" ;;
esac
needs losetup mount "${make_file_system[0]}" "$fs_package" fusermount3 fuse3
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

# file_system FILE MOUNTPOINT: a file system on a loop device over the file.
file_system() {
    local loop
    loop=$(losetup --find --show --direct-io=on --sector-size 4096 "$1" 2>/dev/null) ||
        loop=$(losetup --find --show "$1") || fail "no loop device for $1"
    loops+=("$loop")
    "${make_file_system[@]}" "$loop"
    mkdir -p "$2"
    mount -t "$fs" "$loop" "$2"
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
