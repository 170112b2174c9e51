# What scenarios with the kernel's NVMe/TCP initiator share. Reads /parameters: TRADDR, NQN, HOSTNQN,
# HOSTID. Uses /run/controller and /run/namespace to remember what is connected.

discovery_nqn=nqn.2014-08.org.nvmexpress.discovery

# connect PORT NQN [OPTION…]: /run/controller becomes "nvme0".
connect() {
	options="transport=tcp,traddr=$TRADDR,trsvcid=$1,nqn=$2,hostnqn=$HOSTNQN,hostid=$HOSTID"
	shift 2
	for option in "$@"; do
		options="$options,$option"
	done
	exec 3<>/dev/nvme-fabrics
	# Explicit, for callers that expect a failure: there "set -e" is off.
	if ! echo -n "$options" >&3; then
		exec 3>&-
		return 1
	fi
	read -r answer <&3
	exec 3>&-
	instance=${answer#instance=}
	echo "nvme${instance%%,*}" >/run/controller
	echo "$answer"
}

# name_of NSID: "nvme0n1". The kernel numbers namespaces in the order in which it finds them.
name_of() {
	for block in /sys/block/nvme*n*; do
		name=${block##*/}
		case $name in
		# A path below the multipath device: not for use.
		nvme*c*n*) ;;
		*)
			if [ -b "/dev/$name" ] && [ "$(cat "$block/nsid")" = "$1" ]; then
				echo "$name"
				return 0
			fi
			;;
		esac
	done
	return 1
}

find_namespace() {
	name_of 1 >/run/namespace
}

no_namespace() {
	! find_namespace
}

# connect_namespace PORT [OPTION…]
connect_namespace() {
	port=$1
	shift
	connect "$port" "$NQN" nr_io_queues=2 "$@"
	wait_until find_namespace
	cat /run/namespace
}

controller_gone() {
	[ ! -e "/sys/class/nvme/$(cat /run/controller)" ]
}

disconnect() {
	echo 1 >"/sys/class/nvme/$(cat /run/controller)/delete_controller"
	wait_until controller_gone
	wait_until no_namespace
	rm -f /run/namespace
}

# expect WHAT IS WANTED
expect() {
	if [ "$2" != "$3" ]; then
		echo "$1 is '$2', not '$3'"
		return 1
	fi
	echo "$1 is '$2'"
}

# attribute NAME: of the connected controller.
attribute() {
	sed 's/[[:space:]]*$//' "/sys/class/nvme/$(cat /run/controller)/$1"
}

# says PATTERN COMMAND…: the command succeeds, and a line of what it writes matches.
says() {
	pattern=$1
	shift
	"$@" >/tmp/said
	cat /tmp/said
	if ! grep -Eq "$pattern" /tmp/said; then
		echo "no '$pattern' from $*"
		return 1
	fi
}

# sends PATTERN COMMAND…: the command makes the kernel send an NVMe command that matches, as its trace
# shows them.
sends() {
	pattern=$1
	shift
	trace=/sys/kernel/tracing
	[ -d "$trace/events" ] || mount -t tracefs tracefs "$trace"
	echo >"$trace/trace"
	echo 1 >"$trace/events/nvme/nvme_setup_cmd/enable"
	"$@"
	echo 0 >"$trace/events/nvme/nvme_setup_cmd/enable"
	if ! grep -E -m 1 "$pattern" "$trace/trace"; then
		echo "no '$pattern' from $*:"
		cat "$trace/trace"
		return 1
	fi
}

# limit NAME: of the connected namespace's queue.
limit() {
	cat "/sys/block/$(cat /run/namespace)/queue/$1"
}
