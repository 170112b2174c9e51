# TLS of the kernel's initiator: with each version of the identity, and without the right key. The
# target requires TLS.

connects_by_tls() {
	insert_key "$1" "$2"
	connects --tls
	[ -n "$(attribute tls_key)" ]
}

refused_key() {
	insert_key "$1" "$2"
	refused --tls
}

for version in 0 1; do
	step "connect-$version" connects_by_tls sha256 "$version"
	step "use-$version" use
	step "disconnect-$version" disconnect
	step "wrong-$version" refused_key wrong "$version"
done
# The GnuTLS of Debian 13 always proves a key with SHA-256.
step sha384 refused_key sha384 1
step clear-text refused
