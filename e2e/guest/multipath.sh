# Two targets with one subsystem over one disk: the kernel's multipath follows their ANA states. The
# test outside moves the disk's group from one target to the other when it sees a step end.

. /parameters
. /nvme.sh

connect_both() {
	while read -r name port; do
		connect "$port" "$NQN" nr_io_queues=2 reconnect_delay=1 keep_alive_tmo=5 ctrl_loss_tmo=600
		mv /run/controller "/run/$name"
	done </targets
	wait_until find_namespace
	wait_until has_states optimized inaccessible
}

# state_of TARGET: of its path to the disk; nothing while the path is not known.
state_of() {
	cat "/sys/class/nvme/$(cat "/run/$1")"/nvme*c*n*/ana_state 2>/dev/null
}

# has_states FIRST SECOND
has_states() {
	[ "$(state_of first)" = "$1" ] && [ "$(state_of second)" = "$2" ]
}

# is_live TARGET
is_live() {
	[ "$(cat "/sys/class/nvme/$(cat "/run/$1")/state")" = live ]
}

# Writes with a check sum in each block, read back in the same round, from whichever target has the disk.
verify_blocks() {
	round=0
	while [ ! -e /run/stop ]; do
		round=$((round + 1))
		fio --name=verify --filename="/dev/$(cat /run/namespace)" --size=24m --io_size=2m --direct=1 \
			--ioengine=libaio --thread=1 --iodepth=8 --rw=randwrite --bsrange=4k-128k \
			--randseed="$round" --verify=crc32c --verify_backlog=16 --verify_fatal=1 \
			--output=/run/fio || echo "fio ended with $?" >>/run/failed
		echo "$round" >/run/rounds.new
		mv /run/rounds.new /run/rounds
	done
	touch /run/stopped
}

start_load() {
	# The kernel sends on the thread that submits, and without MSG_NOSIGNAL.
	trap '' PIPE
	echo 0 >/run/rounds
	verify_blocks >/run/output 2>&1 </dev/null &
}

# passed NUMBER
passed() {
	[ -e /run/failed ] || [ "$(cat /run/rounds)" -ge "$1" ]
}

no_failure() {
	if [ -e /run/failed ]; then
		cat /run/failed /run/output /run/fio
		return 1
	fi
}

go_on() {
	patiently passed "$(($(cat /run/rounds) + 2))"
	no_failure
}

# moved FIRST SECOND: to these states.
moved() {
	patiently has_states "$@"
	go_on
}

# returned: the target that was killed, with no claim to the disk.
returned() {
	patiently is_live second
	moved optimized inaccessible
}

has_stopped() {
	[ -e /run/stopped ]
}

verified() {
	touch /run/stop
	patiently has_stopped
	no_failure
	cat /run/rounds
}

disconnect_both() {
	for name in first second; do
		echo 1 >"/sys/class/nvme/$(cat "/run/$name")/delete_controller"
	done
	wait_until no_namespace
}

step connected connect_both
step loaded start_load
step before go_on
for move in 1 3 5; do
	step "moved-$move" moved inaccessible optimized
	# After the last one, the second target is killed instead.
	[ "$move" = 5 ] || step "moved-$((move + 1))" moved optimized inaccessible
done
step survived go_on
step returned returned
step verified verified
step disconnected disconnect_both
