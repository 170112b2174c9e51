#!/bin/busybox sh
# The first process of a guest. Runs /scenario step by step and reports over the console, one line
# each: "SWITCHYARD: step NAME ok", "SWITCHYARD: step NAME failed", "SWITCHYARD: output LINE",
# "SWITCHYARD: kernel LINE", "SWITCHYARD: task LINE", and at the end "SWITCHYARD: end". Whatever
# happens it powers off.

export PATH=/usr/sbin:/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /etc
ln -sf /proc/mounts /etc/mtab

say() {
	echo "SWITCHYARD: $*"
}

# The kernel's last words, what its tasks wait for, and what its processors do: nothing else explains a
# load that stands still.
show_tasks() {
	dmesg | tail -n 20 >/tmp/tasks
	dmesg -n 1
	echo w >/proc/sysrq-trigger
	echo l >/proc/sysrq-trigger
	dmesg | sed -n '/sysrq: Show Blocked State/,$p' >>/tmp/tasks
	while read -r line; do
		say "task $line"
	done </tmp/tasks
}

finish() {
	dmesg | grep -E 'nvme|EXT4-fs|I/O error|Oops|BUG:|WARNING:|Call Trace' | while read -r line; do
		say "kernel $line"
	done
	say end
	# Without syncing: a disk that waits for what serves it would never let it end.
	poweroff -n -f
}

# step NAME COMMAND…: runs the command in a shell that stops at the first failure. It must not run
# as a condition: there the shell would not stop.
step() {
	step_name=$1
	shift
	(
		set -e
		"$@"
	) >/tmp/output 2>&1
	status=$?
	while read -r line; do
		say "output $step_name: $line"
	done </tmp/output
	if [ "$status" -ne 0 ]; then
		say "step $step_name failed"
		show_tasks
		finish
	fi
	say "step $step_name ok"
}

# wait_until COMMAND…: up to a minute.
wait_until() {
	for _ in $(seq 600); do
		if "$@"; then
			return 0
		fi
		usleep 100000
	done
	echo "not true within a minute: $*"
	return 1
}

# uptime: in seconds.
uptime() {
	cut -d. -f1 /proc/uptime
}

# patiently COMMAND…: up to four minutes, for what a test outside has to do first, and for as long as it
# stops things.
patiently() {
	local end=$(($(uptime) + 240 + ${STOP_SECONDS:-0}))
	while [ "$(uptime)" -lt "$end" ]; do
		if "$@"; then
			return 0
		fi
		sleep 1
	done
	echo "never became true: $*"
	return 1
}

load_modules() {
	while read -r module; do
		insmod "/modules/$module.ko"
	done </modules/order
}

start_network() {
	ip link set lo up
	for interface in /sys/class/net/e*; do :; done
	interface=${interface##*/}
	ip link set "$interface" up
	ip address add 10.0.2.15/24 dev "$interface"
	ip route add default via 10.0.2.2
}

step modules load_modules
step network start_network
. /scenario
finish
