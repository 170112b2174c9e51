# db_bench for the scripts beside it, which source it.
. "$(dirname "${BASH_SOURCE[0]}")/../disks.sh"
. "$(dirname "${BASH_SOURCE[0]}")/../db_bench.sh"

needs db_bench rocksdb-tools
