# Front ends that run in a guest, for scenarios.

# attach NAME ARGUMENT…: starts front ends; their output, number and exit code are in /run/NAME.*.
attach() {
	name=$1
	shift
	rm -f "/run/$name.status" "/run/$name.out"
	(
		switchyard attach "$@" >"/run/$name.out" 2>"/run/$name.log" </dev/null &
		echo $! >"/run/$name.pid"
		code=0
		wait $! || code=$?
		echo "$code" >"/run/$name.status"
	) >/dev/null 2>&1 </dev/null &
	patiently is_ready_or_ended "$name"
	cat "/run/$name.out" "/run/$name.log"
	is_ready "$name"
}

is_ready() {
	grep -q "^ready: " "/run/$1.out"
}

has_ended() {
	[ -e "/run/$1.status" ]
}

is_ready_or_ended() {
	[ -e "/run/$1.out" ] && is_ready "$1" || has_ended "$1"
}

# signal NAME SIGNAL
signal() {
	kill "-$2" "$(cat "/run/$1.pid")"
}

# expect WHAT IS WANTED
expect() {
	if [ "$2" != "$3" ]; then
		echo "$1 is '$2', not '$3'"
		return 1
	fi
}

# detached NAME DISK [CODE]: the front end has ended by itself with this exit code or 0, and the block
# device is gone.
detached() {
	patiently has_ended "$1"
	cat "/run/$1.log"
	expect "exit code" "$(cat "/run/$1.status")" "${3:-0}"
	[ ! -e "/dev/$2" ]
	[ ! -e "/sys/block/$2" ]
}
