# A target and its hosts, the kernel's and our own, in a guest whose clock is set again and again: by
# a day, back by two, by ten years, and to a time before all of them.

. /parameters
. /nvme.sh

listens() {
	grep -q "listening on" /run/serve
}

start_target() {
	switchyard serve --listen 127.0.0.1:4420 --ram 32M --ram 32M --log info \
		>/run/serve 2>/run/serve-log </dev/null &
	echo $! >/run/serve-pid
	wait_until listens
}

# write_blocks_again: each megabyte is read back.
write_blocks_again() {
	number=0
	while [ ! -e /run/stop ]; do
		number=$((number + 1))
		at=$((number % 4))
		dd if=/pattern of="/dev/$(cat /run/namespace)" bs=1M skip="$at" seek="$at" count=1 \
			oflag=direct conv=fsync
		dd if="/dev/$(cat /run/namespace)" of=/run/read bs=1M skip="$at" count=1 iflag=direct
		dd if=/pattern bs=1M skip="$at" count=1 | cmp - /run/read || touch /run/differs
		echo "$number" >/run/count.new
		mv /run/count.new /run/count
	done
	touch /run/stopped
}

# One run of our own load after the other, so that one is on its way whenever the clock is set.
bench_again() {
	number=0
	while [ ! -e /run/stop ]; do
		switchyard bench --target 127.0.0.1:4420 --nsid 2 --app a:rw=randrw,bs=4k,depth=4 \
			--seconds 4 --warmup 0 --verify || touch /run/differs
		number=$((number + 1))
		echo "$number" >/run/runs.new
		mv /run/runs.new /run/runs
	done
	touch /run/bench-stopped
}

start_load() {
	echo 0 >/run/count
	echo 0 >/run/runs
	write_blocks_again >/dev/null 2>&1 </dev/null &
	bench_again >/run/bench 2>&1 </dev/null &
}

# more FILE NUMBER
more() {
	[ "$(cat "$1")" -ge "$2" ]
}

# Longer than the keep-alive timers and a whole run of the load.
go_on() {
	count=$(cat /run/count)
	runs=$(cat /run/runs)
	patiently more /run/count $((count + 3))
	patiently more /run/runs $((runs + 2))
	[ ! -e /run/differs ] || cat /run/bench
	[ ! -e /run/differs ]
}

# jump SECONDS
jump() {
	wanted=$(($(date +%s) + $1))
	date -s "@$wanted"
	now=$(date +%s)
	[ $((now - wanted)) -lt 60 ] && [ $((now - wanted)) -ge 0 ]
	go_on
}

has_stopped() {
	[ -e /run/stopped ] && [ -e /run/bench-stopped ]
}

stop_load() {
	touch /run/stop
	patiently has_stopped
	expect state "$(attribute state)" live
}

target_is_gone() {
	[ ! -e "/proc/$(cat /run/serve-pid)" ]
}

stop_target() {
	kill -TERM "$(cat /run/serve-pid)"
	patiently target_is_gone
	cat /run/serve-log
	if grep -Ei "closing a connection|expired|in time|failed|error" /run/serve-log; then
		echo "the target gave something up"
		return 1
	fi
}

step started start_target
step connected connect_namespace 4420 keep_alive_tmo=5
step loaded start_load
step steady go_on
step day jump 86400
step back jump -172800
step years jump 315360000
step past jump -1000000000
step stopped stop_load
step disconnected disconnect
step ended stop_target
