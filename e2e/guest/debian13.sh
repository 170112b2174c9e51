# Programs of Debian 13 and their libraries, which lie in a folder of their own.

debian13() {
	chroot /debian13 "$@"
}

prepare_debian13() {
	for folder in dev proc sys; do
		mount --bind "/$folder" "/debian13/$folder"
	done
}

step debian13 prepare_debian13
