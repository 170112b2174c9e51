# A guest that makes block devices of its own, by our front end for ublk: the program `suite` runs the
# suite of all devices on each.

# pass BLOCK_BYTES
pass() {
	attach ram ublk --ram 16M --block-size "$1" --queues 2
	SWITCHYARD_SUITE_DISK=/dev/ublkb0 SWITCHYARD_SUITE_BLOCK=$1 suite \
		--exact ublk_suite::the_device_suite_passes_through_ublk --nocapture
	signal ram TERM
	detached ram ublkb0
}

step passed-512 pass 512
step passed-4096 pass 4096
